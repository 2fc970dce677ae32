"""DescribeConfigs: every option of a topic, broker or group, its value, and who set it."""

from waystation.apis.call import Call
from waystation.apis.errors import told
from waystation.apis.resources import BROKER, GROUP, TOPIC, broker_named, group_named, unknown_kind
from waystation.broker.broker import Broker
from waystation.cluster.effective import Explained, Source
from waystation.cluster.views import ON, WHERE
from waystation.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from waystation.model.errors import WaystationError
from waystation.model.settings import Option
from waystation.model.topics import check_topic_name

# Kafka's numbers of value types.
_TYPES = {bool: 1, str: 2, int: 5, float: 6, tuple: 7}
_INT = 3
_INT_MAX = (1 << 31) - 1


def answer(broker: Broker, call: Call[DescribeConfigsRequest]) -> DescribeConfigsResponse:
    """The options of each resource asked about."""
    return DescribeConfigsResponse(
        results=[_resource(broker, call.message, asked) for asked in call.message.resources]
    )


def _resource(
    broker: Broker, request: DescribeConfigsRequest, asked: DescribeConfigsResource
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        resource_type=asked.resource_type, resource_name=asked.resource_name
    )
    try:
        explained = _explain(broker, asked)
    except WaystationError as error:
        result.error_code, result.error_message = told(error)
        return result
    keys = asked.configuration_keys
    result.configs = [
        _config(one, request, fixed=_is_fixed(broker, asked, one))
        for one in explained
        if not keys or one.name in keys
    ]
    return result


def _is_fixed(broker: Broker, asked: DescribeConfigsResource, one: Explained) -> bool:
    if asked.resource_type == BROKER:
        return not one.option.live
    return asked.resource_type == TOPIC and asked.resource_name in broker.image.views


def _explain(broker: Broker, asked: DescribeConfigsResource) -> list[Explained]:
    if asked.resource_type == TOPIC:
        check_topic_name(asked.resource_name)
        view = broker.image.views.get(asked.resource_name)
        if view is not None:
            return broker.configs.explain_view({ON: view.on, WHERE: view.where})
        broker.image.topic(asked.resource_name)
        return broker.configs.explain_topic(asked.resource_name)
    if asked.resource_type == BROKER:
        if broker_named(asked.resource_name, broker.node) == str(broker.node):
            return broker.configs.explain_broker()
        return [_of_all(one) for one in broker.configs.explain_broker() if _is_of_all(one)]
    if asked.resource_type == GROUP:
        return broker.group_options.explain(group_named(asked.resource_name))
    raise unknown_kind(asked.resource_type)


def _is_of_all(one: Explained) -> bool:
    return any(given.source is Source.EVERY_BROKER for given in one.given)


def _of_all(one: Explained) -> Explained:
    """The option as all brokers have it, whatever this one was told besides."""
    return one._replace(given=tuple(each for each in one.given if each.source is not Source.BROKER))


def _type(option: Option) -> int:
    if option.kind is int and option.at_most is not None and option.at_most <= _INT_MAX:
        return _INT
    return _TYPES[option.kind]


def _config(
    one: Explained, request: DescribeConfigsRequest, *, fixed: bool
) -> DescribeConfigsResourceResult:
    synonyms = one.given if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=one.name,
        value=one.value,
        read_only=fixed,
        config_source=one.source,
        synonyms=[
            DescribeConfigsSynonym(name=given.name, value=given.value, source=given.source)
            for given in synonyms
        ],
        config_type=_type(one.option),
        documentation=one.option.doc if request.include_documentation else None,
    )
