"""DescribeRedrive: which dead letters of a partition went back, and how far the last order got.

An API of our own (10 031), versioned as Kafka's are; what it promises is in
``docs/protocol/dead-letters.md``.  Asked of the leader of the dead-letter topic's partition.
"""

from waystation.messages.redrive_dead_letters import NO_LIMIT, RedriveState
from waystation.wire.message import Message, Struct
from waystation.wire.schema import array, field, int16, int32, int64, string, struct_of
from waystation.wire.versions import ApiKey


class DescribeRedriveRequest(Message, api=ApiKey.DESCRIBE_REDRIVE):
    """Asks for at most ``limit`` stretches from an offset on."""

    topic: str = field(string)
    partition: int = field(int32)
    first_offset: int = field(int64)
    limit: int = field(int32, default=1_000)


class RedrivenSpan(Struct):
    """Offsets whose dead letters went back, half-open."""

    first_offset: int = field(int64)
    end_offset: int = field(int64)


class DescribeRedriveResponse(Message, api=ApiKey.DESCRIBE_REDRIVE):
    """The stretches, and from where to ask for more: -1 if there are none."""

    throttle_time_ms: int = field(int32)
    error_code: int = field(int16)
    error_message: str | None = field(string, nullable="0+")
    redrive: RedriveState = field(struct_of(RedriveState))
    redriven: list[RedrivenSpan] = field(array(RedrivenSpan))
    next_offset: int = field(int64, default=NO_LIMIT)
