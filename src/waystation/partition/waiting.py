"""Those who wait for a partition: producers for a commit, readers for something to read.

1. A producer is told once, when the high watermark has reached the end of its batch, or when
   the partition stops being led here.
2. A consumer is told at most once per turn of the loop, however many batches arrived in it, so
   that one fetch carries what many small produces brought.
3. A follower is told of every append while that is made, and may then only remember it.
"""

from collections import deque
from collections.abc import Callable

from waystation.model.errors import WaystationError
from waystation.model.offsets import Offset

Outcome = WaystationError | None
OnCommit = Callable[[Outcome], None]


class CommitWaiters:
    """Producers in the order of their offsets, so that a new mark frees a prefix of them."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: deque[tuple[Offset, OnCommit]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, end: Offset, told: OnCommit) -> None:
        """Call ``told(None)`` once everything before ``end`` is committed.

        Ends come in the order of the log, except for a repeated batch, whose end lies among
        those already waiting; it then waits a little longer than it must, never shorter.
        """
        if self._waiting and self._waiting[-1][0] > end:
            end = self._waiting[-1][0]
        self._waiting.append((end, told))

    def release(self, mark: Offset) -> None:
        """Tell everyone whose end ``mark`` has reached."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= mark:
            waiting.popleft()[1](None)

    def fail(self, error: WaystationError) -> None:
        """Tell everyone that ``error`` came first."""
        waiting, self._waiting = self._waiting, deque()
        for _, told in waiting:
            told(error)


class ReadWaiters:
    """Consumers that found nothing to read; told when that may have changed."""

    __slots__ = ("_defer", "_scheduled", "_waiting")

    def __init__(self, defer: Callable[[Callable[[], None]], object]) -> None:
        self._waiting: dict[Callable[[], None], None] = {}
        self._defer = defer
        self._scheduled = False

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, told: Callable[[], None]) -> None:
        """Call ``told`` after each change, until it is removed."""
        self._waiting[told] = None

    def remove(self, told: Callable[[], None]) -> None:
        """Stop calling; harmless if it was not waiting."""
        self._waiting.pop(told, None)

    def changed(self) -> None:
        """Something new may be read; those who wait hear of it in the loop's next turn."""
        if self._waiting and not self._scheduled:
            self._scheduled = True
            self._defer(self._tell)

    def _tell(self) -> None:
        self._scheduled = False
        for told in list(self._waiting):
            told()


class AppendWaiters:
    """Followers, who are told of appends at once and look at the log later."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[Callable[[], None], None] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, told: Callable[[], None]) -> None:
        """Call ``told`` at each change, until it is removed."""
        self._waiting[told] = None

    def remove(self, told: Callable[[], None]) -> None:
        """Stop calling; harmless if it was not waiting."""
        self._waiting.pop(told, None)

    def changed(self) -> None:
        """Something was appended, or the partition is led here no more.

        HOT: once per append that is copied.
        """
        for told in self._waiting:
            told()
