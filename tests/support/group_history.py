"""What the members of a group say they did, and whether a group may do so.

Each member keeps a journal: a line is written before anybody can know of what it says, so that
kill -9 takes nothing away but the last step.  All members run on one machine and so on one
monotonic clock.  ``complaints`` holds the journals of one group against the log:

1. every record was processed, and none as anything but what the log holds;
2. whoever gets a partition begins at an offset that was committed, or may have been, or at the
   start if none was; never before one whose commit had been acknowledged by then;
3. from there on it misses nothing, repeats nothing and sees each key's records in order, for as
   long as it owns the partition;
4. it commits what it has processed and no more;
5. no partition has two owners in one generation.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

__all__ = [
    "Assigned",
    "Committed",
    "Committing",
    "Event",
    "GivenUp",
    "Journal",
    "Log",
    "Processed",
    "Row",
    "complaints",
    "journal_of",
    "line_of",
]

_SHOWN = 20


class Row(NamedTuple):
    """One record: where it is, its key and how many of that key were before it."""

    offset: int
    key: str
    number: int


Log = Mapping[int, Sequence[Row]]
"""What each partition holds, from offset 0."""


class Assigned(NamedTuple):
    """The member was given partitions, in a generation or epoch."""

    at_ns: int
    generation: int
    partitions: tuple[int, ...]


class GivenUp(NamedTuple):
    """The member owns partitions no more, or was told that it lost them."""

    at_ns: int
    partitions: tuple[int, ...]


class Processed(NamedTuple):
    """The member processed records of one partition."""

    at_ns: int
    generation: int
    partition: int
    rows: tuple[Row, ...]


class Committing(NamedTuple):
    """The member is about to commit; whether that arrives is not known yet."""

    at_ns: int
    offsets: Mapping[int, int]


class Committed(NamedTuple):
    """The member was told that its commit counts."""

    at_ns: int
    offsets: Mapping[int, int]


Event = Assigned | GivenUp | Processed | Committing | Committed

_NAMES: dict[str, type[Event]] = {
    one.__name__: one for one in (Assigned, GivenUp, Processed, Committing, Committed)
}


class Journal(NamedTuple):
    """What one member did, in order."""

    member: str
    events: Sequence[Event]


# --- on disk -----------------------------------------------------------------------------------


def line_of(event: Event) -> bytes:
    """The event as a line of a journal."""
    return json.dumps([type(event).__name__, *event]).encode() + b"\n"


def journal_of(path: Path) -> Journal:
    """Read a journal; the last line may have been cut by the member's death."""
    whole, _, _ = path.read_bytes().rpartition(b"\n")
    return Journal(path.stem, [_event(json.loads(line)) for line in whole.splitlines()])


def _event(written: list[object]) -> Event:
    name, *values = written
    match name:
        case "Processed":
            at_ns, generation, partition, rows = values
            return Processed(at_ns, generation, partition, tuple(Row(*row) for row in rows))
        case "Committing" | "Committed":
            at_ns, offsets = values
            return _NAMES[name](at_ns, {int(one): at for one, at in offsets.items()})
        case _:
            *values, partitions = values
            return _NAMES[str(name)](*values, tuple(partitions))


# --- the checks --------------------------------------------------------------------------------


def complaints(log: Log, journals: Iterable[Journal]) -> list[str]:
    """Everything that one group may not do and did; none if all is well."""
    known = list(journals)
    found = list(dict.fromkeys(_two_owners(known)))
    commits = _Commits(known)
    for journal in known:
        found += _Life(journal, log, commits).complaints()
    found += _unprocessed(log, known)
    more = len(found) - _SHOWN
    return [*found[:_SHOWN], f"and {more} more"] if more > 0 else found


def _two_owners(journals: Iterable[Journal]) -> Iterator[str]:
    owner: dict[tuple[int, int], str] = {}
    for member, events in journals:
        for event in events:
            match event:
                case Assigned(_, generation, partitions):
                    claimed = partitions
                case Processed(_, generation, partition, _):
                    claimed = (partition,)
                case _:
                    continue
            for one in claimed:
                other = owner.setdefault((generation, one), member)
                if other != member and generation > 0:
                    yield f"{one} belongs to {other} and to {member} in generation {generation}"


