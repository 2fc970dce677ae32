"""Whole batches: building one from messages, taking one apart, compressing one anew.

What holds here:

1. a built batch passes ``header.check_produced``, and reading it gives back what was appended;
2. reading never holds more than ``limit_bytes`` of decompressed records;
3. ``recompress`` changes the codec, the length and the checksum and no other field.

Checksums are not verified here: whoever takes a batch from a stranger calls
``header.check`` first, once.
"""

from itertools import repeat
from typing import Final, Protocol

from crc32c import crc32c

from waystation.model.errors import CorruptBatchError
from waystation.model.ids import NO_PRODUCER, NO_PRODUCER_EPOCH, ProducerEpoch, ProducerId
from waystation.records import codec as record_codec
from waystation.records.codec import RecordWriter
from waystation.records.compression import Codec, compress, decompress
from waystation.records.header import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    FRAME_BYTES,
    HEADER,
    HEADER_BYTES,
    MAGIC,
    TRANSACTIONAL,
    BatchHeader,
    TimestampType,
    peek,
)
from waystation.records.record import Buffer, Record, Row

__all__ = [
    "DECOMPRESSED_LIMIT_BYTES",
    "BatchBuilder",
    "Produced",
    "Record",
    "assemble",
    "check_contents",
    "opening",
    "payload_of",
    "recompress",
    "record_sizes",
    "records_of",
    "rows_of",
]

DECOMPRESSED_LIMIT_BYTES: Final = 64 << 20
"""Far more than an honest batch holds (``max.message.bytes`` is 1 MiB unless raised), and
little enough that a hostile one cannot exhaust the memory."""

_BATCH_LIMIT_BYTES = 1_048_588
_NO_SEQUENCE = -1
_NO_LEADER_EPOCH = -1


class BatchBuilder(RecordWriter):
    """Collects messages into one batch of at most ``limit_bytes`` before compression.

    Each message is encoded as it comes, so that the size is known and nothing of the caller's
    is kept.  The producer's fields may be set until ``build``: an idempotent producer learns
    its sequence number only when the batch is about to leave.
    """

    __slots__ = (
        "_level",
        "base_sequence",
        "codec",
        "is_transactional",
        "producer_epoch",
        "producer_id",
    )

    def __init__(
        self,
        codec: Codec = Codec.NONE,
        producer_id: ProducerId = NO_PRODUCER,
        producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH,
        base_sequence: int = _NO_SEQUENCE,
        *,
        is_transactional: bool = False,
        limit_bytes: int = _BATCH_LIMIT_BYTES,
        level: int | None = None,
    ) -> None:
        super().__init__(bytearray(HEADER_BYTES), limit_bytes)
        self.codec, self._level = codec, level
        self.producer_id, self.producer_epoch = producer_id, producer_epoch
        self.base_sequence, self.is_transactional = base_sequence, is_transactional

    @property
    def size_bytes(self) -> int:
        """What the batch takes uncompressed; ``build`` never makes it larger."""
        return len(self.out)

    def build(self) -> bytes:
        """The batch as it goes on the wire; stays uncompressed where that is no larger."""
        assert self.records_count, "a batch without records was built"
        codec, payload = self.codec, memoryview(self.out)[HEADER_BYTES:]
        if codec is not Codec.NONE:
            smaller = compress(codec, payload, self._level)
            if len(smaller) < len(payload):
                payload = memoryview(smaller)
            else:
                codec = Codec.NONE
        return assemble(opening(self, codec), payload)


def records_of(
    buffer: Buffer, at: int = 0, *, limit_bytes: int = DECOMPRESSED_LIMIT_BYTES
) -> list[Record]:
    """The records of the batch at ``at``; a control batch's markers too."""
    rows = rows_of(buffer, at, limit_bytes=limit_bytes)
    return list(map(tuple.__new__, repeat(Record), rows))


