"""Heartbeat: a member of a classic group is alive."""

from waystation.apis.call import Call
from waystation.apis.coordinated import hand_over
from waystation.apis.errors import told
from waystation.broker.broker import Broker
from waystation.groups.commands import Heartbeat
from waystation.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from waystation.model.errors import WaystationError


def answer(broker: Broker, call: Call[HeartbeatRequest]) -> None:
    """Nothing, or why the member must join again."""
    request = call.message
    command = Heartbeat(
        request.group_id, request.generation_id, request.member_id, request.group_instance_id
    )
    hand_over(
        broker,
        call,
        request.group_id,
        lambda groups, now, to: groups.heartbeat(now, command, to),
        _response,
    )


def _response(answer: WaystationError | None) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=told(answer).code)
