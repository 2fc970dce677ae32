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
from waystation.messages.produce import PartitionProduceData, ProduceRequest
from waystation.model.errors import (
    ConcurrentTransactionsError,
    CoordinatorLoadingError,
    CoordinatorNotAvailableError,
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
from waystation.records.header import ATTRIBUTES_AT, HEADER_BYTES, TRANSACTIONAL, peek
from waystation.transactions.commands import Add

_ADDS_FROM_VERSION = 12
"""Whoever writes in this version adds the partition by that."""
_KNOWS_ABORTABLE_FROM_VERSION = 11
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
    writers = {
        _Writer(header.producer_id, header.producer_epoch)
        for _, data in _transactional(broker, call.message)
        if data.records is not None and len(data.records) >= HEADER_BYTES
        for header in (peek(data.records),)
    }
    if not writers:
        write({})
    elif len(writers) > 1:
        refusal = InvalidProducerIdMappingError("one request has batches of several producers")
        names = [one.name for one, _ in _transactional(broker, call.message)]
        write(dict.fromkeys(names, refusal))
    else:
        _wait_in_line(broker, call, writers.pop(), write)


def _wait_in_line(
    broker: Broker, call: Call[ProduceRequest], writer: _Writer, write: Callable[[Verdict], None]
) -> None:
    missing = partial(_missing, broker, call.message, writer)
    if not broker.admission.waits(writer.producer_id) and not missing():
        write({})
        return

    def go(admitted: Verdict) -> None:
        try:
            write(admitted)
        except Exception as error:  # the outermost frame of this request
            call.fail(error)

    ask = partial(_ask, broker, call, writer)
    if not broker.admission.enter(writer.producer_id, missing, ask, go):
        _keep_batches(call.message)


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


def _missing(broker: Broker, request: ProduceRequest, writer: _Writer) -> list[TopicPartition]:
    """The partitions led here in which the producer's transaction is not open."""
    return [
        partition.name
        for partition, _ in _transactional(broker, request)
        if partition.leading and not partition.in_transaction(writer.producer_id, writer.epoch)
    ]


def _transactional(
    broker: Broker, request: ProduceRequest
) -> Iterator[tuple[Partition, PartitionProduceData]]:
    """The partitions held here that the request has a batch of a transaction for."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            batch = data.records
            if batch is not None and len(batch) > FLAGS_AT and batch[FLAGS_AT] & TRANSACTIONAL:
                held = broker.replicas.find(topic.name, data.index, TopicId(topic.topic_id))
                if held is not None:
                    yield held, data


def _keep_batches(request: ProduceRequest) -> None:
    """Copy what lies in the receive buffer, which is used again while the request waits."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records is not None:
                data.records = memoryview(bytearray(data.records))


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
