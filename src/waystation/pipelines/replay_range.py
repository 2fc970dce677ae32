"""From where to where: what ``--from`` and ``--until`` of a replay mean.

Each is a time (``2026-11-15``, ``2026-11-15T12:00:00Z``), a whole number, which is an offset in
every partition, or an offset for every partition as JSON.  From is included, until is not.  A
time without a zone is UTC's, and a day begins at midnight.

A time is that of the message itself, so that it means the same in a log and in a lake.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple

from waystation.model.ids import TopicPartition
from waystation.pipelines.failures import JobError
from waystation.pipelines.replay_plan import Extent
from waystation.spark.errors import BadOptionError
from waystation.spark.offsets import parse_offsets
from waystation.spark.planning import Position

__all__ = ["Bounds", "clipped", "offsets_of_each", "parse_bounds"]


class Bounds(NamedTuple):
    """Both ends, understood; None is no end."""

    since: Position | None = None
    until: Position | None = None

    @property
    def since_ms(self) -> int | None:
        """The time before which nothing is sent."""
        return self.since.everywhere if self.since is not None and self.since.by_time else None

    @property
    def until_ms(self) -> int | None:
        """The time from which on nothing is sent."""
        return self.until.everywhere if self.until is not None and self.until.by_time else None


def parse_bounds(since: str | None, until: str | None) -> Bounds:
    """What the user said, or a ``JobError`` that names the option."""
    found = Bounds(_position("--from", since), _position("--until", until))
    if found.since_ms is not None and found.until_ms is not None:
        _refuse_backwards(found.since_ms, found.until_ms, f"--from {since} --until {until}")
    return found


def clipped(held: Extent, bounds: Bounds) -> Extent:
    """What there is between the offsets that were asked for; times are not looked at here."""
    starts = offsets_of_each(bounds.since, held.first)
    ends = offsets_of_each(bounds.until, held.first)
    first = {where: max(at, starts.get(where, at)) for where, at in held.first.items()}
    last = {where: min(at, ends.get(where, at)) for where, at in held.last.items()}
    there = [where for where in sorted(first) if first[where] < last[where]]
    return Extent({where: first[where] for where in there}, {where: last[where] for where in there})


def offsets_of_each(
    position: Position | None, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """The offset that is wanted of each partition; nothing where no offsets are."""
    if position is None or position.by_time:
        return {}
    try:
        return position.wanted(partitions)
    except BadOptionError as error:
        raise JobError(str(error)) from None


def _position(option: str, text: str | None) -> Position | None:
    said = (text or "").strip()
    if not said:
        return None
    if said.isascii() and said.isdigit() and int(said) < 1 << 63:
        return Position(option, int(said), {})
    if said.startswith("{"):
        try:
            return Position(option, None, parse_offsets(option, said, lowest=0))
        except BadOptionError as error:
            raise JobError(str(error)) from None
    return Position(option, _time_ms(option, said), {}, by_time=True)


def _time_ms(option: str, said: str) -> int:
    try:
        moment = datetime.fromisoformat(said)
    except ValueError:
        raise JobError(
            f"{option} is {said!r}: give a day (2026-11-15), a time (2026-11-15T12:00:00Z), an "
            'offset, or offsets as JSON ({"orders": {"0": 23, "1": 7}})'
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1_000)


def _refuse_backwards(since_ms: int, until_ms: int, said: str) -> None:
    if since_ms >= until_ms:
        raise JobError(f"{said}: the end is not after the beginning: exchange them")
