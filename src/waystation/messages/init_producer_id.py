"""InitProducerId: an identity for a producer, under which no record is written twice."""

from waystation.wire.message import Message
from waystation.wire.schema import field, int16, int32, int64, string
from waystation.wire.versions import ApiKey


class InitProducerIdRequest(Message, api=ApiKey.INIT_PRODUCER_ID):
    """Asks for an id; without a transactional id it is a new one each time.

    Since v3 a producer that was told to start over names the id and epoch it had.
    """

    transactional_id: str | None = field(string, nullable="0+")
    transaction_timeout_ms: int = field(int32)
    producer_id: int = field(int64, "3+", default=-1)
    producer_epoch: int = field(int16, "3+", default=-1)


class InitProducerIdResponse(Message, api=ApiKey.INIT_PRODUCER_ID):
    """The id, and the epoch that fences whoever used it before."""

    throttle_time_ms: int = field(int32)
    error_code: int = field(int16)
    producer_id: int = field(int64, default=-1)
    producer_epoch: int = field(int16)
