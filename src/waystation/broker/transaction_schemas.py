"""The values of ``__transaction_state`` as Kafka declares them, and what is our own in them.

Versions are those of the value, which stand in front of it.  Fields of our own have tags from
10,000 on, far from where Kafka adds its own; Kafka passes over them.
"""

from waystation.wire.message import Message, Struct
from waystation.wire.schema import array, field, int8, int16, int32, int64, string, tagged
from waystation.wire.versions import Spoken, Versions

_SINCE_ONE = Spoken(Versions(0, 1), Versions.parse("1+"))
_FROM_THE_START = Spoken(Versions(0, 0), Versions.parse("0+"))

__all__ = ["OutcomeValue", "PartitionsSchema", "TransactionLogValue"]


class PartitionsSchema(Struct):
    """Partitions of one topic."""

    topic: str = field(string)
    partition_ids: list[int] = field(array(int32))


class TransactionLogValue(Message, spoken=_SINCE_ONE):
    """Of key version 0: a transactional id."""

    producer_id: int = field(int64)
    previous_producer_id: int = tagged(0, int64, "1+", default=-1)
    next_producer_id: int = tagged(1, int64, "1+", default=-1)
    producer_epoch: int = field(int16)
    transaction_timeout_ms: int = field(int32)
    transaction_status: int = field(int8)
    transaction_partitions: list[PartitionsSchema] | None = field(
        array(PartitionsSchema), nullable="0+"
    )
    transaction_last_update_timestamp_ms: int = field(int64)
    transaction_start_timestamp_ms: int = field(int64)
    client_transaction_version: int = tagged(2, int16, "1+", default=0)
    prepared_timestamp_ms: int = tagged(10_000, int64, "1+", default=-1)
    last_producer_epoch: int = tagged(10_001, int16, "1+", default=-1)


class OutcomeValue(Message, spoken=_FROM_THE_START):
    """Of key version 10,000, our own: how a prepared transaction ended."""

    ending: int = field(int8)
    timestamp_ms: int = field(int64)
