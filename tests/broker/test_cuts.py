"""Cuts that would take long are prepared while the leader is asked again."""

import asyncio
from pathlib import Path

import pytest

from tests.partition.building import ELSEWHERE, HERE, World
from tests.partition.test_following import batch, follow
from waystation.broker.cuts import Cuts
from waystation.model.ids import LeaderEpoch
from waystation.model.offsets import Offset
from waystation.partition.leadership import Leadership
from waystation.partition.partition import Partition


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def followed(world: World) -> Partition:
    partition = world.partition()
    partition.follow_store(Leadership(ELSEWHERE, LeaderEpoch(1), (HERE, ELSEWHERE)))
    follow(partition, *(batch(number) for number in range(6)))
    return partition


async def until_ready(cuts: Cuts, partition: Partition, offset: int) -> int:
    """How often it had to be asked."""
    for times in range(1_000):
        if cuts.ready(partition, Offset(offset)):
            return times
        await asyncio.sleep(0.001)
    raise AssertionError("never ready")


async def test_what_is_kept_is_synced_first(world: World) -> None:
    partition, cuts = followed(world), Cuts()
    assert not cuts.ready(partition, Offset(4))

    world.flusher.sync()
    assert cuts.ready(partition, Offset(4)), "little to read: that is done by the cut itself"
    assert cuts.take(partition) is None


async def test_what_takes_long_to_read_is_read_elsewhere(world: World) -> None:
    partition, cuts = followed(world), Cuts(little_bytes=1)
    world.flusher.sync()
    assert await until_ready(cuts, partition, 4) > 0

    plan = cuts.take(partition)
    assert plan is not None
    partition.truncate_to(Offset(4), plan)
    assert (partition.log_end, partition.log.producers) == (4, plan.producers)


async def test_a_log_that_changed_meanwhile_is_looked_at_anew(world: World) -> None:
    partition, cuts = followed(world), Cuts(little_bytes=1)
    world.flusher.sync()
    await until_ready(cuts, partition, 4)
    follow(partition, batch(6))
    world.flusher.sync()

    assert not cuts.ready(partition, Offset(4))
    assert await until_ready(cuts, partition, 5) > 0
    plan = cuts.take(partition)
    assert plan is not None
    assert plan.offset == 5
    partition.truncate_to(Offset(5), plan)
    assert partition.log_end == 5
    await cuts.aclose()
