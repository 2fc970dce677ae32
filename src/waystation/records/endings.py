"""What transactions mean for compaction: which batches were taken back, which markers are needed.

1. A record of an aborted transaction never counts: no other gives way to it, and it goes itself.
2. A marker is needed for as long as any batch of its transaction is in the log, be it only a
   header: without it readers, and a restart, would take the transaction for an open one.

Which transactions were aborted is known beforehand; which markers are needed shows on the way
through the log, from its beginning to its end.
"""

from bisect import bisect_right
from collections.abc import Iterable
from typing import Protocol

from waystation.model.ids import ProducerId
from waystation.model.offsets import Offset
from waystation.records.header import BatchHeader


class Span(Protocol):
    """A producer's aborted transaction, from its first record to its marker."""

    @property
    def producer_id(self) -> ProducerId: ...
    @property
    def first_offset(self) -> Offset: ...
    @property
    def last_offset(self) -> Offset: ...


class Aborted:
    """The aborted transactions of a log."""

    __slots__ = ("_spans",)

    def __init__(self, spans: Iterable[Span] = ()) -> None:
        self._spans: dict[ProducerId, list[tuple[Offset, Offset]]] = {}
        for one in sorted(spans, key=lambda span: span.first_offset):
            known = self._spans.setdefault(one.producer_id, [])
            known.append((one.first_offset, one.last_offset))

    def holds(self, header: BatchHeader) -> bool:
        """Whether the batch belongs to one of them."""
        spans = self._spans.get(header.producer_id)
        if spans is None or not header.is_transactional:
            return False
        at = bisect_right(spans, header.base_offset, key=lambda span: span[0])
        return at > 0 and header.base_offset < spans[at - 1][1]


class Endings:
    """Follows transactions through a log, whose batches it must be shown in order."""

    __slots__ = ("_begun", "aborted")

    def __init__(self, aborted: Aborted | None = None) -> None:
        self.aborted = aborted or Aborted()
        self._begun: set[ProducerId] = set()

    def copy(self) -> "Endings":
        """One that goes on from here, for a stretch that may have to be gone through again."""
        other = Endings(self.aborted)
        other._begun = set(self._begun)
        return other

    def took_back(self, header: BatchHeader) -> bool:
        """Pass a batch of a transaction; whether that was aborted."""
        self._begun.add(header.producer_id)
        return self.aborted.holds(header)

    def needs(self, header: BatchHeader) -> bool:
        """Pass a marker; whether there was any batch of its transaction."""
        needed = header.producer_id in self._begun
        self._begun.discard(header.producer_id)
        return needed
