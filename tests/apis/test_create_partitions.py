"""CreatePartitions: more partitions, never fewer."""

from typing import Any

import pytest

from tests.apis.asking import Asking
from tests.apis.kit import batch_of, versions
from waystation.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from waystation.model.errors import ErrorCode
from waystation.wire.versions import ApiKey


def add(
    client: Asking, *topics: CreatePartitionsTopic, version: int = 3, **fields: Any
) -> list[CreatePartitionsTopicResult]:
    request = CreatePartitionsRequest(topics=list(topics), timeout_ms=9_000, **fields)
    return client.ask(request, version).results  # type: ignore[no-any-return]


def to_have(topic: str, count: int, *brokers: list[int]) -> CreatePartitionsTopic:
    assignments = [CreatePartitionsAssignment(broker_ids=ids) for ids in brokers]
    return CreatePartitionsTopic(name=topic, count=count, assignments=assignments or None)


@pytest.mark.parametrize("version", versions(ApiKey.CREATE_PARTITIONS))
def test_partitions_are_added_in_every_version(client: Asking, topic: str, version: int) -> None:
    client.create(topic)
    client.produce(topic, batch_of(b"old"))
    (told,) = add(client, to_have(topic, 3), version=version)

    assert (told.name, told.error_code, told.error_message) == (topic, 0, None)
    assert client.produce(topic, batch_of(b"new"), partition=2).error_code == 0
    assert [one.value for one in client.read(topic)] == [b"old"]


@pytest.mark.parametrize("count", [2, 1, 0, -3])
def test_fewer_or_as_many_are_refused(client: Asking, topic: str, count: int) -> None:
    client.create(topic, partitions=2)
    (told,) = add(client, to_have(topic, count))

    assert told.error_code == ErrorCode.INVALID_PARTITIONS


def test_an_unknown_topic_spoils_no_other(client: Asking, topic: str) -> None:
    client.create(topic)
    unknown, fine = add(client, to_have("absent", 2), to_have(topic, 2))

    assert (unknown.error_code, fine.error_code) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)


def test_an_assignment_must_fit(client: Asking, topic: str) -> None:
    client.create(topic)
    refused = ErrorCode.INVALID_REPLICA_ASSIGNMENT

    assert add(client, to_have(topic, 3, [1]))[0].error_code == refused
    assert add(client, to_have(topic, 2, [9]))[0].error_code == refused
    assert add(client, to_have(topic, 2, [1, 1]))[0].error_code == refused
    assert add(client, to_have(topic, 2, [1]))[0].error_code == 0


def test_a_topic_named_twice_is_left_alone(client: Asking, topic: str) -> None:
    client.create(topic)
    (told,) = add(client, to_have(topic, 2), to_have(topic, 3))

    assert told.error_code == ErrorCode.INVALID_REQUEST
    assert client.produce(topic, batch_of(b"x"), partition=1).error_code == 3


def test_validation_adds_nothing(client: Asking, topic: str) -> None:
    client.create(topic)
    (told,) = add(client, to_have(topic, 2), validate_only=True)

    assert told.error_code == 0
    assert client.produce(topic, batch_of(b"x"), partition=1).error_code == 3
