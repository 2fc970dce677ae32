"""SyncGroup: answered when the leader of the generation has handed out assignments."""

from waystation.apis.call import Call
from waystation.apis.coordinated import hand_over
from waystation.broker.broker import Broker
from waystation.groups.commands import Sync, Synced
from waystation.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from waystation.model.errors import InconsistentProtocolError, WaystationError

_NAMES_PROTOCOL_FROM_VERSION = 5


def answer(broker: Broker, call: Call[SyncGroupRequest]) -> SyncGroupResponse | None:
    """The member's assignment, or why it has none."""
    request = call.message
    if call.version >= _NAMES_PROTOCOL_FROM_VERSION and (
        request.protocol_type is None or request.protocol_name is None
    ):
        return _response(InconsistentProtocolError("the protocol's type and name must be given"))
    command = Sync(
        group_id=request.group_id,
        generation=request.generation_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol=request.protocol_name,
        assignments=tuple((one.member_id, one.assignment) for one in request.assignments),
    )
    hand_over(
        broker,
        call,
        request.group_id,
        lambda groups, now, to: groups.sync(now, command, to),
        _response,
    )
    return None


def _response(answer: Synced | WaystationError) -> SyncGroupResponse:
    if isinstance(answer, WaystationError):
        return SyncGroupResponse(error_code=answer.code)
    return SyncGroupResponse(
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol,
        assignment=answer.assignment,
    )
