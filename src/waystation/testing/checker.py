"""Whether a cluster did what a cluster may do, judged by what its clients saw.

``check`` takes a history (``history.py``) and finds

====================  ===========================================================================
lost write            acknowledged and, if in a transaction, committed, and a reader went past it
aborted read          a reader saw what was never committed, or not yet
duplicate             a value stands in two places
inconsistent offset   a place holds another value than was said or seen before; or a group
                      processed messages twice, or left some out
torn transaction      a reader saw a part of a transaction and went past the rest
non-monotonic poll    a reader was given an offset that it had passed already
reordered write       values of one sender stand in one partition in another order than sent
phantom               a reader saw what nobody sent
====================  ===========================================================================

It is certain of what it finds: where the client cannot know (its commit was never answered),
the transaction may be there or not, but all of it or nothing.  It does not see what no reader
went past; ``Verdict.complete`` tells whether readers went to the end of everything.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from waystation.model.ids import TopicPartition
from waystation.testing.history import (
    Ack,
    Begin,
    Consume,
    Decide,
    End,
    Event,
    Finish,
    Note,
    Poll,
    Seek,
    Send,
    Value,
)

__all__ = ["Finding", "Kind", "Verdict", "check"]


class Kind(StrEnum):
    """What can be wrong."""

    LOST_WRITE = "lost write"
    ABORTED_READ = "aborted read"
    DUPLICATE = "duplicate"
    INCONSISTENT_OFFSET = "inconsistent offset"
    TORN_TRANSACTION = "torn transaction"
    NON_MONOTONIC_POLL = "non-monotonic poll"
    REORDERED_WRITE = "reordered write"
    PHANTOM = "phantom"


class Finding(NamedTuple):
    """One thing that may not be."""

    kind: Kind
    what: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}"


class Verdict(NamedTuple):
    """What was found, and in how much."""

    findings: list[Finding]
    writes: int
    acknowledged: int
    reads: int
    committed: int
    aborted: int
    unknown: int
    complete: bool
    """Whether every partition that was written to was read to its end, after the last write."""


def check(events: Iterable[Event]) -> Verdict:
    """Judge a history; its events may come in any order that keeps each process's own."""
    past = _Past(events)
    seen = _Sightings(past)
    findings = [*past.findings, *seen.findings, *seen.out_of_order()]
    findings += _missing(past, seen)
    findings += _consumed_otherwise(past, seen)
    fates = [one.fate for one in past.transactions.values()]
    return Verdict(
        findings=list(dict.fromkeys(findings)),
        writes=len(past.owners),
        acknowledged=len(past.places),
        reads=seen.reads,
        committed=fates.count(True),
        aborted=fates.count(False),
        unknown=fates.count(None),
        complete=past.is_read_to_the_end(),
    )


# --- what was done ----------------------------------------------------------------------------


class _Place(NamedTuple):
    where: TopicPartition
    offset: int

    def __str__(self) -> str:
        return f"{self.where}@{self.offset}"


@dataclass(slots=True)
class _Transaction:
    """All that its process wrote down about a transaction."""

    name: str
    values: list[Value] = field(default_factory=list)
    spans: list[tuple[str, TopicPartition, int, int]] = field(default_factory=list)
    commit_wanted_ns: int | None = None
    ended_ns: int | None = None
    committed: bool | None = None

    @property
    def fate(self) -> bool | None:
        """Committed, aborted, or (``None``) known only to the log."""
        if self.committed is not None:
            return self.committed
        # Nobody else may commit it, so that one who never asked for it never did.
        return None if self.commit_wanted_ns is not None else False

    def ask(self, at_ns: int, commit: bool) -> None:
        """Its process asks for its end; a commit that was asked for may come true from then on."""
        if commit and self.commit_wanted_ns is None:
            self.commit_wanted_ns = at_ns


@dataclass(slots=True)
class _Stint:
    """What one reader saw of a partition without going elsewhere: all in ``[start, position)``."""

    start: int
    position: int
    seen: set[int] = field(default_factory=set)


