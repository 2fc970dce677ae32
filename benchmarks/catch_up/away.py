"""A follower that was away: killed, a lot written meanwhile, started again.

Brokers 1, 2 and 3 hold everything; 1 leads everything, so that it is *the* leader.  What 3 missed
is in one topic; the load whose latency counts is on another, in sync on all three and short-lived,
so that the copying is the only difference between a load with it and one without.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from benchmarks.catch_up.growth import Growth, fastest_rate, mean_rate
from benchmarks.loads import librdkafka
from benchmarks.loads.asking import Asking
from benchmarks.loads.catalog import Kind, Load
from benchmarks.peers.cluster import RunningCluster

EVERYBODY, FOLLOWER = (1, 2, 3), 3
STAYED = (1, 2)
WINDOW_S = 5.0
_BACKLOG, _BACKLOG_PARTITIONS = "backlog", 3
_VALUE_BYTES = 10_240


class Amounts(NamedTuple):
    """How much of everything."""

    backlog_bytes: int
    throttle_bytes_per_s: int
    rate_per_s: int
    seconds: float


class Copied(NamedTuple):
    """How fast a follower caught up."""

    nbytes: int
    mean_bytes_per_s: float
    fastest_bytes_per_s: float


class Round(NamedTuple):
    """The leader's p99 in ms before the outage, while the follower copies, and afterwards."""

    before_ms: float
    during_ms: float
    after_ms: float
    throttled: Copied

    @property
    def ratio(self) -> float:
        """With copying over without."""
        return self.during_ms / ((self.before_ms + self.after_ms) / 2)


class Outages:
    """Sends broker 3 away and measures its return."""

    def __init__(
        self,
        cluster: RunningCluster,
        directory: Path,
        amounts: Amounts,
        step: Callable[[str], None],
    ) -> None:
        self._cluster, self._directory = cluster, directory
        self._amounts, self._step = amounts, step
        self._asking = Asking(cluster.bootstrap, EVERYBODY)
        self._loads = 0
        self._asking.create_on(_BACKLOG, _BACKLOG_PARTITIONS, EVERYBODY)

    def warm_up(self) -> None:
        """A load that does not count."""
        self._step("warm-up")
        self._p99_ms()

    def unthrottled(self) -> Copied:
        """As fast as it can, with nothing else to do."""
        self._send_away()
        self._step("it returns, unthrottled")
        with Growth(self._directory, FOLLOWER, _BACKLOG) as growth:
            self._return()
            self._asking.until_in_sync(_BACKLOG, EVERYBODY, within_s=600)
        return _copied(growth)

    def throttled(self) -> Round:
        """At the throttle, beside the load; the same load before and after."""
        self._step("load with everybody in sync")
        before_ms = self._p99_ms()
        self._asking.throttle(_BACKLOG, self._amounts.throttle_bytes_per_s)
        self._send_away()
        self._step("it returns, throttled, beside the load")
        with Growth(self._directory, FOLLOWER, _BACKLOG) as growth:
            self._return()
            during_ms = self._p99_ms()
            if all(FOLLOWER in one.in_sync for one in self._asking.partitions(_BACKLOG)):
                print("it had caught up before the load ended: give more --gb", flush=True)
        self._asking.throttle(_BACKLOG, None)
        self._asking.until_in_sync(_BACKLOG, EVERYBODY, within_s=600)
        self._step("load with everybody in sync again")
        after_ms = self._p99_ms()
        return Round(before_ms, during_ms, after_ms, _copied(growth))

    def end(self) -> None:
        """Give the space back."""
        self._asking.delete(_BACKLOG)

    def _send_away(self) -> None:
        self._step("the follower dies")
        self._cluster.brokers[FOLLOWER].kill()
        self._asking.until_in_sync(_BACKLOG, STAYED)
        self._step(f"{self._amounts.backlog_bytes / 1e9:g} GB are written without it")
        write(self._cluster.bootstrap, _BACKLOG, _BACKLOG_PARTITIONS, self._amounts.backlog_bytes)
        os.sync()

    def _return(self) -> None:
        self._cluster.brokers[FOLLOWER].start()
        self._cluster.brokers[FOLLOWER].wait()

    def _p99_ms(self) -> float:
        """Of one load on a topic of its own, all of it led by broker 1."""
        self._loads += 1
        load = Load(
            f"live {self._loads}",
            Kind.LATENCY,
            rate_per_s=self._amounts.rate_per_s,
            seconds=self._amounts.seconds,
            warmup_seconds=3.0,
            sticky=True,
        )
        self._asking.create_on(load.topic, load.partitions, EVERYBODY)
        reported = librdkafka.run(load, self._cluster.bootstrap, load.topic)
        self._asking.delete(load.topic)
        published = reported["publish_ms"]
        assert isinstance(published, dict), f"no latencies in {reported}"
        return float(published["p99"])


def write(bootstrap: str, topic: str, partitions: int, nbytes: int) -> None:
    """Write so much, acknowledged by everybody who is in sync."""
    count = max(1, nbytes // _VALUE_BYTES)
    batches = ("producer.batch.size=65536",)
    load = Load("backlog", Kind.PRODUCE, _VALUE_BYTES, partitions, "all", count, settings=batches)
    librdkafka.run(load, bootstrap, topic)


def _copied(growth: Growth) -> Copied:
    samples = growth.samples
    return Copied(
        samples[-1].nbytes - samples[0].nbytes,
        mean_rate(samples),
        fastest_rate(samples, WINDOW_S),
    )
