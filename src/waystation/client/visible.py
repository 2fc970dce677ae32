"""Which of the fetched batches are for the application's eyes.

What a broker wrote for itself never is, nor, to who reads only what is committed, what a
transaction took back.  A fetch answer names the aborted transactions that reach into it: the
producer, and from which offset on; a marker in the log says where each ends.
"""

from collections.abc import Iterable

from waystation.messages.fetch import AbortedTransaction
from waystation.model.ids import ProducerId
from waystation.records.batch import records_of
from waystation.records.header import BatchHeader

__all__ = ["Visibility"]

_ABORT = b"\x00\x00\x00\x00"
"""The key of the marker that ends an aborted transaction: version 0, type 0."""


class Visibility:
    """Asked about one batch after the other, in the order of their offsets."""

    __slots__ = ("_aborted", "_limit_bytes", "_to_abort")

    def __init__(self, limit_bytes: int, aborted: Iterable[AbortedTransaction] = ()) -> None:
        self._limit_bytes = limit_bytes
        self._to_abort: list[AbortedTransaction] = []
        self._aborted: set[ProducerId] = set()
        self.note(aborted)

    def note(self, aborted: Iterable[AbortedTransaction]) -> None:
        """Know of aborted transactions before their batches come."""
        self._to_abort.extend(aborted)
        self._to_abort.sort(key=lambda one: one.first_offset)

    def clear(self) -> None:
        """Forget all, before batches come from another place."""
        self._to_abort.clear()
        self._aborted.clear()

    def shows(self, view: memoryview, at: int, header: BatchHeader) -> bool:
        """Whether the batch at ``at`` is to be shown."""
        while self._to_abort and self._to_abort[0].first_offset <= header.last_offset:
            self._aborted.add(ProducerId(self._to_abort.pop(0).producer_id))
        if header.is_control:
            if header.producer_id in self._aborted and self._is_abort(view, at):
                self._aborted.discard(header.producer_id)
            return False
        return not (header.is_transactional and header.producer_id in self._aborted)

    def _is_abort(self, view: memoryview, at: int) -> bool:
        records = records_of(view, at, limit_bytes=self._limit_bytes)
        return bool(records) and records[0].key == _ABORT
