"""DescribeGroups: groups and their members; those of the other kind as classic tools see them.

A group that is not there, or is a share group, is "Dead", which is an error only since version 6.
"""

from waystation.apis.call import Call
from waystation.apis.coordinated import GROUP_OPERATIONS, Decide, ask_each, replying
from waystation.broker.broker import Broker
from waystation.groups.commands import GroupDescription, MemberDescription
from waystation.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from waystation.model.errors import ErrorCode, GroupNotFoundError, WaystationError

_NOT_FOUND_FROM_VERSION = 6
_DEAD = "Dead"


def answer(broker: Broker, call: Call[DescribeGroupsRequest]) -> None:
    """Each group asked for."""
    asked = call.message.groups

    def respond(answers: list[GroupDescription | WaystationError]) -> DescribeGroupsResponse:
        pairs = zip(asked, answers, strict=True)
        return DescribeGroupsResponse(groups=[_group(call, *pair) for pair in pairs])

    ask_each(broker, [(group_id, _decide(group_id)) for group_id in asked], replying(call, respond))


def _decide(group_id: str) -> Decide:
    return lambda groups, now, to: groups.describe(now, group_id, to)


def _group(
    call: Call[DescribeGroupsRequest], group_id: str, answer: GroupDescription | WaystationError
) -> DescribedGroup:
    if isinstance(answer, GroupNotFoundError) and call.version < _NOT_FOUND_FROM_VERSION:
        return DescribedGroup(group_id=group_id, group_state=_DEAD)
    if isinstance(answer, WaystationError):
        return DescribedGroup(group_id=group_id, error_code=answer.code, error_message=str(answer))
    told = DescribedGroup(
        group_id=group_id,
        group_state=answer.state,
        protocol_type=answer.protocol_type,
        protocol_data=answer.protocol,
        members=[_member(one) for one in answer.members],
    )
    if answer.state == _DEAD and call.version >= _NOT_FOUND_FROM_VERSION:
        told.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        told.error_message = f"there is no group {group_id}"
    elif call.message.include_authorized_operations:
        told.authorized_operations = GROUP_OPERATIONS
    return told


def _member(one: MemberDescription) -> DescribedGroupMember:
    return DescribedGroupMember(
        member_id=one.member_id,
        group_instance_id=one.instance_id,
        client_id=one.client_id,
        client_host=one.client_host,
        member_metadata=one.subscription,
        member_assignment=one.assignment,
    )
