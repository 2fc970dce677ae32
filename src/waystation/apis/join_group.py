"""JoinGroup: answered when everyone has joined, which may take as long as a rebalance."""

from waystation.apis.call import Call
from waystation.apis.coordinated import client_host, hand_over
from waystation.broker.broker import Broker
from waystation.groups.commands import Join, Joined
from waystation.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from waystation.model.errors import MemberIdRequiredError, WaystationError

_REBALANCE_TIMEOUT_FROM_VERSION = 1
_MEMBER_ID_REQUIRED_FROM_VERSION = 4
_NO_PROTOCOL_FROM_VERSION = 7
_SKIPS_ASSIGNMENT_FROM_VERSION = 9


def answer(broker: Broker, call: Call[JoinGroupRequest]) -> None:
    """The new generation, or why the member is not in it."""
    command = _command(call)
    hand_over(
        broker,
        call,
        command.group_id,
        lambda groups, now, to: groups.join(now, command, to),
        lambda answer: _response(call, answer),
    )


def _command(call: Call[JoinGroupRequest]) -> Join:
    request, version = call.message, call.version
    return Join(
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        client_id=call.client_id or "",
        client_host=client_host(call),
        protocol_type=request.protocol_type,
        protocols=tuple((one.name, one.metadata) for one in request.protocols),
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms
        if version >= _REBALANCE_TIMEOUT_FROM_VERSION
        else request.session_timeout_ms,
        requires_member_id=version >= _MEMBER_ID_REQUIRED_FROM_VERSION,
        may_skip_assignment=version >= _SKIPS_ASSIGNMENT_FROM_VERSION,
    )


def _response(call: Call[JoinGroupRequest], answer: Joined | WaystationError) -> JoinGroupResponse:
    no_protocol = None if call.version >= _NO_PROTOCOL_FROM_VERSION else ""
    if isinstance(answer, WaystationError):
        given = answer.member_id if isinstance(answer, MemberIdRequiredError) else None
        return JoinGroupResponse(
            error_code=answer.code,
            protocol_name=no_protocol,
            member_id=call.message.member_id if given is None else given,
        )
    return JoinGroupResponse(
        generation_id=answer.generation,
        protocol_type=answer.protocol_type,
        protocol_name=no_protocol if answer.protocol is None else answer.protocol,
        leader=answer.leader,
        skip_assignment=answer.skip_assignment,
        member_id=answer.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=one.member_id,
                group_instance_id=one.instance_id,
                metadata=one.subscription,
            )
            for one in answer.members
        ],
    )