class _Past:
    """The history by transaction, value and reader."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.transactions: dict[tuple[str, int], _Transaction] = {}
        self.owners: dict[Value, _Transaction | None] = {}
        self.places: dict[Value, _Place] = {}
        self.holders: dict[_Place, Value] = {}
        self.polls: list[Poll] = []
        self.stints: dict[tuple[str, TopicPartition], list[_Stint]] = {}
        self.ends: list[Finish] = []
        self.findings: list[Finding] = []
        self._acked_ns: dict[Value, int] = {}
        for event in events:
            self._take(event)
        self.finished_ns = self._finished_ns()

    def stints_of(self) -> dict[str, list[tuple[TopicPartition, _Stint]]]:
        """What each reader read."""
        found: dict[str, list[tuple[TopicPartition, _Stint]]] = defaultdict(list)
        for (process, where), stints in self.stints.items():
            found[process] += [(where, stint) for stint in stints]
        return found

    def is_read_to_the_end(self) -> bool:
        """Whether somebody asked for each partition's end once all that is known to be there was.

        What nobody was told of, no reader can be blamed for.
        """
        return all(
            self.finished_ns.get(place.where, -1) >= (self.known_ns(value) or self._acked_ns[value])
            for value, place in self.places.items()
        )

    def known_ns(self, value: Value) -> int | None:
        """Since when its sender knows that the value is there to stay; ``None`` if it does not."""
        owner = self.owners.get(value)
        if owner is None:
            return self._acked_ns.get(value)
        return owner.ended_ns if owner.committed else None

    def _take(self, event: Event) -> None:
        match event:
            case Begin(process=process, transaction=number):
                self._transaction(process, number)
            case Send(process=process, transaction=number, numbers=numbers):
                self._sent(process, number, numbers)
            case Ack():
                self._acknowledged(event)
            case Consume(process=process, transaction=number, group=group):
                self._transaction(process, number).spans += [
                    (group, TopicPartition(one.topic, one.partition), one.start, one.end)
                    for one in event.spans
                ]
            case Decide(at_ns, process, number, commit):
                self._transaction(process, number).ask(at_ns, commit)
            case End(at_ns, process, number, committed):
                one = self._transaction(process, number)
                one.ended_ns, one.committed = at_ns, committed
            case Seek(process=process, topic=topic, partition=partition, offset=offset):
                where = TopicPartition(topic, partition)
                self.stints.setdefault((process, where), []).append(_Stint(offset, offset))
            case Poll():
                self.polls.append(event)
                self._polled(event)
            case Finish(process=process, topic=topic, partition=partition, end=end):
                self.ends.append(event)
                for stint in self.stints.get((process, TopicPartition(topic, partition)), [])[-1:]:
                    stint.position = max(stint.position, end)
            case Note():
                pass

    def _finished_ns(self) -> dict[TopicPartition, int]:
        """When each partition's end was asked for last."""
        found: dict[TopicPartition, int] = {}
        for one in self.ends:
            where = TopicPartition(one.topic, one.partition)
            found[where] = max(one.at_ns, found.get(where, -1))
        return found

    def _transaction(self, process: str, number: int) -> _Transaction:
        key = (process, number)
        if key not in self.transactions:
            self.transactions[key] = _Transaction(f"{process}'s transaction {number}")
        return self.transactions[key]

    def _sent(self, process: str, number: int | None, numbers: Iterable[int]) -> None:
        owner = None if number is None else self._transaction(process, number)
        for each in numbers:
            value = Value(process, each)
            self.owners[value] = owner
            if owner is not None:
                owner.values.append(value)

    def _acknowledged(self, event: Ack) -> None:
        for topic, partition, offset, number in event.rows:
            value = Value(event.process, number)
            place = _Place(TopicPartition(topic, partition), offset)
            self._acked_ns[value] = event.at_ns
            self.places[value] = place
            other = self.holders.setdefault(place, value)
            if other != value:
                self._find(
                    Kind.INCONSISTENT_OFFSET,
                    f"{other} and {value} were both acknowledged at {place}",
                )

    def _polled(self, event: Poll) -> None:
        where = TopicPartition(event.topic, event.partition)
        stints = self.stints.setdefault((event.process, where), [])
        if not stints:
            begin = event.rows[0].offset if event.rows else event.position
            stints.append(_Stint(begin, begin))
        stint = stints[-1]
        for offset, *_ in event.rows:
            if offset < stint.position:
                self._find(
                    Kind.NON_MONOTONIC_POLL,
                    f"{event.process} was given {where}@{offset} when {stint.position} was next",
                )
            stint.position = max(stint.position, offset + 1)
            stint.seen.add(offset)
        if event.position < stint.position:
            self._find(
                Kind.NON_MONOTONIC_POLL,
                f"{event.process} stands at {where}@{event.position}, having been given "
                f"{stint.position - 1}",
            )
        stint.position = max(stint.position, event.position)

    def _find(self, kind: Kind, what: str) -> None:
        self.findings.append(Finding(kind, what))


# --- what was seen ----------------------------------------------------------------------------


