"""CancelRedrive: an order to send dead letters back is not carried out any further.

An API of our own (10 032), versioned as Kafka's are; what it promises is in
``docs/protocol/dead-letters.md``.  Asked of the leader of the dead-letter topic's partition.
"""

from waystation.messages.redrive_dead_letters import RedriveState
from waystation.wire.message import Message
from waystation.wire.schema import field, int16, int32, string, struct_of
from waystation.wire.versions import ApiKey


class CancelRedriveRequest(Message, api=ApiKey.CANCEL_REDRIVE):
    """The wish; harmless to repeat, and too late if the order is over."""

    redrive_id: str = field(string)
    topic: str = field(string)
    partition: int = field(int32)


class CancelRedriveResponse(Message, api=ApiKey.CANCEL_REDRIVE):
    """How far the order got; what went back by then stays."""

    throttle_time_ms: int = field(int32)
    error_code: int = field(int16)
    error_message: str | None = field(string, nullable="0+")
    redrive: RedriveState = field(struct_of(RedriveState))
