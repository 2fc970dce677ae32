"""The registry as Prometheus text.

The values are copied on the loop, which takes microseconds per metric; the text is made in a
thread, so that a scrape never holds up a request.  The client library is imported by the first
scrape: a node that nobody scrapes does not pay its 5 MB.
"""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from waystation.telemetry.metrics import Family, Registry, Sample

if TYPE_CHECKING:
    from prometheus_client.core import Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


async def scrape(registry: Registry) -> bytes:
    """The text of all metrics as they are now."""
    return await asyncio.to_thread(render, registry.snapshot())


def render(families: Iterable[Family]) -> bytes:
    """The text of one snapshot; any thread may do it."""
    from prometheus_client import CollectorRegistry, generate_latest

    collected = CollectorRegistry(auto_describe=False)
    collected.register(_Collector(families))
    return generate_latest(collected)


class _Collector:
    """Hands a snapshot to the client library, one of its metrics per family."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = families

    def describe(self) -> list["Metric"]:
        """Nothing in advance: the registry would collect twice to learn the names."""
        return []

    def collect(self) -> Iterable["Metric"]:
        """What the library asks for when it renders."""
        return [_metric(family) for family in self._families]


def _metric(family: Family) -> "Metric":
    from prometheus_client.core import Metric

    metric = Metric(family.name.removesuffix("_total"), family.doc, family.kind)
    for sample in family.samples:
        if family.kind == "histogram":
            _add_histogram(metric, family.name, sample)
        else:
            metric.add_sample(family.name, dict(sample.labels), sample.value)
    return metric


def _add_histogram(metric: "Metric", name: str, sample: Sample) -> None:
    labels = dict(sample.labels)
    for bound, count in sample.buckets:
        bound_text = "+Inf" if bound == float("inf") else f"{bound:.6g}"
        metric.add_sample(f"{name}_bucket", {**labels, "le": bound_text}, count)
    metric.add_sample(f"{name}_count", labels, sample.buckets[-1][1])
    metric.add_sample(f"{name}_sum", labels, sample.value)
