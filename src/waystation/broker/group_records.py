"""Facts of groups as Kafka writes them into ``__consumer_offsets``, and back.

A key begins with a number that says what it is the key of; a value with the version of its
format.  A value of null forgets what the key named, as compaction understands it.  Kafka's own
tools read what is written here (``kafka-dump-log --offsets-decoder``).

1. ``GroupRecordReader.read(*encode(record))`` is ``record``.  An offset that expires by itself
   is the exception: its format has no room for the leader epoch and the topic's id, which
   those who ask for an expiry do not send.
2. A key of a kind that is not known here is no error: it belongs to a newer version, or to
   somebody else, and stays in the log.

Offsets are nearly all there is to read after a restart, so the usual ones go past ``wire``.
"""

from collections.abc import Callable, Sequence
from struct import Struct, error
from sys import intern
from typing import Any, Final

from waystation.broker.group_schemas import (
    ClassicMember,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitValue,
    TopicPartitions,
)
from waystation.groups.records import (
    NEVER,
    ClassicGroupForgotten,
    ClassicGroupStored,
    ClassicMemberStored,
    ClassicProtocolMember,
    ConsumerGroupForgotten,
    ConsumerGroupStored,
    ConsumerMemberForgotten,
    ConsumerMemberStored,
    Fact,
    MemberCurrentForgotten,
    MemberCurrentStored,
    MemberTargetForgotten,
    MemberTargetStored,
    OffsetCommitted,
    OffsetForgotten,
    Partitions,
    RegexForgotten,
    RegexResolved,
    TargetForgotten,
    TargetStored,
)
from waystation.model.errors import MalformedFrameError, UnsupportedVersionError, WaystationError
from waystation.model.ids import NO_TOPIC_ID, TopicId
from waystation.records.record import Row
from waystation.telemetry.logs import get_logger
from waystation.wire.message import Message
from waystation.wire.primitives import uuid_of

__all__ = ["GroupRecordReader", "UnreadableRecordError", "encode"]

_OFFSET_OLD, _OFFSET, _CLASSIC_GROUP = 0, 1, 2
_GROUP, _MEMBER, _TARGET, _MEMBER_TARGET, _MEMBER_CURRENT, _REGEX = 3, 5, 6, 7, 8, 16

_INT16 = Struct(">h")
_OFFSET_TAIL = Struct(">i")
_PLAIN_OFFSET = Struct(">hqihq")
"""Version 3 without a note: version, offset, leader epoch, length of the note, time."""
_OFFSET_OF_ID = Struct(">hqiBqBBB16s")
"""Version 4 without a note, with a topic id: the note's length is compact, the id is tag 0."""
_PLAIN, _EXPIRING, _OF_ID = 3, 1, 4
_ID_ONLY = (1, 1, 0, 16)
"""Of the compact length, the number of tags, the tag and its size: no note, and a topic id."""
_NO_CLASSIC_MEMBER: Final = b"\x01\x00\x01\x00"
"""How Kafka ends a member that speaks no classic protocol: one tag, number 0, of one byte, null."""
_NAMES_MAX: Final = 100_000
_FAULTS: Final = (MalformedFrameError, UnsupportedVersionError, ValueError, IndexError, error)
_new_tuple = tuple.__new__
_events = get_logger("coordinator")


class UnreadableRecordError(WaystationError):
    """A record whose key is known and whose bytes are not what the key promises."""


# --- writing ------------------------------------------------------------------------------------


def encode(record: Fact) -> tuple[bytes, bytes | None]:
    """The key and the value of ``record``."""
    if type(record) is OffsetCommitted:
        return _offset_key(record.group_id, record.topic, record.partition), _offset_value(record)
    return _ENCODERS[type(record)](record)


def _offset_key(group_id: str, topic: str, partition: int) -> bytes:
    return _key(_OFFSET, group_id, topic) + _OFFSET_TAIL.pack(partition)


def _offset_value(record: OffsetCommitted) -> bytes:
    """HOT: once per committed offset."""
    if record.expires_at == NEVER and not record.metadata:
        if record.topic_id == NO_TOPIC_ID:
            return _PLAIN_OFFSET.pack(
                _PLAIN, record.offset, record.leader_epoch, 0, record.committed_at
            )
        at, topic_id = record.committed_at, record.topic_id.bytes
        return _OFFSET_OF_ID.pack(
            _OF_ID, record.offset, record.leader_epoch, 1, at, 1, 0, 16, topic_id
        )
    value = OffsetCommitValue(
        offset=record.offset,
        leader_epoch=record.leader_epoch,
        metadata=record.metadata,
        commit_timestamp=record.committed_at,
        expire_timestamp=record.expires_at,
        topic_id=record.topic_id,
    )
    if record.expires_at != NEVER:
        return _value(value, _EXPIRING)
    try:
        return _value(value, _PLAIN if record.topic_id == NO_TOPIC_ID else _OF_ID)
    except ValueError:
        return _value(value, _OF_ID)  # as below: room for a long note


