"""Does the waiting for one queue, in one term of its partition's leader.

The queue itself (``sharing/share_partition.py``) knows no log, clock or coordinator.  Its host
loads what the last leader stored, reads the log for those who ask, writes what they say to the
share coordinator, and takes messages back when their locks are over.  Promises:

1. nothing is handed out before the queue was loaded under this leader's epoch, nor after this
   broker has heard of another leader;
2. an acknowledgement is answered when it is stored, or refused; never both, never twice;
3. those who wait for messages are asked in the order in which they came, and only as long as
   there is something to give;
4. a host that was thrown away gives nothing and takes nothing: the next request makes a new one;
5. while what consumers say cannot be stored nothing more is given: it would only come again.

Which queues there are is in ``queues.py``, what consumers are given in ``queue_giving.py``.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from waystation.broker.queue_around import Around
from waystation.broker.queue_giving import NOTHING, Given, Giving
from waystation.broker.queue_loading import LogNotReadyError, begun, lineage_of
from waystation.broker.queue_reading import Wish
from waystation.client.errors import is_retriable
from waystation.model.errors import (
    FencedLeaderEpochError,
    FencedStateEpochError,
    NotLeaderError,
    WaystationError,
)
from waystation.model.ids import LeaderEpoch
from waystation.model.machines import Waiter
from waystation.model.offsets import Millis
from waystation.partition.partition import Partition
from waystation.runtime.timers import Timer
from waystation.sharing.leader import QueueLeader, Steps
from waystation.sharing.persister import Read, StateRead, Write
from waystation.sharing.reasons import Reasons
from waystation.sharing.settings import QueueSettings
from waystation.sharing.share_partition import SharePartition
from waystation.sharing.state_records import QueueId
from waystation.sharing.states import Acknowledgement
from waystation.telemetry.logs import get_logger

_events = get_logger("queues")

_RETRY_S: Final = 0.05
_RETRY_MAX_S: Final = 2.0


class QueueHost:
    """One queue; everything runs on the loop's thread."""

    __slots__ = (
        "_armed_for",
        "_around",
        "_failures",
        "_giving",
        "_leader",
        "_options",
        "_order",
        "_retry",
        "_timer",
        "_waiting",
        "_waking",
        "closed",
        "epoch",
        "error",
        "partition",
        "queue_id",
        "readers",
        "reasons",
    )

    def __init__(
        self,
        queue_id: QueueId,
        partition: Partition,
        options: Callable[[], QueueSettings],
        around: Around,
    ) -> None:
        self.queue_id = queue_id
        self.partition = partition
        self.epoch: LeaderEpoch = partition.leadership.epoch
        self.closed = False
        self.error: WaystationError | None = None
        """Why it was thrown away, where a client is to be told."""
        self.readers: dict[str, None] = {}
        """The members whose sessions read this queue; without any it is not kept."""
        self.reasons = Reasons()
        """Why consumers have rejected messages, as far as they said."""
        self._options = options
        self._around = around
        self._order = _order_of(options())
        self._giving = Giving(partition, options)
        self._leader: QueueLeader[SharePartition] | None = None
        self._waiting: dict[Callable[[], None], None] = {}
        self._waking = False
        self._timer: Timer | None = None
        self._armed_for = Millis(0)
        self._retry: Timer | None = None
        self._failures = 0
        partition.read_waiters.add(self._log_moved)
        self._read()

    def __repr__(self) -> str:
        return f"QueueHost({self.queue_id}, epoch {self.epoch})"

    @property
    def leader(self) -> QueueLeader[SharePartition] | None:
        """The queue's leader; ``None`` while it is loaded."""
        return self._leader

    def settings(self) -> QueueSettings:
        """What the group says, as it is now."""
        return self._options()

    @property
    def in_flight(self) -> int:
        """How many messages consumers hold."""
        return 0 if self._leader is None else self._leader.queue.in_flight

    # --- for consumers --------------------------------------------------------------------------

    def wait(self, told: Callable[[], None]) -> None:
        """Call ``told`` when there may be something to give, until it is removed."""
        self._waiting[told] = None

    @property
    def is_waited_for(self) -> bool:
        """Whether somebody is to be told when there is something."""
        return bool(self._waiting)

    def stop_waiting(self, told: Callable[[], None]) -> None:
        """Stop calling; harmless if it was not waiting."""
        self._waiting.pop(told, None)

    def may_give(self) -> bool:
        """Whether a consumer that asks now may get something."""
        if self._leader is None or self.closed or self._is_stalled:
            return False
        self._catch_up(self._leader.queue)
        return self._giving.may_give(self._leader.queue, self._around.clock.now())

    def bytes_ahead(self, max_bytes: int) -> int:
        """How much a consumer could be given, about; at most ``max_bytes`` and a batch."""
        if self._leader is None or self.closed or self._is_stalled:
            return 0
        self._catch_up(self._leader.queue)
        return self._giving.bytes_ahead(self._leader.queue, self._around.clock.now(), max_bytes)

    def give(self, member_id: str, wish: Wish) -> Given:
        """Give a consumer what it wishes, as far as it is there.

        HOT: once per partition of a ShareFetch.
        """
        leader = self._leader
        if leader is None or self.closed or self._is_stalled or wish.records <= 0:
            return NOTHING
        self._catch_up(leader.queue)
        given = self._giving.give(leader.queue, self._around.clock.now(), member_id, wish)
        self._around.meters.acquired.value += sum(end - first for first, end, _ in given.acquired)
        self._follow_up(leader)
        if given.is_more:
            self._wake()
        return given

    def acknowledge(
        self, member_id: str, acknowledgements: Sequence[Acknowledgement], to: Waiter
    ) -> None:
        """Follow what a consumer says; ``to`` is told ``None`` once it is stored, or why not.

        HOT: once per partition of a ShareFetch or ShareAcknowledge.
        """
        leader = self._leader
        assert leader is not None, f"{self} was told of messages before it gave any"
        self._catch_up(leader.queue)
        now = self._around.clock.now()

        def told(answer: object) -> None:
            if answer is None:
                self._around.meters.count(acknowledgements)
            to(answer)

        steps = leader.acknowledge(now, member_id, acknowledgements, told)
        self._carry_out(steps)
        self._follow_up(leader)
        self._wake()

    def settle(self, said: Iterable[tuple[str, Sequence[Acknowledgement], Waiter]]) -> None:
        """As ``acknowledge``, for many who hold by receipt: each counts by itself.

        What all of them say is stored together.  HOT: once per partition of a ShareAcknowledge.
        """
        leader = self._leader
        assert leader is not None, f"{self} was told of messages before it gave any"
        self._catch_up(leader.queue)
        now, meters = self._around.clock.now(), self._around.meters
        for member_id, wishes, to in said:

            def told(
                answer: object, wishes: Sequence[Acknowledgement] = wishes, to: Waiter = to
            ) -> None:
                if answer is None:
                    meters.count(wishes)
                to(answer)

            reply = leader.follow(now, member_id, wishes, told)
            if reply is not None:
                reply.to(reply.answer)
        self._follow_up(leader)
        self._wake()

    def leave(self, member_id: str) -> None:
        """Take back what a consumer holds; its session has ended."""
        self.readers.pop(member_id, None)
        leader = self._leader
        if leader is not None and not self.closed:
            before = leader.queue.in_flight
            leader.queue.leave(self._around.clock.now(), member_id)
            self._around.meters.released.value += before - leader.queue.in_flight
            self._follow_up(leader)
            self._wake()
        self._close_if_idle()

    # --- for dead letters -----------------------------------------------------------------------

    def write_due(self) -> None:
        """Something was left to be stored by others, in ``leader`` or its queue."""
        if self._leader is not None and not self.closed:
            self._follow_up(self._leader)

    # --- beginning and ending -------------------------------------------------------------------

    def close(self, error: WaystationError | None = None) -> None:
        """Throw the queue away: whoever waits is told, and looks for it anew."""
        if self.closed:
            return
        self.closed = True
        self.error = error
        self.partition.read_waiters.remove(self._log_moved)
        for timer in (self._timer, self._retry):
            if timer is not None:
                timer.cancel()
        self._around.gone(self)
        if self._leader is not None:
            refused = self._leader.resign(error or self._not_leader())
            self._carry_out(refused)
        self._around.dead_letters.gone(self)
        self._wake()

    def give_up(self) -> None:
        """Serve the queue no more, whoever leads."""
        self.close(self._not_leader())

    def check(self) -> None:
        """Throw the queue away if it is not this term's, or not in the order that is wanted."""
        if self.closed:
            return
        partition = self.partition
        if not partition.leading or partition.leadership.epoch != self.epoch:
            self.close(self._not_leader())
            return
        if _order_of(self._options()) != self._order:
            _events.info("queue.order.changed", queue=str(self.queue_id))
            self.close(
                FencedStateEpochError(f"{self.queue_id} chooses in another order from now on")
            )

    def _not_leader(self) -> WaystationError:
        """Whoever is told looks for the leader anew; that it was this one would not help."""
        known = self.partition.leadership
        leader = None if self.partition.leading else known.leader
        return NotLeaderError(self.partition.name, leader, known.epoch)

    def _read(self) -> None:
        self._retry = None
        read = Read(self.queue_id, self.epoch, lineage_of(self.partition))
        self._around.persister.read(read, self._heard_state)

    def _heard_state(self, answer: object) -> None:
        if self.closed:
            return
        try:
            if isinstance(answer, WaystationError):
                raise answer
            assert isinstance(answer, StateRead), f"{self} was told {answer!r}"
            self._leader = self._begun(answer)
        except WaystationError as error:
            self._not_loaded(error)
            return
        self._failures = 0
        _events.debug("queue.loaded", queue=str(self.queue_id), epoch=self.epoch)
        self._follow_up(self._leader)
        self._wake()
        self._around.dead_letters.changed(self)

    def _begun(self, stored: StateRead) -> QueueLeader[SharePartition]:
        around = self._around
        return begun(
            self.queue_id,
            self.partition,
            self.epoch,
            stored,
            around.clock.now(),
            around.wall.now(),
            self._options,
            around.share,
        )

    def _not_loaded(self, error: WaystationError) -> None:
        if not _is_final(error):
            self._retry = self._around.timers.call_later(self._pause_s(), self._read)
        elif isinstance(error, FencedLeaderEpochError):
            self.close(self._not_leader())
        else:
            _events.warning("queue.not.loaded", queue=str(self.queue_id), reason=str(error))
            self.close(error)

    @property
    def is_idle(self) -> bool:
        """Whether nobody reads, nothing is held, and all is stored."""
        leader = self._leader
        if self.readers or leader is None:
            return False
        queue = leader.queue
        return queue.stored == queue.version and not queue.in_flight and not queue.dying

    def _close_if_idle(self) -> None:
        """Nobody reads: forget it, so that whoever comes next finds it as it is stored then."""
        if not self.closed and self.is_idle:
            self.close()

    # --- parts: what follows from events --------------------------------------------------------

    def _catch_up(self, queue: SharePartition) -> None:
        """Let the queue know what time it is, and where the log begins by now."""
        now = self._around.clock.now()
        if self._timer is not None and now >= self._armed_for:
            before = queue.in_flight
            queue.tick(now)
            self._around.meters.lock_timeouts.value += before - queue.in_flight
        log_start = self.partition.log.log_start
        if log_start > queue.start:
            queue.log_begins_at(log_start)

    def _follow_up(self, leader: QueueLeader[SharePartition]) -> None:
        """Something happened: write it, and look again when the next lock is over.

        After a write that failed this waits a little, and goes along with the next try.
        """
        write = leader.due() if self._retry is None else None
        if write is not None:
            self._write(write)
        self._arm(leader.queue)

    def _carry_out(self, steps: Steps) -> None:
        for to, answer in steps.replies:
            to(answer)
        if steps.write is not None:
            self._write(steps.write)

    def _write(self, write: Write) -> None:
        self._around.persister.write(write, self._wrote)

    def _wrote(self, answer: object) -> None:
        leader = self._leader
        assert leader is not None, f"{self} has written before it was loaded"
        if self.closed:
            return
        error = answer if isinstance(answer, WaystationError) else None
        if error is not None and _is_final(error):
            self._lost(leader, error)
            return
        self._carry_out(leader.wrote(error))
        if error is not None:
            self._retry = self._around.timers.call_later(self._pause_s(), self._write_again)
            return
        self._failures = 0
        self._wake()  # what had to be stored first may go now
        self._around.dead_letters.changed(self)
        self._close_if_idle()

    def _lost(self, leader: QueueLeader[SharePartition], error: WaystationError) -> None:
        """The coordinator does not take this leader's word any more: begin anew, if at all."""
        _events.info("queue.fenced", queue=str(self.queue_id), epoch=self.epoch, reason=str(error))
        if isinstance(error, FencedLeaderEpochError):
            error = self._not_leader()
        self._carry_out(leader.resign(error))
        self.close(error)

    def _write_again(self) -> None:
        self._retry = None
        if self._leader is not None:
            self._follow_up(self._leader)

    @property
    def _is_stalled(self) -> bool:
        """Whether the last write failed."""
        return self._failures > 0

    def _pause_s(self) -> float:
        self._failures += 1
        return min(_RETRY_S * 2.0 ** min(self._failures - 1, 10), _RETRY_MAX_S)

    def _arm(self, queue: SharePartition) -> None:
        """Have one timer, for the next lock's end or before it."""
        deadline = queue.next_deadline()
        if deadline is None or (self._timer is not None and self._armed_for <= deadline):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._armed_for = deadline
        delay_ms = max(0, deadline - self._around.clock.now())
        self._timer = self._around.timers.call_later(delay_ms / 1_000, self._due)

    def _due(self) -> None:
        leader = self._leader
        if leader is None or self.closed:
            return
        self._catch_up(leader.queue)
        self._timer = None
        self._follow_up(leader)
        self._wake()

    def _log_moved(self) -> None:
        """More is committed, or another leads.  HOT: once per turn of the loop with commits."""
        partition = self.partition
        if not partition.leading or partition.leadership.epoch != self.epoch:
            self.close(self._not_leader())
        elif self._waiting:
            self._tell()

    def _wake(self) -> None:
        """Ask those who wait, in the loop's next turn."""
        if not self._waking:
            self._waking = True
            self._around.defer(self._tell)

    def _tell(self) -> None:
        self._waking = False
        for told in list(self._waiting):
            if not self.closed and not self.may_give():
                break
            told()


def _is_final(error: WaystationError) -> bool:
    """Whether the share coordinator will never say anything else to this leader."""
    is_fenced = isinstance(error, FencedLeaderEpochError | FencedStateEpochError)
    return is_fenced or not (isinstance(error, LogNotReadyError) or is_retriable(error))


def _order_of(options: QueueSettings) -> tuple[str, bool]:
    return options.share_order, options.share_priority
