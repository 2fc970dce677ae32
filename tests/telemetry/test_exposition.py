"""What Prometheus reads is what the registry holds, by Prometheus' own parser."""

import subprocess
import sys

from prometheus_client.parser import text_string_to_metric_families

from waystation.telemetry.exposition import scrape
from waystation.telemetry.metrics import Registry


async def test_every_kind_is_read_back_by_prometheus_own_parser() -> None:
    registry = Registry()
    registry.counter("waystation_reads_total", "Reads.", topic='od"d\n').add(7)
    registry.gauge("waystation_level", "A level.").set(-1.5)
    histogram = registry.histogram("waystation_took_seconds", "Time.", low=1, high=4, api="fetch")
    for value in (0.5, 3.0):
        histogram.observe(value)

    text = (await scrape(registry)).decode()
    read = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }

    assert read == {
        ("waystation_reads_total", (("topic", 'od"d\n'),)): 7,
        ("waystation_level", ()): -1.5,
        ("waystation_took_seconds_bucket", (("api", "fetch"), ("le", "1"))): 1,
        ("waystation_took_seconds_bucket", (("api", "fetch"), ("le", "2"))): 1,
        ("waystation_took_seconds_bucket", (("api", "fetch"), ("le", "4"))): 2,
        ("waystation_took_seconds_bucket", (("api", "fetch"), ("le", "+Inf"))): 2,
        ("waystation_took_seconds_count", (("api", "fetch"),)): 2,
        ("waystation_took_seconds_sum", (("api", "fetch"),)): 3.5,
    }


def test_the_client_library_is_not_imported_before_the_first_scrape() -> None:
    script = (
        "import sys, waystation.telemetry.exposition, waystation.telemetry.logs\n"
        "sys.exit(any(m in sys.modules for m in ('prometheus_client', 'structlog', 'rich')))"
    )

    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
