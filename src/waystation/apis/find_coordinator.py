"""FindCoordinator: which broker looks after a group, a transactional id, or a queue's state.

The first one who asks has the internal topic made that they live in.
"""

from waystation.apis.call import Call
from waystation.broker.broker import Broker
from waystation.broker.share_states import coordinator_key, queue_named
from waystation.messages.find_coordinator import (
    GROUP,
    SHARE,
    TRANSACTION,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from waystation.model.errors import (
    InvalidRequestError,
    WaystationError,
)
from waystation.model.ids import NO_NODE, NodeId

_SEVERAL_FROM_VERSION = 4
_NO_PORT = -1


async def answer(broker: Broker, call: Call[FindCoordinatorRequest]) -> FindCoordinatorResponse:
    """Where to go with each key."""
    request = call.message
    several = call.version >= _SEVERAL_FROM_VERSION
    keys = request.coordinator_keys if several else [request.key]
    found = [await _coordinator(broker, request.key_type, key) for key in keys]
    if several:
        return FindCoordinatorResponse(coordinators=found)
    (one,) = found
    return FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=one.error_message,
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


async def _coordinator(broker: Broker, key_type: int, key: str) -> Coordinator:
    try:
        node, host, port = await _find(broker, key_type, key)
    except WaystationError as error:
        return Coordinator(
            key=key,
            node_id=NO_NODE,
            port=_NO_PORT,
            error_code=error.code,
            error_message=str(error),
        )
    return Coordinator(key=key, node_id=node, host=host, port=port)


async def _find(broker: Broker, key_type: int, key: str) -> tuple[NodeId, str, int]:
    match key_type:
        case _ if key_type == GROUP:
            return await broker.groups.find(key)
        case _ if key_type == TRANSACTION:
            return await broker.transactions.find(key)
        case _ if key_type == SHARE:
            return await broker.share_states.find(coordinator_key(queue_named(key)))
        case _:
            raise InvalidRequestError(f"{key_type} is no type of coordinator")
