"""What compaction notes of batches, and what it leaves of them.

1. Of the records before the end of the map only the last of each key is left, and what is left
   is what it was: offset, timestamp, key, value, headers, in the same codec.
2. A batch keeps its base offset, last offset, leader epoch and the producer's fields, whatever
   goes out of it.  One that loses every record goes too, unless it must stay: then its header
   stays, without records.
3. A tombstone stays for as long as it was told after everything it deletes is gone.  From when
   on it may go is written into its batch, in Kafka's way: a bit of the attributes, and the moment
   in place of the base timestamp.
4. Records of aborted transactions go.  A marker stays while it is needed (``endings.py``), and
   then for as long as a tombstone; from when on it may go is written into it in the same way.
5. No batch is believed, nor written anew, that does not match its checksum.

Both take windows: stretches of a segment that begin with a batch, and say how much of them they
have dealt with.  Plain batches go through the compiled codec many at a time, the others one by
one.  Keys are counted in ``keys.py``; files are the business of storage.
"""

from array import array
from collections.abc import Callable
from typing import NamedTuple

from waystation.model.ids import ProducerId
from waystation.model.offsets import NO_TIMESTAMP, Millis, Offset
from waystation.records import codec as record_codec
from waystation.records.batch import assemble, payload_of
from waystation.records.codec import BATCH_FIELDS, PLACE_FIELDS
from waystation.records.compression import Codec, compress
from waystation.records.control import read_marker
from waystation.records.endings import Aborted, Endings
from waystation.records.header import (
    CODEC_MASK,
    DELETE_HORIZON,
    FRAME_BYTES,
    HEADER_BYTES,
    BatchHeader,
    TimestampType,
    check,
    peek,
)
from waystation.records.keys import KeyMap
from waystation.records.record import Buffer

__all__ = ["UNKNOWN", "KeyNotes", "Places", "Sieve", "Terms", "whole_batch"]

UNKNOWN = Offset(-1)

_LEAST_RECORD_BYTES = 7
_OFFSET = 4
_END_OF_TIME = (1 << 63) - 1
# What is located at once: little enough that nobody waits long for the interpreter.
_RECORDS = 4_096
_BATCHES = 1_024

Keep = Callable[[Buffer, Buffer, Offset, Millis], None]
"""Takes what is left of a batch, the batch, its last offset, and its greatest timestamp."""


class Terms(NamedTuple):
    """Up to where and from when on things may go."""

    upto: Offset
    """The end of what the map of keys knows."""
    now: Millis
    delete_retention_ms: int
    last_of: dict[ProducerId, Offset]
    """Where each producer's newest batch ends, by which a repeated batch is recognised; or
    ``UNKNOWN``, and then none of them may go."""


