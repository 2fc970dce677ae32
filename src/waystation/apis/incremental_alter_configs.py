"""IncrementalAlterConfigs: changes some options of a resource and leaves the others."""

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
from waystation.cluster.configs import (
    Alteration,
    Operation,
    alter_broker,
    alter_group,
    alter_topic,
)
from waystation.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from waystation.model.errors import InvalidRequestError, WaystationError
from waystation.model.topics import check_topic_name


async def answer(
    broker: Broker, call: Call[IncrementalAlterConfigsRequest]
) -> IncrementalAlterConfigsResponse:
    """The outcome for each resource."""
    request = call.message
    twice = repeated((one.resource_type, one.resource_name) for one in request.resources)
    responses = [
        await _alter(broker, one, twice, validate_only=request.validate_only)
        for one in request.resources
    ]
    return IncrementalAlterConfigsResponse(responses=responses)


async def _alter(
    broker: Broker,
    asked: AlterConfigsResource,
    twice: list[tuple[int, str]],
    *,
    validate_only: bool,
) -> AlterConfigsResourceResponse:
    response = AlterConfigsResourceResponse(
        resource_type=asked.resource_type, resource_name=asked.resource_name
    )
    try:
        if (asked.resource_type, asked.resource_name) in twice:
            raise InvalidRequestError(f"{asked.resource_name!r} is named twice")
        alterations = [_alteration(one) for one in asked.configs]
        check_values(
            {one.name: one.value for one in alterations if one.operation is not Operation.DELETE}
        )
        if asked.resource_type == TOPIC:
            check_topic_name(asked.resource_name)
            decide = partial(alter_topic, name=asked.resource_name, alterations=alterations)
        elif asked.resource_type == BROKER:
            decide = partial(
                alter_broker,
                name=broker_named(asked.resource_name, broker.node),
                alterations=alterations,
                options=broker.configs.broker_options,
            )
        elif asked.resource_type == GROUP:
            name = group_named(asked.resource_name)
            of_groups = broker.group_options.options
            decide = partial(alter_group, name=name, alterations=alterations, options=of_groups)
        else:
            raise unknown_kind(asked.resource_type)
        await broker.topics.configure(decide, validate_only=validate_only)
    except WaystationError as error:
        response.error_code, response.error_message = told(error)
    return response


def _alteration(config: AlterableConfig) -> Alteration:
    try:
        operation = Operation(config.config_operation)
    except ValueError:
        raise InvalidRequestError(
            f"{config.name}: {config.config_operation} is no config operation"
        ) from None
    return Alteration(config.name, operation, config.value)
