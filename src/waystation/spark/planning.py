"""What to read next: where partitions go on, how far, and in how many pieces.

Everything here is decided from what was read already and what the partitions hold now; asking
is done in ``brokers.py``.  Promises:

1. a plan never goes past what a partition holds, and never back behind where it was;
2. no offset is planned twice, and none between two plans is left out, but for those reported
   as lost;
3. a limit is kept, except that every partition that has something to read gets at least one
   offset: nobody starves;
4. the same question has the same answer, whatever the order of partitions in it.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple, TypeVar

from waystation.model.ids import TopicPartition
from waystation.spark.errors import BadOptionError
from waystation.spark.offsets import Offsets
from waystation.spark.spans import Span

__all__ = [
    "EARLIEST",
    "LATEST",
    "NO_LIMITS",
    "Held",
    "Limits",
    "Loss",
    "Position",
    "ends_within",
    "is_enough",
    "limited",
    "resolved",
    "resumed",
    "spans_between",
    "without_losses",
]

EARLIEST: Final = -2
LATEST: Final = -1

K = TypeVar("K", bound=Hashable)


class Held(NamedTuple):
    """What a partition holds now."""

    start: int
    """The oldest offset that is still there."""
    end: int
    """How far one may read: with read_committed, up to the oldest open transaction."""
    log_end: int
    """Where the log ends: whoever was beyond has read another log."""


class Loss(NamedTuple):
    """Offsets that were to be read and are gone; of a whole topic, if ``partition`` is None."""

    topic: str
    partition: int | None
    why: str


class Position(NamedTuple):
    """Where a user wants to begin or to end: everywhere alike, or a number for each partition.

    Numbers are offsets, ``EARLIEST`` and ``LATEST`` among them, or times in ms.
    """

    option: str
    everywhere: int | None
    each: Mapping[TopicPartition, int]
    by_time: bool = False

    def wanted(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The number for each of ``partitions``; the user must have named just these."""
        if self.everywhere is not None:
            return dict.fromkeys(partitions, self.everywhere)
        there = sorted(partitions)
        if unnamed := [str(one) for one in there if one not in self.each]:
            raise BadOptionError(
                f"{self.option} leaves out {', '.join(unnamed)}: name every partition, with "
                f"{EARLIEST} for the earliest offset and {LATEST} for the latest"
            )
        if unread := [str(one) for one in sorted(self.each) if one not in there]:
            raise BadOptionError(
                f"{self.option} names {', '.join(unread)}, which is not read: leave it out, or "
                "subscribe to it"
            )
        return {one: self.each[one] for one in there}


class Limits(NamedTuple):
    """How much one micro-batch may hold, and how much it should; 0 is no limit."""

    max_offsets: int = 0
    min_offsets: int = 0
    max_bytes: int = 0
    max_delay_ms: int = 0


NO_LIMITS: Final = Limits()


# --- where to begin -----------------------------------------------------------------------------


def resolved(
    position: Position,
    held: Mapping[TopicPartition, Held],
    since: Mapping[TopicPartition, int | None],
    *,
    late_is_an_error: bool = False,
) -> dict[TopicPartition, int]:
    """The offset that ``position`` means in each partition.

    ``since`` has the first offset at or after each time asked for; None if all are older, which
    is where the partition ends, or ``late_is_an_error``.
    """
    wanted = position.wanted(held)
    if not position.by_time:
        return {where: _offset(number, held[where]) for where, number in wanted.items()}
    if late_is_an_error and (late := [str(one) for one in sorted(wanted) if since[one] is None]):
        raise BadOptionError(
            f"{position.option}: {', '.join(late)} has no record that young: choose an earlier "
            "time, or set startingOffsetsByTimestampStrategy to latest"
        )
    return {where: _or_end(since[where], held[where]) for where in wanted}


def without_losses(
    offsets: Offsets, held: Mapping[TopicPartition, Held], option: str
) -> tuple[dict[TopicPartition, int], list[Loss]]:
    """The offsets that a user chose, moved to where there is something; and what that loses."""
    found, losses = {}, []
    for where, offset in sorted(offsets.items()):
        has = held[where]
        if not has.start <= offset <= has.log_end:
            losses.append(
                Loss(*where, f"{option} is {offset}, but it holds [{has.start}, {has.log_end})")
            )
        found[where] = min(max(offset, has.start), has.log_end)
    return found, losses


