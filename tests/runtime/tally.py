"""The smallest machine that has everything a host must serve, and a log that does as it is told."""

from collections.abc import Callable, Sequence

from waystation.model.errors import StorageError, WaystationError
from waystation.model.machines import Outcome, Reply, Waiter
from waystation.model.offsets import Millis, Offset


class Tally:
    """A sum that grows; who waits is answered when it is large enough, or when time is up."""

    def __init__(self) -> None:
        self.total = 0
        self.was_loaded = False
        self.broken = False
        self.deadlines: list[Millis] = []
        self.ticks: list[Millis] = []
        self._waiting: list[tuple[int, Waiter]] = []

    def apply(self, record: int) -> None:
        if record == 13:
            raise ZeroDivisionError("a planted bug in apply")
        self.total += record

    def loaded(self, now: Millis) -> Outcome[int]:
        self.was_loaded = True
        return Outcome()

    def next_deadline(self) -> Millis | None:
        return min(self.deadlines, default=None)

    def tick(self, now: Millis) -> Outcome[int]:
        if self.broken:
            raise ZeroDivisionError("a planted bug in tick")
        self.ticks.append(now)
        self.deadlines = [one for one in self.deadlines if one > now]
        return Outcome([100])

    def abandon(self) -> list[Waiter]:
        return [to for _, to in self._waiting]

    def add(self, now: Millis, number: int, to: Waiter) -> Outcome[int]:
        total = self.total + number
        ready = [Reply(waiter, total) for least, waiter in self._waiting if least <= total]
        self._waiting = [one for one in self._waiting if one[0] > total]
        return Outcome([number], [Reply(to, total), *ready])

    def read(self, now: Millis, to: Waiter) -> Outcome[int]:
        return Outcome((), [Reply(to, self.total)])

    def wait_for(self, now: Millis, least: int, to: Waiter) -> Outcome[int]:
        self._waiting.append((least, to))
        return Outcome()


class ScriptedLog:
    """Commits when the test says so; can fail, lose its leader, or commit within an append."""

    def __init__(self) -> None:
        self.records: list[int] = []
        self.committed = Offset(0)
        self.commits_at_once = False
        self.refuses: WaystationError | None = None
        self.loses_leadership_in_append = False
        self._told: list[tuple[Offset, Callable[[WaystationError | None], None]]] = []

    def append(self, records: Sequence[int]) -> Offset:
        if self.loses_leadership_in_append:
            self.fail(StorageError("the disk is gone"))
        if self.refuses is not None:
            raise self.refuses
        self.records += records
        if self.commits_at_once:
            self.commit()
        return Offset(len(self.records))

    def when_committed(self, end: Offset, told: Callable[[WaystationError | None], None]) -> bool:
        if self.committed >= end:
            return True
        self._told.append((end, told))
        return False

    def commit(self, upto: int | None = None) -> None:
        """Let everything, or a prefix, be committed."""
        self.committed = Offset(len(self.records) if upto is None else upto)
        ready = [told for end, told in self._told if end <= self.committed]
        self._told = [one for one in self._told if one[0] > self.committed]
        for told in ready:
            told(None)

    def fail(self, error: WaystationError) -> None:
        """Tell everyone who waits for a commit that there will be none."""
        told, self._told = self._told, []
        for _, tell in told:
            tell(error)

    @property
    def listeners(self) -> int:
        return len(self._told)
