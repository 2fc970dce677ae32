"""AlterConfigs: the older way, which sets all options of a resource at once."""

from functools import partial

from waystation.apis.call import Call
from waystation.apis.errors import told
from waystation.apis.resources import BROKER, TOPIC, broker_named, unknown_kind
from waystation.broker.broker import Broker
from waystation.cluster.configs import replace_broker, replace_topic
from waystation.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from waystation.model.errors import WaystationError


async def answer(broker: Broker, call: Call[AlterConfigsRequest]) -> AlterConfigsResponse:
    """The outcome for each resource."""
    request = call.message
    responses = [
        await _replace(broker, one, validate_only=request.validate_only)
        for one in request.resources
    ]
    return AlterConfigsResponse(responses=responses)


async def _replace(
    broker: Broker, asked: AlterConfigsResource, *, validate_only: bool
) -> AlterConfigsResourceResponse:
    response = AlterConfigsResourceResponse(
        resource_type=asked.resource_type, resource_name=asked.resource_name
    )
    options = {one.name: one.value for one in asked.configs}
    try:
        if asked.resource_type == TOPIC:
            decide = partial(replace_topic, name=asked.resource_name, options=options)
        elif asked.resource_type == BROKER:
            name = broker_named(asked.resource_name, broker.node)
            known = broker.configs.broker_options
            decide = partial(replace_broker, name=name, texts=options, options=known)
        else:
            raise unknown_kind(asked.resource_type)
        await broker.topics.configure(decide, validate_only=validate_only)
    except WaystationError as error:
        response.error_code, response.error_message = told(error)
    return response
