"""Facts of transactions as Kafka writes them into ``__transaction_state``, and back.

A key begins with a number that says what it is the key of; a value with the version of its
format.  A value of null forgets what the key named, as compaction understands it.  Kafka's own
tools read what is written here (``kafka-dump-log --transaction-log-decoder``): a prepared
transaction is an ongoing one to them, and outcomes, whose keys are our own, are passed over.

1. ``read(*encode(record))`` is ``record``.
2. A key of a kind that is not known here is no error: it belongs to a newer version, or to
   somebody else, and stays in the log.
"""

from collections.abc import Sequence
from itertools import groupby
from struct import Struct, error
from typing import Any, Final

from waystation.broker.transaction_schemas import (
    OutcomeValue,
    PartitionsSchema,
    TransactionLogValue,
)
from waystation.model.errors import MalformedFrameError, UnsupportedVersionError, WaystationError
from waystation.model.ids import ProducerEpoch, ProducerId, TopicPartition
from waystation.model.offsets import Millis
from waystation.records.record import Row
from waystation.telemetry.logs import get_logger
from waystation.transactions.records import (
    Ending,
    OutcomeForgotten,
    OutcomeStored,
    Record,
    TransactionForgotten,
    TransactionStored,
    TxnState,
)
from waystation.wire.message import Message

__all__ = ["UnreadableTransactionError", "encode", "read", "read_rows"]

_TRANSACTION, _OUTCOME = 0, 10_000

_INT16 = Struct(">h")
_PRODUCER = Struct(">qh")
_WITH_TAGS: Final = 1
"""The version that is written; all before ``transaction.version`` 1 lack the tagged fields."""
_FAULTS: Final = (MalformedFrameError, UnsupportedVersionError, ValueError, IndexError, error)
_events = get_logger("coordinator")


class UnreadableTransactionError(WaystationError):
    """A record whose key is known and whose bytes are not what the key promises."""


# --- writing ------------------------------------------------------------------------------------


def encode(record: Record) -> tuple[bytes, bytes | None]:
    """The key and the value of ``record``."""
    match record:
        case TransactionStored():
            return _key(record.transactional_id), _transaction(record)
        case TransactionForgotten(transactional_id):
            return _key(transactional_id), None
        case OutcomeStored():
            value = OutcomeValue(ending=record.ending, timestamp_ms=record.at)
            return _outcome_key(*record[:3]), _value(value, 0)
        case OutcomeForgotten():
            return _outcome_key(*record), None


def _key(transactional_id: str, kind: int = _TRANSACTION) -> bytes:
    octets = transactional_id.encode()
    return _INT16.pack(kind) + _INT16.pack(len(octets)) + octets


def _outcome_key(transactional_id: str, producer_id: ProducerId, epoch: ProducerEpoch) -> bytes:
    return _key(transactional_id, _OUTCOME) + _PRODUCER.pack(producer_id, epoch)


def _transaction(record: TransactionStored) -> bytes:
    """HOT: four or five times per transaction (benchmarks/coordinators/transactions.py)."""
    value = TransactionLogValue(
        producer_id=record.producer_id,
        previous_producer_id=record.previous_producer_id,
        next_producer_id=record.next_producer_id,
        producer_epoch=record.epoch,
        transaction_timeout_ms=record.timeout_ms,
        transaction_status=record.state,
        transaction_partitions=_listed(record),
        transaction_last_update_timestamp_ms=record.updated_at,
        transaction_start_timestamp_ms=record.started_at,
        client_transaction_version=record.client_version,
        prepared_timestamp_ms=record.prepared_at,
        last_producer_epoch=record.last_epoch,
    )
    return _value(value, _WITH_TAGS)


def _listed(record: TransactionStored) -> list[PartitionsSchema] | None:
    """As Kafka has it: an empty one has no list at all, one that ended an empty list."""
    if record.state is TxnState.EMPTY:
        return None
    return [
        PartitionsSchema(topic=topic, partition_ids=[number for _, number in some])
        for topic, some in groupby(record.partitions, lambda partition: partition.topic)
    ]


def _value(value: Message, version: int) -> bytes:
    return _INT16.pack(version) + value.encode(version)


# --- reading ------------------------------------------------------------------------------------


def read_rows(rows: Sequence[Row]) -> list[Record]:
    """The records that ``rows`` hold.

    One whose key is not known here is passed over, and one that cannot be read is told to the
    operator: a coordinator that never loads would harm every producer instead of one.
    """
    records: list[Record] = []
    for at, _, key, value, _ in rows:
        if key is None:
            continue
        try:
            record = read(key, value)
        except UnreadableTransactionError as fault:
            _events.error("record.unreadable", offset=at, reason=str(fault))
        else:
            if record is not None:
                records.append(record)
    return records


def read(key: bytes, value: bytes | None) -> Record | None:
    """The record; none if its key is of a kind that is not known here."""
    kind = int.from_bytes(key[:2], "big") if len(key) > 1 else -1
    try:
        if kind == _TRANSACTION:
            return _read_transaction(key, value)
        return _read_outcome(key, value) if kind == _OUTCOME else None
    except _FAULTS as fault:
        raise UnreadableTransactionError(f"a record of kind {kind}: {fault}") from fault


def _read_transaction(key: bytes, value: bytes | None) -> Record:
    transactional_id, behind = _text(key)
    _check_end(key, behind)
    if value is None:
        return TransactionForgotten(transactional_id)
    found: TransactionLogValue = _decoded(TransactionLogValue, value)
    return TransactionStored(
        transactional_id,
        ProducerId(found.producer_id),
        ProducerEpoch(found.producer_epoch),
        found.transaction_timeout_ms,
        TxnState(found.transaction_status),
        Millis(found.transaction_last_update_timestamp_ms),
        _partitions(found.transaction_partitions),
        Millis(found.transaction_start_timestamp_ms),
        ProducerEpoch(found.last_producer_epoch),
        ProducerId(found.previous_producer_id),
        ProducerId(found.next_producer_id),
        found.client_transaction_version,
        Millis(found.prepared_timestamp_ms),
    )


def _read_outcome(key: bytes, value: bytes | None) -> Record:
    transactional_id, at = _text(key)
    _check_end(key, at + _PRODUCER.size)
    producer_id, epoch = _PRODUCER.unpack_from(key, at)
    names = transactional_id, ProducerId(producer_id), ProducerEpoch(epoch)
    if value is None:
        return OutcomeForgotten(*names)
    found: OutcomeValue = _decoded(OutcomeValue, value)
    return OutcomeStored(*names, Ending(found.ending), Millis(found.timestamp_ms))


def _text(key: bytes) -> tuple[str, int]:
    """The transactional id behind a key's kind, and where it ends."""
    (size,) = _INT16.unpack_from(key, 2)
    if size < 0 or 4 + size > len(key):
        raise MalformedFrameError(f"a text of {size} bytes in a key of {len(key)}")
    return key[4 : 4 + size].decode(), 4 + size


def _check_end(key: bytes, end: int) -> None:
    if end != len(key):
        raise MalformedFrameError(f"a key of {len(key)} bytes, of which {end} are known")


def _partitions(listed: list[PartitionsSchema] | None) -> tuple[TopicPartition, ...]:
    found = {
        TopicPartition(one.topic, number) for one in listed or () for number in one.partition_ids
    }
    return tuple(sorted(found))


def _decoded(kind: type[Any], value: bytes) -> Any:
    (version,) = _INT16.unpack_from(value)
    return kind.decode(memoryview(value)[2:], version)