def _forgotten_offset(record: OffsetForgotten) -> tuple[bytes, None]:
    return _offset_key(record.group_id, record.topic, record.partition), None


def _classic_group(record: ClassicGroupStored) -> tuple[bytes, bytes]:
    value = GroupMetadataValue(
        protocol_type=record.protocol_type,
        generation=record.generation,
        protocol=record.protocol,
        leader=record.leader,
        current_state_timestamp=record.changed_at,
        members=[
            MemberMetadata(
                member_id=one.member_id,
                group_instance_id=one.instance_id,
                client_id=one.client_id,
                client_host=one.client_host,
                rebalance_timeout=one.rebalance_timeout_ms,
                session_timeout=one.session_timeout_ms,
                subscription=one.subscription,
                assignment=one.assignment,
            )
            for one in record.members
        ],
    )
    key = _key(_CLASSIC_GROUP, record.group_id)
    try:
        return key, _value(value, 3)
    except ValueError:
        # A text of more than 32,767 bytes: the next version has room for it.
        return key, _value(value, 4)


def _group(record: ConsumerGroupStored) -> tuple[bytes, bytes]:
    value = ConsumerGroupMetadataValue(epoch=record.epoch, metadata_hash=record.metadata_hash)
    return _key(_GROUP, record.group_id), _value(value, 0)


def _member(record: ConsumerMemberStored) -> tuple[bytes, bytes]:
    value = ConsumerGroupMemberMetadataValue(
        instance_id=record.instance_id,
        rack_id=record.rack_id,
        client_id=record.client_id,
        client_host=record.client_host,
        subscribed_topic_names=list(record.topics),
        subscribed_topic_regex=record.topic_regex,
        rebalance_timeout_ms=record.rebalance_timeout_ms,
        server_assignor=record.assignor,
    )
    key = _key(_MEMBER, record.group_id, record.member_id)
    if record.classic is None:
        # Not said at all would be, to Kafka, a classic member that said nothing.
        return key, _value(value, 0)[:-1] + _NO_CLASSIC_MEMBER
    value.classic_member_metadata = ClassicMember(
        session_timeout_ms=record.classic.session_timeout_ms,
        supported_protocols=[
            ClassicProtocol(name=name, metadata=metadata)
            for name, metadata in record.classic.protocols
        ],
    )
    return key, _value(value, 0)


def _target(record: TargetStored) -> tuple[bytes, bytes]:
    value = ConsumerGroupTargetAssignmentMetadataValue(
        assignment_epoch=record.epoch, assignment_timestamp=record.computed_at
    )
    return _key(_TARGET, record.group_id), _value(value, 0)


def _member_target(record: MemberTargetStored) -> tuple[bytes, bytes]:
    value = ConsumerGroupTargetAssignmentMemberValue(topic_partitions=_listed(record.partitions))
    return _key(_MEMBER_TARGET, record.group_id, record.member_id), _value(value, 0)


def _member_current(record: MemberCurrentStored) -> tuple[bytes, bytes]:
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=record.epoch,
        previous_member_epoch=record.previous_epoch,
        state=record.state,
        assigned_partitions=_listed(record.assigned),
        partitions_pending_revocation=_listed(record.revoking),
    )
    return _key(_MEMBER_CURRENT, record.group_id, record.member_id), _value(value, 0)


def _regex(record: RegexResolved) -> tuple[bytes, bytes]:
    value = ConsumerGroupRegularExpressionValue(
        topics=list(record.topics), version=record.version, timestamp=record.resolved_at
    )
    return _key(_REGEX, record.group_id, record.regex), _value(value, 0)


def _forgotten(kind: int) -> Callable[[Any], tuple[bytes, None]]:
    """Of records whose fields are the key's."""
    return lambda record: (_key(kind, *record), None)


