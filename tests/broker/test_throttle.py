"""Copies that are listed hold their rate, those in sync are never slowed down."""

from pathlib import Path

import pytest

from waystation.broker.throttle import Allowance, names
from waystation.client.admin import Admin
from waystation.client.producer import Producer
from waystation.model.ids import NodeId
from waystation.testing.cluster import LocalCluster

TOPIC = "orders"
RATE = 200_000


class Time:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_what_was_overdrawn_is_waited_for() -> None:
    time = Time()
    allowance = Allowance(lambda: 1_000, time)

    assert allowance.delay_s() == 0
    allowance.take(500)
    assert allowance.delay_s() == pytest.approx(0.5)
    time.now_s += 0.3
    assert allowance.delay_s() == pytest.approx(0.2)
    time.now_s += 10
    assert allowance.delay_s() == 0
    allowance.take(600)
    # Of the long time before, three hundredths of a second were saved up.
    assert allowance.delay_s() == pytest.approx(0.57)


def test_a_rate_that_is_raised_counts_soon() -> None:
    time, rate = Time(), [1]
    allowance = Allowance(lambda: rate[0], time)
    allowance.take(1 << 20)

    assert allowance.delay_s() == 1.0
    rate[0] = 50_000_000
    time.now_s += 1.0
    assert allowance.delay_s() == 0


def test_without_a_rate_nothing_waits() -> None:
    allowance = Allowance(lambda: (1 << 63) - 1, Time())
    allowance.take(1 << 40)

    assert not allowance.is_limited
    assert allowance.delay_s() == 0


def test_a_fast_copy_is_cut_into_slices_that_others_can_wait_for() -> None:
    assert Allowance(lambda: 50_000_000, Time()).slice_bytes == 250_000
    assert Allowance(lambda: 1_000, Time()).slice_bytes == 1 << 16


def test_lists_name_replicas() -> None:
    assert names(("*",), 3, NodeId(1))
    assert names(("3:1", "4:2"), 3, NodeId(1))
    assert not names(("3:1", "4:2"), 3, NodeId(2))
    assert not names((), 3, NodeId(1))


@pytest.mark.parametrize("side", ["leader", "follower"])
async def test_a_copy_that_is_behind_comes_at_the_rate(tmp_path: Path, side: str) -> None:
    options = {"replica.lag.time.max.ms": "300", "replica.fetch.max.bytes": "20000"}
    async with LocalCluster(tmp_path, 2, options=options) as cluster:
        await cluster.until(lambda: len(cluster.image.brokers) == 2)
        configs = {f"{side}.replication.throttled.replicas": "*", "durability": "memory"}
        async with Admin(cluster.bootstrap) as admin:
            await admin.create_topic(TOPIC, assignments={0: [1, 2]}, configs=configs)
            for broker in (1, 2):
                await admin.alter_configs(
                    broker=broker, set={f"{side}.replication.throttled.rate": str(RATE)}
                )
        await cluster.kill(2)
        async with Producer(cluster.bootstrap, acks=1, batch_bytes=10_000) as producer:
            for _ in range(30):
                await producer.send(TOPIC, b"x" * 9_000)
        await cluster.until(lambda: _in_sync(cluster) == (1,))
        led = cluster.nodes[1].broker.replicas.get(TOPIC, 0)
        await cluster.start(2)
        behind = cluster.nodes[2].broker.replicas.get(TOPIC, 0)
        took_s = await cluster.until(lambda: behind.log_end == led.log_end)

        assert took_s > 0.7 * 30 * 9_000 / RATE
        await cluster.until(lambda: len(_in_sync(cluster)) == 2)
        async with Producer(cluster.bootstrap, acks="all", batch_bytes=10_000) as producer:
            for _ in range(30):
                await producer.send(TOPIC, b"x" * 9_000)


def _in_sync(cluster: LocalCluster) -> tuple[int, ...]:
    state = cluster.partition(TOPIC)
    return () if state is None else tuple(state.in_sync)
