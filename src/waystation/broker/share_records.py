"""Facts of queues and share groups as Kafka writes them, and back.

A key begins with a number that says what it is the key of; a value with the version of its
format.  A value of null forgets what the key named, as compaction understands it.  Kafka's tools
read what is written here; its keys of updates have no slot, which stands behind them.

1. ``read_state(*encode_state(record))`` is ``record``, and so for groups.
2. A key of a kind that is not known here is no error: it belongs to a newer version, or to
   somebody else, and stays in the log.
"""

from collections.abc import Sequence
from struct import Struct, error
from typing import Any, Final, TypeVar
from uuid import UUID

from waystation.broker.share_schemas import (
    AssignedPartitions,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataValue,
    ShareSnapshotValue,
    ShareUpdateValue,
    StateBatchValue,
    TopicPartitionsInfo,
)
from waystation.model.errors import MalformedFrameError, UnsupportedVersionError, WaystationError
from waystation.model.ids import LeaderEpoch, TopicId
from waystation.model.offsets import Offset
from waystation.sharing.group_records import (
    GroupRecord,
    Partitions,
    ShareGroupForgotten,
    ShareGroupStored,
    ShareMemberForgotten,
    ShareMemberStored,
    ShareMemberTargetForgotten,
    ShareMemberTargetStored,
    ShareQueuesForgotten,
    ShareQueuesStored,
    ShareTargetForgotten,
    ShareTargetStored,
)
from waystation.sharing.state_records import (
    Notes,
    QueueId,
    SnapshotStored,
    StateForgotten,
    StateRecord,
    UpdateForgotten,
    UpdateStored,
)
from waystation.sharing.states import StateBatch
from waystation.wire.message import Message

__all__ = [
    "UnreadableShareRecordError",
    "encode_group",
    "encode_state",
    "read_group",
    "read_state",
]

M = TypeVar("M", bound=Message)

_SNAPSHOT, _UPDATE = 0, 1
_MEMBER, _GROUP, _TARGET, _MEMBER_TARGET, _QUEUES = 10, 11, 12, 13, 15
_INT16 = Struct(">h")
_PARTITION = Struct(">16si")
_FAULTS: Final = (MalformedFrameError, UnsupportedVersionError, ValueError, IndexError, error)


class UnreadableShareRecordError(WaystationError):
    """A record whose key is known and whose bytes are not what the key promises."""


# --- queues -------------------------------------------------------------------------------------


def encode_state(record: StateRecord) -> tuple[bytes, bytes | None]:
    """The key and the value of ``record``."""
    match record:
        case SnapshotStored():
            return _queue_key(_SNAPSHOT, record.queue), _snapshot(record)
        case UpdateStored():
            return _queue_key(_UPDATE, record.queue, record.slot), _update(record)
        case StateForgotten(queue):
            return _queue_key(_SNAPSHOT, queue), None
        case UpdateForgotten(queue, slot):
            return _queue_key(_UPDATE, queue, slot), None


def read_state(key: bytes, value: bytes | None) -> StateRecord | None:
    """The record; none if its key is of a kind that is not known here."""
    kind = _kind(key)
    try:
        if kind == _SNAPSHOT:
            queue, _ = _queue_of(key)
            return StateForgotten(queue) if value is None else _read_snapshot(queue, value)
        if kind == _UPDATE:
            queue, at = _queue_of(key)
            slot = _INT16.unpack_from(key, at)[0] if at < len(key) else 0
            return (
                UpdateForgotten(queue, slot) if value is None else _read_update(queue, slot, value)
            )
    except _FAULTS as fault:
        raise UnreadableShareRecordError(f"a record of kind {kind}: {fault}") from fault
    return None


def _snapshot(record: SnapshotStored) -> bytes:
    return _value(
        ShareSnapshotValue(
            snapshot_epoch=record.snapshot_epoch,
            state_epoch=record.state_epoch,
            leader_epoch=record.leader_epoch,
            start_offset=record.start,
            state_batches=_batches(record.batches),
            notes_version=record.notes.version,
            notes=record.notes.content,
            is_new=record.is_new,
        )
    )


