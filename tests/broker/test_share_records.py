"""Facts of queues and share groups as bytes: Kafka's, there and back, and after compaction."""

import contextlib
from collections.abc import Callable
from random import Random
from typing import Any
from uuid import UUID

import pytest

from tests.runtime.tally import ScriptedLog
from tests.sharing.test_group_machine import Coordinator as GroupCoordinator
from tests.sharing.test_state_machine import QUEUE, batch, write
from tests.sharing.test_state_machine import Coordinator as StateCoordinator
from waystation.broker.share_records import (
    UnreadableShareRecordError,
    encode_group,
    encode_state,
    read_group,
    read_state,
)
from waystation.model.ids import LeaderEpoch, TopicId
from waystation.model.machines import Waiter
from waystation.model.offsets import Millis, Offset
from waystation.runtime.clock import ManualClock
from waystation.runtime.host import Host
from waystation.runtime.timers import Timers
from waystation.sharing.group_records import (
    GroupRecord,
    ShareGroupForgotten,
    ShareGroupStored,
    ShareMemberForgotten,
    ShareMemberStored,
    ShareMemberTargetForgotten,
    ShareMemberTargetStored,
    ShareQueuesForgotten,
    ShareQueuesStored,
    ShareTargetForgotten,
    ShareTargetStored,
)
from waystation.sharing.persister import Delete, Initialize, Summarize
from waystation.sharing.state_machine import ShareStates
from waystation.sharing.state_records import (
    Notes,
    QueueId,
    SnapshotStored,
    StateForgotten,
    StateRecord,
    UpdateForgotten,
    UpdateStored,
)
from waystation.testing.virtual_time import virtual_loop

TOPIC = TopicId(UUID(int=0x0102030405060708090A0B0C0D0E0F10))
ID = QueueId("grüße", TOPIC, 3)
BATCHES = (batch(7, 9, 2), batch(10, 12, 0, 4))
PARTITIONS = ((TOPIC, (0, 2)), (TopicId(UUID(int=1 << 127)), (1,)))

STATES: list[StateRecord] = [
    SnapshotStored(ID, 4, 2, LeaderEpoch(9), Offset(5), BATCHES),
    SnapshotStored(ID, 0, 0, LeaderEpoch(-1), Offset(-1), ()),
    SnapshotStored(ID, 4, 2, LeaderEpoch(9), Offset(5), BATCHES, Notes(3, b"note")),
    SnapshotStored(ID, 4, 2, LeaderEpoch(9), Offset(5), (), is_new=True),
    UpdateStored(ID, 17, 4, LeaderEpoch(9), Offset(6), BATCHES),
    UpdateStored(ID, 17, 4, LeaderEpoch(9), Offset(6), (), Notes(4, b"")),
    StateForgotten(ID),
    UpdateForgotten(ID, 17),
]
GROUPS: list[GroupRecord] = [
    ShareGroupStored("g", 3, -5),
    ShareGroupForgotten("g"),
    ShareMemberStored("g", "m", "rack", "client", "host", ("a", "ü")),
    ShareMemberStored("g", "m", None, "", "", ()),
    ShareMemberForgotten("g", "m"),
    ShareTargetStored("g", 3),
    ShareTargetForgotten("g"),
    ShareMemberTargetStored("g", "m", PARTITIONS),
    ShareMemberTargetForgotten("g", "m"),
    ShareQueuesStored("g", PARTITIONS),
    ShareQueuesForgotten("g"),
]


@pytest.mark.parametrize("record", STATES, ids=lambda record: type(record).__name__)
def test_states_come_back_equal(record: StateRecord) -> None:
    assert read_state(*encode_state(record)) == record


@pytest.mark.parametrize("record", GROUPS, ids=lambda record: type(record).__name__)
def test_groups_come_back_equal(record: GroupRecord) -> None:
    assert read_group(*encode_group(record)) == record


