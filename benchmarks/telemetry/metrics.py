"""What bumping a metric costs.

Run: python benchmarks/telemetry/metrics.py
"""

import timeit

from waystation.telemetry.metrics import Registry

ROUNDS = 500_000

if __name__ == "__main__":
    registry = Registry()
    counter = registry.counter("reads_total", "Reads.")
    gauge = registry.gauge("level", "A level.")
    histogram = registry.histogram("took_seconds", "Time.")
    for name, call in (
        ("Counter.add", lambda: counter.add(7)),
        ("Gauge.set", lambda: gauge.set(7)),
        ("Histogram.observe", lambda: histogram.observe(0.0007)),
    ):
        took = min(timeit.repeat(call, number=ROUNDS, repeat=3))
        print(f"{name:18} {took / ROUNDS * 1e9:5.0f} ns")
