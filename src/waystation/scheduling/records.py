"""What a partition's leader decided about records, kept in the partition's own log.

A decision is a control batch of one record: no application ever sees it, every replica has it, and
it lies behind the records that it is about.  Its key is of a type that Kafka does not use; its
value is a version, a kind and what that kind says.  ``read_decision`` gives back what
``decision_batch`` was given, ``None`` for control batches of other kinds, such as markers.
"""

import struct
from array import array
from struct import Struct
from sys import byteorder
from typing import Final, NamedTuple

from waystation.model.errors import CorruptBatchError
from waystation.model.ids import ProducerEpoch, ProducerId, TopicPartition
from waystation.model.offsets import Millis, Offset
from waystation.records.batch import BatchBuilder, assemble, opening, rows_of
from waystation.records.compression import Codec
from waystation.records.header import CONTROL, HEADER_BYTES, Buffer, peek
from waystation.scheduling.wheel import Due

__all__ = [
    "Cancelled",
    "Decided",
    "Decision",
    "Doubted",
    "Retimed",
    "Settled",
    "Withdrawn",
    "decision_batch",
    "read_decision",
]

_KEY: Final = Struct(">hh")
_TYPE: Final = 0x5753
_HEAD: Final = Struct(">hh")
_VERSION: Final = 0
_DECIDED, _SETTLED, _DOUBTED, _WITHDRAWN, _CANCELLED, _RETIMED = range(1, 7)
_MOVE: Final = Struct(">qhiqI")
_LANE: Final = Struct(">qhi")
_TOPIC: Final = Struct(">iH")
_DUE: Final = Struct(">qq")
_RETIME: Final = Struct(">qqq")


class Decided(NamedTuple):
    """These records go to ``target``, in this order, as one batch of this producer.

    Whoever leads sends it, again and again, until the target has it; the sequence keeps the
    target from taking it twice.  That there is a next one says that this one arrived.
    """

    target: TopicPartition
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    sequence: int
    at: Millis
    """When it was decided; also the timestamp of what is delivered."""
    items: tuple[Due, ...]
    """When each was due, or whatever number its owner needs to know, and its offset."""


class Settled(NamedTuple):
    """The target has the last batch; where the next one begins."""

    target: TopicPartition
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    next_sequence: int


class Doubted(NamedTuple):
    """Nobody can say whether the target has the last batch: an epoch begins in which to find out.

    Once the target knows the epoch, nothing older can arrive there, and looking is decisive.
    """

    target: TopicPartition
    producer_id: ProducerId
    producer_epoch: ProducerEpoch


class Withdrawn(NamedTuple):
    """The target does not have the last batch and never will: its records are pending again."""

    target: TopicPartition
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    next_sequence: int


class Cancelled(NamedTuple):
    """A record is not delivered any more; a recurring one never again."""

    due: Millis
    offset: Offset


class Retimed(NamedTuple):
    """A record is due at another time.

    ``due`` is what its headers say, not what an earlier decision said: cleaning keeps only the
    last of these for each record.
    """

    due: Millis
    offset: Offset
    to: Millis


Decision = Decided | Settled | Doubted | Withdrawn | Cancelled | Retimed


def decision_batch(decision: Decision, now: Millis) -> bytes:
    """The batch to append; its offset and leader epoch are still to be stamped."""
    builder = BatchBuilder(limit_bytes=1 << 30)
    builder.append(_KEY.pack(0, _TYPE), _value(decision), timestamp=now)
    payload = memoryview(builder.out)[HEADER_BYTES:]
    header = opening(builder, Codec.NONE)
    return assemble(header._replace(attributes=header.attributes | CONTROL), payload)


def read_decision(batch: Buffer, at: int = 0) -> Decision | None:
    """The decision in a control batch; its checksum is the caller's business."""
    header = peek(batch, at)
    rows = rows_of(batch, at) if header.is_control else []
    if not rows or rows[0][2] != _KEY.pack(0, _TYPE):
        return None
    value = rows[0][3] or b""
    try:
        version, kind = _HEAD.unpack_from(value)
        if version != _VERSION:
            raise ValueError(f"version {version} is not known here")
        return _decision(kind, memoryview(value)[_HEAD.size :])
    except (ValueError, struct.error) as problem:
        raise CorruptBatchError(
            f"the decision at offset {header.base_offset} cannot be read: {problem}"
        ) from None


def _value(decision: Decision) -> bytes:
    match decision:
        case Decided(target, producer_id, epoch, sequence, at, items):
            move = _MOVE.pack(producer_id, epoch, sequence, at, len(items))
            numbers = array("q", [number for item in items for number in item])
            if byteorder == "little":
                numbers.byteswap()
            return _head(_DECIDED) + move + _topic(target) + numbers.tobytes()
        case Settled(target, producer_id, epoch, sequence):
            return _head(_SETTLED) + _LANE.pack(producer_id, epoch, sequence) + _topic(target)
        case Withdrawn(target, producer_id, epoch, sequence):
            return _head(_WITHDRAWN) + _LANE.pack(producer_id, epoch, sequence) + _topic(target)
        case Doubted(target, producer_id, epoch):
            return _head(_DOUBTED) + _LANE.pack(producer_id, epoch, 0) + _topic(target)
        case Cancelled(due, offset):
            return _head(_CANCELLED) + _DUE.pack(due, offset)
        case Retimed(due, offset, to):
            return _head(_RETIMED) + _RETIME.pack(due, offset, to)


def _decision(kind: int, body: memoryview) -> Decision:
    match kind:
        case 1:
            producer_id, epoch, sequence, at, count = _MOVE.unpack_from(body)
            target, end = _target(body, _MOVE.size)
            numbers = array("q", bytes(body[end : end + 16 * count]))
            if byteorder == "little":
                numbers.byteswap()
            items = tuple(zip(numbers[::2], numbers[1::2], strict=True))
            if len(items) != count:
                raise ValueError(f"{len(items)} of {count} records are named")
            return Decided(target, producer_id, epoch, sequence, at, items)
        case 2:
            producer_id, epoch, sequence = _LANE.unpack_from(body)
            return Settled(_target(body, _LANE.size)[0], producer_id, epoch, sequence)
        case 3:
            producer_id, epoch, _ = _LANE.unpack_from(body)
            return Doubted(_target(body, _LANE.size)[0], producer_id, epoch)
        case 4:
            producer_id, epoch, sequence = _LANE.unpack_from(body)
            return Withdrawn(_target(body, _LANE.size)[0], producer_id, epoch, sequence)
        case 5:
            return Cancelled(*_DUE.unpack_from(body))
        case 6:
            return Retimed(*_RETIME.unpack_from(body))
    raise ValueError(f"kind {kind} is not known here")


def _head(kind: int) -> bytes:
    return _HEAD.pack(_VERSION, kind)


def _topic(target: TopicPartition) -> bytes:
    name = target.topic.encode()
    return _TOPIC.pack(target.partition, len(name)) + name


def _target(body: memoryview, at: int) -> tuple[TopicPartition, int]:
    partition, length = _TOPIC.unpack_from(body, at)
    start = at + _TOPIC.size
    name = bytes(body[start : start + length])
    if len(name) != length:
        raise ValueError("the target's name is cut off")
    return TopicPartition(name.decode(), partition), start + length
