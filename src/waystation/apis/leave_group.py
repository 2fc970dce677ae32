"""LeaveGroup: members go, one by one or, since version 3, several at once."""

from waystation.apis.call import Call
from waystation.apis.coordinated import hand_over
from waystation.apis.errors import told
from waystation.broker.broker import Broker
from waystation.groups.commands import Leave, Leaving, Left
from waystation.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
)
from waystation.model.errors import WaystationError

_SEVERAL_FROM_VERSION = 3


def answer(broker: Broker, call: Call[LeaveGroupRequest]) -> None:
    """Who has left, and who was not there."""
    request, several = call.message, call.version >= _SEVERAL_FROM_VERSION
    leaving = (
        [Leaving(one.member_id, one.group_instance_id) for one in request.members]
        if several
        else [Leaving(request.member_id, None)]
    )
    command = Leave(request.group_id, tuple(leaving))
    hand_over(
        broker,
        call,
        request.group_id,
        lambda groups, now, to: groups.leave(now, command, to),
        _response if several else _response_to_one,
    )


def _response(answer: Left | WaystationError) -> LeaveGroupResponse:
    if isinstance(answer, WaystationError):
        return LeaveGroupResponse(error_code=answer.code)
    return LeaveGroupResponse(
        members=[
            MemberResponse(
                member_id=one.member_id,
                group_instance_id=one.instance_id,
                error_code=told(error).code,
            )
            for one, error in answer.members
        ]
    )


def _response_to_one(answer: Left | WaystationError) -> LeaveGroupResponse:
    """Old versions have one place for an error, the group's or the member's."""
    if isinstance(answer, WaystationError):
        return LeaveGroupResponse(error_code=answer.code)
    ((_, error),) = answer.members
    return LeaveGroupResponse(error_code=told(error).code)
