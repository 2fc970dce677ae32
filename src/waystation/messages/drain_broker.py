"""DrainBroker: an operator wants a broker to hold nothing, or takes that wish back.

An API of our own, versioned as Kafka's are; what it promises is in ``docs/protocol/cluster.md``.
"""

from waystation.wire.message import Message
from waystation.wire.schema import boolean, field, int16, int32, string
from waystation.wire.versions import ApiKey


class DrainBrokerRequest(Message, api=ApiKey.DRAIN_BROKER):
    """The wish; harmless to repeat.  With ``drain`` false it is taken back."""

    broker_id: int = field(int32)
    drain: bool = field(boolean, default=True)


class DrainBrokerResponse(Message, api=ApiKey.DRAIN_BROKER):
    """What the broker still has: it may be switched off for good once both are 0.

    ``stuck`` are replicas that no other broker can take.
    """

    throttle_time_ms: int = field(int32)
    error_code: int = field(int16)
    error_message: str | None = field(string, nullable="0+")
    replicas: int = field(int32)
    leaders: int = field(int32)
    stuck: int = field(int32)
