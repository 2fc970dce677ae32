"""DescribeTransactions: what coordinators know of transactional ids."""

from waystation.wire.message import Message, Struct
from waystation.wire.schema import array, field, int16, int32, int64, string
from waystation.wire.versions import ApiKey


class DescribeTransactionsRequest(Message, api=ApiKey.DESCRIBE_TRANSACTIONS):
    """Asks about transactional ids; without any, about none."""

    transactional_ids: list[str] = field(array(string))


class TopicData(Struct):
    """Partitions of one topic that are part of a transaction."""

    topic: str = field(string)
    partitions: list[int] = field(array(int32))


class TransactionState(Struct):
    """One transactional id: its producer and its current transaction.

    While a transaction ends, ``topics`` are those whose markers are still to be written.
    """

    error_code: int = field(int16)
    transactional_id: str = field(string)
    transaction_state: str = field(string)
    transaction_timeout_ms: int = field(int32)
    transaction_start_time_ms: int = field(int64)
    producer_id: int = field(int64)
    producer_epoch: int = field(int16)
    topics: list[TopicData] = field(array(TopicData))


class DescribeTransactionsResponse(Message, api=ApiKey.DESCRIBE_TRANSACTIONS):
    """Each transactional id of the request."""

    throttle_time_ms: int = field(int32)
    transaction_states: list[TransactionState] = field(array(TransactionState))
