"""RedriveDeadLetters: dead letters of a partition shall go back to where they came from.

An API of our own (10 030), versioned as Kafka's are; what it promises is in
``docs/protocol/dead-letters.md``.  Asked of the leader of the dead-letter topic's partition.
"""

from waystation.wire.message import Message, Struct
from waystation.wire.schema import (
    array,
    field,
    float64,
    int16,
    int32,
    int64,
    string,
    struct_of,
    tagged,
)
from waystation.wire.versions import ApiKey

NO_LIMIT = -1
"""No end, or no time."""


class RedriveDeadLettersRequest(Message, api=ApiKey.REDRIVE_DEAD_LETTERS):
    """The order; harmless to repeat under the same id.

    Offsets are half-open, and so are the times at which they became dead letters.
    """

    redrive_id: str = field(string)
    topic: str = field(string)
    partition: int = field(int32)
    first_offset: int = field(int64)
    end_offset: int = field(int64, default=NO_LIMIT)
    since_ms: int = field(int64, default=NO_LIMIT)
    until_ms: int = field(int64, default=NO_LIMIT)
    where: str = field(string)
    to_topic: str = field(string)
    rate: float = field(float64)
    # What the partitions named have together: one that is done leaves its part to the others.
    total_rate: float = tagged(0, float64, "0+", default=0.0)
    together: list[int] = tagged(1, array(int32), "0+")


class RedriveState(Struct):
    """What became of the last order for a partition: ``running``, ``done``, ``cancelled`` or
    ``failed``; empty if there was none.
    """

    redrive_id: str = field(string)
    state: str = field(string)
    first_offset: int = field(int64)
    end_offset: int = field(int64)
    cursor: int = field(int64)
    moved: int = field(int64)
    refused: int = field(int64)
    strays: int = field(int64)
    problem: str = field(string)
    begun_ms: int = field(int64, default=NO_LIMIT)
    ended_ms: int = field(int64, default=NO_LIMIT)


class RedriveDeadLettersResponse(Message, api=ApiKey.REDRIVE_DEAD_LETTERS):
    """Answered once no crash can take the order back; it is carried out from then on."""

    throttle_time_ms: int = field(int32)
    error_code: int = field(int16)
    error_message: str | None = field(string, nullable="0+")
    redrive: RedriveState = field(struct_of(RedriveState))