def _unprocessed(log: Log, journals: Iterable[Journal]) -> Iterator[str]:
    seen: dict[int, set[int]] = defaultdict(set)
    for _, events in journals:
        for event in events:
            if isinstance(event, Processed):
                seen[event.partition].update(row.offset for row in event.rows)
    for partition, rows in log.items():
        missing = [row.offset for row in rows if row.offset not in seen[partition]]
        if missing:
            yield f"{partition}: {len(missing)} were never processed, {missing[0]} is the first"


class _Commits:
    """When which offset of a partition was committed, by whomever."""

    def __init__(self, journals: Iterable[Journal]) -> None:
        self._begun: dict[int, dict[int, int]] = defaultdict(dict)
        self._acknowledged: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for _, events in journals:
            for event in events:
                if isinstance(event, Committing):
                    for partition, offset in event.offsets.items():
                        first = self._begun[partition].get(offset, event.at_ns)
                        self._begun[partition][offset] = min(first, event.at_ns)
                elif isinstance(event, Committed):
                    for partition, offset in event.offsets.items():
                        self._acknowledged[partition].append((event.at_ns, offset))

    def may_be_found(self, partition: int, offset: int, at_ns: int) -> bool:
        """Whether somebody had begun to commit that offset by then."""
        begun = self._begun[partition].get(offset)
        return begun is not None and begun < at_ns

    def acknowledged(self, partition: int, at_ns: int) -> int:
        """The highest offset whose commit was acknowledged by then; 0 if there is none."""
        told = (offset for when, offset in self._acknowledged[partition] if when < at_ns)
        return max(told, default=0)


@dataclass
class _Stint:
    """A member's ownership of one partition; ``next`` is what it must process next."""

    assigned_ns: int
    begin: int | None = None
    next: int | None = None
    numbers: dict[str, int] = field(default_factory=dict)


class _Life:
    """One member's journal, step by step."""

    def __init__(self, journal: Journal, log: Log, commits: _Commits) -> None:
        self._member, self._events = journal
        self._log, self._commits = log, commits
        self._stints: dict[int, _Stint] = {}

    def complaints(self) -> Iterator[str]:
        for event in self._events:
            for problem in self._step(event):
                yield f"{self._member}: {problem}"

    def _step(self, event: Event) -> Iterator[str]:
        match event:
            case Assigned(at_ns, _, partitions):
                for one in partitions:
                    self._stints[one] = _Stint(at_ns)
            case GivenUp(_, partitions):
                for one in partitions:
                    self._stints.pop(one, None)
            case Processed(at_ns, _, partition, rows):
                stint = self._stints.get(partition)
                if stint is None:
                    yield f"processed {partition}@{rows[0].offset} without owning it"
                else:
                    yield from self._begins(stint, partition, rows[0].offset, at_ns)
                    for row in rows:
                        yield from self._goes_on(stint, partition, row)
            case Committing(_, offsets):
                for partition, offset in offsets.items():
                    stint = self._stints.get(partition)
                    if stint is None or offset != stint.next:
                        at = None if stint is None else stint.next
                        yield f"commits {partition}@{offset} having got to {at}"

    def _begins(self, stint: _Stint, partition: int, offset: int, at_ns: int) -> Iterator[str]:
        if stint.begin is not None:
            return
        stint.begin = stint.next = offset
        least = self._commits.acknowledged(partition, stint.assigned_ns)
        if offset < least:
            yield f"begins {partition} at {offset}; {least} was committed before"
        if offset and not self._commits.may_be_found(partition, offset, at_ns):
            yield f"begins {partition} at {offset}, which nobody had committed"

    def _goes_on(self, stint: _Stint, partition: int, row: Row) -> Iterator[str]:
        if row.offset != stint.next:
            yield f"processed {partition}@{row.offset}; {stint.next} was next"
        stint.next = row.offset + 1
        rows = self._log[partition]
        if row.offset >= len(rows) or rows[row.offset] != row:
            yield f"{partition} holds no {row}"
        before = stint.numbers.get(row.key, -1)
        if row.number <= before:
            yield f"{row.key}:{row.number} of {partition} came after {row.key}:{before}"
        stint.numbers[row.key] = row.number