def _update(record: UpdateStored) -> bytes:
    return _value(
        ShareUpdateValue(
            snapshot_epoch=record.snapshot_epoch,
            leader_epoch=record.leader_epoch,
            start_offset=record.start,
            state_batches=_batches(record.batches),
            notes_version=record.notes.version,
            notes=record.notes.content,
        )
    )


def _read_snapshot(queue: QueueId, value: bytes) -> SnapshotStored:
    found = _decoded(ShareSnapshotValue, value)
    return SnapshotStored(
        queue,
        found.snapshot_epoch,
        found.state_epoch,
        LeaderEpoch(found.leader_epoch),
        Offset(found.start_offset),
        _batches_of(found.state_batches),
        Notes(found.notes_version, bytes(found.notes)),
        found.is_new,
    )


def _read_update(queue: QueueId, slot: int, value: bytes) -> UpdateStored:
    found = _decoded(ShareUpdateValue, value)
    return UpdateStored(
        queue,
        slot,
        found.snapshot_epoch,
        LeaderEpoch(found.leader_epoch),
        Offset(found.start_offset),
        _batches_of(found.state_batches),
        Notes(found.notes_version, bytes(found.notes)),
    )


def _queue_key(kind: int, queue: QueueId, slot: int = 0) -> bytes:
    tail = _PARTITION.pack(queue.topic_id.bytes, queue.partition)
    return _key(kind, queue.group_id) + tail + (_INT16.pack(slot) if kind == _UPDATE else b"")


def _queue_of(key: bytes) -> tuple[QueueId, int]:
    group_id, at = _text(key, 2)
    topic, partition = _PARTITION.unpack_from(key, at)
    return QueueId(group_id, TopicId(UUID(bytes=topic)), partition), at + _PARTITION.size


def _batches(batches: Sequence[StateBatch]) -> list[StateBatchValue]:
    return [
        StateBatchValue(
            first_offset=first,
            last_offset=end - 1,
            delivery_state=state,
            delivery_count=deliveries,
        )
        for first, end, state, deliveries in batches
    ]


def _batches_of(values: list[StateBatchValue]) -> tuple[StateBatch, ...]:
    return tuple(
        StateBatch(
            Offset(one.first_offset),
            Offset(one.last_offset + 1),
            one.delivery_state,
            one.delivery_count,
        )
        for one in values
    )


# --- groups -------------------------------------------------------------------------------------


def encode_group(record: GroupRecord) -> tuple[bytes, bytes | None]:
    """The key and the value of ``record``."""
    match record:
        case ShareGroupStored(group_id, epoch, metadata_hash):
            group = ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
            return _key(_GROUP, group_id), _value(group)
        case ShareMemberStored(group_id, member_id):
            return _key(_MEMBER, group_id, member_id), _value(_member(record))
        case ShareTargetStored(group_id, epoch):
            target = ShareGroupTargetAssignmentMetadataValue(assignment_epoch=epoch)
            return _key(_TARGET, group_id), _value(target)
        case ShareMemberTargetStored(group_id, member_id, partitions):
            assigned = [
                AssignedPartitions(topic_id=topic, partitions=list(indexes))
                for topic, indexes in partitions
            ]
            of_member = ShareGroupTargetAssignmentMemberValue(topic_partitions=assigned)
            return _key(_MEMBER_TARGET, group_id, member_id), _value(of_member)
        case ShareQueuesStored(group_id, begun):
            infos = [
                TopicPartitionsInfo(topic_id=topic, partitions=list(indexes))
                for topic, indexes in begun
            ]
            queues = ShareGroupStatePartitionMetadataValue(initialized_topics=infos)
            return _key(_QUEUES, group_id), _value(queues)
        case _:
            return _key(_KINDS[type(record)], *record), None


