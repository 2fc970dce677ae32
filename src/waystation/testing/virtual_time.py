"""Event loops on which time passes only between events, and stands still during them.

A ``Schedule`` holds what is to happen; any number of ``VirtualLoop`` share it, one for every
simulated node, and a dead one's events no longer happen.  Coroutines, futures, time-outs and locks
of asyncio run on them unchanged.

1. One event at a time, in the order of their times, and of their making where times are equal:
   the same program gives the same run on every machine.
2. Nothing waits: when nothing is ready, the next event's time has come.
3. Work given to a thread is done at once, in the caller's turn; or, where ``thread_delay_s`` says
   how long, in a turn of its own some time later.
4. An event that raises ends the run: ``Schedule.step`` raises it.
5. A loop that is paused does nothing; what was to happen meanwhile happens when it goes on, in its
   order.
"""

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from heapq import heappop, heappush
from typing import Any, TypeVar, TypeVarTuple

from waystation.model.offsets import Millis

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_SOME_DAY_MS = 1_700_000_000_000
_LATE_S = 1e-9


class Schedule:
    """What is to happen, and the time it is."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.steps = 0
        self._ready: deque[asyncio.Handle] = deque()
        self._later: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._order = itertools.count()
        self._raised: BaseException | None = None

    def add(self, handle: asyncio.Handle) -> None:
        """Let it happen in this moment, after what is to happen in it already."""
        self._ready.append(handle)

    def add_at(self, when_s: float, handle: asyncio.TimerHandle) -> None:
        """Let it happen at ``when_s``, or now if that is over."""
        heappush(self._later, (when_s, next(self._order), handle))

    def fail(self, error: BaseException) -> None:
        """Something broke where nobody catches it."""
        self._raised = self._raised or error

    def step(self, until_s: float = float("inf")) -> bool:
        """Let the next event happen if it is due by ``until_s``; false if none is."""
        handle = self._next(until_s)
        if handle is None:
            return False
        self.steps += 1
        loop: VirtualLoop = handle._loop  # type: ignore[attr-defined]
        outer = asyncio._get_running_loop()
        asyncio._set_running_loop(loop)
        try:
            handle._run()
        finally:
            asyncio._set_running_loop(outer)
        if self._raised is not None:
            raised, self._raised = self._raised, None
            raise raised
        return True

    def _next(self, until_s: float) -> asyncio.Handle | None:
        while self._ready or self._later:
            if self._ready:
                handle = self._ready.popleft()
            elif self._later[0][0] > until_s:
                return None
            else:
                when_s, _, handle = heappop(self._later)
                if not handle.cancelled():
                    self.now_s = max(self.now_s, when_s)
            loop: VirtualLoop = handle._loop  # type: ignore[attr-defined]
            if handle.cancelled() or loop.dead:
                continue
            if loop.paused:
                loop.held.append(handle)
                continue
            return handle
        return None


class VirtualClock:
    """The schedule's time; ``skew_ms`` is how far a node's wall clock is off.

    ``rate`` is how fast both of its clocks run: 1.01 gains a second in a hundred.
    """

    def __init__(self, schedule: Schedule, skew_ms: int = 0, rate: float = 1.0) -> None:
        self._schedule = schedule
        self.skew_ms = skew_ms
        self.rate = rate

    def now(self) -> Millis:
        """Milliseconds since the epoch, as this clock was set."""
        return Millis(_SOME_DAY_MS + self.skew_ms + int(self.monotonic() * 1_000))

    def monotonic(self) -> float:
        """Seconds since the world began, as this clock counts them."""
        return self._schedule.now_s * self.rate


class _Task(asyncio.Task[T]):
    """A task with a hash of its own, so that a set of tasks has the same order in every run."""

    _numbers = itertools.count()

    def __init__(self, *args: Any, **options: Any) -> None:
        self._number = next(_Task._numbers)
        super().__init__(*args, **options)

    def __hash__(self) -> int:
        return self._number


class VirtualLoop(asyncio.AbstractEventLoop):
    """An event loop over a schedule; once ``dead``, nothing of it happens any more.

    What was running on it stays as it was, as the memory of a machine that lost power: no
    ``finally`` runs, nobody is cancelled.
    """

    def __init__(self, schedule: Schedule | None = None, rate: float = 1.0) -> None:
        self.schedule = schedule or Schedule()
        self.dead = self.paused = False
        self.held: list[asyncio.Handle] = []
        """What was to happen while it was paused."""
        self.rate = rate
        """How fast its time runs."""
        self.thread_delay_s: Callable[[], float] | None = None
        # A pending task that is collected would run its clean-up.
        self._tasks: list[asyncio.Task[Any]] = []

    def time(self) -> float:
        """Seconds since the world began, as this loop counts them."""
        return self.schedule.now_s * self.rate

    def go_on(self) -> None:
        """Be paused no more; what was held up happens now."""
        self.paused = False
        held, self.held = self.held, []
        for handle in held:
            self.schedule.add(handle)

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Run ``callback`` in this moment."""
        handle = asyncio.Handle(callback, args, self, context)
        if not self.dead:
            self.schedule.add(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Run ``callback`` in this moment: there are no other threads."""
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run ``callback`` after ``delay`` seconds."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run ``callback`` at ``when``, and a nanosecond late, as every real timer is at least.

        Who computes with fractions would otherwise be woken a rounding error early, wait for
        the rest, and be woken in the same moment for ever.
        """
        return self._call_at(
            when / self.rate, asyncio.TimerHandle(when, callback, args, self, context)
        )

    def call_at_true(
        self, when_s: float, callback: Callable[[*Ts], object], *args: *Ts
    ) -> asyncio.TimerHandle:
        """The same by the schedule's time, whatever this loop's clock says: for the world."""
        return self._call_at(when_s, asyncio.TimerHandle(when_s, callback, args, self))

    def _call_at(self, when_s: float, handle: asyncio.TimerHandle) -> asyncio.TimerHandle:
        if not self.dead:
            self.schedule.add_at(max(when_s, self.schedule.now_s) + _LATE_S, handle)
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        """A future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        """A task of this loop."""
        task: asyncio.Task[T] = _Task(coro, loop=self, name=name, context=context)
        self._tasks.append(task)
        if len(self._tasks) % 256 == 0:
            self._tasks = [one for one in self._tasks if not one.done()]
        return task

    def run_in_executor(
        self, executor: Any, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """Do it now, or soon; the future has the outcome."""
        done: asyncio.Future[T] = self.create_future()
        if self.thread_delay_s is None:
            _do(done, func, *args)
        else:
            self.call_later(self.thread_delay_s(), _do, done, func, *args)
        return done

    def run_until_complete(self, future: Any) -> Any:
        """Let events happen until ``future``, or the coroutine, is done; its outcome."""
        task = asyncio.ensure_future(future, loop=self)
        while not task.done():
            assert self.schedule.step(), "nothing is left to happen, and it is not done"
        return task.result()

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """What an event raised ends the run; a dead loop's raises nothing."""
        error = context.get("exception")
        if error is not None and not self.dead:
            self.schedule.fail(error)

    def is_running(self) -> bool:
        """True: a simulation is always within an event or between two."""
        return True

    def is_closed(self) -> bool:
        """Whether its node is dead."""
        return self.dead

    def get_debug(self) -> bool:
        """Never."""
        return False

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Cancelled ones are passed over when their time comes."""


def virtual_loop(schedule: Schedule | None = None, rate: float = 1.0) -> VirtualLoop:
    """A new loop; what it has no use for, such as sockets, raises ``NotImplementedError``."""
    return VirtualLoop(schedule, rate)  # type: ignore[abstract]  # on purpose


def _do(done: asyncio.Future[T], func: Callable[[*Ts], T], *args: *Ts) -> None:
    """The work of a thread, whose owner may have stopped waiting for it."""
    try:
        outcome = func(*args)
    except Exception as error:
        if not done.done():
            done.set_exception(error)
    else:
        if not done.done():
            done.set_result(outcome)
