"""Batches as a log holds them, for tests that decode or serve them."""

import struct
from collections.abc import Sequence

from crc32c import crc32c

from waystation.client.raw import Fetched
from waystation.messages.fetch import AbortedTransaction
from waystation.model.ids import LeaderEpoch, ProducerEpoch, ProducerId
from waystation.model.offsets import Millis, Offset
from waystation.records.batch import BatchBuilder
from waystation.records.compression import Codec
from waystation.records.header import ATTRIBUTES_AT, batches, peek, stamp

ABORT, COMMIT = 0, 1
_CONTROL = 0x20
_RECORDS_COUNT_AT = 57


def batch(
    base: int,
    values: Sequence[bytes | None],
    *,
    codec: Codec = Codec.NONE,
    producer: int | None = None,
    key: bytes | None = None,
    timestamp: int = 1_000,
) -> bytearray:
    """Records at ``base`` and after it; of a transaction if there is a ``producer``."""
    builder = BatchBuilder(
        codec,
        ProducerId(-1 if producer is None else producer),
        ProducerEpoch(-1 if producer is None else 0),
        -1 if producer is None else 0,
        is_transactional=producer is not None,
    )
    for value in values:
        builder.append(key, value, timestamp=Millis(timestamp))
    return _stamped(bytearray(builder.build()), base)


def marker(base: int, producer: int, kind: int) -> bytearray:
    """What a broker writes at the end of a transaction."""
    key, value = struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0)
    raw = batch(base, [value], producer=producer, key=key)
    raw[ATTRIBUTES_AT + 1] |= _CONTROL
    return _checksummed(raw)


def emptied(raw: bytearray) -> bytearray:
    """The batch once compaction removed all of its records: only the header stays."""
    left = raw[:61]
    struct.pack_into(">i", left, 8, 61 - 12)
    struct.pack_into(">i", left, _RECORDS_COUNT_AT, 0)
    return _checksummed(left)


def fetched(
    raw: bytes | bytearray, at: int = 0, aborted: Sequence[tuple[int, int]] = ()
) -> Fetched:
    """An answer that holds ``raw``; ``aborted`` are producers and first offsets."""
    view = memoryview(bytes(raw))
    whole = [one for one in batches(view) if one[1].next_offset > at]
    end = peek(view, whole[-1][0]).next_offset if whole else Offset(at)
    listed = tuple(
        AbortedTransaction(producer_id=producer, first_offset=first) for producer, first in aborted
    )
    return Fetched(Offset(at), view, whole, listed, end, end)


def _stamped(raw: bytearray, base: int) -> bytearray:
    stamp(raw, 0, Offset(base), LeaderEpoch(0))
    return raw


def _checksummed(raw: bytearray) -> bytearray:
    struct.pack_into(">I", raw, 17, crc32c(raw[ATTRIBUTES_AT:]))
    return raw
