"""AddPartitionsToTxn: partitions become part of a transaction before anything is written there.

Producers name one transaction, up to v3.  From v4 on it is brokers who ask, for many
transactions at once, and who may only want to know whether partitions are in them.
"""

from waystation.wire.message import Message, Struct
from waystation.wire.schema import array, boolean, field, int16, int32, int64, string
from waystation.wire.versions import ApiKey

BATCHED_FROM = 4
"""The first version with many transactions, and with an error for all of them."""


class AddPartitionsToTxnTopic(Struct):
    """Partitions of one topic."""

    name: str = field(string)
    partitions: list[int] = field(array(int32))


class AddPartitionsToTxnTransaction(Struct):
    """One transaction, and the partitions to add to it or to look for in it."""

    transactional_id: str = field(string, "4+")
    producer_id: int = field(int64, "4+")
    producer_epoch: int = field(int16, "4+")
    verify_only: bool = field(boolean, "4+")
    topics: list[AddPartitionsToTxnTopic] = field(array(AddPartitionsToTxnTopic), "4+")


class AddPartitionsToTxnRequest(Message, api=ApiKey.ADD_PARTITIONS_TO_TXN):
    """Adds partitions: to the one transaction of a producer, or to each of ``transactions``."""

    transactions: list[AddPartitionsToTxnTransaction] = field(
        array(AddPartitionsToTxnTransaction), "4+"
    )
    v3_and_below_transactional_id: str = field(string, "0-3")
    v3_and_below_producer_id: int = field(int64, "0-3")
    v3_and_below_producer_epoch: int = field(int16, "0-3")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field(
        array(AddPartitionsToTxnTopic), "0-3"
    )


class AddPartitionsToTxnPartitionResult(Struct):
    """Whether one partition is part of the transaction now."""

    partition_index: int = field(int32)
    partition_error_code: int = field(int16)


class AddPartitionsToTxnTopicResult(Struct):
    """The outcome for one topic."""

    name: str = field(string)
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = field(
        array(AddPartitionsToTxnPartitionResult)
    )


class AddPartitionsToTxnResult(Struct):
    """The outcome for one transaction."""

    transactional_id: str = field(string, "4+")
    topic_results: list[AddPartitionsToTxnTopicResult] = field(
        array(AddPartitionsToTxnTopicResult), "4+"
    )


class AddPartitionsToTxnResponse(Message, api=ApiKey.ADD_PARTITIONS_TO_TXN):
    """The outcome for each partition; either all of a transaction's were added or none."""

    throttle_time_ms: int = field(int32)
    error_code: int = field(int16, "4+")
    results_by_transaction: list[AddPartitionsToTxnResult] = field(
        array(AddPartitionsToTxnResult), "4+"
    )
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field(
        array(AddPartitionsToTxnTopicResult), "0-3"
    )
