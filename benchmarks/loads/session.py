"""One scenario on one running broker: topics, warm-up, loads, and what each cost the broker.

A load yields figures under its row name.  Around every load stand two readings of the broker's
CPU time; before it, dirty pages are written back, so that no load pays for the one before.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace

from benchmarks.loads import java_tools, librdkafka
from benchmarks.loads.catalog import Kind, Load, Scenario
from benchmarks.loads.librdkafka import LoadError
from benchmarks.peers.broker import RunningBroker
from benchmarks.peers.handshake import advertised_apis

Figures = dict[str, float]
_FIND_COORDINATOR = 10
_IDLE_S = 3.0
_FILLED_BY_US = (Kind.CONSUME, Kind.JAVA_ASSIGN, Kind.JAVA_GROUP)


class Session:
    """Runs the loads of one broker life and remembers what its topics hold."""

    def __init__(self, broker: RunningBroker, step: Callable[[str], None]) -> None:
        self._broker = broker
        self._step = step
        self._held: dict[str, int] = {}
        self._replicas = 1
        self.rows: dict[str, Figures] = {}
        self.notes: dict[str, str] = {}

    def run(self, scenario: Scenario) -> None:
        """All loads of the scenario; the life's own figures (start, memory) as rows too."""
        self._replicas = scenario.replicas
        if not scenario.loads:
            self._measure_start(scenario.prefix)
            return
        if scenario.warmup is not None:
            self._warm_up(scenario.warmup)
        for load in scenario.loads:
            self._step(load.name)
            self._measure(load)
        memory = {"rss_mb": self._broker.rss_mb(), "peak_rss_mb": self._broker.peak_rss_mb()}
        self.rows[f"memory after {scenario.name}"] = memory

    def _measure_start(self, prefix: str) -> None:
        self._step("ready, idle memory")
        time.sleep(_IDLE_S)
        self.rows[f"{prefix}start"] = {"ready_ms": self._broker.ready_ms}
        self.rows[f"{prefix}memory idle"] = {"rss_mb": self._broker.rss_mb()}

    def _warm_up(self, load: Load) -> None:
        self._step("warm-up")
        self._topic("warm-up", load.partitions)
        librdkafka.run(load, self._broker.bootstrap, "warm-up")
        if load.kind is Kind.PRODUCE:
            reading = replace(load, kind=Kind.CONSUME)
            librdkafka.run(reading, self._broker.bootstrap, "warm-up")

    def _measure(self, load: Load) -> None:
        if load.kind is Kind.JAVA_GROUP and not self._has_groups():
            self.notes[load.name] = f"{self._broker.name} has no consumer groups yet"
            return
        self._topic(load.topic, load.partitions)
        if load.kind in _FILLED_BY_US:
            self._fill(load)
        os.sync()
        before_s = self._broker.cpu_seconds()
        reported = self._run(load)
        spent_s = self._broker.cpu_seconds() - before_s
        if not self._broker.alive():
            raise LoadError(f"{self._broker.name} ended during {load.name}")
        self.rows[load.name] = figures(reported, spent_s)

    def _run(self, load: Load) -> dict[str, object]:
        if load.kind in (Kind.JAVA_PRODUCE, Kind.JAVA_ASSIGN, Kind.JAVA_GROUP):
            reported: dict[str, object] = {
                **java_tools.run(load, self._broker.bootstrap, load.topic)
            }
        else:
            reported = librdkafka.run(load, self._broker.bootstrap, load.topic)
        if load.kind in (Kind.PRODUCE, Kind.JAVA_PRODUCE):
            self._held[load.topic] += load.count
        if load.kind is Kind.PRODUCE and reported["stored"] != self._held[load.topic]:
            expected = self._held[load.topic]
            raise LoadError(f"{load.name}: {reported['stored']} stored, {expected} acknowledged")
        return reported

    def _fill(self, load: Load) -> None:
        """Have at least as much to read as the load wants; nothing when earlier loads left it."""
        missing = load.count - self._held[load.topic]
        if missing > 0:
            filling = replace(load, kind=Kind.PRODUCE, count=missing)
            librdkafka.run(filling, self._broker.bootstrap, load.topic)
            self._held[load.topic] += missing

    def _topic(self, name: str, partitions: int) -> None:
        if name not in self._held:
            librdkafka.create_topic(self._broker.bootstrap, name, partitions, self._replicas)
            self._held[name] = 0

    def _has_groups(self) -> bool:
        return _FIND_COORDINATOR in advertised_apis(self._broker.ports[0])


def figures(reported: dict[str, object], broker_cpu_s: float) -> Figures:
    """Flatten a client's report and add the broker's CPU per MB of message values."""
    flat: Figures = {}
    for name, value in reported.items():
        if isinstance(value, dict):
            stem = name.removesuffix("_ms")
            flat |= {f"{stem}_{quantile}_ms": float(ms) for quantile, ms in value.items()}
        elif isinstance(value, int | float):
            flat[name] = float(value)
    flat["cpu_ms_per_mb"] = broker_cpu_s * 1000 / (flat["bytes"] / 1e6)
    return flat
