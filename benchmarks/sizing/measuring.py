"""One step on a running cluster: several clients at once, and what everybody spent on it.

Clients of a step start together and share its messages if they write; each reads everything if they
read, as groups do that know nothing of each other.  The rate is all messages over the time of the
slowest.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.loads import librdkafka
from benchmarks.loads.asking import Asking
from benchmarks.loads.catalog import Kind, Load
from benchmarks.peers.cluster import RunningCluster
from benchmarks.sizing.steps import Step

Figures = dict[str, float]
SIZE_BYTES = 1_024
_LEAST_COUNT = 1_000


class Measuring:
    """The steps of one cluster's life."""

    def __init__(self, cluster: RunningCluster, count: int, step: Callable[[str], None]) -> None:
        """``count``: the messages of one step."""
        self._cluster, self._count, self._step = cluster, count, step
        self._asking = Asking(cluster.bootstrap, tuple(cluster.brokers))
        self._store = [m for m in cluster.members if m not in cluster.brokers.values()]

    def warm_up(self, step: Step) -> None:
        """The same without being measured."""
        self._step(f"{len(self._cluster.brokers)} brokers: warm-up")
        self._measure(step)

    def measure(self, step: Step) -> Figures:
        """What the step reached and cost."""
        self._step(f"{len(self._cluster.brokers)} brokers: {step.name}")
        return self._measure(step)

    def _measure(self, step: Step) -> Figures:
        replicas = min(step.replicas, step.brokers)
        self._asking.create(step.topic, step.partitions, replicas)
        try:
            if step.kind == "consume":
                self._at_once(step, Kind.PRODUCE, 1, self._count)
            os.sync()
            before = self._spent()
            if step.kind == "produce":
                each = max(_LEAST_COUNT, self._count // step.producers)
                reported = self._at_once(step, Kind.PRODUCE, step.producers, each)
            else:
                reported = self._at_once(step, Kind.CONSUME, step.consumers, self._count)
            spent = {name: value - before[name] for name, value in self._spent().items()}
        finally:
            self._asking.delete(step.topic)
        return figures(reported, spent)

    def _at_once(self, step: Step, kind: Kind, clients: int, each: int) -> list[dict[str, object]]:
        batches = (f"producer.batch.size={step.batch_kb * 1_000}",)
        load = Load(step.name, kind, SIZE_BYTES, step.partitions, "all", each, settings=batches)
        with ThreadPoolExecutor(clients) as threads:
            begun = [
                threads.submit(librdkafka.run, load, self._cluster.bootstrap, step.topic)
                for _ in range(clients)
            ]
            return [one.result() for one in begun]

    def _spent(self) -> dict[str, float]:
        busy, total = _machine_ticks()
        return {
            "broker_s": sum(one.cpu_seconds() for one in self._cluster.brokers.values()),
            "store_s": sum(one.cpu_seconds() for one in self._store),
            "busy_ticks": busy,
            "all_ticks": total,
        }


def figures(reported: list[dict[str, object]], spent: dict[str, float]) -> Figures:
    """What all clients of a step say together, and the CPU for each MB of values."""
    megabytes = sum(_number(one["bytes"]) for one in reported) / 1e6
    seconds = max(_number(one["seconds"]) for one in reported)
    clients_s = sum(_number(one["client_cpu_s"]) for one in reported)
    return {
        "messages_per_s": sum(_number(one["messages"]) for one in reported) / seconds,
        "mb_per_s": megabytes / seconds,
        "broker_cpu_ms_per_mb": spent["broker_s"] * 1_000 / megabytes,
        "store_cpu_ms_per_mb": spent["store_s"] * 1_000 / megabytes,
        "client_cpu_ms_per_mb": clients_s * 1_000 / megabytes,
        "machine_busy": spent["busy_ticks"] / max(spent["all_ticks"], 1.0),
    }


def _number(value: object) -> float:
    assert isinstance(value, int | float), f"{value!r} is no figure"
    return float(value)


def _machine_ticks() -> tuple[float, float]:
    """Ticks in which a core worked, and all; of proc(5)'s columns 4 and 5 are idle ones."""
    ticks = [int(each) for each in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return float(sum(ticks) - ticks[3] - ticks[4]), float(sum(ticks))
