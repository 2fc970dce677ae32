"""DrainBroker: a broker that shall hold nothing (``docs/protocol/cluster.md``)."""

from waystation.apis.call import Call
from waystation.broker.broker import Broker
from waystation.messages.drain_broker import DrainBrokerRequest, DrainBrokerResponse
from waystation.model.errors import WaystationError
from waystation.model.ids import NodeId


async def answer(broker: Broker, call: Call[DrainBrokerRequest]) -> DrainBrokerResponse:
    """What the broker still has, once the wish is written down."""
    request = call.message
    node = NodeId(request.broker_id)
    try:
        wish = broker.moves.drain if request.drain else broker.moves.undrain
        (replicas, leaders), stuck = await wish(node)
    except WaystationError as error:
        return DrainBrokerResponse(error_code=error.code, error_message=str(error))
    return DrainBrokerResponse(replicas=replicas, leaders=leaders, stuck=stuck)
