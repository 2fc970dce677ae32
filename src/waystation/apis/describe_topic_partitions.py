"""DescribeTopicPartitions: topics in pages, so that a large cluster fits into small answers."""

from waystation.apis.call import Call
from waystation.apis.metadata import TOPIC_OPERATIONS, offline
from waystation.broker.broker import Broker
from waystation.cluster.image import ClusterImage
from waystation.cluster.parts import PartitionImage
from waystation.cluster.views import find_shown, shown, shown_names
from waystation.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from waystation.model.errors import ErrorCode, InvalidRequestError, WaystationError
from waystation.model.ids import NO_NODE
from waystation.model.topics import check_topic_name

_PAGE_PARTITIONS_MAX = 2_000


def answer(
    broker: Broker, call: Call[DescribeTopicPartitionsRequest]
) -> DescribeTopicPartitionsResponse:
    """One page, in the order of names, from the cursor on."""
    request, image = call.message, broker.image
    names = sorted({one.name for one in request.topics}) or sorted(shown_names(image))
    first = 0
    if request.cursor is not None:
        cursor = request.cursor
        names = [name for name in names if name >= cursor.topic_name]
        first = cursor.partition_index if names and names[0] == cursor.topic_name else 0
    left = min(max(request.response_partition_limit, 1), _PAGE_PARTITIONS_MAX)
    response = DescribeTopicPartitionsResponse()
    for name in names:
        if left <= 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic, more_from = _topic(image, name, first, left)
        response.topics.append(topic)
        left -= len(topic.partitions)
        if more_from is not None:
            response.next_cursor = Cursor(topic_name=name, partition_index=more_from)
            break
        first = 0
    return response


def _topic(
    image: ClusterImage, name: str, first: int, limit: int
) -> tuple[DescribeTopicPartitionsResponseTopic, int | None]:
    """The partitions of one topic that fit, and the first that does not."""
    try:
        if find_shown(image, name) is None:
            check_topic_name(name)
        topic = shown(image, name)
        if first < 0:
            raise InvalidRequestError(f"the cursor names partition {first}")
    except WaystationError as error:
        return DescribeTopicPartitionsResponseTopic(name=name, error_code=error.code), None
    end = min(first + limit, len(topic.partitions))
    told = DescribeTopicPartitionsResponseTopic(
        name=name,
        topic_id=topic.id,
        is_internal=topic.internal,
        topic_authorized_operations=TOPIC_OPERATIONS,
        partitions=[
            _partition(image, number, topic.partitions[number]) for number in range(first, end)
        ],
    )
    return told, end if end < len(topic.partitions) else None


def _partition(
    image: ClusterImage, number: int, state: PartitionImage
) -> DescribeTopicPartitionsResponsePartition:
    leader = state.leader if state.leader in image.brokers else None
    return DescribeTopicPartitionsResponsePartition(
        error_code=ErrorCode.NONE if leader is not None else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=number,
        leader_id=NO_NODE if leader is None else leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(state.in_sync),
        eligible_leader_replicas=list(state.eligible),
        last_known_elr=[],
        offline_replicas=offline(image, state.replicas),
    )