def test_bytes_are_those_of_kafka() -> None:
    """Written out by hand from Kafka's declarations."""
    key, value = encode_state(SnapshotStored(ID, 4, 2, LeaderEpoch(9), Offset(5), BATCHES[:1]))
    topic = "0102030405060708090a0b0c0d0e0f10"

    assert key.hex() == f"0000 0007 6772c3bcc39f65 {topic} 00000003".replace(" ", "")
    assert value is not None
    assert value.hex() == (
        "0000 00000004 00000002 00000009 0000000000000005 0000000000000000 0000000000000000"
        "02 0000000000000007 0000000000000008 02 0001 00 00"
    ).replace(" ", "")
    key, value = encode_group(ShareMemberTargetStored("g", "m", PARTITIONS[:1]))
    assert key.hex() == "000d 0001 67 0001 6d".replace(" ", "")
    assert value is not None
    assert value.hex() == f"0000 02 {topic} 03 00000000 00000002 00 00".replace(" ", "")


@pytest.mark.parametrize("read", [read_state, read_group])
def test_what_is_not_known_is_passed_over(read: Callable[[bytes, bytes | None], Any]) -> None:
    assert read(b"\x70\x00abc", b"x") is None
    assert read(b"", None) is None


def test_what_cannot_be_read_is_refused_and_nothing_else_happens() -> None:
    random = Random(1)
    for encode, read, records in (
        (encode_state, read_state, STATES),
        (encode_group, read_group, GROUPS),
    ):
        for _ in range(400):
            key, value = encode(random.choice(records))  # type: ignore[operator]
            if value and random.random() < 0.5:
                value = value[: random.randrange(len(value))]
            else:
                key = key[: random.randrange(2, len(key))]
            with contextlib.suppress(UnreadableShareRecordError):
                read(key, value)


def compacted(records: list[Any], encode: Any) -> list[tuple[bytes, bytes | None]]:
    """The newest of each key, in order, without those that forget."""
    rows = [encode(record) for record in records]
    newest = {key: number for number, (key, _) in enumerate(rows)}
    return [row for number, row in enumerate(rows) if newest[row[0]] == number and row[1]]


def test_a_deleted_group_leaves_nothing_in_the_log() -> None:
    group = GroupCoordinator()
    for name in "abc":
        group.join(name)
    for name in "abc":
        group.beat(name, -1)
    assert compacted(group.log, encode_group) != []
    group.ask("delete", "g")

    assert compacted(group.log, encode_group) == []


def test_a_group_is_the_same_after_compaction() -> None:
    group = GroupCoordinator()
    for name in "abc":
        group.join(name)
    group.beat("b", -1)
    for name in "ac":
        group.beat(name, 1)
    before = group.describe()
    group.log = [read_group(*row) for row in compacted(group.log, encode_group)]  # type: ignore[misc]
    group.restart()

    assert group.describe() == before


def test_a_queue_is_the_same_after_compaction_and_nothing_is_left_of_a_deleted_one() -> None:
    states = StateCoordinator(updates=5).begun()
    settled = [batch(offset, offset + 1, 2) for offset in range(1, 200, 2)]
    for start in range(12):
        states.ask(write(1, start, *settled))
    heir = ShareStates(lambda: states.settings)
    for row in compacted(states.log, encode_state):
        record = read_state(*row)
        assert record is not None
        heir.apply(record)

    answers: list[object] = []
    for to, answer in heir.summarize(Millis(0), Summarize(QUEUE), answers.append).replies:
        to(answer)
    assert answers == [states.ask(Summarize(QUEUE))]
    states.ask(Delete(QUEUE))
    assert compacted(states.log, encode_state) == []


def test_a_share_coordinator_runs_on_the_host_of_all_machines() -> None:
    clock, log, told = ManualClock(), ScriptedLog(), list[object]()
    machine = ShareStates(lambda: StateCoordinator().settings)
    host: Host[Any] = Host(
        machine, log, clock=clock, timers=Timers(clock, virtual_loop()), failed=told.append
    )
    host.start()

    def ask(command: Any, to: Waiter = told.append) -> None:
        decide = getattr(machine, type(command).__name__.lower())
        host.submit(lambda now: decide(now, command, to), to)

    ask(Initialize(QUEUE, 1, Offset(0)))
    ask(write(1, 5))
    assert told == [], "nothing is answered before it is committed"
    log.commit()
    ask(Summarize(QUEUE))
    assert told == [None, None, (1, 1, 5, 0)]
