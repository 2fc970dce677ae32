"""ListConfigResources: topics, brokers, and groups that have options of their own."""

from waystation.apis.call import Call
from waystation.apis.resources import BROKER, GROUP, TOPIC
from waystation.broker.broker import Broker
from waystation.cluster.views import shown_names
from waystation.messages.list_config_resources import (
    CLIENT_METRICS,
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from waystation.model.errors import ErrorCode

_LOGGER = 8
_KNOWN = (TOPIC, BROKER, _LOGGER, CLIENT_METRICS, GROUP)
_BY_TYPE_FROM = 1


def answer(broker: Broker, call: Call[ListConfigResourcesRequest]) -> ListConfigResourcesResponse:
    """All resources of the types asked for; clients have no metrics here, loggers no options."""
    if call.version < _BY_TYPE_FROM:
        return ListConfigResourcesResponse()
    wanted = call.message.resource_types or list(_KNOWN)
    if not set(wanted) <= set(_KNOWN):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    names = {
        TOPIC: sorted(shown_names(broker.image)),
        BROKER: [str(one.id) for one in broker.answering],
        GROUP: sorted(broker.image.group_configs),
    }
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in dict.fromkeys(wanted)
            for name in names.get(kind, ())
        ]
    )
