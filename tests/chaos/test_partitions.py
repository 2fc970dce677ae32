"""Many partitions on one broker: time and memory grow with their number, modestly."""

import time
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.figures import (
    allow_many_descriptors,
    figure,
    megabytes,
    open_descriptors,
    stopwatch,
)
from tests.support.plain_client import LATEST, PlainClient, batch_of
from tests.support.soak import count
from waystation.testing.process import BrokerProcess

pytestmark = [pytest.mark.alone, pytest.mark.timeout(600)]

PARTITIONS = count(200, 1_000)
CREATED_WITHIN_S = 5.0
READY_WITHIN_S = 2.0
RSS_LIMIT_BYTES = 150_000_000
# Four times the partitions may take four times as long; the rest is for a busy machine.
GROWTH_LIMIT = 10.0
# Too short to compare: a disk that syncs slowly for a moment is no growth.
NOTICEABLE_S = 0.25


class Life(NamedTuple):
    """What one broker took for its partitions."""

    created_s: float
    produced_s: float
    clean_ready_s: float
    killed_ready_s: float
    rss_bytes: int


def test_partitions_cost_time_and_memory_in_proportion(tmp_path: Path) -> None:
    allow_many_descriptors()
    fewer = live(tmp_path / "fewer", PARTITIONS // 4)
    more = live(tmp_path / "more", PARTITIONS)

    assert more.created_s < CREATED_WITHIN_S
    assert more.clean_ready_s < READY_WITHIN_S
    assert more.killed_ready_s < READY_WITHIN_S
    assert more.rss_bytes < RSS_LIMIT_BYTES
    for before, after in zip(fewer[:4], more[:4], strict=True):
        assert after < GROWTH_LIMIT * max(before, NOTICEABLE_S), (fewer, more)


def live(path: Path, partitions: int) -> Life:
    """Create, write to all, restart cleanly and otherwise; everything is there each time."""
    path.mkdir()
    broker = BrokerProcess(path / "data")
    with broker.start():
        with PlainClient(broker.bootstrap) as client:
            with stopwatch() as created:
                client.create("wide", partitions)
            with stopwatch() as produced:
                write_to_all(client, partitions)
            rss_bytes = broker.rss_bytes()
            descriptors = open_descriptors(broker.pid)
        with stopwatch() as stopped:
            assert broker.stop() == 0
        clean_ready_s = ready_again(broker, partitions, written=1)
        with PlainClient(broker.bootstrap) as client:
            write_to_all(client, partitions)
        broker.kill()
        killed_ready_s = ready_again(broker, partitions, written=2)
        rss_bytes = max(rss_bytes, broker.rss_bytes())
    figure(
        f"{partitions} partitions: created in {created.seconds:.2f} s, one durable record to "
        f"each in {produced.seconds:.2f} s, clean stop {stopped.seconds:.2f} s, ready again in "
        f"{clean_ready_s:.2f} s, after kill -9 in {killed_ready_s:.2f} s, RSS "
        f"{megabytes(rss_bytes)}, {descriptors} descriptors"
    )
    return Life(created.seconds, produced.seconds, clean_ready_s, killed_ready_s, rss_bytes)


def write_to_all(client: PlainClient, partitions: int) -> None:
    batch = batch_of(b"%d" % time.time_ns())
    for partition in range(partitions):
        outcome = client.produce("wide", batch, partition)
        assert outcome.error_code == 0, outcome


def ready_again(broker: BrokerProcess, partitions: int, written: int) -> float:
    with stopwatch() as ready:
        broker.start()
    with PlainClient(broker.bootstrap) as client:
        ends = {client.offset("wide", LATEST, partition) for partition in range(partitions)}
    assert ends == {written}
    return ready.seconds
