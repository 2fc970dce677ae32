"""ListGroups: the groups that this broker coordinates, of the states and types asked for.

While some of them are still being loaded it tells none: half a list would look like a whole one.
"""

from waystation.apis.call import Call
from waystation.broker.broker import Broker
from waystation.groups.commands import GroupListing
from waystation.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from waystation.model.errors import ErrorCode


def answer(broker: Broker, call: Call[ListGroupsRequest]) -> ListGroupsResponse:
    """Every group that passes both filters; an empty filter passes all."""
    states, kinds = _lowered(call.message.states_filter), _lowered(call.message.types_filter)
    if broker.groups.loading:
        return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return ListGroupsResponse(
        groups=[
            _listed(one)
            for machine in broker.groups.machines()
            for one in machine.list()
            if (not states or one.state.lower() in states)
            and (not kinds or one.kind.lower() in kinds)
        ]
    )


def _lowered(words: list[str]) -> set[str]:
    return {word.lower() for word in words}


def _listed(one: GroupListing) -> ListedGroup:
    return ListedGroup(
        group_id=one.group_id,
        protocol_type=one.protocol_type,
        group_state=one.state,
        group_type=one.kind,
    )