class _Sightings:
    """Every value that any reader saw: where it stands, and whether it may be seen."""

    def __init__(self, past: _Past) -> None:
        self.reads = 0
        self.places: dict[Value, _Place] = {}
        self.findings: list[Finding] = []
        self._seen_ns: dict[Value, int] = {}
        self._past = past
        self._holders: dict[_Place, Value] = {}
        for poll in past.polls:
            where = TopicPartition(poll.topic, poll.partition)
            for offset, process, number in poll.rows:
                self.reads += 1
                self._see(poll, Value(process, number), _Place(where, offset))

    def committed(self, transaction: _Transaction) -> bool | None:
        """Its fate; seen is committed, whatever its process knows."""
        if transaction.fate is None and any(one in self.places for one in transaction.values):
            return True
        return transaction.fate

    def committed_ns(self, transaction: _Transaction) -> int | None:
        """Since when it is certain that all of it is there; ``None`` if it may not be."""
        if transaction.committed is not None:
            return transaction.ended_ns if transaction.committed else None
        seen = [self._seen_ns[one] for one in transaction.values if one in self._seen_ns]
        return min(seen, default=None)

    def holds(self, where: TopicPartition, offset: int, value: Value) -> bool:
        """Whether it was that value which was seen there, and not another in its place."""
        return self._holders.get(_Place(where, offset)) == value

    def out_of_order(self) -> Iterator[Finding]:
        """Values of one sender that stand in another order than they were sent."""
        newest: dict[tuple[TopicPartition, str], int] = {}
        for place, value in sorted(self._holders.items()):
            before = newest.get((place.where, value.process), -1)
            if value.number < before:
                what = f"{value} at {place} comes after {Value(value.process, before)}"
                yield Finding(Kind.REORDERED_WRITE, what)
            newest[place.where, value.process] = max(before, value.number)

    def _see(self, poll: Poll, value: Value, place: _Place) -> None:
        if value not in self._past.owners:
            self._find(Kind.PHANTOM, f"{poll.process} saw {value} at {place}, which nobody sent")
            return
        self._may_be_seen(poll, value, place)
        self._seen_ns[value] = min(poll.at_ns, self._seen_ns.get(value, poll.at_ns))
        first = self.places.setdefault(value, place)
        said = self._past.places.get(value, place)
        if first != place:
            self._find(Kind.DUPLICATE, f"{value} stands at {first} and at {place}")
        elif said != place:
            self._find(
                Kind.INCONSISTENT_OFFSET,
                f"{value} was acknowledged at {said} and stands at {place}",
            )
        self._alone_there(poll, value, place)

    def _may_be_seen(self, poll: Poll, value: Value, place: _Place) -> None:
        owner = self._past.owners[value]
        if owner is None:
            return
        if owner.fate is False:
            what = f"{poll.process} saw {value} at {place}, of {owner.name}, which did not commit"
            self._find(Kind.ABORTED_READ, what)
        elif owner.commit_wanted_ns is not None and poll.at_ns < owner.commit_wanted_ns:
            self._find(
                Kind.ABORTED_READ,
                f"{poll.process} saw {value} at {place}, of {owner.name}, before it was committed",
            )

    def _alone_there(self, poll: Poll, value: Value, place: _Place) -> None:
        said = self._past.holders.get(place, value)
        before = self._holders.setdefault(place, value)
        if before != value:
            what = f"{poll.process} saw {value} at {place}, where {before} was seen before"
            self._find(Kind.INCONSISTENT_OFFSET, what)
        elif said != value:
            what = f"{poll.process} saw {value} at {place}, where {said} was acknowledged"
            self._find(Kind.INCONSISTENT_OFFSET, what)

    def _find(self, kind: Kind, what: str) -> None:
        self.findings.append(Finding(kind, what))


# --- what was not seen ------------------------------------------------------------------------


def _missing(past: _Past, seen: _Sightings) -> Iterator[Finding]:
    """What readers went past without seeing it, or found no end behind."""
    there = _to_be_seen(past, seen)
    for process, stints in past.stints_of().items():
        missed: dict[Value, str] = {}
        met: set[Value] = set()
        for where, stint in stints:
            values = there.get(where, _NOTHING)
            for offset, value in values.between(stint.start, stint.position):
                if offset in stint.seen and seen.holds(where, offset, value):
                    met.add(value)
                else:
                    missed[value] = f"{process} read on past {where}@{offset}"
        yield from _told(past, missed, met)
    yield from _told(past, _beyond_the_end(past, there), set(seen.places))
    yield from _told(past, _nowhere(past, seen), set(seen.places))


