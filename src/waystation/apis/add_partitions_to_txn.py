"""AddPartitionsToTxn: partitions become part of a transaction, all that a request names or none.

Up to v3 it comes from producers and is about one transaction.  From v4 on it comes from brokers,
about many: each may also only be asked whether partitions are part of it.  Brokers do not wait
until a producer's last transaction is ended everywhere, as producers do: others' questions would
wait behind.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from waystation.apis.call import Call
from waystation.apis.coordinated import replying
from waystation.apis.transactional import ask, code_of
from waystation.broker.broker import Broker
from waystation.cluster.image import ClusterImage
from waystation.cluster.parts import INTERNAL_TOPICS
from waystation.messages.add_partitions_to_txn import (
    BATCHED_FROM,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)
from waystation.model.errors import ErrorCode, WaystationError
from waystation.model.ids import ProducerEpoch, ProducerId, TopicPartition
from waystation.transactions.commands import Add, Added

_Codes = dict[TopicPartition, int]


class _Wish(NamedTuple):
    """What is asked of one transaction, in the order in which it will be answered."""

    add: Add
    topics: Sequence[AddPartitionsToTxnTopic]


def answer(broker: Broker, call: Call[AddPartitionsToTxnRequest]) -> None:
    """The outcome for each partition of each transaction."""
    wishes = _wishes(call.message, batched=call.version >= BATCHED_FROM)
    reply = replying(call, lambda codes: _response(wishes, codes, call.version))
    codes: list[_Codes | None] = [None] * len(wishes)
    left = len(wishes)

    def note(index: int, outcome: _Codes) -> None:
        nonlocal left
        codes[index] = outcome
        left -= 1
        if not left:
            reply(codes)

    if not wishes:
        reply([])
    for index, wish in enumerate(wishes):
        _add(broker, wish.add, call.version, partial(note, index))


def _wishes(request: AddPartitionsToTxnRequest, *, batched: bool) -> list[_Wish]:
    if not batched:
        topics = request.v3_and_below_topics
        add = Add(
            request.v3_and_below_transactional_id,
            ProducerId(request.v3_and_below_producer_id),
            ProducerEpoch(request.v3_and_below_producer_epoch),
            _partitions(topics),
        )
        return [_Wish(add, topics)]
    return [
        _Wish(
            Add(
                one.transactional_id,
                ProducerId(one.producer_id),
                ProducerEpoch(one.producer_epoch),
                _partitions(one.topics),
                verify_only=one.verify_only,
                implicit=True,
                patient=False,
            ),
            one.topics,
        )
        for one in request.transactions
    ]


def _partitions(topics: Sequence[AddPartitionsToTxnTopic]) -> frozenset[TopicPartition]:
    return frozenset(
        TopicPartition(topic.name, number) for topic in topics for number in topic.partitions
    )


def _add(broker: Broker, add: Add, version: int, done: Callable[[_Codes], None]) -> None:
    """Ask the coordinator, unless a partition is none: then nothing is added."""
    refused = {
        name: code
        for name in add.partitions
        if (code := _refusal(broker.image, name, by_client=version < BATCHED_FROM))
    }
    if refused:
        skipped = dict.fromkeys(add.partitions, int(ErrorCode.OPERATION_NOT_ATTEMPTED))
        done({**skipped, **refused})
        return

    def to(answer: object) -> None:
        if isinstance(answer, WaystationError):
            done(dict.fromkeys(add.partitions, code_of(answer, version)))
        else:
            assert isinstance(answer, Added), f"adding partitions was answered by {answer!r}"
            done({name: code_of(error, version) for name, error in answer.errors.items()})

    ask(
        broker,
        add.transactional_id,
        lambda transactions, now, to: transactions.add(now, add, to),
        to,
    )


def _refusal(image: ClusterImage, name: TopicPartition, *, by_client: bool) -> int:
    if by_client and name.topic in INTERNAL_TOPICS:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if name.topic in image.views:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    topic = image.topics.get(name.topic)
    if topic is None or not 0 <= name.partition < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE


def _response(
    wishes: Sequence[_Wish], codes: Sequence[_Codes], version: int
) -> AddPartitionsToTxnResponse:
    results = [_topics(wish, found) for wish, found in zip(wishes, codes, strict=True)]
    if version < BATCHED_FROM:
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0])
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(
                transactional_id=wish.add.transactional_id, topic_results=topics
            )
            for wish, topics in zip(wishes, results, strict=True)
        ]
    )


def _topics(wish: _Wish, codes: _Codes) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=number,
                    partition_error_code=codes[TopicPartition(topic.name, number)],
                )
                for number in topic.partitions
            ],
        )
        for topic in wish.topics
    ]