class Places:
    """Where records lie, found in memory that is used again for the next."""

    __slots__ = ("batches", "numbers", "payload")

    def __init__(self) -> None:
        self.numbers = array("q", [0]) * (_RECORDS * PLACE_FIELDS)
        self.batches = array("q", [0]) * (_BATCHES * BATCH_FIELDS)
        self.payload: Buffer = b""

    def find_many(self, window: memoryview, at: int) -> tuple[int, int, int]:
        """Locate plain batches: how many, where they end, how many records they have."""
        count = record_codec.locate_batches(window, at, self.numbers, self.batches)
        if not count:
            return 0, at, 0
        last = (count - 1) * BATCH_FIELDS
        position, size_bytes, _, first, records = self.batches[last : last + 5]
        return count, position + size_bytes, first + records

    def find(self, batch: Buffer, header: BatchHeader) -> int:
        """Look into one batch whose checksum was verified; how many records it has."""
        count = header.records_count
        self.payload = payload = payload_of(batch, 0, header)
        wanted = min(count, len(payload) // _LEAST_RECORD_BYTES) * PLACE_FIELDS
        if wanted > len(self.numbers):
            self.numbers = array("q", [0]) * wanted
        record_codec.locate_records(
            payload,
            count,
            header.base_offset,
            header.last_offset_delta,
            header.base_timestamp,
            self.numbers,
        )
        return count

    def offset_of(self, number: int) -> Offset:
        """The offset of a record."""
        return Offset(self.numbers[number * PLACE_FIELDS + _OFFSET])


class KeyNotes:
    """Notes the keys of one window after the other."""

    __slots__ = ("_aborted", "_keys", "_places", "_since", "full_at")

    def __init__(self, keys: KeyMap, since: Offset, aborted: Aborted | None = None) -> None:
        """Records before ``since`` were noted, and sifted, in an earlier life of the map."""
        self._keys = keys
        self._since = since
        self._aborted = aborted or Aborted()
        self._places = Places()
        self.full_at: Offset | None = None
        """The first record for which there was no room."""

    def take(self, window: memoryview) -> int:
        """Note the keys of the whole batches in ``window``; how many bytes they take."""
        places, at = self._places, 0
        while self.full_at is None:
            count, behind, records = places.find_many(window, at)
            if count:
                self._note(window, records)
                at = behind
                continue
            header = whole_batch(window, at)
            if header is None:
                break
            if header.next_offset > self._since and self._counts(header):
                records = places.find(window[at : at + header.size_bytes], header)
                self._note(places.payload, records)
            at += header.size_bytes
        return at

    def _counts(self, header: BatchHeader) -> bool:
        return not header.is_control and not self._aborted.holds(header)

    def _note(self, payload: Buffer, records: int) -> None:
        noted = self._keys.note(payload, self._places.numbers, records, self._since)
        if noted < records:
            self.full_at = self._places.offset_of(noted)


class Sieve:
    """Hands what is left of one window after the other to ``keep``."""

    __slots__ = (
        "_endings",
        "_keep",
        "_keys",
        "_places",
        "_terms",
        "changed",
        "horizon",
        "needed_markers",
    )

    def __init__(
        self, keys: KeyMap, terms: Terms, keep: Keep, endings: Endings | None = None
    ) -> None:
        """``endings`` has followed the log from its beginning up to the first window."""
        self._endings = endings or Endings()
        self._keys = keys
        self._terms = terms
        self._keep = keep
        self._places = Places()
        self.changed = False
        """Whether what is left differs from what was there."""
        self.horizon: Millis | None = None
        """The earliest moment at which a tombstone or marker that stayed may go."""
        self.needed_markers: set[Offset] = set()
        """Where markers lie whose transactions have batches in the log."""

    def take(self, window: memoryview, end: int) -> int:
        """Sift the whole batches in ``window``; how many bytes they take.

        Of a batch that ends at ``end`` at least the header is kept, so that the end of a
        segment is known.
        """
        at = 0
        while True:
            count, behind, _ = self._places.find_many(window, at)
            if count:
                self._sift_many(window, count, end)
                at = behind
                continue
            header = whole_batch(window, at)
            if header is None:
                return at
            behind = at + header.size_bytes
            self._sift_one(window[at:behind], header, must_stay=behind == end)
            at = behind

    def _sift_many(self, window: memoryview, count: int, end: int) -> None:
        """HOT: a few times per megabyte, and its loop once per batch that is left."""
        terms, places = self._terms, self._places
        left = self._keys.judge(
            window, places.numbers, places.batches, count, terms.upto, end, terms.last_of
        )
        self.changed = self.changed or left < count
        for row in range(0, left * BATCH_FIELDS, BATCH_FIELDS):
            at, size_bytes, behind, as_it_is, _, _, newest = places.batches[
                row : row + BATCH_FIELDS
            ]
            batch = window[at : at + size_bytes]
            if as_it_is:
                self._keep(batch, batch, Offset(behind - 1), Millis(newest))
            else:
                self._sift_one(batch, peek(batch), must_stay=at + size_bytes == end)

    def _sift_one(self, batch: memoryview, header: BatchHeader, *, must_stay: bool) -> None:
        left = self.sift(batch, header, must_stay=must_stay)
        self.changed = self.changed or left is not batch
        if left is not None:
            newest = header if left is batch else peek(left)
            self._keep(left, batch, header.last_offset, newest.newest_timestamp)

    def sift(self, batch: Buffer, header: BatchHeader, *, must_stay: bool) -> Buffer | None:
        """What is left of the batch: itself if nothing changes, ``None`` if nothing is left."""
        if header.is_control:
            return self._sift_marker(batch, header, must_stay)
        if header.is_transactional and self._endings.took_back(header):
            return self._without_records(batch, header, must_stay)
        terms = self._terms
        horizon = header.delete_horizon
        drop_tombstones = horizon is not None and horizon <= terms.now
        kept, tombstones, newest = self._survivors(batch, header, drop_tombstones)
        if not kept:
            return self._without_records(batch, header, must_stay)
        may_be_dated = tombstones > 0 and horizon is None and self._is_clean(header)
        if may_be_dated:
            horizon = Millis(min(terms.now + terms.delete_retention_ms, _END_OF_TIME))
        left = batch
        if kept < header.records_count or may_be_dated:
            left = self._rewritten(header, kept, newest, horizon)
            horizon = peek(left).delete_horizon
            if kept == header.records_count and horizon is None:
                left = batch  # of a time that is too far from any horizon
        if tombstones and horizon is not None:
            self.horizon = horizon if self.horizon is None else min(self.horizon, horizon)
        return left

    def _sift_marker(self, batch: Buffer, header: BatchHeader, must_stay: bool) -> Buffer | None:
        if self._endings.needs(header):
            self.needed_markers.add(header.base_offset)
            return batch
        horizon, terms = header.delete_horizon, self._terms
        if horizon is not None and horizon <= terms.now:
            return self._without_records(batch, header, must_stay)
        if not header.records_count:
            return batch if must_stay else None
        if read_marker(batch) is None:
            return batch
        dated = batch
        if horizon is None:
            horizon = Millis(min(terms.now + terms.delete_retention_ms, _END_OF_TIME))
            self._places.find(batch, header)
            newest = header.max_timestamp - header.base_timestamp
            dated = self._rewritten(header, header.records_count, newest, horizon)
        self.horizon = horizon if self.horizon is None else min(self.horizon, horizon)
        return dated

    def _is_clean(self, header: BatchHeader) -> bool:
        """Whether all that the batch's tombstones delete goes in this pass, or is gone."""
        return header.next_offset <= self._terms.upto

    def _survivors(
        self, batch: Buffer, header: BatchHeader, drop_tombstones: bool
    ) -> tuple[int, int, int]:
        """Bring the places of what stays to the front; as ``KeyMap.sift`` says."""
        if not header.records_count:
            return 0, 0, 0
        places = self._places
        count = places.find(batch, header)
        return self._keys.sift(
            places.payload, places.numbers, count, self._terms.upto, drop_tombstones
        )

    def _without_records(
        self, batch: Buffer, header: BatchHeader, must_stay: bool
    ) -> Buffer | None:
        is_last = self._terms.last_of.get(header.producer_id) in (header.last_offset, UNKNOWN)
        if not (must_stay or is_last):
            return None
        if not header.records_count:
            return batch
        attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON)
        return assemble(
            header._replace(attributes=attributes, base_timestamp=NO_TIMESTAMP, records_count=0),
            b"",
        )

    def _rewritten(
        self, header: BatchHeader, kept: int, newest: int, horizon: Millis | None
    ) -> Buffer:
        """The batch with the ``kept`` records whose places are in front."""
        attributes, base = header.attributes, header.base_timestamp
        if horizon is not None:
            attributes, base = attributes | DELETE_HORIZON, horizon
        records = self._copied(kept, header.base_timestamp - base)
        if records is None:
            return self._rewritten(header, kept, newest, header.delete_horizon)
        codec, payload = header.codec, memoryview(records)
        if codec is not Codec.NONE:
            payload = memoryview(compress(codec, payload))
        max_timestamp = header.max_timestamp
        if header.timestamp_type is TimestampType.CREATE_TIME:
            max_timestamp = Millis(header.base_timestamp + newest)
        return assemble(
            header._replace(
                attributes=attributes,
                base_timestamp=base,
                max_timestamp=max_timestamp,
                records_count=kept,
            ),
            payload,
        )

    def _copied(self, kept: int, shift_ms: int) -> bytearray | None:
        """The records, counted from another time; ``None`` if one is too far from it."""
        places, out = self._places, bytearray()
        try:
            fit = record_codec.copy_records(places.payload, places.numbers, kept, shift_ms, out)
        except OverflowError:  # the compiled twin's word for more than 64 bits
            return None
        return out if fit else None


def whole_batch(window: memoryview, at: int) -> BatchHeader | None:
    """The header of the batch at ``at``, proven; ``None`` if the window ends before it does."""
    if len(window) - at < HEADER_BYTES:
        return None
    header = peek(window, at)
    if header.batch_length >= HEADER_BYTES - FRAME_BYTES and at + header.size_bytes > len(window):
        return None
    return check(window, at)