def _told(past: _Past, missed: dict[Value, str], met: set[Value]) -> Iterator[Finding]:
    """One finding for a transaction, one for a value outside of any."""
    for value, how in missed.items():
        owner = past.owners[value]
        if owner is None:
            yield Finding(Kind.LOST_WRITE, f"{value} was acknowledged; {how}")
        elif missed.keys().isdisjoint(owner.values[: owner.values.index(value)]):
            part = met.intersection(owner.values)
            if part:
                yield Finding(
                    Kind.TORN_TRANSACTION, f"{owner.name}: saw {min(part)}; {how}, {value}"
                )
            else:
                yield Finding(Kind.LOST_WRITE, f"{value} of {owner.name} was committed; {how}")


class _Row:
    """The values that a partition holds, by offset."""

    def __init__(self, pairs: Iterable[tuple[int, Value]]) -> None:
        self._pairs = sorted(pairs)
        self._offsets = [offset for offset, _ in self._pairs]

    def between(self, start: int, end: int) -> list[tuple[int, Value]]:
        """Those in ``[start, end)``."""
        return self._pairs[bisect_left(self._offsets, start) : bisect_left(self._offsets, end)]

    def from_on(self, start: int) -> list[tuple[int, Value]]:
        """Those at ``start`` and after."""
        return self._pairs[bisect_left(self._offsets, start) :]


_NOTHING = _Row(())


def _to_be_seen(past: _Past, seen: _Sightings) -> dict[TopicPartition, _Row]:
    """Where values stand that every reader who comes by must see."""
    found: dict[TopicPartition, list[tuple[int, Value]]] = defaultdict(list)
    for value, owner in past.owners.items():
        # Where it was seen first: what stands elsewhere too is another finding.
        place = past.places.get(value) or seen.places.get(value)
        if place is not None and (owner is None or seen.committed(owner)):
            found[place.where].append((place.offset, value))
    return {where: _Row(pairs) for where, pairs in found.items()}


def _beyond_the_end(past: _Past, there: dict[TopicPartition, _Row]) -> dict[Value, str]:
    """What was known to be there before a reader asked for the end, and stood behind it."""
    found = {}
    for end in past.ends:
        where = TopicPartition(end.topic, end.partition)
        for offset, value in there.get(where, _NOTHING).from_on(end.end):
            known_ns = past.known_ns(value)
            if known_ns is not None and known_ns < end.at_ns:
                found[value] = f"{where} ended at {end.end}, before its offset {offset}"
    return found


def _nowhere(past: _Past, seen: _Sightings) -> dict[Value, str]:
    """What was committed without anybody knowing its place, and was seen nowhere.

    It may stand in any partition, so that all of them must have been read to the end since.
    """
    if not past.is_read_to_the_end():
        return {}
    read_ns = min(past.finished_ns.values(), default=-1)
    found = {}
    for transaction in past.transactions.values():
        committed_ns = seen.committed_ns(transaction)
        if committed_ns is not None and committed_ns < read_ns:
            for value in transaction.values:
                if value not in past.places and value not in seen.places:
                    found[value] = "its place was never told, and nobody saw it"
    return found


# --- what groups processed --------------------------------------------------------------------


class _Step(NamedTuple):
    """How far a transaction moved its group in one partition."""

    start: int
    end: int
    name: str


def _consumed_otherwise(past: _Past, seen: _Sightings) -> Iterator[Finding]:
    """Messages that a group processed twice or not at all."""
    there = _to_be_seen(past, seen)
    certain: dict[tuple[str, TopicPartition], list[_Step]] = defaultdict(list)
    possible: dict[tuple[str, TopicPartition], list[_Step]] = defaultdict(list)
    for one in past.transactions.values():
        committed = seen.committed(one)
        if committed is False:
            continue
        # One that sent nothing leaves no trace by which its fate could be known.
        taken = certain if committed else possible
        for group, where, start, end in one.spans:
            taken[group, where].append(_Step(start, end, one.name))
    for (group, where), steps in certain.items():
        row = there.get(where, _NOTHING)
        yield from _steps_apart(group, where, sorted(steps), possible[group, where], row)


def _steps_apart(
    group: str, where: TopicPartition, steps: list[_Step], possible: list[_Step], row: _Row
) -> Iterator[Finding]:
    """Each step begins where the one before it ended, or nothing stands between them."""
    at, before = 0, "its beginning"
    for start, end, name in steps:
        if start < at:
            yield Finding(
                Kind.INCONSISTENT_OFFSET,
                f"{group} processed {where}@{start} in {before} and in {name}",
            )
        left_out = [
            offset
            for offset, _ in row.between(at, start)
            if not any(maybe.start <= offset < maybe.end for maybe in possible)
        ]
        if left_out:
            yield Finding(
                Kind.INCONSISTENT_OFFSET,
                f"{group} left out {where}@{left_out[0]}, between {before} and {name}",
            )
        if end > at:
            at, before = end, name
