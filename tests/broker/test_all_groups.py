"""Share groups and others as one machine over one log: each finds its own again."""

from uuid import UUID

import pytest

from waystation.broker.all_groups import KIND, AllGroupRecordReader, AllGroups, encode_any
from waystation.broker.coordinators import TopicsNow
from waystation.groups.commands import Commit, Join, OffsetToCommit, TransactionalCommit
from waystation.groups.machine import _ANY_PRODUCER
from waystation.groups.settings import GroupSettings
from waystation.model.errors import (
    GroupNotFoundError,
    IllegalGenerationError,
    InconsistentProtocolError,
)
from waystation.model.ids import ProducerEpoch, ProducerId, TopicId
from waystation.model.machines import Outcome
from waystation.model.offsets import Millis
from waystation.sharing.group_commands import QueuesDue, ShareHeartbeat
from waystation.sharing.group_machine import ShareGroups
from waystation.sharing.settings import ShareSettings

NOW = Millis(1_000_000)
SETTINGS = GroupSettings()
COMMIT = Commit("g", -1, "", None, -1, (OffsetToCommit("t", 0, 7, -1, ""),))
QUEUE = (TopicId(UUID(int=1)), (0, 1))


class Life:
    """A machine and the bytes of its log."""

    def __init__(self, log: list[tuple[bytes, bytes | None]] | None = None) -> None:
        self.log = log or []
        self.told: list[object] = []
        topics = TopicsNow()
        shares = ShareGroups(ShareSettings, topics, lambda: "member", self.told.append)
        self.machine = AllGroups(
            lambda: SETTINGS, topics, lambda: "id", _ANY_PRODUCER, shares, lambda _: SETTINGS
        )
        rows = [(at, 0, key, value, ()) for at, (key, value) in enumerate(self.log)]
        for record in AllGroupRecordReader().read_rows(rows):
            self.machine.apply(record)
        self.follow(self.machine.loaded(NOW))

    def follow(self, outcome: Outcome[object]) -> object:
        """Remember, and the last answer."""
        for record in outcome.records:
            self.log.append(encode_any(record))
            self.machine.apply(record)
        for reply in outcome.replies:
            reply.to(reply.answer)
        return self.told[-1] if outcome.replies else None

    def share(self, group: str, epoch: int = 0, member: str = "ann") -> object:
        beat = ShareHeartbeat(group, member, epoch, "client", "host", None, ("t",))
        return self.follow(self.machine.share_heartbeat(NOW, beat, self.told.append))

    def commit(self) -> object:
        return self.follow(self.machine.commit(NOW, COMMIT, self.told.append))


def test_a_replay_finds_groups_of_all_kinds() -> None:
    life = Life()
    life.share("queue")
    life.commit()
    begun = QueuesDue("queue", 1, (QUEUE,))
    life.machine.shares._ordered["queue"] = begun
    life.follow(life.machine.shares.queues_begun(NOW, begun, (QUEUE,)))

    again = Life(list(life.log))

    assert {(one.group_id, one.kind, one.members) for one in again.machine.list()} == {
        ("queue", KIND, 1),
        ("g", "classic", 0),
    }
    assert again.machine.shares.listing() == [("queue", "Stable")]
    assert list(again.machine.committed_offsets()) == [("g", "t", 0, 7)]


def test_sessions_of_share_groups_are_deadlines_of_the_whole() -> None:
    life = Life()
    life.share("queue")

    deadline = life.machine.next_deadline()

    assert deadline == NOW + ShareSettings().group_share_session_timeout_ms
    life.follow(life.machine.tick(Millis(deadline)))
    assert life.machine.shares.listing() == [("queue", "Empty")]
    assert Life(list(life.log)).machine.shares.size_of("queue") == 0


def test_offsets_keep_a_share_group_away() -> None:
    life = Life()
    life.commit()

    refusal = life.share("g")

    assert isinstance(refusal, GroupNotFoundError)
    assert "classic group" in str(refusal)
    assert "g" not in life.machine.shares


@pytest.mark.parametrize("in_transaction", [False, True])
def test_a_share_group_keeps_offsets_away(in_transaction: bool) -> None:
    life = Life()
    life.share("g")
    count = len(life.log)
    if in_transaction:
        who = ProducerId(1), ProducerEpoch(0)
        command = TransactionalCommit("g", -1, "", None, COMMIT.offsets, *who)
        refusal = life.follow(life.machine.commit_in_transaction(NOW, command, life.told.append))
        assert isinstance(refusal, IllegalGenerationError)
    else:
        assert isinstance(life.commit(), GroupNotFoundError)
    join = Join("g", "", None, "c", "h", "consumer", (("range", b""),), 10_000, 10_000)

    refusal = life.follow(life.machine.join(NOW, join, life.told.append))

    assert isinstance(refusal, InconsistentProtocolError)
    assert len(life.log) == count


def test_a_share_group_that_is_deleted_leaves_its_id_to_others() -> None:
    life = Life()
    life.share("g")
    life.share("g", -1)
    life.follow(life.machine.delete(NOW, "g", life.told.append))

    life.commit()

    again = Life(list(life.log))
    assert [one.kind for one in again.machine.list()] == ["classic"]
    assert "g" not in again.machine.shares