def resumed(
    start: Offsets, held: Mapping[TopicPartition, Held]
) -> tuple[dict[TopicPartition, int], list[Loss]]:
    """Where each partition goes on that was read up to ``start``; and what is lost in between.

    Partitions that are new begin with their first offset.  A partition that ends before
    ``start`` is another one under the old name, and begins anew.
    """
    topics = {where.topic for where in start}
    found: dict[TopicPartition, int] = {}
    losses = []
    for where, has in sorted(held.items()):
        # Of a topic that was read, a partition that was not is new: nothing of it may be missing.
        expected = start.get(where, 0 if where.topic in topics else has.start)
        if expected < has.start:
            losses.append(
                Loss(
                    *where,
                    f"offsets {expected} to {has.start - 1} are to be read, but were deleted: "
                    f"it begins at {has.start} now",
                )
            )
        elif expected > has.log_end:
            losses.append(
                Loss(
                    *where,
                    f"it was read up to offset {expected}, but ends at {has.log_end} now: the "
                    "topic was deleted and made anew, or has lost its tail",
                )
            )
        found[where] = expected if has.start <= expected <= has.log_end else has.start
    losses += [Loss(*where, "it no longer exists") for where in sorted(start) if where not in held]
    return found, losses


# --- how far to go ------------------------------------------------------------------------------


def ends_within(
    start: Offsets, held: Mapping[TopicPartition, Held], target: Offsets | None = None
) -> dict[TopicPartition, int]:
    """How far each partition can be read now; with a ``target``, not past that."""
    return {
        where: max(at, held[where].end if target is None else min(held[where].end, target[where]))
        for where, at in start.items()
    }


def is_enough(start: Offsets, end: Offsets, limits: Limits, waited_ms: float) -> bool:
    """Whether there is enough for a batch, or has been too little for too long."""
    available = sum(end[where] - at for where, at in start.items())
    return available >= limits.min_offsets or waited_ms >= limits.max_delay_ms


def limited(
    start: Offsets, end: Offsets, limits: Limits, bytes_each: Mapping[TopicPartition, float]
) -> dict[TopicPartition, int]:
    """How far to go within the limits: partitions that are further behind get more."""
    behind = {where: end[where] - at for where, at in start.items() if end[where] > at}
    if limits.max_bytes:
        weight = sum(count * bytes_each[where] for where, count in behind.items())
        if weight > limits.max_bytes:
            part = limits.max_bytes / weight
            behind = {where: max(int(count * part), 1) for where, count in behind.items()}
    if limits.max_offsets:
        behind = _shared(behind, limits.max_offsets)
    return {where: at + behind.get(where, 0) for where, at in start.items()}


# --- in how many pieces -------------------------------------------------------------------------


def spans_between(start: Offsets, end: Offsets, at_least: int = 0) -> list[Span]:
    """What tasks read: a span for each partition, large ones cut until there are ``at_least``."""
    whole = {
        where: end[where] - at for where, at in sorted(start.items()) if end.get(where, at) > at
    }
    pieces = _shared(whole, at_least) if at_least > len(whole) else dict.fromkeys(whole, 1)
    return [
        Span(*where, first, last)
        for where, count in pieces.items()
        for first, last in _cut(start[where], end[where], count)
    ]


def _cut(start: int, end: int, pieces: int) -> Iterator[tuple[int, int]]:
    size = end - start
    for number in range(pieces):
        yield start + size * number // pieces, start + size * (number + 1) // pieces


def _shared(sizes: Mapping[K, int], total: int) -> dict[K, int]:
    """``total`` shared out in proportion to ``sizes``: at least 1 for each, at most its size.

    What rounding leaves over goes to those who lost most by it.
    """
    rest = sum(sizes.values()) - len(sizes)
    left = max(total - len(sizes), 0)
    if left >= rest:
        return dict(sizes)
    exact = {one: divmod(left * (size - 1), rest) for one, size in sizes.items()}
    left -= sum(whole for whole, _ in exact.values())
    lucky = set(sorted(exact, key=lambda one: (-exact[one][1], str(one)))[:left])
    return {one: 1 + whole + (one in lucky) for one, (whole, _) in exact.items()}


def _offset(number: int, has: Held) -> int:
    return {EARLIEST: has.start, LATEST: has.end}.get(number, number)


def _or_end(offset: int | None, has: Held) -> int:
    return has.end if offset is None else offset