def rows_of(
    buffer: Buffer, at: int = 0, *, limit_bytes: int = DECOMPRESSED_LIMIT_BYTES
) -> list[Row]:
    """As ``records_of``, in half the time: tuples without names.

    HOT: once per batch consumed (benchmarks/records/codec.py).
    """
    header = peek(buffer, at)
    appended = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    return record_codec.decode_records(
        payload_of(buffer, at, header, limit_bytes),
        header.records_count,
        header.base_offset,
        header.last_offset_delta,
        header.base_timestamp,
        header.max_timestamp if appended else None,
    )


def record_sizes(
    buffer: Buffer, at: int = 0, *, limit_bytes: int = DECOMPRESSED_LIMIT_BYTES
) -> list[int]:
    """Bytes that each record of the batch at ``at`` takes before compression."""
    header = peek(buffer, at)
    payload = payload_of(buffer, at, header, limit_bytes)
    return record_codec.record_sizes(payload, header.records_count)


def check_contents(
    buffer: Buffer,
    header: BatchHeader,
    at: int = 0,
    *,
    limit_bytes: int = DECOMPRESSED_LIMIT_BYTES,
) -> int:
    """Prove that the records inside are what the checked ``header`` says of them.

    Returns how many of them have no key.  Costs little for a batch that is not compressed, and
    its decompression otherwise.

    HOT: once per produced batch (benchmarks/partition/intake.py).
    """
    if header.attributes & CODEC_MASK or header.size_bytes != len(buffer) - at:
        payload = payload_of(buffer, at, header, limit_bytes)
    else:
        payload = buffer[at + HEADER_BYTES :]
    return record_codec.check_records(
        payload,
        header.records_count,
        header.last_offset_delta,
        header.base_timestamp,
    )


def recompress(
    batch: Buffer,
    codec: Codec,
    level: int | None = None,
    *,
    limit_bytes: int = DECOMPRESSED_LIMIT_BYTES,
) -> bytes:
    """The same batch under another codec, for topics that choose their own."""
    header = peek(batch)
    if header.codec is codec:
        return bytes(batch)
    payload = compress(codec, payload_of(batch, 0, header, limit_bytes), level)
    attributes = header.attributes & ~CODEC_MASK | codec
    return assemble(header._replace(attributes=attributes), payload)


def payload_of(
    buffer: Buffer, at: int, header: BatchHeader, limit_bytes: int = DECOMPRESSED_LIMIT_BYTES
) -> Buffer:
    """The uncompressed records; a view into ``buffer`` where they already are."""
    if header.size_bytes < HEADER_BYTES or header.size_bytes > len(buffer) - at:
        raise CorruptBatchError(
            f"batch at offset {header.base_offset} claims {header.size_bytes} bytes, "
            f"{len(buffer) - at} are there"
        )
    section = memoryview(buffer)[at + HEADER_BYTES : at + header.size_bytes]
    if header.codec is Codec.NONE:
        return section
    return decompress(header.codec, section, limit_bytes)


class Produced(Protocol):
    """What a producer knows of a batch that it is about to send."""

    records_count: int
    base_timestamp: int
    max_timestamp: int
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    base_sequence: int
    is_transactional: bool


def opening(batch: Produced, codec: Codec) -> BatchHeader:
    """The header of a batch on its way to a broker; length and checksum are still to come."""
    return BatchHeader._make(
        (
            0,
            0,
            _NO_LEADER_EPOCH,
            MAGIC,
            0,
            codec | (TRANSACTIONAL if batch.is_transactional else 0),
            batch.records_count - 1,
            batch.base_timestamp,
            batch.max_timestamp,
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            batch.records_count,
        )
    )


def assemble(header: BatchHeader, payload: Buffer) -> bytes:
    """Header and payload as one batch, with its length and checksum put right."""
    length = HEADER_BYTES - FRAME_BYTES + len(payload)
    out = bytearray(HEADER.pack(*header._replace(batch_length=length)))
    crc = crc32c(payload, crc32c(memoryview(out)[ATTRIBUTES_AT:]))
    HEADER.pack_into(out, 0, *header._replace(batch_length=length, crc=crc))
    return b"".join((out, payload))
