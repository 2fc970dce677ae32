"""TxnOffsetCommit: positions of a group that count once the producer's transaction is committed.

The partition of ``__consumer_offsets`` that the group belongs to must be part of the transaction.
Only the first commit of a transaction asks the transaction's coordinator about that; from version
5 on it makes the partition part of it at the same time.
"""

from typing import NamedTuple

from waystation.apis.call import Call
from waystation.apis.coordinated import nameless
from waystation.apis.offset_commit import check_partition
from waystation.broker.broker import Broker
from waystation.broker.coordinators import OFFSETS_TOPIC
from waystation.cluster.image import ClusterImage
from waystation.cluster.parts import TopicImage
from waystation.cluster.views import shown
from waystation.groups.commands import Committed, OffsetToCommit, TransactionalCommit
from waystation.groups.inquiries import Inquiry
from waystation.messages.txn_offset_commit import (
    IMPLICIT_FROM,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from waystation.model.errors import (
    ConcurrentTransactionsError,
    CoordinatorLoadingError,
    CoordinatorNotAvailableError,
    ErrorCode,
    NotCoordinatorError,
    ProducerFencedError,
    TransactionAbortableError,
    WaystationError,
)
from waystation.model.ids import ProducerEpoch, ProducerId, TopicPartition

_ABORTABLE_FROM_VERSION = 4


class _Plan(NamedTuple):
    """What will be answered, and which parts of it the coordinator has still to fill in."""

    response: TxnOffsetCommitResponse
    offsets: list[OffsetToCommit]
    waiting: list[TxnOffsetCommitResponsePartition]


async def answer(broker: Broker, call: Call[TxnOffsetCommitRequest]) -> TxnOffsetCommitResponse:
    """The outcome for each partition."""
    plan = _plan(broker.image, call.message)
    if plan.offsets:
        for result, error in zip(plan.waiting, await _errors(broker, call, plan), strict=True):
            result.error_code = ErrorCode.NONE if error is None else _code(error, call.version)
    return plan.response


def _plan(image: ClusterImage, request: TxnOffsetCommitRequest) -> _Plan:
    plan = _Plan(TxnOffsetCommitResponse(), [], [])
    for topic in request.topics:
        outcome = TxnOffsetCommitResponseTopic(name=topic.name)
        plan.response.topics.append(outcome)
        for one in topic.partitions:
            result = TxnOffsetCommitResponsePartition(partition_index=one.partition_index)
            outcome.partitions.append(result)
            try:
                known = shown(image, topic.name)
                check_partition(known, one.partition_index)
            except WaystationError as error:
                result.error_code = error.code
                continue
            plan.offsets.append(_offset(known, one))
            plan.waiting.append(result)
    return plan


def _offset(topic: TopicImage, one: TxnOffsetCommitRequestPartition) -> OffsetToCommit:
    return OffsetToCommit(
        topic.name,
        one.partition_index,
        one.committed_offset,
        one.committed_leader_epoch,
        one.committed_metadata or "",
        topic.id,
    )


async def _errors(
    broker: Broker, call: Call[TxnOffsetCommitRequest], plan: _Plan
) -> tuple[WaystationError | None, ...]:
    """What became of each offset."""
    try:
        return (await _commit(broker, call, tuple(plan.offsets))).errors
    except WaystationError as error:
        return (error,) * len(plan.offsets)


async def _commit(
    broker: Broker, call: Call[TxnOffsetCommitRequest], offsets: tuple[OffsetToCommit, ...]
) -> Committed:
    request = call.message
    if not request.group_id:
        raise nameless()
    host = broker.groups.host_of(request.group_id)
    inquiry: Inquiry | None = None
    name = TopicPartition(OFFSETS_TOPIC, broker.groups.number_of(request.group_id))
    producer = ProducerId(request.producer_id), ProducerEpoch(request.producer_epoch)
    if not broker.replicas.get(*name).in_transaction(*producer):
        # Begun before the question: the transaction may end here while it is on its way.
        inquiry = host.machine.inquire(producer[0])
        implicit = call.version >= IMPLICIT_FROM
        await _admit(broker, request.transactional_id, *producer, name, implicit=implicit)
    command = TransactionalCommit(
        request.group_id,
        request.generation_id,
        request.member_id,
        request.group_instance_id,
        offsets,
        *producer,
        inquiry,
    )
    committed: Committed = await host.ask(
        lambda now, to: host.machine.commit_in_transaction(now, command, to)
    )
    return committed


async def _admit(
    broker: Broker,
    transactional_id: str,
    producer_id: ProducerId,
    epoch: ProducerEpoch,
    name: TopicPartition,
    *,
    implicit: bool,
) -> None:
    """Raise unless the group's partition is part of the transaction.

    That nobody can be asked at the moment is no reason for the client to look for the group's
    coordinator elsewhere: it is told to try again here.
    """
    try:
        await broker.transactions.admit(
            transactional_id, producer_id, epoch, [name], implicit=implicit
        )
    except (CoordinatorNotAvailableError, NotCoordinatorError) as error:
        raise CoordinatorLoadingError(f"cannot verify the transaction: {error}") from error


def _code(error: WaystationError, version: int) -> int:
    """What clients are told who know some codes from other requests only, or not at all."""
    if isinstance(error, ProducerFencedError):
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if isinstance(error, TransactionAbortableError) and version < _ABORTABLE_FROM_VERSION:
        return ErrorCode.INVALID_TXN_STATE
    if isinstance(error, ConcurrentTransactionsError) and version < IMPLICIT_FROM:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return error.code