_KINDS: Final[dict[type, int]] = {
    ShareGroupForgotten: _GROUP,
    ShareMemberForgotten: _MEMBER,
    ShareTargetForgotten: _TARGET,
    ShareMemberTargetForgotten: _MEMBER_TARGET,
    ShareQueuesForgotten: _QUEUES,
}
_FORGOTTEN: Final[dict[int, Any]] = {kind: record for record, kind in _KINDS.items()}


def read_group(key: bytes, value: bytes | None) -> GroupRecord | None:
    """The record; none if its key is of a kind that is not known here."""
    kind = _kind(key)
    if kind not in _FORGOTTEN:
        return None
    try:
        names = _texts(key)
        if value is None:
            record: GroupRecord = _FORGOTTEN[kind](*names)
            return record
        return _read_group(kind, names, value)
    except (*_FAULTS, TypeError) as fault:
        raise UnreadableShareRecordError(f"a record of kind {kind}: {fault}") from fault


def _read_group(kind: int, names: list[str], value: bytes) -> GroupRecord:
    if kind in (_MEMBER, _MEMBER_TARGET):
        return _read_of_member(kind, *_pair(names), value)
    (group_id,) = names
    if kind == _GROUP:
        group = _decoded(ShareGroupMetadataValue, value)
        return ShareGroupStored(group_id, group.epoch, group.metadata_hash)
    if kind == _TARGET:
        target = _decoded(ShareGroupTargetAssignmentMetadataValue, value)
        return ShareTargetStored(group_id, target.assignment_epoch)
    queues = _decoded(ShareGroupStatePartitionMetadataValue, value)
    return ShareQueuesStored(group_id, _partitions(queues.initialized_topics))


def _read_of_member(kind: int, group_id: str, member_id: str, value: bytes) -> GroupRecord:
    if kind == _MEMBER_TARGET:
        assigned = _decoded(ShareGroupTargetAssignmentMemberValue, value)
        partitions = _partitions(assigned.topic_partitions)
        return ShareMemberTargetStored(group_id, member_id, partitions)
    found = _decoded(ShareGroupMemberMetadataValue, value)
    topics = tuple(found.subscribed_topic_names)
    return ShareMemberStored(
        group_id, member_id, found.rack_id, found.client_id, found.client_host, topics
    )


def _pair(names: list[str]) -> tuple[str, str]:
    group_id, member_id = names
    return group_id, member_id


def _member(record: ShareMemberStored) -> ShareGroupMemberMetadataValue:
    return ShareGroupMemberMetadataValue(
        rack_id=record.rack_id,
        client_id=record.client_id,
        client_host=record.client_host,
        subscribed_topic_names=list(record.topics),
    )


def _partitions(listed: Sequence[AssignedPartitions | TopicPartitionsInfo]) -> Partitions:
    return tuple((TopicId(one.topic_id), tuple(one.partitions)) for one in listed)


# --- parts --------------------------------------------------------------------------------------


def _key(kind: int, *texts: str) -> bytes:
    parts = [_INT16.pack(kind)]
    for text in texts:
        octets = text.encode()
        parts += (_INT16.pack(len(octets)), octets)
    return b"".join(parts)


def _kind(key: bytes) -> int:
    return int.from_bytes(key[:2], "big") if len(key) > 1 else -1


def _text(key: bytes, at: int) -> tuple[str, int]:
    (size,) = _INT16.unpack_from(key, at)
    at += 2
    if size < 0 or at + size > len(key):
        raise MalformedFrameError(f"a text of {size} bytes in a key of {len(key)}")
    return key[at : at + size].decode(), at + size


def _texts(key: bytes) -> list[str]:
    texts, at = [], 2
    while at < len(key):
        text, at = _text(key, at)
        texts.append(text)
    return texts


def _value(value: Message) -> bytes:
    return _INT16.pack(0) + value.encode(0)


def _decoded(kind: type[M], value: bytes) -> M:
    (version,) = _INT16.unpack_from(value)
    return kind.decode(memoryview(value)[2:], version)
