"""IncrementalAlterConfigs: some options change, the others stay."""

import pytest

from tests.apis.asking import BROKER, TOPIC, Asking
from tests.apis.conftest import MakeNode
from tests.apis.kit import versions
from tests.apis.test_describe_configs import describe, only
from waystation.messages.incremental_alter_configs import (
    APPEND,
    DELETE,
    SET,
    SUBTRACT,
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from waystation.model.errors import ErrorCode
from waystation.wire.versions import ApiKey


def change(name: str, operation: int, value: str | None = None) -> AlterableConfig:
    return AlterableConfig(name=name, config_operation=operation, value=value)


def value_of(client: Asking, topic: str, option: str) -> str | None:
    return only(describe(client, TOPIC, topic, option)).value


@pytest.mark.parametrize("version", versions(ApiKey.INCREMENTAL_ALTER_CONFIGS))
def test_one_option_changes_and_the_others_stay(client: Asking, topic: str, version: int) -> None:
    client.create(topic, retention_ms="5000", segment_bytes="20000")
    set_it = [change("retention.ms", SET, "6000")]
    told = client.alter(TOPIC, topic, set_it, version=version)

    assert (told.error_code, told.error_message) == (0, None)
    assert (told.resource_type, told.resource_name) == (TOPIC, topic)
    assert value_of(client, topic, "retention.ms") == "6000"
    assert value_of(client, topic, "segment.bytes") == "20000"
    assert client.alter(TOPIC, topic, [change("retention.ms", DELETE)]).error_code == 0
    assert value_of(client, topic, "retention.ms") == "604800000"


def test_validation_changes_nothing(client: Asking, topic: str) -> None:
    client.create(topic)
    told = client.alter(TOPIC, topic, {"retention.ms": "5"}, validate_only=True)

    assert told.error_code == 0
    assert value_of(client, topic, "retention.ms") == "604800000"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([change("no.such", SET, "1")], ErrorCode.INVALID_CONFIG),
        ([change("retention.ms", SET, "soon")], ErrorCode.INVALID_CONFIG),
        ([change("retention.ms", SET, "")], ErrorCode.INVALID_CONFIG),
        ([change("retention.ms", SET)], ErrorCode.INVALID_REQUEST),
        ([change("retention.ms", APPEND, "1")], ErrorCode.INVALID_CONFIG),
        ([change("retention.ms", SUBTRACT, "1")], ErrorCode.INVALID_CONFIG),
        ([change("retention.ms", 9, "1")], ErrorCode.INVALID_REQUEST),
        ([change("retention.ms", SET, "1")] * 2, ErrorCode.INVALID_REQUEST),
        (
            [change("retention.ms", SET, "1"), change("segment.bytes", SET, "1")],
            ErrorCode.INVALID_CONFIG,
        ),
    ],
)
def test_bad_changes_are_refused_together(
    client: Asking, topic: str, changes: list[AlterableConfig], code: ErrorCode
) -> None:
    client.create(topic)
    told = client.alter(TOPIC, topic, changes)

    assert told.error_code == code
    assert told.error_message
    assert value_of(client, topic, "retention.ms") == "604800000"


def test_what_is_not_set_may_be_deleted(client: Asking, topic: str) -> None:
    client.create(topic)

    assert client.alter(TOPIC, topic, {"retention.ms": None}).error_code == 0
    assert client.alter(TOPIC, topic, {}).error_code == 0


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "absent", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "9", ErrorCode.INVALID_REQUEST),
        (3, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_has_no_options_here_is_refused(
    client: Asking, kind: int, name: str, code: ErrorCode
) -> None:
    assert client.alter(kind, name, {"retention.ms": "1"}).error_code == code


def test_a_resource_named_twice_is_left_alone(client: Asking, topic: str) -> None:
    client.create(topic)
    one = AlterConfigsResource(
        resource_type=TOPIC, resource_name=topic, configs=[change("retention.ms", SET, "7")]
    )
    told = client.ask(IncrementalAlterConfigsRequest(resources=[one, one]), 1).responses

    assert [one.error_code for one in told] == [ErrorCode.INVALID_REQUEST] * 2
    assert value_of(client, topic, "retention.ms") == "604800000"


def test_a_brokers_options_change_if_they_are_live(make_node: MakeNode) -> None:
    first = make_node()
    with Asking(*first.address) as client:
        assert client.alter(BROKER, "1", {"num.partitions": "3"}).error_code == 0
        fixed = client.alter(BROKER, "1", {"flush.threads": "3"})
        assert fixed.error_code == ErrorCode.INVALID_REQUEST
        assert "restart" in (fixed.error_message or "")
        unknown = client.alter(BROKER, "1", {"num.partition": "3"})
        assert unknown.error_code == ErrorCode.INVALID_CONFIG
        assert "num.partitions" in (unknown.error_message or "")
    first.stop()

    with Asking(*make_node().address) as client:
        assert only(describe(client, BROKER, "1", "num.partitions")).value == "3"
