"""What a replay sends and in which pieces, decided before the first message leaves.

A range of offsets per partition is cut into chunks, one after the other; each chunk is one batch
of the sink.  Promises:

1. every offset of the range is in exactly one chunk, and the chunks of a partition ascend:
   whoever sends them in turn keeps its order;
2. a chunk has at most as many offsets as was asked for, except that each partition that is not
   at its end gives at least one;
3. all partitions end with the same chunk, or nearly: none is far ahead of the others.

A chunk is written down before it is begun, with everything that tells it from others: after a
crash the same one is sent again, also by a version of this file that would cut differently.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from waystation.pipelines.failures import JobError
from waystation.spark.offsets import Offsets, offsets_of, to_json
from waystation.spark.planning import Limits, limited

__all__ = ["Chunk", "Extent", "first_chunk", "next_chunk", "refuse_other"]


class Extent(NamedTuple):
    """What is sent at all: of each partition the offsets from ``first`` to before ``last``."""

    first: Offsets
    last: Offsets

    def offsets(self) -> int:
        """How many offsets that is; some may hold no message."""
        return sum(self.last[where] - at for where, at in self.first.items())

    def as_json(self) -> dict[str, Any]:
        """To be written down."""
        return {"first": to_json(self.first), "last": to_json(self.last)}

    @classmethod
    def of_json(cls, told: Mapping[str, Any]) -> "Extent":
        """The inverse of ``as_json``."""
        return cls(offsets_of(told["first"]), offsets_of(told["last"]))


class Chunk(NamedTuple):
    """The part of it that is sent as one batch; ``sent`` messages have gone before."""

    number: int
    extent: Extent
    sent: int

    def as_json(self) -> dict[str, Any]:
        """To be written down."""
        return {"chunk": self.number, "sent": self.sent, **self.extent.as_json()}

    @classmethod
    def of_json(cls, told: Mapping[str, Any]) -> "Chunk":
        """The inverse of ``as_json``."""
        return cls(told["chunk"], Extent.of_json(told), told["sent"])


def first_chunk(whole: Extent, most: int) -> Chunk | None:
    """Where to begin; nothing if there is nothing to send."""
    return _chunk(0, whole.first, whole.last, most, sent=0)


def next_chunk(whole: Extent, before: Chunk, most: int, messages: int) -> Chunk | None:
    """What follows ``before``, which had so many messages; nothing after the last."""
    # Whoever gave nothing was at its end: all others give at least one offset.
    start = {where: before.extent.last.get(where, whole.last[where]) for where in whole.first}
    return _chunk(before.number + 1, start, whole.last, most, sent=before.sent + messages)


def _chunk(number: int, start: Offsets, end: Offsets, most: int, *, sent: int) -> Chunk | None:
    stop = limited(start, end, Limits(max_offsets=most), {})
    moved = {where: at for where, at in start.items() if stop[where] > at}
    if not moved:
        return None
    return Chunk(number, Extent(moved, {where: stop[where] for where in moved}), sent)


def refuse_other(folder: str, pinned: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """A checkpoint belongs to one replay: with other words, other messages would be missing."""
    for name, value in asked.items():
        known = pinned.get(name)
        if known != value:
            raise JobError(
                f"--checkpoint {folder} belongs to a replay with --{name} {_shown(known)}, not "
                f"{_shown(value)}. Remedy: give every replay a checkpoint of its own"
            )


def _shown(value: object) -> str:
    if value is None or value == []:
        return "left away"
    return ",".join(map(str, value)) if isinstance(value, list) else repr(value)
