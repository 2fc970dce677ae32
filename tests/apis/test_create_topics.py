"""CreateTopics: each topic as asked, or Kafka's reason why not."""

from typing import Any

import pytest

from tests.apis.asking import Asking
from tests.apis.conftest import MakeNode
from tests.apis.kit import batch_of, versions
from waystation.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from waystation.model.errors import ErrorCode
from waystation.model.ids import NO_TOPIC_ID
from waystation.wire.versions import ApiKey

INVALID_CONFIG = ErrorCode.INVALID_CONFIG


def asked_for(name: str, **fields: Any) -> CreatableTopic:
    return CreatableTopic(**{"name": name, "num_partitions": 1, "replication_factor": 1, **fields})


def create(
    client: Asking, *topics: CreatableTopic, version: int = 7, validate_only: bool = False
) -> list[CreatableTopicResult]:
    request = CreateTopicsRequest(topics=list(topics), validate_only=validate_only)
    return client.ask(request, version).topics  # type: ignore[no-any-return]


@pytest.mark.parametrize("version", versions(ApiKey.CREATE_TOPICS))
def test_a_topic_is_made_in_every_version(client: Asking, topic: str, version: int) -> None:
    config = CreatableTopicConfig(name="retention.ms", value="5000")
    (made,) = create(client, asked_for(topic, num_partitions=3, configs=[config]), version=version)

    assert (made.error_code, made.error_message, made.name) == (0, None, topic)
    assert (made.topic_id != NO_TOPIC_ID) == (version >= 7)
    if version >= 5:
        assert (made.num_partitions, made.replication_factor) == (3, 1)
        assert made.configs is not None
        told = {one.name: (one.value, one.config_source) for one in made.configs}
        assert told["retention.ms"] == ("5000", 1)
        assert told["max.message.bytes"] == ("1048588", 5)
    assert client.produce(topic, batch_of(b"x"), partition=2).error_code == 0


def test_numbers_left_open_are_the_brokers(make_node: MakeNode, topic: str) -> None:
    with Asking(*make_node(num_partitions="4").address) as client:
        (made,) = create(client, asked_for(topic, num_partitions=-1, replication_factor=-1))

        assert (made.error_code, made.num_partitions, made.replication_factor) == (0, 4, 1)


def one_config(value: str | None, name: str = "retention.ms") -> dict[str, Any]:
    return {"configs": [CreatableTopicConfig(name=name, value=value)]}


def assigned(*brokers: list[int], first: int = 0, **fields: int) -> dict[str, Any]:
    assignments = [
        CreatableReplicaAssignment(partition_index=number, broker_ids=ids)
        for number, ids in enumerate(brokers, first)
    ]
    return {"num_partitions": -1, "replication_factor": -1, "assignments": assignments, **fields}


REFUSED: dict[str, tuple[dict[str, Any], ErrorCode]] = {
    "an empty name": ({"name": ""}, ErrorCode.INVALID_TOPIC_EXCEPTION),
    "a space": ({"name": "a b"}, ErrorCode.INVALID_TOPIC_EXCEPTION),
    "two dots": ({"name": ".."}, ErrorCode.INVALID_TOPIC_EXCEPTION),
    "a slash": ({"name": "../x"}, ErrorCode.INVALID_TOPIC_EXCEPTION),
    "a long name": ({"name": "x" * 250}, ErrorCode.INVALID_TOPIC_EXCEPTION),
    "no partitions": ({"num_partitions": 0}, ErrorCode.INVALID_PARTITIONS),
    "fewer than none": ({"num_partitions": -2}, ErrorCode.INVALID_PARTITIONS),
    "too many": ({"num_partitions": 100_000}, ErrorCode.POLICY_VIOLATION),
    "no replicas": ({"replication_factor": 0}, ErrorCode.INVALID_REPLICATION_FACTOR),
    "too many replicas": ({"replication_factor": 2}, ErrorCode.INVALID_REPLICATION_FACTOR),
    "an unknown option": (one_config("1", "retention.weeks"), INVALID_CONFIG),
    "no number": (one_config("soon"), INVALID_CONFIG),
    "too small": (one_config("1", "segment.bytes"), INVALID_CONFIG),
    "no value": (one_config(None), INVALID_CONFIG),
    "no such choice": (one_config("shrink", "cleanup.policy"), INVALID_CONFIG),
    "numbers and an assignment": (
        assigned([1], num_partitions=1, replication_factor=1),
        ErrorCode.INVALID_REQUEST,
    ),
    "an absent broker": (assigned([77]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    "a broker twice": (assigned([1, 1]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    "nobody": (assigned([]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    "a gap": (assigned([1], first=1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
}


@pytest.mark.parametrize("validate_only", [False, True])
@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_is_refused_and_spoils_no_other(
    client: Asking, topic: str, what: str, validate_only: bool
) -> None:
    fields, code = REFUSED[what]
    bad, good = create(
        client,
        asked_for(**{"name": topic + "-bad", **fields}),
        asked_for(topic),
        validate_only=validate_only,
    )

    assert (bad.error_code, good.error_code) == (code, 0)
    assert bad.error_message
    assert (bad.num_partitions, bad.replication_factor, bad.configs) == (-1, -1, [])


def test_a_manual_assignment_is_obeyed(client: Asking, topic: str) -> None:
    (made,) = create(client, asked_for(topic, **assigned([1], [1])))

    assert (made.error_code, made.num_partitions) == (0, 2)


def test_an_existing_topic_stays_as_it_is(client: Asking, topic: str) -> None:
    first = client.create(topic)
    (again,) = create(client, asked_for(topic, num_partitions=5))

    assert again.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert client.topic_id(topic) == first.topic_id


def test_names_that_metrics_cannot_tell_apart_collide(client: Asking, topic: str) -> None:
    client.create(topic + ".a_b")
    (told,) = create(client, asked_for(topic + "_a.b"))

    assert told.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_topic_named_twice_is_not_made(client: Asking, topic: str) -> None:
    (told,) = create(client, asked_for(topic), asked_for(topic))

    assert told.error_code == ErrorCode.INVALID_REQUEST
    assert client.topic_id(topic) == NO_TOPIC_ID


def test_validation_makes_nothing(client: Asking, topic: str) -> None:
    (told,) = create(client, asked_for(topic, num_partitions=2), validate_only=True)

    assert (told.error_code, told.num_partitions) == (0, 2)
    assert client.topic_id(topic) == NO_TOPIC_ID