_ENCODERS: Final[dict[type, Callable[[Any], tuple[bytes, bytes | None]]]] = {
    OffsetForgotten: _forgotten_offset,
    ClassicGroupStored: _classic_group,
    ClassicGroupForgotten: _forgotten(_CLASSIC_GROUP),
    ConsumerGroupStored: _group,
    ConsumerGroupForgotten: _forgotten(_GROUP),
    ConsumerMemberStored: _member,
    ConsumerMemberForgotten: _forgotten(_MEMBER),
    TargetStored: _target,
    TargetForgotten: _forgotten(_TARGET),
    MemberTargetStored: _member_target,
    MemberTargetForgotten: _forgotten(_MEMBER_TARGET),
    MemberCurrentStored: _member_current,
    MemberCurrentForgotten: _forgotten(_MEMBER_CURRENT),
    RegexResolved: _regex,
    RegexForgotten: _forgotten(_REGEX),
}


def _key(kind: int, *texts: str) -> bytes:
    parts = [_INT16.pack(kind)]
    for text in texts:
        octets = text.encode()
        parts += (_INT16.pack(len(octets)), octets)
    return b"".join(parts)


def _value(value: Message, version: int) -> bytes:
    return _INT16.pack(version) + value.encode(version)


def _listed(partitions: Partitions) -> list[TopicPartitions]:
    return [
        TopicPartitions(topic_id=topic_id, partitions=list(numbers))
        for topic_id, numbers in partitions
    ]


# --- reading ------------------------------------------------------------------------------------


class GroupRecordReader:
    """Reads the records of one log, and remembers the names in it while it does.

    A group's offsets lie together and share their names: remembered ones cost a look instead
    of two decodings, and all offsets of a group share one text in memory.
    """

    __slots__ = ("_names",)

    def __init__(self) -> None:
        self._names: dict[bytes, tuple[str, str]] = {}

    def read_rows(self, rows: Sequence[Row]) -> list[Fact]:
        """The records that ``rows`` hold.

        One whose key is not known here is passed over, and one that cannot be read is told to
        the operator: a coordinator that never loads would harm every group instead of one.

        HOT: once per record of a log that is loaded; offsets with a topic id and without a note
        are read in place (tests/broker/test_load.py has the figures).
        """
        records: list[Fact] = []
        known, usual, unpack = self._names.get, _OFFSET_OF_ID.size, _OFFSET_OF_ID.unpack
        for at, _, key, value, _ in rows:
            if key is None:
                continue
            if value is not None and len(value) == usual and (names := known(key[:-4])) is not None:
                version, offset, epoch, note, time, tags, tag, size, octets = unpack(value)
                if version == _OF_ID and (note, tags, tag, size) == _ID_ONLY:
                    number = int.from_bytes(key[-4:], "big", signed=True)
                    fields = (*names, number, offset, epoch, "", time, NEVER, uuid_of(octets))
                    records.append(_new_tuple(OffsetCommitted, fields))
                    continue
            try:
                record = self.read(key, value)
            except UnreadableRecordError as fault:
                _events.error("record.unreadable", offset=at, reason=str(fault))
            else:
                if record is not None:
                    records.append(record)
        return records

    def read(self, key: bytes, value: bytes | None) -> Fact | None:
        """The record; none if its key is of a kind that is not known here."""
        kind = key[1] if len(key) > 1 and not key[0] else -1
        try:
            if kind in (_OFFSET, _OFFSET_OLD):
                return self._offset(key, value)
            read = _READERS.get(kind)
            return None if read is None else read(_texts(key), value)
        except _FAULTS as fault:
            raise UnreadableRecordError(f"a record of kind {kind}: {fault}") from fault

    def _offset(self, key: bytes, value: bytes | None) -> OffsetCommitted | OffsetForgotten:
        group_id, topic = self._names.get(key[:-4]) or self._learn(key[:-4])
        partition = int.from_bytes(key[-4:], "big", signed=True)
        if value is None:
            return OffsetForgotten(group_id, topic, partition)
        found: OffsetCommitValue = _decoded(OffsetCommitValue, value)
        return OffsetCommitted(
            group_id,
            topic,
            partition,
            found.offset,
            found.leader_epoch,
            found.metadata,
            found.commit_timestamp,
            found.expire_timestamp,
            TopicId(found.topic_id),
        )

    def _learn(self, names: bytes) -> tuple[str, str]:
        group_id, topic = _texts(names)
        if len(self._names) >= _NAMES_MAX:
            self._names.clear()
        # Groups come one after the other, topics again and again.
        self._names[names] = known = (intern(group_id), intern(topic))
        return known


