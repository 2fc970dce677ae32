"""AlterConfigs: the older way, which sets all options of a resource at once."""

from functools import partial

from waystation.apis.call import Call
from waystation.apis.errors import told
from waystation.apis.repeated import repeated
from waystation.apis.resources import (
    BROKER,
    GROUP,
    TOPIC,
    broker_named,
    check_values,
    group_named,
    unknown_kind,
)
from waystation.broker.broker import Broker
from waystation.cluster.configs import replace_broker, replace_group, replace_topic
from waystation.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from waystation.model.errors import InvalidRequestError, WaystationError
from waystation.model.topics import check_topic_name


async def answer(broker: Broker, call: Call[AlterConfigsRequest]) -> AlterConfigsResponse:
    """The outcome for each resource."""
    request = call.message
    twice = repeated((one.resource_type, one.resource_name) for one in request.resources)
    responses = [
        await _replace(broker, one, twice, validate_only=request.validate_only)
        for one in request.resources
    ]
    return AlterConfigsResponse(responses=responses)


async def _replace(
    broker: Broker,
    asked: AlterConfigsResource,
    twice: list[tuple[int, str]],
    *,
    validate_only: bool,
) -> AlterConfigsResourceResponse:
    response = AlterConfigsResourceResponse(
        resource_type=asked.resource_type, resource_name=asked.resource_name
    )
    options = {one.name: one.value for one in asked.configs}
    try:
        if (asked.resource_type, asked.resource_name) in twice:
            raise InvalidRequestError(f"{asked.resource_name!r} is named twice")
        check_values(options)
        if asked.resource_type == TOPIC:
            check_topic_name(asked.resource_name)
            decide = partial(replace_topic, name=asked.resource_name, options=options)
        elif asked.resource_type == BROKER:
            name = broker_named(asked.resource_name, broker.node)
            known = broker.configs.broker_options
            decide = partial(replace_broker, name=name, texts=options, options=known)
        elif asked.resource_type == GROUP:
            name = group_named(asked.resource_name)
            of_groups = broker.group_options.options
            decide = partial(replace_group, name=name, texts=options, options=of_groups)
        else:
            raise unknown_kind(asked.resource_type)
        await broker.topics.configure(decide, validate_only=validate_only)
    except WaystationError as error:
        response.error_code, response.error_message = told(error)
    return response
