"""A log that begins anew knows the keys of all before its beginning, whatever its leader says."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.partition.building import ELSEWHERE, HERE, World
from waystation.broker.key_gathering import KeyGathering
from waystation.messages.once_keys import OnceKeysRequest, OnceKeysResponse
from waystation.model.errors import ErrorCode, PeerUnreachableError, UnsupportedVersionError
from waystation.model.ids import LeaderEpoch
from waystation.model.offsets import Millis, Offset
from waystation.partition.leadership import Leadership
from waystation.partition.partition import Partition
from waystation.records.once import OnceEntry, hash_of
from waystation.storage.once_window import OnceWindow

EPOCH = LeaderEpoch(1)


class Leader:
    """Answers as a broker does that leads a log which ends at ``end``."""

    def __init__(self, keys: int, end: int) -> None:
        self.window, self.end = OnceWindow(), Offset(end)
        self.refusals: list[ErrorCode] = []
        self.is_old = False
        self.window.note(
            OnceEntry(hash_of(b"%d" % one), Offset(one), b"f" * 8, Millis(7), Millis(7))
            for one in range(keys)
        )

    async def ask(self, _node: int, asked: OnceKeysRequest, _expect: object) -> OnceKeysResponse:
        await asyncio.sleep(0)
        if self.is_old:
            reason = UnsupportedVersionError("what is that?")
            raise PeerUnreachableError(ELSEWHERE, str(reason)) from reason
        if self.refusals:
            return OnceKeysResponse(error_code=self.refusals.pop())
        packed, page = self.window.page(asked.page, self.end)
        return OnceKeysResponse(end=self.end, next_page=page, keys=packed)


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    partition = World(tmp_path).partition()
    partition.follow_store(Leadership(ELSEWHERE, EPOCH, (HERE, ELSEWHERE)))
    return partition


def gathering(leader: Leader) -> KeyGathering:
    peers: Any = leader
    return KeyGathering(peers)


async def begun(keys: KeyGathering, partition: Partition, offset: int) -> None:
    """As a follower does: it asks again and again."""
    async with asyncio.timeout(30):
        while not keys.ready(partition, ELSEWHERE, EPOCH, Offset(offset)):
            await asyncio.sleep(0.001)
    keys.begin(partition, Offset(offset))
    await keys.aclose()


def known(partition: Partition) -> list[int]:
    return sorted(one.offset for one in partition.log.once)


async def test_keys_before_the_beginning_are_known_and_no_others(partition: Partition) -> None:
    await begun(gathering(Leader(keys=100, end=100)), partition, 60)

    assert (partition.log_end, known(partition)) == (60, list(range(60)))


async def test_a_leader_that_refuses_is_asked_again(partition: Partition) -> None:
    leader = Leader(keys=10, end=10)
    leader.refusals = [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    await begun(gathering(leader), partition, 8)

    assert known(partition) == list(range(8))


@pytest.mark.parametrize("end", [20, 60])
async def test_a_leader_that_has_less_holds_nobody_up(partition: Partition, end: int) -> None:
    """After an unclean election."""
    await begun(gathering(Leader(keys=20, end=end)), partition, 70)

    assert (partition.log_end, known(partition)) == (70, list(range(20)))


async def test_one_that_does_not_know_the_question_holds_nobody_up(partition: Partition) -> None:
    leader = Leader(keys=10, end=10)
    leader.is_old = True
    await begun(gathering(leader), partition, 8)

    assert (partition.log_end, known(partition)) == (8, [])


async def test_another_beginning_is_seen_to_anew(partition: Partition) -> None:
    keys = gathering(Leader(keys=100, end=100))
    while not keys.ready(partition, ELSEWHERE, EPOCH, Offset(30)):
        await asyncio.sleep(0.001)
    assert not keys.ready(partition, ELSEWHERE, EPOCH, Offset(50)), "retention went on"
    await begun(keys, partition, 50)

    assert known(partition) == list(range(50))
