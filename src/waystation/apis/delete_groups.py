"""DeleteGroups: groups without members, and their offsets or queues with them."""

import asyncio

from waystation.apis.call import Call
from waystation.apis.errors import told
from waystation.broker.broker import Broker
from waystation.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from waystation.model.errors import WaystationError


async def answer(broker: Broker, call: Call[DeleteGroupsRequest]) -> DeleteGroupsResponse:
    """The outcome for each group; one that is named twice is deleted once."""
    named = list(dict.fromkeys(call.message.groups_names))
    errors = await asyncio.gather(*(_delete(broker, group_id) for group_id in named))
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=group_id, error_code=told(error).code)
            for group_id, error in zip(named, errors, strict=True)
        ]
    )


async def _delete(broker: Broker, group_id: str) -> WaystationError | None:
    try:
        host = broker.groups.host_of(group_id)
        if group_id in host.machine.shares:
            await broker.share_orders.delete_group(host, group_id)
        else:
            await host.ask(lambda now, to: host.machine.delete(now, group_id, to))
    except WaystationError as error:
        return error
    return None
