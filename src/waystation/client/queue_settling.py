"""Acknowledgements on their way to one leader, gathered into one request.

Whoever settles messages gets a ``Settling``, which is done once every leader has answered for its
part.  A ``Batch`` is what one request carries: for each partition what became of which offsets,
written as ranges.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

from waystation.client.queue_errors import NotHeldError, SettlementUnknownError
from waystation.messages.share_fetch import AcknowledgementBatch
from waystation.model.errors import WaystationError
from waystation.model.ids import TopicPartition
from waystation.sharing.states import REJECT

__all__ = ["NO_REASONS", "Batch", "Kinds", "Reasons", "Settling", "ranges_of"]

Kinds = dict[int, int]
"""What became of offsets: one of the numbers in ``sharing/states.py`` each."""
Reasons = Mapping[TopicPartition, Mapping[int, str]]
"""Why some of them were rejected."""
NO_REASONS: Final[Reasons] = {}
Refused = Mapping[TopicPartition, Mapping[int, str]]
"""Offsets that were not settled, and why not."""


class Settling:
    """One call that settles messages; ``done`` fails if any of them could not be."""

    __slots__ = ("_open_parts", "_refused", "_unknown", "done", "offsets")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.done: asyncio.Future[None] = loop.create_future()
        self.offsets: dict[TopicPartition, list[int]] = {}
        self._refused: list[tuple[TopicPartition, int, str]] = []
        self._unknown: WaystationError | None = None
        self._open_parts = 0

    def add(self, where: TopicPartition, offset: int) -> None:
        """One more message that this is about."""
        self.offsets.setdefault(where, []).append(offset)

    def refuse(self, where: TopicPartition, offset: int, why: str) -> None:
        """One of its messages cannot be settled."""
        self._refused.append((where, offset, why))

    def sent_with(self, parts: int) -> None:
        """So many leaders are to answer; with none, it is over already."""
        self._open_parts = parts
        self._finish()

    def answered(self, refused: Refused) -> None:
        """One leader has answered for its part."""
        self._open_parts -= 1
        if refused:
            for where, offsets in self.offsets.items():
                told = refused.get(where, {})
                self._refused += [(where, one, told[one]) for one in offsets if one in told]
        self._finish()

    def unknown(self, error: WaystationError) -> None:
        """The answer of one leader will never come."""
        self._open_parts -= 1
        self._unknown = error
        self._finish()

    def _finish(self) -> None:
        if self._open_parts > 0 or self.done.done():
            return
        if self._unknown is not None:
            self.done.set_exception(SettlementUnknownError(self.offsets, self._unknown))
        elif self._refused:
            self.done.set_exception(NotHeldError(self._refused))
        else:
            self.done.set_result(None)


class Batch:
    """What one request tells a leader, and who waits for its answer."""

    __slots__ = ("kinds", "settlings")

    def __init__(self) -> None:
        self.kinds: dict[TopicPartition, Kinds] = {}
        self.settlings: dict[Settling, None] = {}

    def __bool__(self) -> bool:
        return bool(self.kinds)

    def items(self) -> Iterable[tuple[TopicPartition, Kinds]]:
        """What is told, partition by partition."""
        return self.kinds.items()

    def add(self, where: TopicPartition, offset: int, kind: int) -> None:
        """Tell this of a message."""
        self.kinds.setdefault(where, {})[offset] = kind

    def answered(self, refused: Refused) -> None:
        """Everything was followed, but for what was refused."""
        for one in self.settlings:
            one.answered(refused)

    def refused(self, why: str) -> None:
        """Nothing of it was followed."""
        self.answered({where: dict.fromkeys(kinds, why) for where, kinds in self.kinds.items()})

    def unknown(self, error: WaystationError) -> None:
        """It was sent, and nobody knows what became of it."""
        for one in self.settlings:
            one.unknown(error)


def ranges_of(
    kinds: Mapping[int, int], reasons: Mapping[int, str] | None = None
) -> list[AcknowledgementBatch]:
    """Offsets as ranges of equal fate, in rising order; those with ``reasons`` by themselves.

    HOT: once per partition and request; a run of offsets costs no object each.
    """
    if reasons:
        return _with_reasons(kinds, reasons)
    return [
        AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[kind])
        for first, last, kind in _runs(sorted(kinds.items()))
    ]


def _with_reasons(
    kinds: Mapping[int, int], reasons: Mapping[int, str]
) -> list[AcknowledgementBatch]:
    explained = {at: kind for at, kind in kinds.items() if kind == REJECT and at in reasons}
    ranges = ranges_of({at: kind for at, kind in kinds.items() if at not in explained})
    for at, kind in explained.items():
        alone = AcknowledgementBatch(first_offset=at, last_offset=at, acknowledge_types=[kind])
        alone.reason = reasons[at]
        ranges.append(alone)
    return sorted(ranges, key=lambda one: one.first_offset)


def _runs(items: Iterable[tuple[int, int]]) -> Iterable[tuple[int, int, int]]:
    first = last = kind = -1
    for offset, said in items:
        if said == kind and offset == last + 1:
            last = offset
            continue
        if kind >= 0:
            yield first, last, kind
        first = last = offset
        kind = said
    if kind >= 0:
        yield first, last, kind
