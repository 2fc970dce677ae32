"""ShareGroupHeartbeat: all that a member of a share group says and hears.

Who joins before the group's queues have begun would be told to read nothing, and learn better one
heartbeat later.  Instead its answer waits a moment for them, and if that is too short it is told to
come again soon.
"""

from collections.abc import Sequence

from waystation.apis.call import Call
from waystation.apis.coordinated import client_host
from waystation.broker.broker import Broker
from waystation.messages.share_group_heartbeat import (
    JOIN,
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from waystation.model.errors import InvalidGroupIdError, InvalidRequestError, WaystationError
from waystation.sharing.group_commands import ShareHeartbeat, ShareHeartbeatDone
from waystation.sharing.group_records import Partitions
from waystation.sharing.redriven import REDRIVE_GROUP

_QUEUES_WITHIN_S = 3.0
_SOON_MS = 500


async def answer(
    broker: Broker, call: Call[ShareGroupHeartbeatRequest]
) -> ShareGroupHeartbeatResponse:
    """What the member shall read now, where that has changed."""
    command = _command(call)
    try:
        if not command.group_id:
            raise InvalidRequestError("the group id is empty: give the group a name")
        if command.group_id == REDRIVE_GROUP:
            raise InvalidGroupIdError(
                f"{REDRIVE_GROUP} is the cluster's own: give the group another name"
            )
        _check_topics(broker, command.topics or ())
        done = await _heartbeat(broker, command)
        if command.member_epoch == JOIN and not done.assigned:
            done = await _later(broker, command, done)
    except WaystationError as error:
        return ShareGroupHeartbeatResponse(error_code=error.code, error_message=str(error))
    return ShareGroupHeartbeatResponse(
        member_id=done.member_id,
        member_epoch=done.member_epoch,
        heartbeat_interval_ms=done.heartbeat_interval_ms,
        assignment=None if done.assigned is None else _assignment(done.assigned),
    )


async def _heartbeat(broker: Broker, command: ShareHeartbeat) -> ShareHeartbeatDone:
    host = broker.groups.host_of(command.group_id)
    done: ShareHeartbeatDone = await host.ask(
        lambda now, to: host.machine.share_heartbeat(now, command, to)
    )
    if host.machine.shares.is_ordered(command.group_id):
        soon_ms = min(_SOON_MS, done.heartbeat_interval_ms)
        return done._replace(heartbeat_interval_ms=soon_ms)
    return done


async def _later(
    broker: Broker, command: ShareHeartbeat, joined: ShareHeartbeatDone
) -> ShareHeartbeatDone:
    """What it is told once the queues that it waits for have begun; as before if they do not."""
    await broker.share_orders.settled(command.group_id, _QUEUES_WITHIN_S)
    again = command._replace(
        member_id=joined.member_id, member_epoch=joined.member_epoch, topics=None
    )
    try:
        done = await _heartbeat(broker, again)
    except WaystationError:
        return joined
    return joined if done.assigned is None else done


def _check_topics(broker: Broker, topics: Sequence[str]) -> None:
    """Refuse views: a queue of some messages would leave the others for ever undone."""
    for name in topics:
        view = broker.views.named(name)
        if view is not None:
            raise InvalidRequestError(
                f"{name} is a view, and queues read topics: subscribe to {view.on}, and "
                "accept what is not meant"
            )


def _command(call: Call[ShareGroupHeartbeatRequest]) -> ShareHeartbeat:
    request = call.message
    topics = request.subscribed_topic_names
    return ShareHeartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        client_id=call.client_id or "",
        client_host=client_host(call),
        rack_id=request.rack_id,
        topics=None if topics is None else tuple(topics),
    )


def _assignment(partitions: Partitions) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=list(indexes))
            for topic_id, indexes in partitions
        ]
    )
