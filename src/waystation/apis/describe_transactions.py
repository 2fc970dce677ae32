"""DescribeTransactions: who has a transactional id, and how far its transaction has come."""

from waystation.apis.call import Call
from waystation.broker.broker import Broker
from waystation.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from waystation.model.errors import WaystationError
from waystation.model.ids import TopicPartition
from waystation.transactions.commands import TransactionDescription


def answer(broker: Broker, call: Call[DescribeTransactionsRequest]) -> DescribeTransactionsResponse:
    """Each transactional id that was named."""
    names = call.message.transactional_ids
    return DescribeTransactionsResponse(
        transaction_states=[_described(broker, name) for name in names]
    )


def _described(broker: Broker, name: str) -> TransactionState:
    try:
        machine = broker.transactions.host_of(name).machine
        found: TransactionDescription = machine.describe(name)
    except WaystationError as error:
        return TransactionState(error_code=error.code, transactional_id=name)
    return TransactionState(
        transactional_id=name,
        transaction_state=found.state,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.started_at,
        producer_id=found.producer_id,
        producer_epoch=found.epoch,
        topics=_by_topic(found.partitions),
    )


def _by_topic(partitions: tuple[TopicPartition, ...]) -> list[TopicData]:
    topics: dict[str, TopicData] = {}
    for topic, number in partitions:
        if topic not in topics:
            topics[topic] = TopicData(topic=topic)
        topics[topic].partitions.append(number)
    return list(topics.values())
