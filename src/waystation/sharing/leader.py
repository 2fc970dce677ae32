"""A queue's leader: what to write to the share coordinator, and whom to answer when.

The queue decides at once; its consumers are answered once what they were told is stored.  One
write is under way at a time and takes along everything that has happened since the last one.
Promises:

1. an acknowledgement is answered with yes only after it is stored;
2. what was asked first is answered first;
3. a leader that was fenced answers nobody with yes any more, and its queue is of no use;
4. a message is named as a dead letter only after it is stored that it was given up: no other
   leader delivers it again.

``share_partition.py`` is the queue; whoever runs a leader carries out its ``Steps``.
"""

from collections import deque
from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

from waystation.model.errors import (
    FencedLeaderEpochError,
    FencedStateEpochError,
    WaystationError,
)
from waystation.model.ids import LeaderEpoch
from waystation.model.machines import Reply, Waiter
from waystation.model.offsets import Millis
from waystation.sharing.persister import Write
from waystation.sharing.share_partition import SharePartition
from waystation.sharing.state_records import NO_NOTES, Notes, QueueId
from waystation.sharing.states import Acknowledgement, DeadLetter

Q = TypeVar("Q", bound=SharePartition)


class Steps(NamedTuple):
    """What follows from one event: answers to give, and what to write.

    Each write is to be answered by ``wrote``, once.
    """

    replies: Sequence[Reply] = ()
    write: Write | None = None


class QueueLeader(Generic[Q]):
    """One queue in one term of its leader."""

    __slots__ = (
        "_dying",
        "_id",
        "_leader_epoch",
        "_notes_stored",
        "_notes_taken",
        "_state_epoch",
        "_waiting",
        "fenced_by",
        "notes",
        "queue",
    )

    def __init__(
        self,
        queue_id: QueueId,
        leader_epoch: LeaderEpoch,
        state_epoch: int,
        queue: Q,
        notes: Notes = NO_NOTES,
    ) -> None:
        """``queue`` has loaded what was read under these epochs; so were the notes."""
        self.notes = notes
        """What the leader before left, and what this one leaves for the next."""
        self._notes_stored = self._notes_taken = notes.version
        self.queue = queue
        self._id, self._leader_epoch, self._state_epoch = queue_id, leader_epoch, state_epoch
        self._waiting: deque[tuple[int, Waiter]] = deque()
        self._dying: tuple[int, list[DeadLetter]] | None = None
        self.fenced_by: WaystationError | None = None

    def acknowledge(
        self,
        now: Millis,
        member_id: str,
        acknowledgements: Sequence[Acknowledgement],
        to: Waiter,
    ) -> Steps:
        """Follow what a consumer says; answered by ``None``."""
        reply = self.follow(now, member_id, acknowledgements, to)
        return Steps((), self.due()) if reply is None else Steps([reply])

    def follow(
        self,
        now: Millis,
        member_id: str,
        acknowledgements: Sequence[Acknowledgement],
        to: Waiter,
    ) -> Reply | None:
        """As ``acknowledge``, for who has more to say before ``due`` is asked.

        The answer, if it can be given at once.
        """
        if self.fenced_by is not None:
            return Reply(to, self.fenced_by)
        try:
            self.queue.acknowledge(now, member_id, acknowledgements)
        except WaystationError as refusal:
            return Reply(to, refusal)
        if self.queue.stored == self.queue.version:
            return Reply(to, None)  # renewing, say, leaves nothing to store
        self._waiting.append((self.queue.version, to))
        return None

    def note(self, content: bytes) -> int:
        """Leave something for the next leader: stored once ``queue.stored`` is at the answer.

        It is stored together with all that happened to the messages until then.
        """
        self.notes = Notes(self.notes.version + 1, content)
        return self.queue.touch()

    def due(self) -> Write | None:
        """What is to be written now; to be asked after every event that may change the queue."""
        if self.fenced_by is not None:
            return None
        change = self.queue.take_change()
        if change is None:
            return None
        self._notes_taken = self.notes.version
        notes = self.notes if self._notes_taken > self._notes_stored else NO_NOTES
        return Write(
            self._id, self._state_epoch, self._leader_epoch, change.start, change.batches, notes
        )

    def wrote(self, error: WaystationError | None) -> Steps:
        """The write that was under way is stored, refused, or nobody knows."""
        if self.fenced_by is not None:
            return Steps()
        if isinstance(error, FencedLeaderEpochError | FencedStateEpochError):
            self.fenced_by = error
            return Steps(self._refuse_all(error))
        if error is not None:
            self.queue.change_lost()
            return Steps()  # whoever runs it waits a little before it asks ``due`` again
        self.queue.change_written()
        self._notes_stored = self._notes_taken
        replies = []
        while self._waiting and self._waiting[0][0] <= self.queue.stored:
            replies.append(Reply(self._waiting.popleft()[1], None))
        return Steps(replies, self.due())

    def dead_letters(self, limit: int) -> list[DeadLetter]:
        """What is to be moved to the dead-letter topic: some of it, as soon as it is stored.

        What was moved is said by ``queue.moved``; until then it may be named again.
        """
        if self.fenced_by is not None:
            return []
        if self._dying is None:
            self._dying = self.queue.version, self.queue.dead_letters(limit)
        version, found = self._dying
        if self.queue.stored < version:
            return []
        self._dying = None
        return self.queue.unmoved(found)

    def resign(self, error: WaystationError) -> Steps:
        """Another broker leads: nobody here is answered with yes any more."""
        self.fenced_by = error
        return Steps(self._refuse_all(error))

    def _refuse_all(self, error: WaystationError) -> list[Reply]:
        refused = [Reply(to, error) for _, to in self._waiting]
        self._waiting.clear()
        return refused
