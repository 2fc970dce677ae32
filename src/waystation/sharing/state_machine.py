"""The share coordinator: all queues of one partition of ``__share_group_state``; the way in.

1. What is answered rests on records that are appended first: a replay knows all of it.
2. What is remembered changes in ``apply`` only.
3. A leader that was replaced writes nothing: reading raises the leader epoch, and whoever comes
   with a lower one is refused.
4. What was delivered before a group began anew does not count: a write must name the state
   epoch under which its leader has loaded.
5. Nothing that was settled under a state epoch is unsettled under it, in whatever order writes
   arrive (``queue_state.py``).
6. What is known of messages that an election lost is forgotten when the next leader loads, and
   not again: nothing that takes their offsets later is taken for them.
"""

from collections.abc import Callable, Iterator

from waystation.model.errors import (
    FencedLeaderEpochError,
    FencedStateEpochError,
    InvalidRequestError,
    WaystationError,
)
from waystation.model.ids import NO_LEADER_EPOCH, LeaderEpoch, TopicId
from waystation.model.machines import Outcome, Reply, Waiter
from waystation.model.offsets import NO_OFFSET, Millis, Offset
from waystation.sharing.persister import (
    Delete,
    Initialize,
    Read,
    StateRead,
    StateSummary,
    Summarize,
    Write,
)
from waystation.sharing.queue_state import QueueState
from waystation.sharing.settings import ShareSettings
from waystation.sharing.state_records import (
    NO_NOTES,
    Notes,
    QueueId,
    SnapshotStored,
    StateForgotten,
    StateRecord,
    UpdateForgotten,
    UpdateStored,
)
from waystation.sharing.states import STORED_STATES, StateBatch

# A queue of so few ranges is stored whole each time: that is as short as a change, and what
# was stored before can be compacted away.
_FEW_RANGES = 16


class ShareStates:
    """One share coordinator; nobody waits in it, for every request is answered at once."""

    __slots__ = ("_queues", "_settings", "_slots")

    def __init__(self, settings: Callable[[], ShareSettings]) -> None:
        self._settings = settings
        self._queues: dict[QueueId, QueueState] = {}
        self._slots: dict[QueueId, int] = {}
        """How many slots a queue ever used: its log may still hold them."""

    # --- replay and time ----------------------------------------------------------------------

    def apply(self, record: StateRecord) -> None:
        """Remember."""
        match record:
            case SnapshotStored():
                self._queues[record.queue] = QueueState(*record[1:])
            case UpdateStored():
                self._slots[record.queue] = max(self._slots.get(record.queue, 0), record.slot + 1)
                # One without its snapshot is left of a queue that was forgotten or replaced.
                if record.queue in self._queues:
                    self._queues[record.queue].join(record)
            case StateForgotten():
                self._queues.pop(record.queue, None)
            case UpdateForgotten():
                self._slots.pop(record.queue, None)

    def loaded(self, now: Millis) -> Outcome[StateRecord]:
        """The replay is over."""
        return Outcome()

    def next_deadline(self) -> Millis | None:
        """Nothing ever falls due."""
        return None

    def tick(self, now: Millis) -> Outcome[StateRecord]:
        """Nothing to do."""
        return Outcome()

    def abandon(self) -> list[Waiter]:
        """Everyone who waits: nobody."""
        return []

    # --- commands -----------------------------------------------------------------------------

    def initialize(self, now: Millis, command: Initialize, to: Waiter) -> Outcome[StateRecord]:
        """Answered by ``None``."""
        known = self._queues.get(command.queue)
        if command.start < NO_OFFSET or command.state_epoch < 0:
            return _refuse(to, InvalidRequestError(f"{command.queue} cannot begin with {command}"))
        if known is None:
            return Outcome([_fresh(command, 0, NO_LEADER_EPOCH)], [Reply(to, None)])
        if command.state_epoch < known.state_epoch:
            return _refuse(to, _other_state_epoch(command.queue, known, command.state_epoch))
        if command.state_epoch == known.state_epoch:
            return Outcome((), [Reply(to, None)])  # repeated: what was delivered since counts
        # What is on its way to a dead-letter topic gets there, wherever the group begins anew.
        snapshot = _fresh(command, known.snapshot_epoch + 1, known.leader_epoch, known.notes)
        return Outcome([snapshot], [Reply(to, None)])

    def read(self, now: Millis, command: Read, to: Waiter) -> Outcome[StateRecord]:
        """Answered by ``StateRead``; leaders of lower epochs are fenced from now on.

        A leader that reads again finds what it has stored since: only its first look forgets.
        """
        try:
            known = self._known(command.queue)
            _check_leader(command.queue, known, command.leader_epoch)
        except WaystationError as refusal:
            return _refuse(to, refusal)
        records: list[StateRecord] = []
        if command.leader_epoch > known.leader_epoch:
            lost_from = known.lost_from(command.log)
            if lost_from is not None:
                known = known.cut(lost_from)
                records.append(_whole(command.queue, known, command.leader_epoch))
            else:
                records.append(self._noted(command.queue, known, command.leader_epoch, known.start))
        answer = StateRead(known.state_epoch, known.start, known.batches(), known.notes)
        return Outcome(records, [Reply(to, answer)])

    def write(self, now: Millis, command: Write, to: Waiter) -> Outcome[StateRecord]:
        """Answered by ``None``.  HOT: once per group commit of a queue's leader."""
        try:
            known = self._known(command.queue)
            _check_leader(command.queue, known, command.leader_epoch)
            if command.state_epoch != known.state_epoch:
                raise _other_state_epoch(command.queue, known, command.state_epoch)
            _check_batches(command)
        except WaystationError as refusal:
            return _refuse(to, refusal)
        epoch = LeaderEpoch(max(command.leader_epoch, known.leader_epoch))
        record = self._noted(
            command.queue, known, epoch, command.start, command.batches, command.notes
        )
        return Outcome([record], [Reply(to, None)])

    def delete(self, now: Millis, command: Delete, to: Waiter) -> Outcome[StateRecord]:
        """Answered by ``None``."""
        return Outcome(list(self._forgotten(command.queue)), [Reply(to, None)])

    def summarize(self, now: Millis, command: Summarize, to: Waiter) -> Outcome[StateRecord]:
        """Answered by ``StateSummary``."""
        try:
            known = self._known(command.queue)
        except WaystationError as refusal:
            return _refuse(to, refusal)
        summary = StateSummary(known.state_epoch, known.leader_epoch, known.start, known.settled)
        return Outcome((), [Reply(to, summary)])

    def topics_gone(self, now: Millis, is_there: Callable[[TopicId], bool]) -> Outcome[StateRecord]:
        """Forget the queues over topics that are no more."""
        gone = [queue for queue in self._queues if not is_there(queue.topic_id)]
        return Outcome([record for queue in gone for record in self._forgotten(queue)])

    def queues(self) -> list[QueueId]:
        """All that is known, for administrators."""
        return list(self._queues)

    # --- parts --------------------------------------------------------------------------------

    def _known(self, queue: QueueId) -> QueueState:
        known = self._queues.get(queue)
        if known is None:
            raise InvalidRequestError(
                f"nothing is known of the queue {queue}: its group has not begun it, or has "
                "deleted it; initialize it first"
            )
        return known

    def _noted(
        self,
        queue: QueueId,
        known: QueueState,
        leader_epoch: LeaderEpoch,
        start: Offset,
        batches: tuple[StateBatch, ...] = (),
        notes: Notes = NO_NOTES,
    ) -> SnapshotStored | UpdateStored:
        """The shorter way to remember a change: the change, or all of a small or worn-out state."""
        per_snapshot = self._settings().share_coordinator_snapshot_update_records_per_snapshot
        if len(known) + 2 * len(batches) > _FEW_RANGES and known.slots < per_snapshot:
            return UpdateStored(
                queue, known.slots, known.snapshot_epoch, leader_epoch, start, batches, notes
            )
        return _whole(queue, known.joined(start, batches, notes), leader_epoch)

    def _forgotten(self, queue: QueueId) -> Iterator[StateRecord]:
        if queue not in self._queues:
            return
        yield StateForgotten(queue)
        for slot in range(self._slots.get(queue, 0)):
            yield UpdateForgotten(queue, slot)


