"""What a transactional producer asks of coordinators; each function asks once.

All of it may be asked again when the answer was lost: whoever coordinates recognises a repeated
request, and answers it as the first.
"""

from collections.abc import Iterable, Mapping

from waystation.client.coordinator import Coordinator
from waystation.client.delivery import Identity
from waystation.client.errors import error_of
from waystation.client.group_offsets import CommittedOffset
from waystation.client.group_offsets import Identity as MemberIdentity
from waystation.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from waystation.messages.add_partitions_to_txn import (
    BATCHED_FROM,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from waystation.messages.end_txn import BUMPS_FROM, EndTxnRequest, EndTxnResponse
from waystation.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from waystation.messages.prepare_txn import PrepareTxnRequest, PrepareTxnResponse
from waystation.messages.txn_offset_commit import (
    IMPLICIT_FROM,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from waystation.model.errors import ErrorCode
from waystation.model.ids import ProducerEpoch, ProducerId, TopicPartition

__all__ = [
    "add_offsets",
    "add_partitions",
    "commit_offsets_in",
    "end_transaction",
    "initialise",
    "prepare_transaction",
]

_NOT_ATTEMPTED = ErrorCode.OPERATION_NOT_ATTEMPTED
_OF_THE_PARTITION = (
    ErrorCode.OFFSET_METADATA_TOO_LARGE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)


async def initialise(
    coordinator: Coordinator, timeout_ms: int, known: Identity | None = None
) -> Identity:
    """Who the producer is from now on; everyone who was it before is fenced.

    One that says who it has been is refused instead, if it was fenced itself.
    """
    request = InitProducerIdRequest(
        transactional_id=coordinator.key, transaction_timeout_ms=timeout_ms
    )
    if known is not None:
        request.producer_id, request.producer_epoch = known
    told = await coordinator.ask(request, InitProducerIdResponse)
    coordinator.raise_if(told.error_code)
    return Identity(ProducerId(told.producer_id), ProducerEpoch(told.producer_epoch))


async def add_partitions(
    coordinator: Coordinator, who: Identity, partitions: Iterable[TopicPartition]
) -> None:
    """Make ``partitions`` part of the transaction: all of them, or the error says why none."""
    topics: dict[str, AddPartitionsToTxnTopic] = {}
    for name, number in partitions:
        topic = topics.setdefault(name, AddPartitionsToTxnTopic(name=name))
        topic.partitions.append(number)
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=coordinator.key,
        v3_and_below_producer_id=who.producer,
        v3_and_below_producer_epoch=who.epoch,
        v3_and_below_topics=list(topics.values()),
    )
    told = await coordinator.ask(request, AddPartitionsToTxnResponse, newest=BATCHED_FROM - 1)
    for answer in told.results_by_topic_v3_and_below:
        for one in answer.results_by_partition:
            where = TopicPartition(answer.name, one.partition_index)
            code = one.partition_error_code
            if code in _OF_THE_PARTITION:
                raise error_of(code, f"partition {where}")
            if code != _NOT_ATTEMPTED:  # then another one says why
                coordinator.raise_if(code)


async def add_offsets(coordinator: Coordinator, who: Identity, group_id: str) -> None:
    """Make the offsets of a group part of the transaction."""
    request = AddOffsetsToTxnRequest(
        transactional_id=coordinator.key,
        producer_id=who.producer,
        producer_epoch=who.epoch,
        group_id=group_id,
    )
    told = await coordinator.ask(request, AddOffsetsToTxnResponse)
    coordinator.raise_if(told.error_code)


async def commit_offsets_in(
    transactional_id: str,
    who: Identity,
    group: Coordinator,
    member: MemberIdentity,
    offsets: Mapping[TopicPartition, CommittedOffset],
    *,
    implicit: bool,
) -> None:
    """Tell the group's coordinator where the group has got to, if the transaction commits."""
    topics: dict[str, TxnOffsetCommitRequestTopic] = {}
    for (name, number), at in offsets.items():
        topic = topics.setdefault(name, TxnOffsetCommitRequestTopic(name=name))
        topic.partitions.append(
            TxnOffsetCommitRequestPartition(
                partition_index=number,
                committed_offset=at.offset,
                committed_leader_epoch=at.leader_epoch,
                committed_metadata=at.metadata,
            )
        )
    request = TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group.key,
        producer_id=who.producer,
        producer_epoch=who.epoch,
        generation_id=member.generation,
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        topics=list(topics.values()),
    )
    newest = None if implicit else IMPLICIT_FROM - 1
    told = await group.ask(request, TxnOffsetCommitResponse, newest=newest)
    for answer in told.topics:
        for one in answer.partitions:
            if one.error_code in _OF_THE_PARTITION:
                where = TopicPartition(answer.name, one.partition_index)
                raise error_of(one.error_code, f"partition {where}")
            group.raise_if(one.error_code)


async def end_transaction(
    coordinator: Coordinator, who: Identity, *, commit: bool, implicit: bool
) -> Identity | None:
    """Commit or abort; who the producer is afterwards, if that changes."""
    request = EndTxnRequest(
        transactional_id=coordinator.key,
        producer_id=who.producer,
        producer_epoch=who.epoch,
        committed=commit,
    )
    newest = None if implicit else BUMPS_FROM - 1
    told = await coordinator.ask(request, EndTxnResponse, newest=newest)
    coordinator.raise_if(told.error_code)
    if told.producer_id < 0:
        return None
    return Identity(ProducerId(told.producer_id), ProducerEpoch(told.producer_epoch))


async def prepare_transaction(coordinator: Coordinator, who: Identity) -> None:
    """Let the transaction wait for its outcome, however long that takes."""
    request = PrepareTxnRequest(
        transactional_id=coordinator.key, producer_id=who.producer, producer_epoch=who.epoch
    )
    told = await coordinator.ask(request, PrepareTxnResponse)
    coordinator.raise_if(told.error_code, told.error_message)
