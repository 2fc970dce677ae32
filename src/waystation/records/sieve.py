"""What compaction leaves of a batch.

1. Of the records before the end of the map only the last of each key is left, and what is left
   is what it was: offset, timestamp, key, value, headers, in the same codec.
2. A batch keeps its base offset, last offset, leader epoch and the producer's fields, whatever
   goes out of it.  One that loses every record goes too, unless it must stay: then its header
   stays, without records.
3. A tombstone stays for as long as it was told after everything it deletes is gone.  From when
   on it may go is written into its batch, in Kafka's way: a bit of the attributes, and the moment
   in place of the base timestamp.
4. Markers of transactions stay.  Which of them may go is for whoever knows transactions to say.

Keys are counted in ``keys.py``; files are the business of storage.
"""

from array import array
from collections.abc import Mapping
from typing import NamedTuple

from waystation.model.ids import ProducerId
from waystation.model.offsets import NO_TIMESTAMP, Millis, Offset
from waystation.records import codec as record_codec
from waystation.records.batch import assemble, payload_of
from waystation.records.codec import PLACE_FIELDS
from waystation.records.compression import Codec, compress
from waystation.records.header import (
    CODEC_MASK,
    DELETE_HORIZON,
    BatchHeader,
    TimestampType,
)
from waystation.records.keys import KeyMap
from waystation.records.record import Buffer

__all__ = ["UNKNOWN", "Places", "Sieve", "Terms"]

UNKNOWN = Offset(-1)

_LEAST_RECORD_BYTES = 7
_OFFSET = 4
_END_OF_TIME = (1 << 63) - 1


class Terms(NamedTuple):
    """Up to where and from when on things may go."""

    upto: Offset
    """The end of what the map of keys knows."""
    now: Millis
    delete_retention_ms: int
    last_of: Mapping[ProducerId, Offset]
    """Where each producer's newest batch ends, by which a repeated batch is recognised; or
    ``UNKNOWN``, and then none of them may go."""


class Places:
    """Where the records of a batch lie, found in memory that is used again for the next."""

    __slots__ = ("numbers", "payload")

    def __init__(self) -> None:
        self.numbers = array("q")
        self.payload: Buffer = b""

    def find(self, batch: Buffer, header: BatchHeader) -> int:
        """Look into a batch whose checksum was verified; how many records it has."""
        count = header.records_count
        self.payload = payload = payload_of(batch, 0, header)
        wanted = min(count, len(payload) // _LEAST_RECORD_BYTES) * PLACE_FIELDS
        if wanted > len(self.numbers):
            self.numbers = array("q", [0]) * wanted
        record_codec.locate_records(
            payload, count, header.last_offset_delta, header.base_timestamp, self.numbers
        )
        return count

    def offset_delta(self, number: int) -> int:
        """The offset of a record, relative to its batch's."""
        return self.numbers[number * PLACE_FIELDS + _OFFSET]


class Sieve:
    """Takes one batch after the other."""

    __slots__ = ("_keys", "_places", "_terms", "horizon")

    def __init__(self, keys: KeyMap, terms: Terms) -> None:
        self._keys = keys
        self._terms = terms
        self._places = Places()
        self.horizon: Millis | None = None
        """The earliest moment at which a tombstone that stayed may go."""

    def sift(self, batch: Buffer, header: BatchHeader, *, must_stay: bool) -> Buffer | None:
        """What is left of the batch: itself if nothing changes, ``None`` if nothing is left.

        ``must_stay`` keeps at least the header, so that the end of a segment is known.

        HOT: once per batch that is compacted (benchmarks/storage/compaction.py).
        """
        if header.is_control:
            return batch
        terms = self._terms
        horizon = header.delete_horizon
        drop_tombstones = horizon is not None and horizon <= terms.now
        kept, tombstones, newest = self._survivors(batch, header, drop_tombstones)
        if not kept:
            return self._without_records(batch, header, must_stay)
        dated = tombstones > 0 and horizon is None and self._is_clean(header)
        if dated:
            horizon = Millis(min(terms.now + terms.delete_retention_ms, _END_OF_TIME))
        if tombstones and horizon is not None:
            self.horizon = horizon if self.horizon is None else min(self.horizon, horizon)
        if kept == header.records_count and not dated:
            return batch
        return self._rewritten(header, kept, newest, horizon)

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
            places.payload,
            places.numbers,
            count,
            header.base_offset,
            self._terms.upto,
            drop_tombstones,
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
