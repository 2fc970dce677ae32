"""Produce requests of transactions: asked about before they are written.

Only the first batch of a transaction in each partition asks; while it does, what its producer
sends next waits behind it (``broker/admission.py``).  The rest goes straight on.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final, NamedTuple

from waystation.apis.call import Call
from waystation.broker.admission import Hear, Verdict
from waystation.broker.broker import Broker
from waystation.messages.produce import ProduceRequest
from waystation.model.errors import (
    ConcurrentTransactionsError,
    CoordinatorLoadingError,
    CoordinatorNotAvailableError,
    CorruptBatchError,
    ErrorCode,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    NotCoordinatorError,
    ProducerFencedError,
    TransactionAbortableError,
    WaystationError,
)
from waystation.model.ids import ProducerEpoch, ProducerId, TopicId, TopicPartition
from waystation.partition.partition import Partition
from waystation.records.header import ATTRIBUTES_AT, TRANSACTIONAL, peek
from waystation.transactions.commands import Add

_ADDS_FROM_VERSION = 12
"""Whoever writes in this version adds the partition by that."""
_KNOWS_ABORTABLE_FROM_VERSION = 11
KEPT_BYTES_MAX = 128 << 20
"""What all that wait in line may take together, but for one request."""
FLAGS_AT: Final = ATTRIBUTES_AT + 1
"""The low one of the two bytes of a batch's attributes."""

_NOWHERE = (CoordinatorLoadingError, CoordinatorNotAvailableError, NotCoordinatorError)


class NotVerifiedError(WaystationError):
    """The coordinator could not be asked; a code that makes every client try again soon."""

    code = ErrorCode.NOT_ENOUGH_REPLICAS


class FencedWriterError(WaystationError):
    """The coordinator has a newer epoch; producers know that from Produce under this code."""

    code = ErrorCode.INVALID_PRODUCER_EPOCH


class _Writer(NamedTuple):
    """Whose transaction a request writes in."""

    producer_id: ProducerId
    epoch: ProducerEpoch


def when_admitted(
    broker: Broker, call: Call[ProduceRequest], write: Callable[[Verdict], None]
) -> None:
    """Call ``write`` with what the coordinator says of the partitions that had to be asked about.

    HOT: once per produce request of a transaction; most need not ask.
    """
    written = list(_written(broker, call.message))
    writers = {writer for _, writer in written}
    partitions = [partition for partition, _ in written]
    if not writers:
        write({})
    elif len(writers) > 1:
        refusal = InvalidProducerIdMappingError("one request has batches of several producers")
        write({one.name: refusal for one in partitions})
    else:
        _wait_in_line(broker, call, writers.pop(), partitions, write)


def _wait_in_line(
    broker: Broker,
    call: Call[ProduceRequest],
    writer: _Writer,
    partitions: list[Partition],
    write: Callable[[Verdict], None],
) -> None:
    missing = partial(_missing, partitions, writer)
    if not broker.admission.waits(writer.producer_id) and not missing():
        write({})
        return
    if broker.admission.kept_bytes > KEPT_BYTES_MAX:
        refusal = NotVerifiedError("too many batches wait for the coordinators of transactions")
        write({one.name: refusal for one in partitions})
        return
    kept_bytes = 0

    def go(admitted: Verdict) -> None:
        broker.admission.kept_bytes -= kept_bytes
        try:
            write(admitted)
        except Exception as error:  # the outermost frame of this request
            call.fail(error)

    ask = partial(_ask, broker, call, writer)
    if not broker.admission.enter(writer.producer_id, missing, ask, go):
        kept_bytes = _keep_batches(call.message)
        broker.admission.kept_bytes += kept_bytes


def _ask(
    broker: Broker,
    call: Call[ProduceRequest],
    writer: _Writer,
    wanted: list[TopicPartition],
    hear: Hear,
) -> None:
    transactional_id, implicit = call.message.transactional_id, call.version >= _ADDS_FROM_VERSION
    assert transactional_id is not None, "asked for a producer without transactions"
    add = Add(
        transactional_id,
        writer.producer_id,
        writer.epoch,
        frozenset(wanted),
        verify_only=not implicit,
        implicit=implicit,
    )
    broker.transactions.ask(add, lambda verdict: hear(_for_producers(verdict, call.version)))


def _missing(partitions: list[Partition], writer: _Writer) -> list[TopicPartition]:
    """Those led here in which the producer's transaction is not open."""
    return [
        one.name
        for one in partitions
        if one.leading and not one.in_transaction(writer.producer_id, writer.epoch)
    ]


def _written(broker: Broker, request: ProduceRequest) -> Iterator[tuple[Partition, _Writer]]:
    """The partitions held here that the request has a batch of a transaction for, and whose."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            held = broker.replicas.find(topic.name, data.index, TopicId(topic.topic_id))
            writer = _writer_of(data.records)
            if held is not None and writer is not None:
                yield held, writer


def _writer_of(batch: memoryview | None) -> _Writer | None:
    """Who writes in a transaction; what is no batch is told when it is to be appended."""
    if batch is None or len(batch) <= FLAGS_AT or not batch[FLAGS_AT] & TRANSACTIONAL:
        return None
    try:
        header = peek(batch)
    except CorruptBatchError:
        return None
    return _Writer(header.producer_id, header.producer_epoch)


def _keep_batches(request: ProduceRequest) -> int:
    """Copy what lies in the receive buffer, which is used again meanwhile; how much that is."""
    kept_bytes = 0
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records is not None:
                data.records = memoryview(bytearray(data.records))
                kept_bytes += len(data.records)
    return kept_bytes


def _for_producers(
    verdict: Verdict, version: int
) -> Mapping[TopicPartition, WaystationError | None]:
    return {
        name: None if error is None else _for_producer(error, version)
        for name, error in verdict.items()
    }


def _for_producer(error: WaystationError, version: int) -> WaystationError:
    """What a producer is told of a coordinator's refusal: codes that it knows from Produce."""
    match error:
        case ProducerFencedError():
            return FencedWriterError(str(error))
        case TransactionAbortableError() if version < _KNOWS_ABORTABLE_FROM_VERSION:
            return InvalidTxnStateError(str(error))
        case ConcurrentTransactionsError() if version < _ADDS_FROM_VERSION:
            return NotVerifiedError(f"cannot verify the transaction yet: {error}")
        case _ if isinstance(error, _NOWHERE):
            return NotVerifiedError(f"cannot verify the transaction: {error}")
        case _:
            return error
