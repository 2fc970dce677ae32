"""A queue's leader: nobody is told yes before it is stored, nor after it was fenced."""

from typing import Any
from uuid import UUID

from tests.sharing.queues import NOW, queue, take
from waystation.model.errors import (
    FencedLeaderEpochError,
    InvalidRecordStateError,
    StorageError,
)
from waystation.model.ids import LeaderEpoch, TopicId
from waystation.model.offsets import Offset
from waystation.sharing.leader import QueueLeader, Steps
from waystation.sharing.share_partition import SharePartition
from waystation.sharing.state_records import NO_NOTES, Notes, QueueId
from waystation.sharing.states import ACCEPT, REJECT, RENEW, Acknowledgement

QUEUE = QueueId("g", TopicId(UUID(int=1)), 0)


class Told:
    """A leader, and what its consumers were told."""

    def __init__(self) -> None:
        self.leader: QueueLeader[SharePartition] = QueueLeader(
            QUEUE, LeaderEpoch(3), 7, queue(dead_letter_topic="dead")
        )
        self.answers: dict[str, Any] = {}
        take(self.leader.queue, "a", 10)

    def say(self, name: str, first: int, end: int, kind: int = ACCEPT) -> Steps:
        said = [Acknowledgement(Offset(first), Offset(end), kind)]
        return self.done(
            self.leader.acknowledge(
                NOW, "a", said, lambda answer: self.answers.update({name: answer})
            )
        )

    def done(self, steps: Steps) -> Steps:
        for to, answer in steps.replies:
            to(answer)
        return steps


def test_yes_is_said_once_it_is_stored() -> None:
    told = Told()
    first = told.say("one", 0, 2)
    second = told.say("two", 2, 4)

    assert first.write == (QUEUE, 7, 3, 2, (), NO_NOTES)
    assert second.write is None
    assert told.answers == {}
    third = told.done(told.leader.wrote(None))
    assert told.answers == {"one": None}
    assert third.write is not None
    assert third.write.start == 4
    told.done(told.leader.wrote(None))
    assert told.answers == {"one": None, "two": None}


def test_a_write_that_got_lost_is_repeated() -> None:
    told = Told()
    told.say("one", 0, 2)
    told.done(told.leader.wrote(StorageError("slow")))

    assert told.answers == {}
    assert told.leader.due() == (QUEUE, 7, 3, 2, (), NO_NOTES)
    told.done(told.leader.wrote(None))
    assert told.answers == {"one": None}


def test_who_was_fenced_says_no() -> None:
    told = Told()
    told.say("one", 0, 2)
    fenced = FencedLeaderEpochError("over")
    told.done(told.leader.wrote(fenced))
    told.say("two", 2, 3)

    assert told.answers == {"one": fenced, "two": fenced}
    assert told.leader.due() is None
    assert told.leader.wrote(None) == Steps()


def test_who_resigns_says_no() -> None:
    told, gone = Told(), StorageError("gone")
    told.say("one", 0, 2)
    told.done(told.leader.resign(gone))

    assert told.answers == {"one": gone}


def test_what_leaves_nothing_to_store_is_answered_at_once() -> None:
    told = Told()
    told.say("renewed", 0, 2, RENEW)
    told.say("refused", 50, 52)

    assert told.answers["renewed"] is None
    assert isinstance(told.answers["refused"], InvalidRecordStateError)
    assert told.leader.due() is None


def test_a_message_is_a_dead_letter_once_that_is_stored() -> None:
    told = Told()
    told.say("one", 0, 2, REJECT)

    assert told.leader.dead_letters(9) == []
    told.say("two", 4, 5, REJECT)
    told.done(told.leader.wrote(None))
    assert told.leader.dead_letters(9) == [(0, 2, 1, True)]
    assert told.leader.dead_letters(9) == [], "the other one is under way"
    told.done(told.leader.wrote(None))
    told.leader.queue.moved(Offset(0), Offset(2))
    assert told.leader.dead_letters(9) == [(4, 5, 1, True)]


def test_notes_are_written_with_all_that_happened_before_until_they_are_stored() -> None:
    told = Told()
    told.say("one", 0, 2, REJECT)
    told.done(told.leader.wrote(None))
    told.leader.queue.moved(Offset(0), Offset(1))
    version = told.leader.note(b"the next batch")

    write = told.leader.due()
    assert write is not None
    assert (write.start, write.notes) == (1, Notes(1, b"the next batch"))
    told.done(told.leader.wrote(StorageError("slow")))
    assert told.leader.queue.stored < version
    again = told.leader.due()
    assert again is not None
    assert again.notes == write.notes
    told.done(told.leader.wrote(None))
    assert told.leader.queue.stored == version
    later = told.say("two", 2, 3)
    assert later.write is not None
    assert later.write.notes == NO_NOTES