def _fresh(
    command: Initialize, snapshot_epoch: int, leader_epoch: LeaderEpoch, notes: Notes = NO_NOTES
) -> SnapshotStored:
    return SnapshotStored(
        command.queue,
        snapshot_epoch,
        command.state_epoch,
        leader_epoch,
        command.start,
        (),
        notes,
        is_new=True,
    )


def _whole(queue: QueueId, state: QueueState, leader_epoch: LeaderEpoch) -> SnapshotStored:
    """Everything anew: what was stored before does not count any more."""
    return SnapshotStored(
        queue,
        state.snapshot_epoch + 1,
        state.state_epoch,
        leader_epoch,
        state.start,
        state.batches(),
        state.notes,
    )


def _refuse(to: Waiter, error: WaystationError) -> Outcome[StateRecord]:
    return Outcome((), [Reply(to, error)])


def _check_leader(queue: QueueId, known: QueueState, leader_epoch: LeaderEpoch) -> None:
    if leader_epoch < known.leader_epoch:
        raise FencedLeaderEpochError(
            f"the queue {queue} is led in epoch {known.leader_epoch}, the request says "
            f"{leader_epoch}: another broker leads its partition now"
        )


def _other_state_epoch(
    queue: QueueId, known: QueueState, state_epoch: int
) -> FencedStateEpochError:
    return FencedStateEpochError(
        f"the queue {queue} is in state epoch {known.state_epoch}, the request says "
        f"{state_epoch}: its group has begun anew; load it again"
    )


def _check_batches(command: Write) -> None:
    for first, end, state, deliveries in command.batches:
        if state not in STORED_STATES or not 0 <= first < end or deliveries < 0:
            raise InvalidRequestError(
                f"[{first}, {end}) of {command.queue} in state {state} after {deliveries} "
                "deliveries cannot be stored"
            )
