"""Idempotency keys, as they stand in record batches.

A message that is to be stored once carries its key in the header ``idempotency-key``.  Such
messages have batches of their own, which the leader marks (``ONCE``): whoever has the bytes of a
log finds all keys in it without looking into any other batch.  The base timestamp of such a batch
is the leader's clock at the append, whatever the messages say of their time: from then on the
window of the keys counts, on every replica alike.

The content of a message is its key, value and headers; where and when it is sent is not.
"""

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from struct import Struct
from typing import Final, NamedTuple

from waystation.model.errors import CorruptBatchError, InvalidRecordError
from waystation.model.offsets import Millis, Offset
from waystation.records import codec as record_codec
from waystation.records.batch import BatchBuilder, assemble, rows_of
from waystation.records.header import DELETE_HORIZON, ONCE, Buffer, peek
from waystation.records.record import Headers, Row
from waystation.records.sieve import Places

__all__ = [
    "HEADER_NAME",
    "KEY_BYTES_MAX",
    "OnceEntry",
    "check_key",
    "entries_of",
    "fingerprint_of",
    "hash_of",
    "key_of",
    "once_batch",
]

HEADER_NAME: Final = "idempotency-key"
KEY_BYTES_MAX: Final = 255
_VISIBLE: Final = range(0x21, 0x7F)
_LENGTH: Final = Struct(">q")


class OnceEntry(NamedTuple):
    """What is remembered of a message: by its key's hash, where and what it was."""

    hashed: bytes
    offset: Offset
    fingerprint: bytes
    at: Millis
    """When its leader stored it."""
    timestamp: Millis


def check_key(key: bytes) -> None:
    """Refuse what cannot stand in a line of HTTP headers as it is."""
    if not 1 <= len(key) <= KEY_BYTES_MAX:
        raise InvalidRecordError(
            f"an idempotency key has 1 to {KEY_BYTES_MAX} bytes, this one has {len(key)}"
        )
    if not all(map(_VISIBLE.__contains__, key)):
        raise InvalidRecordError("an idempotency key has visible ASCII characters only, no spaces")


def key_of(headers: Headers) -> bytes | None:
    """The idempotency key among a message's headers; ``None`` if it has none."""
    for name, value in headers:
        if name == HEADER_NAME:
            return value
    return None


def hash_of(key: bytes) -> bytes:
    """Sixteen bytes that stand for the key: nobody finds another with the same."""
    return blake2b(key, digest_size=16).digest()


def fingerprint_of(key: bytes | None, value: bytes | None, headers: Headers) -> bytes:
    """Eight bytes that stand for the content of a message."""
    digest = blake2b(digest_size=8)
    for part in _parts(key, value, headers):
        digest.update(_LENGTH.pack(-1 if part is None else len(part)))
        digest.update(part or b"")
    return digest.digest()


def _parts(key: bytes | None, value: bytes | None, headers: Headers) -> Iterator[bytes | None]:
    yield key
    yield value
    for name, content in headers:
        if name != HEADER_NAME:
            yield name.encode()
            yield content


def entries_of(batch: Buffer, at: int = 0) -> list[OnceEntry]:
    """What is to be remembered of the batch at ``at``: nothing, unless it is marked."""
    header = peek(batch, at)
    if not header.attributes & ONCE or not header.records_count:
        return []
    # A batch that compaction has dated says no more when it was appended.
    dated = header.attributes & DELETE_HORIZON
    stored_at = header.max_timestamp if dated else header.base_timestamp
    return [
        OnceEntry(
            hash_of(known),
            Offset(offset),
            fingerprint_of(key, value, headers),
            stored_at,
            Millis(timestamp),
        )
        for offset, timestamp, key, value, headers in rows_of(batch, at)
        if (known := key_of(headers)) is not None
    ]


def once_batch(rows: Iterable[Row], now: Millis) -> bytearray:
    """A batch of these messages that counts its times from ``now``; not marked yet."""
    builder = BatchBuilder(limit_bytes=1 << 31)
    for _, timestamp, key, value, headers in rows:
        builder.append(key, value, headers, timestamp=timestamp)
    batch = builder.build()
    header, places, records = peek(batch), Places(), bytearray()
    count = places.find(batch, header)
    shift_ms = header.base_timestamp - now
    if not record_codec.copy_records(places.payload, places.numbers, count, shift_ms, records):
        raise CorruptBatchError(f"a message of time {header.max_timestamp} is too far from {now}")
    return bytearray(assemble(header._replace(base_timestamp=now), records))
