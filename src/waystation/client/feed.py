"""What was fetched of one partition and not yet handed out.

Batches wait as they came; one is checked and decoded when its turn comes, so that what is
fetched ahead costs its bytes on the wire and no more.  Promises:

1. messages come out in the order of their offsets, none before the position, none twice;
2. a batch's checksum is verified before any of its messages is handed out;
3. what is not for the application's eyes is never handed out (``visible.py`` says what is), nor
   what its filter does not choose; the position moves past both.
"""

from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from waystation.client.message import Message
from waystation.client.visible import Visibility
from waystation.messages.fetch import AbortedTransaction
from waystation.model.errors import CorruptBatchError
from waystation.model.ids import TopicPartition
from waystation.model.offsets import Offset
from waystation.records.batch import rows_of
from waystation.records.header import BatchHeader, batches, check
from waystation.records.record import Row

if TYPE_CHECKING:
    from waystation.filters.selecting import Filter

__all__ = ["Feed"]


class _Waiting(NamedTuple):
    """A batch that was not decoded yet."""

    view: memoryview
    at: int
    header: BatchHeader


class Feed:
    """One partition on its way to the application.

    ``position`` is the next offset to hand out, ``fetch_at`` the next to ask the broker for;
    both are unknown, -1, until someone decides where to start.  ``life`` changes with every
    seek: an answer to a question of an earlier life is dropped.
    """

    __slots__ = (
        "_batches",
        "_behind",
        "_decoded",
        "_limit_bytes",
        "_visibility",
        "_where",
        "buffered_bytes",
        "fetch_at",
        "life",
        "partition",
        "position",
    )

    def __init__(
        self, partition: TopicPartition, limit_bytes: int, where: "Filter | None" = None
    ) -> None:
        self.partition = partition
        self.position = self.fetch_at = Offset(-1)
        self.life = 0
        self.buffered_bytes = 0
        self._limit_bytes, self._where = limit_bytes, where
        self._behind = Offset(-1)
        self._batches: deque[_Waiting] = deque()
        self._decoded: deque[Message] = deque()
        self._visibility = Visibility(limit_bytes)

    @property
    def has_messages(self) -> bool:
        """Whether anything waits, though all of it may turn out to be nothing to hand out."""
        return bool(self._decoded or self._batches)

    @property
    def in_batch(self) -> bool:
        """Whether part of a batch was handed out and part of it waits."""
        return bool(self._decoded)

    def seek(self, offset: Offset) -> None:
        """Go on from ``offset``; what waits is forgotten."""
        self.position = self.fetch_at = offset
        self.life += 1
        self._clear()

    def add(self, records: memoryview, aborted: Iterable[AbortedTransaction] = ()) -> None:
        """Take the batches that came for ``fetch_at``."""
        self._visibility.note(aborted)
        for at, header in batches(records):
            if header.next_offset > self.fetch_at:
                self._batches.append(_Waiting(records, at, header))
                self.buffered_bytes += header.size_bytes
                self.fetch_at = header.next_offset

    def take(self, limit: int) -> list[Message]:
        """Up to ``limit`` messages; the position moves past them.

        HOT: once per poll and partition (benchmarks/client/producer.py).
        """
        decoded = self._decoded
        while not decoded and self._batches:
            self._decode(self._batches.popleft())
        if len(decoded) <= limit:
            taken = list(decoded)
            decoded.clear()
        else:
            taken = list(islice(decoded, limit))
            for _ in taken:
                decoded.popleft()
        if taken:
            # With the last that is chosen of a batch the rest of it is done too.
            self.position = Offset(taken[-1].offset + 1) if decoded else self._behind
        return taken

    def _decode(self, waiting: _Waiting) -> None:
        """Decode one batch from the position on; the position moves past what is not shown."""
        view, at, header = waiting
        self.buffered_bytes -= header.size_bytes
        try:
            check(view, at)
            if self._visibility.shows(view, at, header):
                rows = self._chosen(view, at)
                topic, partition = self.partition
                start = self.position
                self._decoded.extend(
                    Message._make((key, value, topic, partition, offset, timestamp, headers))
                    for offset, timestamp, key, value, headers in rows
                    if offset >= start
                )
        except CorruptBatchError as error:
            self.fetch_at = self.position
            self.life += 1
            self._clear()
            raise CorruptBatchError(
                f"{self.partition} at offset {header.base_offset}: {error}; to go on behind it, "
                f"seek to {header.next_offset}"
            ) from error
        self._behind = header.next_offset
        if not self._decoded:
            self.position = header.next_offset

    def _chosen(self, view: memoryview, at: int) -> list[Row]:
        """The messages of a batch, or those that the filter chooses; of none nothing is built."""
        if self._where is None:
            return rows_of(view, at, limit_bytes=self._limit_bytes)
        numbers = self._where.matching(
            view, self.partition.partition, at, limit_bytes=self._limit_bytes
        )
        if not numbers:
            return []
        rows = rows_of(view, at, limit_bytes=self._limit_bytes)
        return [rows[number] for number in numbers]

    def _clear(self) -> None:
        self._batches.clear()
        self._decoded.clear()
        self._visibility.clear()
        self.buffered_bytes = 0
