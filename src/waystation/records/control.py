"""Markers: how the log itself says that a transaction ended, and how.

A marker is a control batch of one record, which no application ever sees.  Its header names the
producer, its key says commit or abort, its value which life of the coordinator decided; Kafka's
layout, byte for byte.  Two promises:

1. ``read_marker`` gives back what ``marker_batch`` was given, but ``bumped``: no log holds that;
2. control batches of other kinds, now or in a later version, are told apart and left alone.

What a marker does to a log is decided in ``storage/producer_state.py``.
"""

from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from waystation.model.errors import CorruptBatchError
from waystation.model.ids import NO_LEADER_EPOCH, ProducerEpoch, ProducerId
from waystation.model.offsets import Millis
from waystation.records.batch import rows_of
from waystation.records.header import (
    ATTRIBUTES_AT,
    CONTROL,
    FRAME_BYTES,
    HEADER,
    HEADER_BYTES,
    MAGIC,
    TRANSACTIONAL,
    Buffer,
    peek,
)

__all__ = ["MARKER_BYTES", "Marker", "marker_batch", "read_marker"]

# Length, attributes, two deltas; key of 4 bytes: version, type; value of 6: version, epoch; no
# headers.  Lengths and deltas are varints of one byte each.
_RECORD: Final = Struct(">bbbbbhhbhib")
_LENGTH, _KEY_LENGTH, _VALUE_LENGTH = 16 * 2, 4 * 2, 6 * 2
_KEY: Final = Struct(">hh")
_VALUE: Final = Struct(">hi")
_ABORT, _COMMIT = 0, 1
_NO_SEQUENCE = -1
_CRC_AT = 17
_CRC: Final = Struct(">I")

MARKER_BYTES: Final = HEADER_BYTES + _RECORD.size


class Marker(NamedTuple):
    """The end of one producer's transaction."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    coordinator_epoch: int
    """Which life of the coordinator wrote it: an earlier one may not speak after a later."""
    committed: bool
    bumped: bool = False
    """Whether its epoch was raised to end the transaction: none of the writes has it."""


def marker_batch(marker: Marker, now: Millis) -> bytearray:
    """The batch to append; its offset and leader epoch are still to be stamped.

    HOT: once per partition of every transaction.
    """
    batch = bytearray(MARKER_BYTES)
    HEADER.pack_into(
        batch,
        0,
        0,
        MARKER_BYTES - FRAME_BYTES,
        NO_LEADER_EPOCH,
        MAGIC,
        0,
        TRANSACTIONAL | CONTROL,
        0,
        now,
        now,
        marker.producer_id,
        marker.producer_epoch,
        _NO_SEQUENCE,
        1,
    )
    kind = _COMMIT if marker.committed else _ABORT
    _RECORD.pack_into(
        batch,
        HEADER_BYTES,
        *(_LENGTH, 0, 0, 0),
        *(_KEY_LENGTH, 0, kind),
        *(_VALUE_LENGTH, 0, marker.coordinator_epoch),
        0,
    )
    _CRC.pack_into(batch, _CRC_AT, crc32c(memoryview(batch)[ATTRIBUTES_AT:]))
    return batch


def read_marker(data: Buffer, at: int = 0) -> Marker | None:
    """The marker in the control batch at ``at``; ``None`` if it is of another kind, or emptied.

    The checksum is the caller's business, as for any batch.
    """
    header = peek(data, at)
    rows = rows_of(data, at) if header.is_control else []
    if not rows:
        return None
    _, _, key, value, _ = rows[0]
    kind = _KEY.unpack_from(key)[1] if key and len(key) >= _KEY.size else None
    if kind not in (_ABORT, _COMMIT):
        return None
    if value is None or len(value) < _VALUE.size:
        raise CorruptBatchError(
            f"the marker at offset {header.base_offset} is too short to name its coordinator"
        )
    epoch = _VALUE.unpack_from(value)[1]
    return Marker(header.producer_id, header.producer_epoch, epoch, kind == _COMMIT)
