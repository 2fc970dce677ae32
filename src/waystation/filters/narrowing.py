"""What is left of a log where a filter takes messages out: the bytes that a view serves.

A view has its source's partitions, offsets, timestamps and ends; it only lacks messages, as a
compacted log does, and every client reads on across what is missing.  What holds:

1. the records that match come out as they are: offset, timestamp, key, value, headers, in order;
   no other record does;
2. a batch keeps base offset, last offset, leader epoch, codec and the producer's fields, whatever
   goes out of it; one that loses nothing stays byte for byte;
3. what was looked at is covered: where the last batches have no match, one without records ends
   where they end, so that a reader moves on, though nothing matched;
4. a marker of an aborted transaction stays: without it a reader would take what its producer
   writes afterwards for aborted too.  One of a committed transaction goes, for no reader needs it;
5. no batch is believed that does not match its checksum.

Stretches without a match are told to the caller, who may remember them (``gaps.py``).
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from waystation.filters import picking
from waystation.filters.selecting import Filter, Located, locate
from waystation.model.ids import NO_PRODUCER, NO_PRODUCER_EPOCH, LeaderEpoch
from waystation.model.offsets import NO_TIMESTAMP, Offset
from waystation.records import codec as record_codec
from waystation.records.batch import DECOMPRESSED_LIMIT_BYTES, assemble, payload_of
from waystation.records.codec import BATCH_FIELDS, PLACE_FIELDS
from waystation.records.compression import Codec, compress
from waystation.records.control import read_marker
from waystation.records.header import (
    FRAME_BYTES,
    HEADER_BYTES,
    MAGIC,
    BatchHeader,
    TimestampType,
    check,
    peek,
)
from waystation.records.record import Buffer

__all__ = ["Narrowed", "Narrowing", "Stretch", "empty_batch"]

# What is located at once: little enough that nobody waits long for the interpreter.
_RECORDS = 4_096
_BATCHES = 1_024
_NO_SEQUENCE = -1
_MOST_DELTA = (1 << 31) - 1


class Stretch(NamedTuple):
    """Offsets ``[start, end)`` among which nothing matches and nothing must be kept."""

    start: Offset
    end: Offset


class Narrowed(NamedTuple):
    """What is left of a window of batches."""

    parts: list[Buffer]
    """Batches, or several in a row; views into the window where they did not change."""
    taken_bytes: int
    """How much of the window was dealt with: whole batches only."""
    records: int
    """How many records were looked at."""
    matches: int
    end: Offset | None
    """Behind the last batch that was looked at; ``None`` if the window holds none."""
    stretches: list[Stretch]

    @property
    def data(self) -> bytes:
        """All parts as a fetch answers them."""
        return b"".join(self.parts)


class Narrowing:
    """Takes one window of a partition after the other; keeps nothing but room to work in."""

    __slots__ = ("_batches", "_chosen", "_limit_bytes", "_partition", "_places")

    def __init__(
        self, chosen: Filter, partition: int, *, limit_bytes: int = DECOMPRESSED_LIMIT_BYTES
    ) -> None:
        self._chosen, self._partition, self._limit_bytes = chosen, partition, limit_bytes
        self._places = array("q", bytes(8 * PLACE_FIELDS * _RECORDS))
        self._batches = array("q", bytes(8 * BATCH_FIELDS * _BATCHES))

    def take(self, window: Buffer) -> Narrowed:
        """What is left of the whole batches in ``window``, which begins with a batch.

        HOT: once per megabyte that a view scans (benchmarks/filters.py).
        """
        out = _Out()
        plain = _Plain(window, self._places, self._batches)
        view = plain.view
        at = 0
        while True:
            behind = self._take_plain(plain, at, out)
            if behind == at:
                header = _whole_batch(view, at)
                if header is None:
                    break
                behind = at + header.size_bytes
                self._take_one(view[at:behind], header, out)
            at = behind
        return out.finish(at)

    # --- plain batches, many at a time ------------------------------------------------------

    def _take_plain(self, plain: "_Plain", at: int, out: "_Out") -> int:
        """Deal with the plain batches from ``at`` on; the position behind them.

        Only batches with a match are looked at by themselves.
        """
        behind = plain.find(at)
        if behind == at:
            return at
        located, firsts = plain.located, plain.firsts
        matching = self._chosen.chosen(located, range(plain.records), self._partition)
        number = from_row = 0
        while from_row < len(matching):
            held = bisect_right(firsts, matching[from_row]) - 1
            if held > number:
                out.skip_all(plain, number, held)
            batch, header = plain.batch(held)
            to_row = bisect_left(matching, firsts[held] + header.records_count, from_row)
            self._leave(located, batch, header, matching[from_row:to_row], out)
            number, from_row = held + 1, to_row
        if number < len(firsts):
            out.skip_all(plain, number, len(firsts))
        return behind

    # --- any batch, by itself ---------------------------------------------------------------

    def _take_one(self, batch: memoryview, header: BatchHeader, out: "_Out") -> None:
        if header.is_control:
            marker = read_marker(batch)
            if header.records_count and (marker is None or not marker.committed):
                out.keep(batch, header, 0, 0)
            else:
                out.skip(header, 0)
            return
        if not header.records_count:
            out.skip(header, 0)
            return
        located = locate(payload_of(batch, 0, header, self._limit_bytes), header)
        rows = self._chosen.chosen(located, range(header.records_count), self._partition)
        self._leave(located, batch, header, rows, out)

    def _leave(
        self,
        located: Located,
        batch: memoryview,
        header: BatchHeader,
        rows: Sequence[int],
        out: "_Out",
    ) -> None:
        if not rows:
            out.skip(header, header.records_count)
        elif len(rows) == header.records_count:
            out.keep(batch, header, header.records_count, len(rows))
        else:
            out.keep(_rewritten(located, header, rows), header, header.records_count, len(rows))


class _Plain:
    """The plain batches of a window, found in room that is used again."""

    __slots__ = ("_batches", "_places", "_text", "firsts", "records", "view")

    def __init__(self, window: Buffer, places: "array[int]", batches: "array[int]") -> None:
        self.view = memoryview(window)
        self._text = window if type(window) is bytes else None
        self._places, self._batches = places, batches
        self.firsts = array("q")
        """The number of the first record of each batch."""
        self.records = 0

    def find(self, at: int) -> int:
        """Locate those from ``at`` on; the position behind them."""
        found = record_codec.locate_batches(self.view, at, self._places, self._batches)
        if not found:
            return at
        if self._text is None:  # once, and not at all where no batch is plain
            self._text = bytes(self.view)
        picking.date_batches(self._text, self._places, self._batches, found)
        last = (found - 1) * BATCH_FIELDS
        position, size_bytes, _, first, count = self._batches[last : last + 5]
        self.firsts = self._batches[3 : last + BATCH_FIELDS : BATCH_FIELDS]
        self.records = first + count
        return position + size_bytes

    @property
    def located(self) -> Located:
        assert self._text is not None, "nothing was found"
        return Located(self._text, self._places)

    def batch(self, number: int) -> tuple[memoryview, BatchHeader]:
        """One of those that were found."""
        position, size_bytes = self._batches[number * BATCH_FIELDS : number * BATCH_FIELDS + 2]
        return self.view[position : position + size_bytes], peek(self.view, position)


class _Out:
    """What is left, in order, and the stretch that is being skipped."""

    __slots__ = (
        "_epoch",
        "_skipped_from",
        "end",
        "matches",
        "parts",
        "records",
        "stretches",
    )

    def __init__(self) -> None:
        self.parts: list[Buffer] = []
        self.stretches: list[Stretch] = []
        self.records = self.matches = 0
        self.end: Offset | None = None
        self._skipped_from: Offset | None = None
        self._epoch = LeaderEpoch(-1)

    def keep(self, part: Buffer, header: BatchHeader, records: int, matches: int) -> None:
        self._end_stretch(header.base_offset)
        self.parts.append(part)
        self.records += records
        self.matches += matches
        self.end = header.next_offset

    def skip(self, header: BatchHeader, records: int) -> None:
        if self._skipped_from is None:
            # What lies between two batches was taken out by compaction: no match either.
            self._skipped_from = header.base_offset if self.end is None else self.end
        self._epoch = header.partition_leader_epoch
        self.records += records
        self.end = header.next_offset

    def skip_all(self, plain: _Plain, first: int, stop: int) -> None:
        """Skip the batches ``[first, stop)`` of a window."""
        records = plain.firsts[stop] if stop < len(plain.firsts) else plain.records
        self.skip(plain.batch(first)[1], 0)
        self.skip(plain.batch(stop - 1)[1], records - plain.firsts[first])

    def finish(self, taken_bytes: int) -> Narrowed:
        if self._skipped_from is not None and self.end is not None:
            start = self._skipped_from
            self.parts.append(empty_batch(start, self.end, self._epoch))
            self._end_stretch(self.end)
        return Narrowed(
            self.parts, taken_bytes, self.records, self.matches, self.end, self.stretches
        )

    def _end_stretch(self, end: Offset) -> None:
        if self._skipped_from is not None:
            self.stretches.append(Stretch(self._skipped_from, end))
            self._skipped_from = None


def empty_batch(start: Offset, end: Offset, leader_epoch: LeaderEpoch) -> bytes:
    """A batch without records that takes a reader past ``[start, end)``.

    As compaction leaves one, but of no producer, since it may stand for batches of several.  One
    that stands for more offsets than a batch can have begins later: only its end counts.
    """
    assert start < end, f"an empty batch of [{start}, {end})"
    base = max(start, end - 1 - _MOST_DELTA)
    header = BatchHeader(
        Offset(base),
        0,
        leader_epoch,
        MAGIC,
        0,
        0,
        end - 1 - base,
        NO_TIMESTAMP,
        NO_TIMESTAMP,
        NO_PRODUCER,
        NO_PRODUCER_EPOCH,
        _NO_SEQUENCE,
        0,
    )
    return assemble(header, b"")


def _rewritten(located: Located, header: BatchHeader, rows: Sequence[int]) -> bytes:
    """The batch with nothing but these records."""
    first = rows[0]
    newest = picking.bring_forward(located.places, rows, first)
    kept = located.places[first * PLACE_FIELDS : (first + len(rows)) * PLACE_FIELDS]
    records = bytearray()
    fits = record_codec.copy_records(located.text, kept, len(rows), 0, records)
    assert fits, "records that are not moved have no place"
    payload: Buffer = records
    codec = header.codec
    if codec is not Codec.NONE:
        payload = compress(codec, memoryview(records))
    max_timestamp = header.max_timestamp
    if header.timestamp_type is TimestampType.CREATE_TIME:
        max_timestamp = type(max_timestamp)(newest)
    return assemble(header._replace(max_timestamp=max_timestamp, records_count=len(rows)), payload)


def _whole_batch(window: memoryview, at: int) -> BatchHeader | None:
    """The header of the batch at ``at``, proven; ``None`` if the window ends before it does."""
    if len(window) - at < HEADER_BYTES:
        return None
    header = peek(window, at)
    if header.batch_length >= HEADER_BYTES - FRAME_BYTES and at + header.size_bytes > len(window):
        return None
    return check(window, at)
