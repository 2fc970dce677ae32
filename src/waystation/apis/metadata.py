"""Metadata: who is there and who leads what, and topics made on first use."""

from waystation.apis.call import Call
from waystation.broker.broker import Broker
from waystation.cluster.image import ClusterImage
from waystation.cluster.parts import BrokerImage, PartitionImage, TopicImage
from waystation.cluster.topics import TopicSpec
from waystation.cluster.views import find_shown, shown, shown_by_id, shown_names
from waystation.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from waystation.model.errors import ErrorCode, WaystationError
from waystation.model.ids import NO_NODE, NO_TOPIC_ID, NodeId, TopicId
from waystation.model.topics import check_topic_name

_IDS_FROM_VERSION = 12
_WITHOUT_OFFLINE_REPLICAS = 0
Refusals = dict[str, WaystationError]

# Everything that may be done, as bits by Kafka's numbers of operations; nobody is restricted yet.
# Topic: read, write, create, delete, alter, describe, describe and alter configs.
TOPIC_OPERATIONS = sum(1 << n for n in (3, 4, 5, 6, 7, 8, 10, 11))
# Cluster: create, alter, describe, cluster action, describe and alter configs, idempotent write.
CLUSTER_OPERATIONS = sum(1 << n for n in (5, 7, 8, 9, 10, 11, 12))


async def answer(broker: Broker, call: Call[MetadataRequest]) -> MetadataResponse:
    """The brokers, and the topics asked for."""
    request = call.message
    refused: Refusals = {}
    if request.topics is None or (call.version == 0 and not request.topics):
        asked = [MetadataRequestTopic(name=name) for name in shown_names(broker.image)]
    else:
        asked = list({(one.name, one.topic_id): one for one in request.topics}.values())
        if call.version < _IDS_FROM_VERSION and any(map(_by_id, asked)):
            return _by_id_too_early(asked)
        if request.allow_auto_topic_creation and broker.settings.auto_create_topics_enable:
            refused = await _create_missing(broker, asked)
    return _response(broker, request, asked, refused, call.version)


def _by_id(asked: MetadataRequestTopic) -> bool:
    return asked.name is None or asked.topic_id != NO_TOPIC_ID


def _by_id_too_early(asked: list[MetadataRequestTopic]) -> MetadataResponse:
    """Versions 10 and 11 have a place for ids, but not the answers to them."""
    return MetadataResponse(
        topics=[
            MetadataResponseTopic(
                error_code=ErrorCode.INVALID_REQUEST, name=one.name or "", topic_id=one.topic_id
            )
            for one in asked
        ]
    )


async def _create_missing(broker: Broker, asked: list[MetadataRequestTopic]) -> Refusals:
    """Make topics on first use; which of them could not be, and why."""
    image = broker.image
    missing = [one.name for one in asked if one.name and find_shown(image, one.name) is None]
    if not missing:
        return {}
    outcomes = await broker.topics.create([TopicSpec(name) for name in missing])
    return {name: one for name, one in outcomes.items() if isinstance(one, WaystationError)}


def _response(
    broker: Broker,
    request: MetadataRequest,
    asked: list[MetadataRequestTopic],
    refused: Refusals,
    version: int,
) -> MetadataResponse:
    image = broker.image
    response = MetadataResponse(
        brokers=[_broker(one) for one in broker.answering],
        cluster_id=image.cluster_id,
        controller_id=NO_NODE if image.controller is None else image.controller.node,
        topics=[_topic(image, one, refused) for one in asked],
    )
    if version == _WITHOUT_OFFLINE_REPLICAS:
        _leave_out_the_dead(image, response)
    if request.include_topic_authorized_operations:
        for topic in response.topics:
            topic.topic_authorized_operations = TOPIC_OPERATIONS
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response


def _broker(one: BrokerImage) -> MetadataResponseBroker:
    return MetadataResponseBroker(node_id=one.id, host=one.host, port=one.port, rack=one.rack)


def _topic(
    image: ClusterImage, asked: MetadataRequestTopic, refused: Refusals
) -> MetadataResponseTopic:
    try:
        if asked.name is None:
            return _described(image, shown_by_id(image, TopicId(asked.topic_id)))
        if find_shown(image, asked.name) is None:
            check_topic_name(asked.name)
            if asked.name in refused:
                raise refused[asked.name]
        return _described(image, shown(image, asked.name))
    except WaystationError as error:
        return MetadataResponseTopic(
            error_code=error.code, name=asked.name, topic_id=asked.topic_id
        )


def _described(image: ClusterImage, topic: TopicImage) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.internal,
        partitions=[
            _partition(image, number, state) for number, state in enumerate(topic.partitions)
        ],
    )


def _partition(
    image: ClusterImage, number: int, state: PartitionImage
) -> MetadataResponsePartition:
    leader = state.leader if state.leader in image.brokers else None
    return MetadataResponsePartition(
        error_code=ErrorCode.NONE if leader is not None else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=number,
        leader_id=NO_NODE if leader is None else leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(state.in_sync),
        offline_replicas=offline(image, state.replicas),
    )


def _leave_out_the_dead(image: ClusterImage, response: MetadataResponse) -> None:
    """Clients of version 0 take every replica that is named for one that can be reached."""
    for topic in response.topics:
        for told in topic.partitions:
            named = len(told.replica_nodes), len(told.isr_nodes)
            told.replica_nodes = [one for one in told.replica_nodes if one in image.brokers]
            told.isr_nodes = [one for one in told.isr_nodes if one in image.brokers]
            left = len(told.replica_nodes), len(told.isr_nodes)
            if left != named and told.error_code == ErrorCode.NONE:
                told.error_code = ErrorCode.REPLICA_NOT_AVAILABLE


def offline(image: ClusterImage, replicas: tuple[NodeId, ...]) -> list[int]:
    """The replicas whose broker is not there."""
    return [node for node in replicas if node not in image.brokers]