def _texts(key: bytes) -> list[str]:
    """The texts that a key consists of, behind its kind."""
    texts, at = [], 2
    while at < len(key):
        (size,) = _INT16.unpack_from(key, at)
        at += 2
        if size < 0 or at + size > len(key):
            raise MalformedFrameError(f"a text of {size} bytes in a key of {len(key)}")
        texts.append(key[at : at + size].decode())
        at += size
    return texts


def _decoded(kind: type[Any], value: bytes) -> Any:
    (version,) = _INT16.unpack_from(value)
    return kind.decode(memoryview(value)[2:], version)


def _read_classic_group(names: list[str], value: bytes | None) -> Fact:
    (group_id,) = names
    if value is None:
        return ClassicGroupForgotten(group_id)
    found: GroupMetadataValue = _decoded(GroupMetadataValue, value)
    return ClassicGroupStored(
        group_id,
        found.protocol_type,
        found.generation,
        found.protocol,
        found.leader,
        found.current_state_timestamp,
        tuple(
            ClassicMemberStored(
                one.member_id,
                one.group_instance_id,
                one.client_id,
                one.client_host,
                one.rebalance_timeout,
                one.session_timeout,
                one.subscription,
                one.assignment,
            )
            for one in found.members
        ),
    )


def _read_group(names: list[str], value: bytes | None) -> Fact:
    (group_id,) = names
    if value is None:
        return ConsumerGroupForgotten(group_id)
    found: ConsumerGroupMetadataValue = _decoded(ConsumerGroupMetadataValue, value)
    return ConsumerGroupStored(group_id, found.epoch, found.metadata_hash)


def _read_member(names: list[str], value: bytes | None) -> Fact:
    group_id, member_id = names
    if value is None:
        return ConsumerMemberForgotten(group_id, member_id)
    if value.endswith(_NO_CLASSIC_MEMBER):
        value = value[: -len(_NO_CLASSIC_MEMBER)] + b"\0"
    found: ConsumerGroupMemberMetadataValue = _decoded(ConsumerGroupMemberMetadataValue, value)
    said = found.classic_member_metadata
    classic = None
    if said is not None:
        protocols = tuple((one.name, one.metadata) for one in said.supported_protocols)
        classic = ClassicProtocolMember(said.session_timeout_ms, protocols)
    return ConsumerMemberStored(
        group_id,
        member_id,
        found.instance_id,
        found.rack_id,
        found.client_id,
        found.client_host,
        tuple(found.subscribed_topic_names),
        found.subscribed_topic_regex,
        found.rebalance_timeout_ms,
        found.server_assignor,
        classic,
    )


def _read_target(names: list[str], value: bytes | None) -> Fact:
    (group_id,) = names
    if value is None:
        return TargetForgotten(group_id)
    found = _decoded(ConsumerGroupTargetAssignmentMetadataValue, value)
    return TargetStored(group_id, found.assignment_epoch, found.assignment_timestamp)


def _read_member_target(names: list[str], value: bytes | None) -> Fact:
    group_id, member_id = names
    if value is None:
        return MemberTargetForgotten(group_id, member_id)
    found = _decoded(ConsumerGroupTargetAssignmentMemberValue, value)
    return MemberTargetStored(group_id, member_id, _partitions(found.topic_partitions))


def _read_member_current(names: list[str], value: bytes | None) -> Fact:
    group_id, member_id = names
    if value is None:
        return MemberCurrentForgotten(group_id, member_id)
    found = _decoded(ConsumerGroupCurrentMemberAssignmentValue, value)
    return MemberCurrentStored(
        group_id,
        member_id,
        found.member_epoch,
        found.previous_member_epoch,
        found.state,
        _partitions(found.assigned_partitions),
        _partitions(found.partitions_pending_revocation),
    )


def _read_regex(names: list[str], value: bytes | None) -> Fact:
    group_id, regex = names
    if value is None:
        return RegexForgotten(group_id, regex)
    found = _decoded(ConsumerGroupRegularExpressionValue, value)
    topics = tuple(found.topics)
    return RegexResolved(group_id, regex, topics, found.version, found.timestamp)


_READERS: Final[dict[int, Callable[[list[str], bytes | None], Fact]]] = {
    _CLASSIC_GROUP: _read_classic_group,
    _GROUP: _read_group,
    _MEMBER: _read_member,
    _TARGET: _read_target,
    _MEMBER_TARGET: _read_member_target,
    _MEMBER_CURRENT: _read_member_current,
    _REGEX: _read_regex,
}


def _partitions(listed: list[TopicPartitions]) -> Partitions:
    return tuple((TopicId(one.topic_id), tuple(one.partitions)) for one in listed)
