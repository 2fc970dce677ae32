"""Asks brokers what their partitions remember of producers."""

from collections.abc import Iterable

from waystation.client.descriptions import ProducerDescription
from waystation.client.errors import NoSuchPartitionError, error_of
from waystation.client.metadata import ClusterView
from waystation.client.router import Router
from waystation.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducerState,
    TopicRequest,
)
from waystation.model.errors import ErrorCode
from waystation.model.ids import NodeId, ProducerId, TopicPartition
from waystation.model.offsets import Millis, Offset

__all__ = ["producers_in"]


async def producers_in(
    router: Router, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, list[ProducerDescription]]:
    """The producers of each partition, one request for each broker that leads some.

    Raises for the first partition whose leader does not answer for it.
    """
    wanted = list(partitions)
    view = await router.look_up({where.topic for where in wanted})
    by_leader: dict[NodeId, list[TopicPartition]] = {}
    for where in wanted:
        by_leader.setdefault(_leader(view, where), []).append(where)
    found: dict[TopicPartition, list[ProducerDescription]] = {}
    for node, led in by_leader.items():
        found |= await _ask(router, node, led)
    return found


def _leader(view: ClusterView, where: TopicPartition) -> NodeId:
    if refused := view.refused.get(where.topic):
        raise error_of(refused, f"topic {where.topic}")
    if view.find(where) is None:
        raise NoSuchPartitionError(where, len(view.topics[where.topic].partitions))
    leader = view.leader(where)
    if leader is None:
        raise error_of(ErrorCode.LEADER_NOT_AVAILABLE, f"partition {where}")
    return leader


async def _ask(
    router: Router, node: NodeId, partitions: list[TopicPartition]
) -> dict[TopicPartition, list[ProducerDescription]]:
    topics: dict[str, TopicRequest] = {}
    for name, number in partitions:
        topics.setdefault(name, TopicRequest(name=name)).partition_indexes.append(number)
    request = DescribeProducersRequest(topics=list(topics.values()))
    response = await router.ask(router.to_node(node), request, DescribeProducersResponse)
    found = {}
    for topic in response.topics:
        for told in topic.partitions:
            where = TopicPartition(topic.name, told.partition_index)
            if told.error_code:
                raise error_of(told.error_code, f"partition {where}", told.error_message)
            found[where] = [_described(one) for one in told.active_producers]
    return found


def _described(one: ProducerState) -> ProducerDescription:
    return ProducerDescription(
        ProducerId(one.producer_id),
        one.producer_epoch,
        one.last_sequence,
        Millis(one.last_timestamp),
        one.coordinator_epoch,
        None if one.current_txn_start_offset < 0 else Offset(one.current_txn_start_offset),
    )
