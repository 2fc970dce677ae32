"""ConsumerGroupHeartbeat: all that a member of the server-side protocol says and hears."""

from waystation.apis.call import Call
from waystation.apis.coordinated import ask, client_host, replying
from waystation.broker.broker import Broker
from waystation.groups.commands import ConsumerHeartbeat, ConsumerHeartbeatDone
from waystation.groups.partition_sets import grouped
from waystation.groups.records import Partitions
from waystation.messages.consumer_group_heartbeat import (
    JOIN,
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from waystation.model.errors import InvalidRequestError, WaystationError
from waystation.model.ids import TopicId

_OWN_MEMBER_ID_FROM_VERSION = 1


def answer(
    broker: Broker, call: Call[ConsumerGroupHeartbeatRequest]
) -> ConsumerGroupHeartbeatResponse | None:
    """What the member shall read now, where that has changed."""
    try:
        command = _command(call)
    except WaystationError as error:
        return _response(error)
    ask(
        broker,
        command.group_id,
        lambda groups, now, to: groups.consumer_heartbeat(now, command, to),
        replying(call, _response),
    )
    return None


def _command(call: Call[ConsumerGroupHeartbeatRequest]) -> ConsumerHeartbeat:
    request = call.message
    if not request.group_id:
        raise InvalidRequestError("the group id is empty: give the group a name")
    may_be_new = call.version < _OWN_MEMBER_ID_FROM_VERSION and request.member_epoch == JOIN
    if not request.member_id and not may_be_new:
        raise InvalidRequestError("the member id is empty: a member chooses its own")
    return ConsumerHeartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topics=None
        if request.subscribed_topic_names is None
        else tuple(request.subscribed_topic_names),
        topic_regex=request.subscribed_topic_regex,
        assignor=request.server_assignor,
        owned=None
        if request.topic_partitions is None
        else grouped(
            (TopicId(one.topic_id), index)
            for one in request.topic_partitions
            for index in one.partitions
        ),
        client_id=call.client_id or "",
        client_host=client_host(call),
    )


def _response(answer: ConsumerHeartbeatDone | WaystationError) -> ConsumerGroupHeartbeatResponse:
    if isinstance(answer, WaystationError):
        return ConsumerGroupHeartbeatResponse(error_code=answer.code, error_message=str(answer))
    return ConsumerGroupHeartbeatResponse(
        member_id=answer.member_id,
        member_epoch=answer.member_epoch,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
        assignment=None if answer.assignment is None else _assignment(answer.assignment),
    )


def _assignment(partitions: Partitions) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=list(indexes))
            for topic_id, indexes in partitions
        ]
    )
