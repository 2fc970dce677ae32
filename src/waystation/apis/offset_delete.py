"""OffsetDelete: forget positions of partitions that exist and that no member reads."""

from typing import NamedTuple

from waystation.apis.call import Call
from waystation.apis.coordinated import hand_over
from waystation.apis.errors import told
from waystation.apis.offset_commit import check_partition
from waystation.broker.broker import Broker
from waystation.cluster.image import ClusterImage
from waystation.cluster.views import shown
from waystation.groups.commands import DeletedOffsets, DeleteOffsets
from waystation.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from waystation.model.errors import WaystationError


class _Plan(NamedTuple):
    """What will be answered, and which parts of it the coordinator has still to fill in."""

    response: OffsetDeleteResponse
    waiting: dict[str, dict[int, OffsetDeleteResponsePartition]]


def answer(broker: Broker, call: Call[OffsetDeleteRequest]) -> OffsetDeleteResponse | None:
    """The outcome for each partition, or for the whole group."""
    request = call.message
    plan = _plan(broker.image, request)
    if not plan.waiting:
        return plan.response
    topics = tuple((name, tuple(partitions)) for name, partitions in plan.waiting.items())
    command = DeleteOffsets(request.group_id, topics)
    hand_over(
        broker,
        call,
        request.group_id,
        lambda groups, now, to: groups.delete_offsets(now, command, to),
        lambda answer: _response(plan, answer),
    )
    return None


def _plan(image: ClusterImage, request: OffsetDeleteRequest) -> _Plan:
    plan = _Plan(OffsetDeleteResponse(), {})
    for topic in request.topics:
        outcome = OffsetDeleteResponseTopic(name=topic.name)
        plan.response.topics.append(outcome)
        for index in dict.fromkeys(one.partition_index for one in topic.partitions):
            result = OffsetDeleteResponsePartition(partition_index=index)
            outcome.partitions.append(result)
            try:
                check_partition(shown(image, topic.name), index)
            except WaystationError as error:
                result.error_code = error.code
            else:
                plan.waiting.setdefault(topic.name, {})[index] = result
    return plan


def _response(plan: _Plan, answer: DeletedOffsets | WaystationError) -> OffsetDeleteResponse:
    if isinstance(answer, WaystationError):
        return OffsetDeleteResponse(error_code=answer.code)
    for topic, partitions in plan.waiting.items():
        for index, result in partitions.items():
            result.error_code = told(answer.errors[topic, index]).code
    return plan.response
