"""Everything that is pending, by time, in memory that does not grow with it.

Changes are gathered in a table; a full table is sorted and written as a run, and runs of about
the same size are merged into larger ones (``runs.py``).  What holds:

1. a record is pending at a time if it was added there more often than taken back, counted over
   the table, the tables that are being written, and all runs;
2. what is written is a cache of the log: it counts from the moment at which a checkpoint names
   it, and until then the files that the last checkpoint names stay as they are;
3. work on files is done in steps that a thread may take; between them the index is whole, and
   answers as if nothing were under way.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from waystation.scheduling.dues import Due, packed, unpacked
from waystation.scheduling.files import IndexFiles
from waystation.scheduling.runs import BEGINNING, Cursor, Entry, Run, RunWriter, merged

__all__ = ["FIRST", "Index", "Named", "Step", "Steps"]

Step = Callable[[], None]
"""Work on files: reads what nobody changes, so that any thread may do it."""

Steps = Generator[Step, None, None]
"""Work in steps, to be taken one after the other; closing it gives up, and changes nothing."""

FIRST: Final[Due] = (-(1 << 63), 0)

_MERGE_RUNS: Final = 8
_SIZE_CLASS_BITS: Final = 3
_COUNTED: Final = 100_000
_COUNTED_AT_ONCE: Final = 1_000
_NAME: Final = "{:012}.run"


class Named(NamedTuple):
    """What a checkpoint says of one run."""

    number: int
    entries: int
    start: Entry


class Index:
    """The pending records of one partition; the thread of the loop owns it."""

    __slots__ = (
        "_counted",
        "_counted_to",
        "_files",
        "_frozen",
        "_garbage",
        "_next_number",
        "_parts",
        "_parts_at",
        "_table",
        "pending",
        "runs",
    )

    def __init__(self, files: IndexFiles, runs: Iterable[Named] = (), pending: int = 0) -> None:
        """Open what the last checkpoint names, and remove what it does not."""
        self._files = files
        self._table: dict[int, int] = {}
        self._frozen: dict[int, int] = {}
        self._garbage: list[Run] = []
        """Runs that are no longer read, while a checkpoint may still name them."""
        self.runs: list[Run] = [self._opened(one) for one in runs]
        self.pending = pending
        self._counted = 0
        self._counted_to: Due | None = None
        """How far somebody has counted who counts now."""
        self._parts: Iterator[tuple[list[Entry], Entry | None]] | None = None
        self._parts_at: Due | None = None
        """Where somebody reads on, and with what; of no use once there are other runs."""
        known = {_NAME.format(run.number) for run in self.runs}
        names = [name for name in files.names() if name.endswith(".run")]
        for name in names:
            if name not in known:
                files.remove(name)
        self._next_number = 1 + max((int(name.split(".")[0]) for name in names), default=0)

    @property
    def gathered(self) -> int:
        """How many changes are in memory only."""
        return len(self._table)

    # --- changes ------------------------------------------------------------------------

    def add(self, dues: Sequence[Due]) -> None:
        """Records wait for their times.

        HOT: once per batch of the companion topic (benchmarks/scheduling/index.py).
        """
        table, count = self._table, 0
        for one in map(packed, dues):
            table[one] = table.get(one, 0) + 1
            count += 1
        self.pending += count
        if self._counted_to is not None:
            self._counted += sum(due < self._counted_to for due in dues)

    def remove(self, dues: Sequence[Due]) -> None:
        """Records no longer wait for those times."""
        table, count = self._table, 0
        for one in map(packed, dues):
            table[one] = table.get(one, 0) - 1
            count += 1
        self.pending -= count
        if self._counted_to is not None:
            self._counted -= sum(due < self._counted_to for due in dues)

    # --- questions ----------------------------------------------------------------------

    def holds(self, due: Due) -> bool:
        """Whether a record is pending at a time."""
        count = self._table.get(packed(due), 0) + self._frozen.get(packed(due), 0)
        return count + sum(run.count(*due) for run in self.runs) > 0

    def read(self, start: Due, want: int, *, go_on: bool = False) -> tuple[list[Due], Due | None]:
        """About ``want`` or more that are pending from ``start`` on, and where the rest begins.

        ``None`` for the rest means that this was all.  Who reads on and on says so, and is
        spared the search for where the last answer ended.
        """
        parts = self._parts if go_on and self._parts_at == start else None
        if parts is None:
            parts = merged([Cursor(run, _code(start)) for run in self.runs])
        counts: dict[Due, int] = {}
        rest: Due | None = None
        for part, until in parts:
            for due, code in part:
                key = due, code >> 1
                counts[key] = counts.get(key, 0) + (-1 if code & 1 else 1)
            rest = None if until is None else (until[0], until[1] >> 1)
            if len(counts) >= want:
                break
        if go_on:
            self._parts, self._parts_at = parts, rest
        first, end = packed(start), None if rest is None else packed(rest)
        for table in (self._frozen, self._table):
            for one, count in table.items():
                if one >= first and (end is None or one < end):
                    key = unpacked(one)
                    counts[key] = counts.get(key, 0) + count
        return sorted(key for key, count in counts.items() if count > 0), rest

    def counting(self) -> Iterator[None]:
        """Set ``pending`` right, some entries at a time, whatever changes meanwhile.

        It is wrong where records were taken back that never were there.
        """
        self._counted, self._counted_to = 0, FIRST
        try:
            while self._counted_to is not None:
                found, self._counted_to = self.read(self._counted_to, _COUNTED_AT_ONCE)
                self._counted += len(found)
                if self._counted_to is None:
                    self.pending = self._counted
                yield
        finally:
            self._counted_to = None

    def count(self) -> int:
        """How many are pending, counted one by one."""
        total, start = 0, FIRST
        while True:
            found, rest = self.read(start, _COUNTED)
            total += len(found)
            if rest is None:
                return total
            start = rest

    # --- files --------------------------------------------------------------------------

    def freeze(self) -> None:
        """Set the table aside to be written: later changes are not part of it."""
        assert not self._frozen, "a table was frozen while another is being written"
        self._frozen = {due: count for due, count in self._table.items() if count}
        self._table = {}

    def write(self) -> Steps:
        """Write what was frozen as a run."""
        written: list[Run] = []
        number = self._number()

        def step() -> None:
            entries = sorted(_entries(self._frozen))
            if entries:
                writer = RunWriter(number, self._files.create(_NAME.format(number)))
                writer.add(entries)
                run = writer.finish()
                assert run is not None, "entries were written and none are there"
                written.append(run)

        try:
            yield step
        finally:
            if written or not self._frozen:
                self._changed([*self.runs, *written])
                self._frozen = {}
            else:
                self._thaw()

    def raise_starts(self) -> Steps:
        """Leave behind, in every run, what lies before the first record that is pending there.

        What is added later, however early it is due, is in later runs: it is not left behind.
        """
        runs = list(self.runs)
        parts = merged([Cursor(run, BEGINNING) for run in runs])
        found: list[Entry | None] = []

        def step() -> None:
            part = next(parts, None)
            if part is None:
                found.append(None)
            else:
                found.extend([entry for entry in part[0] if not entry[1] & 1][:1])

        while not found:
            yield step
        first = found[0]
        passed = [run for run in runs if first is None or run.last < first]
        for run in runs:
            if first is not None:
                run.start = max(run.start, first)
        self._garbage += passed
        self._changed([run for run in self.runs if run not in passed])

    def merge(self) -> Steps:
        """Make one run of several of about the same size, if there are."""
        runs = self._alike()
        if not runs:
            return
        number = self._number()
        writer = RunWriter(number, self._files.create(_NAME.format(number)))
        parts = merged([Cursor(run, BEGINNING) for run in runs])
        done: list[Run | None] = []

        def step() -> None:
            part = next(parts, None)
            if part is None:
                done.append(writer.finish())
            else:
                writer.add(part[0])

        while not done:
            yield step
        self._changed([run for run in self.runs if run not in runs])
        if done[0] is not None:
            self.runs.append(done[0])
        self._garbage += runs

    def named(self) -> list[Named]:
        """What a checkpoint has to say of the runs."""
        return [Named(run.number, run.entries, run.start) for run in self.runs]

    def sweep(self) -> Steps:
        """Remove what the checkpoint that was just written no longer names."""
        garbage, self._garbage = self._garbage, []
        if not garbage:
            return

        def step() -> None:
            for run in garbage:
                run.close()
                self._files.remove(_NAME.format(run.number))

        yield step

    def close(self) -> None:
        """Let go of all files."""
        for run in (*self.runs, *self._garbage):
            run.close()

    # --- inside -------------------------------------------------------------------------

    def _thaw(self) -> None:
        """The table that was set aside could not be written: it is part of the next."""
        for due, count in self._frozen.items():
            self._table[due] = self._table.get(due, 0) + count
        self._frozen = {}

    def _changed(self, runs: list[Run]) -> None:
        """Read from these runs from now on."""
        self.runs = runs
        self._parts = self._parts_at = None

    def _alike(self) -> list[Run]:
        classes: dict[int, list[Run]] = {}
        for run in self.runs:
            classes.setdefault(run.entries.bit_length() // _SIZE_CLASS_BITS, []).append(run)
        for size_class in sorted(classes):
            if len(classes[size_class]) >= _MERGE_RUNS:
                return classes[size_class]
        return []

    def _number(self) -> int:
        self._next_number += 1
        return self._next_number

    def _opened(self, named: Named) -> Run:
        file = self._files.open(_NAME.format(named.number))
        run = Run.opened(named.number, file, named.entries)
        run.start = named.start
        return run


def _entries(table: dict[int, int]) -> Iterator[Entry]:
    for one, count in table.items():
        due, offset = unpacked(one)
        if count > 0:
            for _ in range(count):
                yield due, offset << 1
        elif count < 0:
            for _ in range(-count):
                yield due, offset << 1 | 1


def _code(due: Due) -> Entry:
    """The first entry that there may be about ``due``."""
    return due[0], due[1] << 1
