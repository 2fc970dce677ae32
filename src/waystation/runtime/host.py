"""Does the waiting for a pure machine: decide, append, apply, commit, reply.

1. The next decision sees every earlier one: nothing is awaited, and nobody is called, between a
   decision and its records being applied.
2. An answer is given once everything decided before it is committed, also when it adds no
   record itself: what it says may rest on a decision that a crash would take back.
3. Answers are given in the order of decisions, each waiter is called once.
4. When an append fails, leadership is lost or the machine itself breaks, the machine is thrown
   away: everyone who waits, inside it or for a commit, is told ``NotCoordinatorError``, and
   ``failed`` is called, once.  The log is the truth; whoever leads next replays it.

A ``decide`` that raises is its caller's business: it has appended nothing, and what survives a
restart changes only in ``apply``.

What a machine and a log are is in ``machine.py``, how a log is replayed in ``replay.py``.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from waystation.model.errors import NotCoordinatorError, WaystationError
from waystation.model.machines import Outcome, Reply, Waiter
from waystation.model.offsets import Millis, Offset
from waystation.runtime.clock import Clock
from waystation.runtime.machine import Machine, MachineLog
from waystation.runtime.timers import Timer, Timers
from waystation.telemetry.logs import get_logger

R = TypeVar("R")

_events = get_logger("runtime")


class _Waiting(NamedTuple):
    """Answers that are given once the log is committed up to ``end``."""

    end: Offset
    replies: Sequence[Reply]


class Host(Generic[R]):
    """Runs one machine over one log, on the loop's thread; ``start`` it once it is replayed.

    ``clock`` must be steady: deadlines are points on it.
    """

    __slots__ = (
        "_armed_for",
        "_busy",
        "_clock",
        "_end",
        "_error",
        "_failed",
        "_log",
        "_releasing",
        "_timer",
        "_timers",
        "_waiting",
        "machine",
    )

    def __init__(
        self,
        machine: Machine[R],
        log: MachineLog[R],
        *,
        clock: Clock,
        timers: Timers,
        failed: Callable[[WaystationError], None],
    ) -> None:
        """Everything that ``machine`` has applied so far must be committed."""
        self.machine: Any = machine
        self._log = log
        self._clock = clock
        self._timers = timers
        self._failed = failed
        self._end = log.committed
        self._waiting: deque[_Waiting] = deque()
        self._timer: Timer | None = None
        self._armed_for: Millis | None = None
        self._busy = self._releasing = False
        self._error: WaystationError | None = None

    @property
    def ended(self) -> bool:
        """Whether the machine was thrown away."""
        return self._failed is _nobody

    def start(self) -> None:
        """Begin: the machine has replayed its log."""
        self.submit(self.machine.loaded)

    def submit(self, decide: Callable[[Millis], Outcome[R]], to: Waiter | None = None) -> None:
        """Let the machine decide now and carry it out; never waits.

        ``to`` is whoever asked: if the machine is gone, or goes before it could keep or answer
        ``to``, it is told so.  It need not be given where nobody asked.
        """
        if self.ended:
            if to is not None:
                to(_not_coordinator(self._error))
            return
        assert not self._busy, "a decision while another is under way: a waiter was called early"
        self._busy = True
        try:
            outcome = decide(self._clock.now())
            if outcome.records:
                self._remember(outcome.records)
        finally:
            self._busy = False
        if self._error is not None:
            told = [reply.to for reply in outcome.replies]
            self._discard(told if to is None else [to, *told])
            return
        if outcome.replies:
            self._queue(outcome.replies)
        self._arm()
        self._release()

    async def ask(self, decide: Callable[[Millis, Waiter], Outcome[R]]) -> Any:
        """What the machine answers; raised if it is an error."""
        answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()

        def to(value: object) -> None:
            if not answer.done():
                answer.set_result(value)

        self.submit(lambda now: decide(now, to), to)
        value = await answer
        if isinstance(value, WaystationError):
            raise value
        return value

    def resign(self, error: WaystationError) -> None:
        """Throw the machine away: this node may not, or cannot, answer for it any more."""
        if not self.ended and self._error is None:
            self._error = error
            if not self._busy:
                self._discard([])

    # --- remembering ------------------------------------------------------------------------

    def _remember(self, records: Sequence[R]) -> None:
        """Append and apply, or note why not; a log may also note it itself, by ``resign``."""
        try:
            self._end = self._log.append(records)
            for record in records:
                self.machine.apply(record)
        except WaystationError as error:
            self._error = self._error or error
        except Exception as error:  # a bug: what was appended is no longer what was applied
            _events.error("machine.broken", exc_info=error)
            self._error = self._error or NotCoordinatorError(f"the coordinator broke: {error!r}")

    # --- answering --------------------------------------------------------------------------

    def _queue(self, replies: Sequence[Reply]) -> None:
        """Give answers when everything decided so far is committed."""
        is_first_of_its_end = not self._waiting or self._waiting[-1].end != self._end
        self._waiting.append(_Waiting(self._end, replies))
        if is_first_of_its_end and self._log.committed < self._end:
            self._log.when_committed(self._end, self._committed)

    def _committed(self, error: WaystationError | None) -> None:
        if error is not None:
            self.resign(error)
        elif not self._busy:
            self._release()
        # Within an append: who is answered now could ask again before it was applied.

    def _release(self) -> None:
        """Give the answers whose decisions are committed; one that asks again waits its turn."""
        if self._releasing:
            return
        self._releasing = True
        try:
            while self._waiting and self._waiting[0].end <= self._log.committed:
                for to, answer in self._waiting.popleft().replies:
                    _tell(to, answer)
        finally:
            self._releasing = False

    # --- time -------------------------------------------------------------------------------

    def _arm(self) -> None:
        """Have one timer, for the machine's next deadline or before it.

        Most events only move deadlines back; then the timer is left, and looks again.
        """
        deadline = None if self.ended else self.machine.next_deadline()
        if deadline is None or (self._armed_for is not None and self._armed_for <= deadline):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._armed_for = deadline
        delay_ms = max(0, deadline - self._clock.now())
        self._timer = self._timers.call_later(delay_ms / 1_000, self._due)

    def _due(self) -> None:
        self._timer = self._armed_for = None
        deadline = self.machine.next_deadline()
        if deadline is None or deadline > self._clock.now():
            self._arm()
            return
        try:
            self.submit(self.machine.tick)
        except Exception as error:  # a bug: without a tick nothing would ever be due again
            _events.error("machine.broken", exc_info=error)
            self.resign(NotCoordinatorError(f"the coordinator broke: {error!r}"))

    # --- the end ----------------------------------------------------------------------------

    def _discard(self, told: Iterable[Waiter]) -> None:
        failed, self._failed = self._failed, _nobody
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, deque()
        committed = [reply.to for entry in waiting for reply in entry.replies]
        assert self._error is not None, "a machine was thrown away without a reason"
        failed(self._error)
        reason = _not_coordinator(self._error)
        for to in dict.fromkeys([*committed, *told, *self.machine.abandon()]):
            _tell(to, reason)


def _tell(to: Waiter, answer: object) -> None:
    """One who cannot take an answer must not keep the others from theirs."""
    try:
        to(answer)
    except Exception as error:  # the outermost frame of an answer
        _events.error("answer.failed", exc_info=error)


def _not_coordinator(error: WaystationError | None) -> NotCoordinatorError:
    if isinstance(error, NotCoordinatorError):
        return error
    return NotCoordinatorError(f"this node coordinates it no longer: {error}")


def _nobody(_error: WaystationError) -> None:
    """Who hears of the end of a machine that has ended."""
