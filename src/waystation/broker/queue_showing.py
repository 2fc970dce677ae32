"""Shows a queue that chooses the keys and priorities of its messages, a slice at a time.

Batches are taken apart by the compiled codec.  Of a large one what was not shown yet is kept, and
where only keys count they are taken out when it is their turn: no turn of the loop costs much more
than the messages that were asked for.
"""

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from operator import itemgetter
from typing import Final, NamedTuple, overload

from waystation.broker.queue_reading import is_aborted
from waystation.model.offsets import Offset
from waystation.partition.partition import Partition
from waystation.records import codec as record_codec
from waystation.records.batch import payload_of, rows_of
from waystation.records.codec import PLACE_FIELDS
from waystation.records.header import BatchHeader, batches
from waystation.records.record import Row
from waystation.sharing.ordered_partition import LOWEST, PRIORITY_HEADER, Shown, priority_of

_SLICE_BYTES: Final = 64 << 10
# Of compressed batches a slice may hold very many: the rest is read again when it is its turn.
_MANY_ROWS: Final = 500


class Seen(NamedTuple):
    """The messages up to ``end``."""

    end: Offset
    shown: Sequence[Shown]


class Showing:
    """What one queue sees of its partition's log, in the order of offsets."""

    __slots__ = ("_at", "_end", "_next", "_partition", "_rows", "_with_priorities", "record_bytes")

    def __init__(self, partition: Partition, *, with_priorities: bool) -> None:
        self._partition = partition
        self._with_priorities = with_priorities
        self._at = self._end = Offset(-1)
        self._rows: list[Row] | _KeysAlone = []
        self._next = 0
        self.record_bytes = 1_024.0
        """About how large a message is."""

    def next(self, at: Offset, limit: int, *, committed_only: bool) -> Seen | None:
        """Up to ``limit`` messages from ``at`` on; ``None`` if nothing may be read there.

        HOT: per message in queues with order by key or priorities.
        """
        if at != self._at and not self._load(at, committed_only=committed_only):
            return None
        rows, first = self._rows, self._next
        self._next = min(first + limit, len(rows))
        shown = [self._shown(row) for row in rows[first : self._next]]
        if self._next == len(rows):
            self._rows, self._next, self._at = [], 0, Offset(-1)
            return Seen(self._end, shown)
        self._at = Offset(rows[self._next][0])
        return Seen(self._at, shown)

    def _load(self, at: Offset, *, committed_only: bool) -> bool:
        partition = self._partition
        found = partition.read(at, _SLICE_BYTES, at_least_one=True, stable_only=committed_only)
        if found.region is None:
            return False
        aborted = partition.log.aborted(at, found.next_offset) if committed_only else ()
        rows: list[Row] = []
        large: _KeysAlone | None = None
        window, size_bytes = memoryview(found.region.read()), 0
        self._end = found.next_offset
        for position, header in batches(window):
            batch = window[position : position + header.size_bytes]
            if header.is_control or is_aborted(header, aborted):
                pass
            elif header.records_count < _MANY_ROWS or self._with_priorities:
                rows += rows_of(batch)
            elif rows:
                self._end = Offset(header.base_offset)
                break
            else:
                large = _KeysAlone(batch, header)
            size_bytes = position + header.size_bytes
            if large is not None or len(rows) >= _MANY_ROWS:
                self._end = header.next_offset
                break
        self._rows = rows if large is None else large
        self._next = bisect_left(self._rows, at, key=itemgetter(0))
        if self._rows:
            self.record_bytes = max(1.0, size_bytes / len(self._rows))
        return True

    def _shown(self, row: Row) -> Shown:
        if not self._with_priorities:
            return Shown(Offset(row[0]), row[2])
        told = next((value for name, value in row[4] if name == PRIORITY_HEADER), None)
        return Shown(Offset(row[0]), row[2], priority_of(told) if told is not None else LOWEST)


class _KeysAlone:
    """The rows of a batch of very many records, of which only offset and key are taken out.

    To find all of them takes a tenth of the time of taking all of them apart.
    """

    __slots__ = ("_count", "_payload", "_places")

    def __init__(self, batch: memoryview, header: BatchHeader) -> None:
        self._payload = bytes(payload_of(batch, 0, header))
        self._count = header.records_count
        self._places = array("q", bytes(8 * PLACE_FIELDS * self._count))
        record_codec.locate_records(
            self._payload,
            self._count,
            header.base_offset,
            header.last_offset_delta,
            header.base_timestamp,
            self._places,
        )

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, which: int) -> Row: ...
    @overload
    def __getitem__(self, which: slice) -> list[Row]: ...
    def __getitem__(self, which: int | slice) -> Row | list[Row]:
        if isinstance(which, int):
            return self._row(which)
        return [self._row(number) for number in range(*which.indices(self._count))]

    def _row(self, number: int) -> Row:
        at = number * PLACE_FIELDS
        offset, key_at, key_bytes = self._places[at + 4], self._places[at + 6], self._places[at + 7]
        key = None if key_bytes < 0 else self._payload[key_at : key_at + key_bytes]
        return offset, 0, key, None, ()
