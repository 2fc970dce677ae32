"""WriteTxnMarkers: a coordinator's decision is written where the transaction wrote.

Brokers ask it of each other, and operators to end what no coordinator knows of any more.
"""

from waystation.wire.message import Message, Struct
from waystation.wire.schema import array, boolean, field, int8, int16, int32, int64, string
from waystation.wire.versions import ApiKey

EPOCH_PER_TRANSACTION = 2
"""The transaction version from which on every transaction ends by raising its producer's epoch."""


class WritableTxnMarkerTopic(Struct):
    """Partitions of one topic."""

    name: str = field(string)
    partition_indexes: list[int] = field(array(int32))


class WritableTxnMarker(Struct):
    """How one transaction ended (true: committed), and where to say so.

    A marker of an older coordinator epoch than the partition has seen comes from a
    coordinator that was replaced.  Since v2 it says by which rules the transaction ended: where
    each has an epoch of its own, a late marker cannot end the next one.
    """

    producer_id: int = field(int64)
    producer_epoch: int = field(int16)
    transaction_result: bool = field(boolean)
    topics: list[WritableTxnMarkerTopic] = field(array(WritableTxnMarkerTopic))
    coordinator_epoch: int = field(int32)
    transaction_version: int = field(int8, "2+")


class WriteTxnMarkersRequest(Message, api=ApiKey.WRITE_TXN_MARKERS):
    """The markers of any number of transactions."""

    markers: list[WritableTxnMarker] = field(array(WritableTxnMarker))


class WritableTxnMarkerPartitionResult(Struct):
    """Whether the marker is in one partition."""

    partition_index: int = field(int32)
    error_code: int = field(int16)


class WritableTxnMarkerTopicResult(Struct):
    """The outcome for one topic."""

    name: str = field(string)
    partitions: list[WritableTxnMarkerPartitionResult] = field(
        array(WritableTxnMarkerPartitionResult)
    )


class WritableTxnMarkerResult(Struct):
    """The outcome for one transaction, known by its producer."""

    producer_id: int = field(int64)
    topics: list[WritableTxnMarkerTopicResult] = field(array(WritableTxnMarkerTopicResult))


class WriteTxnMarkersResponse(Message, api=ApiKey.WRITE_TXN_MARKERS):
    """The outcome for each marker, in the order of the request."""

    markers: list[WritableTxnMarkerResult] = field(array(WritableTxnMarkerResult))
