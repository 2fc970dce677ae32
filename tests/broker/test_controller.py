"""The controller: who leads when a broker dies, stops or comes back, on brokers in one loop."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from waystation.broker import controller
from waystation.broker.membership import Membership
from waystation.client.admin import Admin
from waystation.cluster import controller as pure
from waystation.cluster.parts import ControllerImage, PartitionImage
from waystation.cluster.values import PartitionValue, encode
from waystation.model.errors import InvalidReplicationFactorError
from waystation.model.ids import LeaderEpoch, uuid_text
from waystation.node.node import Node
from waystation.telemetry.exposition import render
from waystation.testing.cluster import LocalCluster

TOPIC = "orders"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    async with LocalCluster(tmp_path, 3) as running:
        yield running


async def create(cluster: LocalCluster, partitions: int = 3, factor: int = 3) -> None:
    async with Admin(cluster.bootstrap) as admin:
        await admin.create_topic(TOPIC, partitions, replication_factor=factor)
    await known(cluster, TOPIC)


async def known(cluster: LocalCluster, topic: str) -> None:
    """Until every broker knows the topic: any of them may be asked next."""
    await cluster.until(lambda: all(topic in one.broker.image.topics for one in running(cluster)))


def running(cluster: LocalCluster) -> list[Node]:
    return list(cluster.nodes.values())


def office(cluster: LocalCluster) -> ControllerImage:
    assert cluster.image.controller is not None
    return cluster.image.controller


def state_of(cluster: LocalCluster, topic: str = TOPIC) -> PartitionImage:
    state = cluster.partition(topic)
    assert state is not None
    return state


def controllers(cluster: LocalCluster) -> list[int]:
    return [number for number, node in cluster.nodes.items() if node.broker.controlling.active]


def leaders(cluster: LocalCluster) -> list[int | None]:
    return [state.leader for state in cluster.image.topic(TOPIC).partitions]


async def test_one_broker_decides_and_another_takes_over(cluster: LocalCluster) -> None:
    await cluster.until(lambda: len(controllers(cluster)) == 1)
    (first,) = controllers(cluster)
    epoch = office(cluster).epoch
    await cluster.kill(first)

    await cluster.until(lambda: len(controllers(cluster)) == 1)
    assert controllers(cluster) != [first]
    assert office(cluster).epoch > epoch


async def test_leaders_of_a_dead_broker_are_replaced(cluster: LocalCluster) -> None:
    await create(cluster)
    assert {*leaders(cluster)} == {1, 2, 3}
    await cluster.kill(2)

    await cluster.until(lambda: 2 not in leaders(cluster))
    assert None not in leaders(cluster)
    states = cluster.image.topic(TOPIC).partitions
    assert all(state.leader in state.in_sync for state in states)
    await cluster.start(2)
    await cluster.until(lambda: 2 in cluster.image.brokers)


async def test_who_stops_cleanly_leads_nothing_before_it_goes(cluster: LocalCluster) -> None:
    await create(cluster)
    leaving = cluster.nodes[3]
    await leaving.broker.hand_over()

    assert 3 in cluster.image.brokers
    assert 3 not in [state.leader for state in leaving.broker.image.topic(TOPIC).partitions]
    await cluster.stop(3)
    await cluster.until(lambda: 3 not in cluster.image.brokers, within_s=0.5)
    assert 3 not in cluster.image.leaving


async def test_preferred_leaders_lead_again_once_they_are_back(tmp_path: Path) -> None:
    options = {"leader.imbalance.check.interval.seconds": "1"}
    async with LocalCluster(tmp_path, 3, options=options) as cluster:
        await create(cluster)
        preferred = leaders(cluster)
        await cluster.restart(1)
        assert leaders(cluster) != preferred

        await cluster.until(lambda: leaders(cluster) == preferred)


@pytest.mark.parametrize(
    "options",
    [
        {"auto.leader.rebalance.enable": "false"},
        {"leader.imbalance.per.broker.percentage": "100"},
    ],
)
async def test_leaders_stay_where_they_are_if_told(tmp_path: Path, options: dict[str, str]) -> None:
    often = {"leader.imbalance.check.interval.seconds": "1"}
    async with LocalCluster(tmp_path, 2, options=options | often) as cluster:
        await create(cluster, 2, 2)
        preferred = leaders(cluster)
        await cluster.restart(1)
        moved = leaders(cluster)
        assert moved != preferred
        await asyncio.sleep(1.5)

        assert leaders(cluster) == moved


async def test_a_hundred_leaders_move_in_a_moment(cluster: LocalCluster) -> None:
    await create(cluster, 120, 3)
    led = leaders(cluster).count(1)
    assert led == 40
    await cluster.kill(1)
    await cluster.until(lambda: 1 not in cluster.image.brokers)

    assert await cluster.until(lambda: 1 not in leaders(cluster)) < 2


async def test_an_unclean_election_is_counted_and_named(tmp_path: Path) -> None:
    async with LocalCluster(tmp_path, 2) as cluster:
        await create(cluster, 1, 2)
        async with Admin(cluster.bootstrap) as admin:
            await admin.alter_configs(TOPIC, set={"unclean.leader.election.enable": "true"})
        first, second = cluster.image.topic(TOPIC).partitions[0].replicas
        await cluster.kill(second)
        await cluster.until(lambda: state_of(cluster).in_sync == (first,))
        await cluster.kill(first)
        await cluster.start(second)

        await cluster.until(lambda: cluster.leader(TOPIC) == second)
        controlling = cluster.nodes[second].broker.controlling
        await cluster.until(lambda: controlling.unclean)
        assert controlling.unclean[0].leader == second
        text = render(cluster.nodes[second].registry.snapshot())
        assert b"waystation_unclean_leader_elections_total 1" in text


async def test_default_topics_of_three_brokers_have_three_replicas(cluster: LocalCluster) -> None:
    async with Admin(cluster.bootstrap) as admin:
        await admin.create_topic("plain")
    state = state_of(cluster, "plain")

    assert sorted(state.replicas) == [1, 2, 3]
    node = running(cluster)[0]
    assert node.broker.configs.topic(node.broker.image, "plain").min_insync_replicas == 2


async def test_replicas_share_a_machine_only_if_told(tmp_path: Path) -> None:
    same = {number: {"broker.machine": "desk"} for number in (1, 2, 3)}
    async with LocalCluster(
        tmp_path, 3, options={"replicas.share.machine": "false"}, options_of=same
    ) as cluster:
        async with Admin(cluster.bootstrap) as admin:
            await admin.create_topic("plain")
            await known(cluster, "plain")
            assert len(state_of(cluster, "plain").replicas) == 1
            with pytest.raises(InvalidReplicationFactorError, match="machine"):
                await admin.create_topic(TOPIC, 3, replication_factor=3)
            await admin.alter_configs(broker=1, set={"replicas.share.machine": "true"})
            await admin.alter_configs(broker=2, set={"replicas.share.machine": "true"})
            await admin.alter_configs(broker=3, set={"replicas.share.machine": "true"})

            await admin.create_topic(TOPIC, 3, replication_factor=3)
        assert len(state_of(cluster).replicas) == 3


async def test_partitions_are_moved_a_few_at_a_time(tmp_path: Path) -> None:
    options = {"reassignment.moves.max": "2"}
    async with LocalCluster(tmp_path, 3, options=options) as cluster:
        async with Admin(cluster.bootstrap) as admin:
            await admin.create_topic(TOPIC, assignments={n: [1] for n in range(12)})
            await known(cluster, TOPIC)
            told = await admin.alter_reassignments({(TOPIC, n): [2] for n in range(12)})
            assert not any(told.values())
        begun = []

        def done() -> bool:
            states = cluster.image.topic(TOPIC).partitions
            begun.append(sum(len(state.replicas) == 2 for state in states))
            return all(state.replicas == (2,) for state in states)

        await cluster.until(done)
        assert max(begun) <= 2
        assert {*leaders(cluster)} == {2}


async def test_what_a_crash_left_behind_is_swept_up_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "_SWEEP_AFTER_S", 0.3)
    async with LocalCluster(tmp_path, 2) as cluster:
        await create(cluster, 1, 2)
        stray = f"partitions/{uuid_text(UUID(int=9))}/0"
        state = encode(PartitionValue(None, LeaderEpoch(0), ()))
        await cluster.store.txn({}, {stray: state, "configs/topic/gone": b'{"v":1,"options":{}}'})
        await cluster.until(lambda: cluster.image.strays)

        await cluster.until(lambda: not cluster.image.strays)
        assert "gone" not in cluster.image.topic_configs
        assert TOPIC in cluster.image.topics


async def test_nobody_is_taken_for_dead_right_after_the_store_was_away(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(cluster)
    came_back = [True]
    monkeypatch.setattr(Membership, "store_came_back", property(lambda _: came_back[0]))
    (deciding,) = controllers(cluster)
    dead = next(number for number in cluster.ids if number != deciding)
    await cluster.kill(dead)
    await cluster.until(lambda: dead not in cluster.image.brokers)
    await asyncio.sleep(0.3)

    assert dead in leaders(cluster)
    came_back[0] = False
    await cluster.until(lambda: dead not in leaders(cluster))


async def test_a_decision_that_fails_is_made_on_the_next_image(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(cluster)
    monkeypatch.setattr(controller, "_AFTER_FAILURE_S", 0.1)
    honest, failures = pure.decisions, [ValueError("a bug")] * 3

    def decisions(*args: Any) -> Any:
        if failures:
            raise failures.pop()
        return honest(*args)

    monkeypatch.setattr(controller, "decisions", decisions)
    (deciding,) = controllers(cluster)
    dead = next(number for number in cluster.ids if number != deciding)
    await cluster.kill(dead)

    await cluster.until(lambda: not failures and dead not in leaders(cluster))
