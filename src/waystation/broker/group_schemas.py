"""The values of ``__consumer_offsets`` as Kafka declares them, but for offsets.

Versions are those of the value, which stand in front of it; keys and the few things that a
declaration cannot say are in ``group_records.py``.
"""

from uuid import UUID

from waystation.wire.message import Message, Struct
from waystation.wire.schema import (
    array,
    field,
    int8,
    int32,
    int64,
    octets,
    string,
    struct_of,
    tagged,
    uuid,
)
from waystation.wire.versions import Spoken, Versions

_FROM_THE_START = Spoken(Versions(0, 0), Versions.parse("0+"))
_SINCE_FOUR = Spoken(Versions(0, 4), Versions.parse("4+"))

__all__ = [
    "ClassicMember",
    "ClassicProtocol",
    "ConsumerGroupCurrentMemberAssignmentValue",
    "ConsumerGroupMemberMetadataValue",
    "ConsumerGroupMetadataValue",
    "ConsumerGroupRegularExpressionValue",
    "ConsumerGroupTargetAssignmentMemberValue",
    "ConsumerGroupTargetAssignmentMetadataValue",
    "GroupMetadataValue",
    "MemberMetadata",
    "OffsetCommitValue",
    "TopicPartitions",
]


class OffsetCommitValue(Message, spoken=_SINCE_FOUR):
    """Of key version 1: a position; the usual forms of it never come here."""

    offset: int = field(int64)
    leader_epoch: int = field(int32, "3+", default=-1)
    metadata: str = field(string)
    commit_timestamp: int = field(int64)
    expire_timestamp: int = field(int64, "1", default=-1)
    topic_id: UUID = tagged(0, uuid, "4+")


class MemberMetadata(Struct):
    """A member of a classic group."""

    member_id: str = field(string)
    group_instance_id: str | None = field(string, "3+", nullable="3+")
    client_id: str = field(string)
    client_host: str = field(string)
    rebalance_timeout: int = field(int32, "1+")
    session_timeout: int = field(int32)
    subscription: bytes = field(octets)
    assignment: bytes = field(octets)


class GroupMetadataValue(Message, spoken=_SINCE_FOUR):
    """Of key version 2: a classic group."""

    protocol_type: str = field(string)
    generation: int = field(int32)
    protocol: str | None = field(string, nullable="0+")
    leader: str | None = field(string, nullable="0+")
    current_state_timestamp: int = field(int64, "2+", default=-1)
    members: list[MemberMetadata] = field(array(MemberMetadata))


class ConsumerGroupMetadataValue(Message, spoken=_FROM_THE_START):
    """Of key version 3: a group of the server-side protocol."""

    epoch: int = field(int32)
    metadata_hash: int = tagged(0, int64, "0+", default=0)


class ClassicProtocol(Struct):
    """One protocol of a member that still speaks the classic one."""

    name: str = field(string)
    metadata: bytes = field(octets)


class ClassicMember(Struct):
    """What such a member said; nullable, which is the byte in front."""

    is_there: int = field(int8, default=1)
    session_timeout_ms: int = field(int32)
    supported_protocols: list[ClassicProtocol] = field(array(ClassicProtocol))


class ConsumerGroupMemberMetadataValue(Message, spoken=_FROM_THE_START):
    """Of key version 5: what a member subscribes to."""

    instance_id: str | None = field(string, nullable="0+")
    rack_id: str | None = field(string, nullable="0+")
    client_id: str = field(string)
    client_host: str = field(string)
    subscribed_topic_names: list[str] = field(array(string))
    subscribed_topic_regex: str | None = field(string, nullable="0+")
    rebalance_timeout_ms: int = field(int32, default=-1)
    server_assignor: str | None = field(string, nullable="0+")
    classic_member_metadata: ClassicMember | None = tagged(
        0, struct_of(ClassicMember), "0+", default=None
    )


class ConsumerGroupTargetAssignmentMetadataValue(Message, spoken=_FROM_THE_START):
    """Of key version 6: the epoch for which targets were computed."""

    assignment_epoch: int = field(int32)
    assignment_timestamp: int = tagged(0, int64, "0+", default=0)


class TopicPartitions(Struct):
    """Partitions of one topic."""

    topic_id: UUID = field(uuid)
    partitions: list[int] = field(array(int32))


class ConsumerGroupTargetAssignmentMemberValue(Message, spoken=_FROM_THE_START):
    """Of key version 7: what a member shall read."""

    topic_partitions: list[TopicPartitions] = field(array(TopicPartitions))


class ConsumerGroupCurrentMemberAssignmentValue(Message, spoken=_FROM_THE_START):
    """Of key version 8: what a member reads."""

    member_epoch: int = field(int32)
    previous_member_epoch: int = field(int32)
    state: int = field(int8)
    assigned_partitions: list[TopicPartitions] = field(array(TopicPartitions))
    partitions_pending_revocation: list[TopicPartitions] = field(array(TopicPartitions))


class ConsumerGroupRegularExpressionValue(Message, spoken=_FROM_THE_START):
    """Of key version 16: what a regular expression stood for."""

    topics: list[str] = field(array(string))
    version: int = field(int64)
    timestamp: int = field(int64)
