"""DescribeConfigs: every option, its value, and who set it."""

from typing import Any

import pytest

from tests.apis.asking import BROKER, TOPIC, Asking
from tests.apis.conftest import MakeNode
from tests.apis.kit import versions
from waystation.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
)
from waystation.model.errors import ErrorCode
from waystation.model.settings import options_of
from waystation.model.topics import TopicSettings
from waystation.node.settings import all_options
from waystation.wire.versions import ApiKey

OWN, OF_BROKER, OF_ALL, STATIC, DEFAULT = 1, 2, 3, 4, 5


def describe(
    client: Asking, kind: int, name: str, *keys: str, version: int = 4, **asked: Any
) -> DescribeConfigsResult:
    resource = DescribeConfigsResource(
        resource_type=kind,
        resource_name=name,
        configuration_keys=asked.pop("keys", list(keys) or None),
    )
    request = DescribeConfigsRequest(resources=[resource], **asked)
    (told,) = client.ask(request, version).results
    return told  # type: ignore[no-any-return]


def only(told: DescribeConfigsResult) -> DescribeConfigsResourceResult:
    assert told.error_code == 0, told
    (one,) = told.configs
    return one


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_CONFIGS))
def test_a_topics_options_are_told_in_every_version(
    client: Asking, topic: str, version: int
) -> None:
    client.create(topic, retention_ms="5000")
    told = describe(client, TOPIC, topic, version=version, include_synonyms=True)

    assert (told.error_code, told.resource_type, told.resource_name) == (0, TOPIC, topic)
    options = {one.name: one for one in told.configs}
    assert list(options) == [one.name for one in options_of(TopicSettings)]
    own, default = options["retention.ms"], options["segment.bytes"]
    assert (own.value, own.config_source, own.read_only, own.is_sensitive) == (
        "5000",
        OWN,
        False,
        False,
    )
    assert (default.value, default.config_source) == ("1073741824", DEFAULT)
    given = [(one.name, one.value, one.source) for one in own.synonyms]
    assert given == [
        ("retention.ms", "5000", OWN),
        ("log.retention.ms", "604800000", DEFAULT),
    ]
    assert (own.config_type, default.config_type) == ((5, 3) if version >= 3 else (0, 0))
    assert own.documentation is None


def test_documentation_comes_on_request(client: Asking, topic: str) -> None:
    client.create(topic)
    told = describe(client, TOPIC, topic, include_documentation=True)

    assert all(one.documentation for one in told.configs)
    assert not any(one.synonyms for one in told.configs)


def test_only_what_was_asked_for_is_told(client: Asking, topic: str) -> None:
    client.create(topic)

    assert only(describe(client, TOPIC, topic, "retention.ms")).name == "retention.ms"
    assert describe(client, TOPIC, topic, "no.such.option").configs == []
    assert len(describe(client, TOPIC, topic, keys=[]).configs) == len(options_of(TopicSettings))


def test_a_broker_has_every_option(client: Asking) -> None:
    told = describe(client, BROKER, "1")
    options = {one.name: one for one in told.configs}

    assert set(options) == {one.kafka or one.name for one in all_options()}
    assert options["broker.id"].read_only
    assert not options["log.retention.ms"].read_only


def test_who_set_an_option_is_told_in_the_order_of_precedence(
    make_node: MakeNode, topic: str
) -> None:
    with Asking(*make_node(log_retention_ms="400").address) as client:
        client.create(topic)
        client.configure(BROKER, "", log_retention_ms="300")
        client.configure(BROKER, "1", log_retention_ms="200")
        client.configure(TOPIC, topic, retention_ms="100")
        told = only(describe(client, TOPIC, topic, "retention.ms", include_synonyms=True))

        assert [(one.value, one.source) for one in told.synonyms] == [
            ("100", OWN),
            ("200", OF_BROKER),
            ("300", OF_ALL),
            ("400", STATIC),
            ("604800000", DEFAULT),
        ]
        # What all brokers have, whatever this one was told besides.
        of_all = only(describe(client, BROKER, ""))
        assert (of_all.name, of_all.value, of_all.config_source) == (
            "log.retention.ms",
            "300",
            OF_ALL,
        )


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "absent", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "7", ErrorCode.INVALID_REQUEST),
        (BROKER, "x", ErrorCode.INVALID_REQUEST),
        (3, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_has_no_options_here_is_refused(
    client: Asking, kind: int, name: str, code: ErrorCode
) -> None:
    told = describe(client, kind, name)

    assert (told.error_code, told.configs) == (code, [])
    assert told.error_message
