"""AlterConfigs: all options of a resource at once; those not listed are reset."""

import pytest

from tests.apis.asking import BROKER, TOPIC, Asking
from tests.apis.conftest import MakeNode
from tests.apis.kit import versions
from tests.apis.test_describe_configs import describe, only
from waystation.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from waystation.model.errors import ErrorCode
from waystation.wire.versions import ApiKey


def resource(kind: int, name: str, options: dict[str, str | None]) -> AlterConfigsResource:
    configs = [AlterableConfig(name=option, value=value) for option, value in options.items()]
    return AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)


def replace(
    client: Asking, *resources: AlterConfigsResource, version: int = 2, validate_only: bool = False
) -> list[int]:
    request = AlterConfigsRequest(resources=list(resources), validate_only=validate_only)
    return [one.error_code for one in client.ask(request, version).responses]


def value_of(client: Asking, topic: str, option: str) -> str | None:
    return only(describe(client, TOPIC, topic, option)).value


@pytest.mark.parametrize("version", versions(ApiKey.ALTER_CONFIGS))
def test_what_is_not_listed_is_reset_in_every_version(
    client: Asking, topic: str, version: int
) -> None:
    client.create(topic, retention_ms="5000")
    wanted = resource(TOPIC, topic, {"segment.bytes": "20000"})

    assert replace(client, wanted, version=version) == [0]
    assert value_of(client, topic, "segment.bytes") == "20000"
    assert value_of(client, topic, "retention.ms") == "604800000"


def test_validation_changes_nothing(client: Asking, topic: str) -> None:
    client.create(topic, retention_ms="5000")

    assert replace(client, resource(TOPIC, topic, {}), validate_only=True) == [0]
    assert value_of(client, topic, "retention.ms") == "5000"


def test_a_bad_resource_spoils_no_other(client: Asking, topic: str) -> None:
    client.create(topic)
    codes = replace(
        client,
        resource(TOPIC, "absent", {}),
        resource(TOPIC, "a b", {}),
        resource(TOPIC, topic, {"retention.ms": "7"}),
        resource(BROKER, "9", {}),
        resource(5, "x", {}),
    )

    assert codes == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        0,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
    ]
    assert value_of(client, topic, "retention.ms") == "7"


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"no.such": "1"}, ErrorCode.INVALID_CONFIG),
        ({"retention.ms": "soon"}, ErrorCode.INVALID_CONFIG),
        ({"retention.ms": None}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_bad_options_are_refused_and_the_old_ones_stay(
    client: Asking, topic: str, options: dict[str, str | None], code: ErrorCode
) -> None:
    client.create(topic, retention_ms="5000")

    assert replace(client, resource(TOPIC, topic, options)) == [code]
    assert value_of(client, topic, "retention.ms") == "5000"


def test_a_resource_named_twice_is_left_alone(client: Asking, topic: str) -> None:
    client.create(topic, retention_ms="5000")
    twice = [resource(TOPIC, topic, {"retention.ms": "6"})] * 2

    assert replace(client, *twice) == [ErrorCode.INVALID_REQUEST] * 2
    assert value_of(client, topic, "retention.ms") == "5000"


def test_a_brokers_options_change_if_they_are_live(make_node: MakeNode) -> None:
    with Asking(*make_node().address) as client:
        assert replace(client, resource(BROKER, "1", {"num.partitions": "3"})) == [0]
        fixed = resource(BROKER, "1", {"broker.rack": "b"})
        assert replace(client, fixed) == [ErrorCode.INVALID_REQUEST]
        assert only(describe(client, BROKER, "1", "num.partitions")).value == "3"
