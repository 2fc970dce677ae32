"""DeleteGroups: groups without members, and their offsets with them."""

from waystation.apis.call import Call
from waystation.apis.coordinated import Decide, ask_each, replying
from waystation.apis.errors import told
from waystation.broker.broker import Broker
from waystation.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from waystation.model.errors import WaystationError


def answer(broker: Broker, call: Call[DeleteGroupsRequest]) -> None:
    """The outcome for each group; one that is named twice is deleted once."""
    named = list(dict.fromkeys(call.message.groups_names))

    def respond(answers: list[WaystationError | None]) -> DeleteGroupsResponse:
        return DeleteGroupsResponse(
            results=[
                DeletableGroupResult(group_id=group_id, error_code=told(error).code)
                for group_id, error in zip(named, answers, strict=True)
            ]
        )

    ask_each(broker, [(group_id, _decide(group_id)) for group_id in named], replying(call, respond))


def _decide(group_id: str) -> Decide:
    return lambda groups, now, to: groups.delete(now, group_id, to)
