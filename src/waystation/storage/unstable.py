"""Transactions whose outcome readers of committed records must not anticipate.

1. A transaction is unstable from its first record until the marker that ends it is committed: a
   marker that a crash, or another leader, may still take back has ended nothing.
2. The first of them bounds what is stable: nothing at or past it is shown to such readers.

What a transaction is, and who may end it, is decided in ``producer_state.py``.
"""

from collections.abc import Iterable
from heapq import heappop, heappush
from typing import NamedTuple

from waystation.model.ids import ProducerId
from waystation.model.offsets import Offset


class EndedTransaction(NamedTuple):
    """A transaction whose marker was written."""

    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset
    """Where the marker lies."""
    last_stable: Offset
    """All transactions that began before it have ended by now."""


class Unstable:
    """The transactions of one partition that are open, or ended by a marker not yet committed."""

    __slots__ = ("_ended", "_open", "are_there")

    def __init__(self, opened: Iterable[tuple[Offset, ProducerId]] = ()) -> None:
        # Transactions begin at the log's end, so the first one is the one that began first.
        self._open = {producer_id: first for first, producer_id in sorted(opened)}
        self._ended: list[tuple[Offset, Offset]] = []
        self.are_there = bool(self._open)
        """Whether there may be any: spares those who ask often, where there never are."""

    @property
    def open(self) -> list[ProducerId]:
        """Whose transactions have no marker yet, in the order in which they began."""
        return list(self._open)

    def begin(self, producer_id: ProducerId, first_offset: Offset) -> None:
        """The producer's first record of a transaction lies at the end of the log."""
        self._open[producer_id] = first_offset
        self.are_there = True

    def end(self, producer_id: ProducerId, marker_offset: Offset) -> EndedTransaction:
        """The producer's transaction is ended by the marker at ``marker_offset``."""
        first = self._open.pop(producer_id)
        heappush(self._ended, (first, marker_offset))
        following = next(iter(self._open.values()), Offset(marker_offset + 1))
        return EndedTransaction(producer_id, first, marker_offset, following)

    def first(self, committed_end: Offset) -> Offset | None:
        """Where the first of them began; ``None`` if all is stable.

        Those whose markers lie before ``committed_end`` are forgotten.
        """
        ended = self._ended
        while ended and ended[0][1] < committed_end:
            heappop(ended)
        opened = next(iter(self._open.values()), None)
        if not ended:
            self.are_there = opened is not None
            return opened
        return ended[0][0] if opened is None else min(opened, ended[0][0])
