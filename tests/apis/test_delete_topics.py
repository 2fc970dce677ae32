"""DeleteTopics: topics and all their records, by name or by id."""

from uuid import uuid4

import pytest

from tests.apis.asking import BROKER, Asking, produce_request
from tests.apis.conftest import MakeNode
from tests.apis.kit import ThreadedNode, batch_of, versions
from waystation.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from waystation.model.errors import ErrorCode
from waystation.model.ids import NO_TOPIC_ID
from waystation.wire.versions import ApiKey


def delete(client: Asking, *names: str, version: int = 6) -> list[DeletableTopicResult]:
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name) for name in names],
        topic_names=list(names),
        timeout_ms=9_000,
    )
    return client.ask(request, version).responses  # type: ignore[no-any-return]


def by_id(client: Asking, **state: object) -> DeletableTopicResult:
    topics = [DeleteTopicState(**{"name": None, **state})]
    (told,) = client.ask(DeleteTopicsRequest(topics=topics, timeout_ms=9_000), 6).responses
    return told  # type: ignore[no-any-return]


@pytest.mark.parametrize("version", versions(ApiKey.DELETE_TOPICS))
def test_a_topic_is_gone_with_its_files_in_every_version(
    node: ThreadedNode, client: Asking, topic: str, version: int
) -> None:
    made = client.create(topic)
    client.produce(topic, batch_of(b"x"))
    path = node.node.broker.replicas.get(topic, 0).log.path
    (told,) = delete(client, topic, version=version)

    assert (told.error_code, told.error_message, told.name) == (0, None, topic)
    assert told.topic_id == (made.topic_id if version >= 6 else NO_TOPIC_ID)
    assert client.topic_id(topic) == NO_TOPIC_ID
    assert not path.exists()


def test_a_topic_is_deleted_by_its_id(client: Asking, topic: str) -> None:
    made = client.create(topic)

    assert by_id(client, topic_id=made.topic_id).name == topic
    assert by_id(client, topic_id=made.topic_id).error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_what_is_not_there_cannot_be_deleted(client: Asking, topic: str) -> None:
    client.create(topic)
    unknown, fine = delete(client, "absent", topic)

    assert (unknown.error_code, fine.error_code) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)
    missing = by_id(client, topic_id=uuid4())
    assert (missing.error_code, missing.name) == (ErrorCode.UNKNOWN_TOPIC_ID, None)


def test_a_topic_has_one_name_in_a_request(client: Asking, topic: str) -> None:
    topic_id = client.create(topic).topic_id

    assert by_id(client).error_code == ErrorCode.INVALID_REQUEST
    both = by_id(client, name=topic, topic_id=topic_id)
    assert both.error_code == ErrorCode.INVALID_REQUEST
    (twice,) = delete(client, topic, topic)
    assert twice.error_code == ErrorCode.INVALID_REQUEST
    assert client.topic_id(topic) == topic_id


def test_deletion_can_be_switched_off_and_on_again(make_node: MakeNode, topic: str) -> None:
    with Asking(*make_node(delete_topic_enable="false").address) as client:
        client.create(topic)
        (told,) = delete(client, topic)
        assert told.error_code == ErrorCode.TOPIC_DELETION_DISABLED
        (old,) = delete(client, topic, version=2)
        assert old.error_code == ErrorCode.INVALID_REQUEST

        client.configure(BROKER, "1", delete_topic_enable="true")
        (told,) = delete(client, topic)
        assert told.error_code == 0


def test_a_topic_that_is_written_to_can_be_deleted(
    node: ThreadedNode, client: Asking, other: Asking, topic: str
) -> None:
    """Syncs and checkpoints of the old life must not take the data directory down."""
    batch = batch_of(b"x" * 500)
    for _ in range(20):
        client.create(topic, partitions=4)
        for correlation_id in range(20):
            request = produce_request(topic, batch, correlation_id % 4)
            other.send(request, 9, correlation_id)
        client.delete(topic)
        for correlation_id in range(20):
            reply = other.receive(ApiKey.PRODUCE, 9, correlation_id)
            code = reply.responses[0].partition_responses[0].error_code
            assert code in (0, 3, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    assert [one.offline for one in node.node.broker.directories] == [None]
