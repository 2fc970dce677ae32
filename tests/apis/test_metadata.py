"""Metadata: who is there, who leads what, and topics made on first use."""

from uuid import uuid4

import pytest

from tests.apis.asking import BROKER, Asking
from tests.apis.conftest import MakeNode
from tests.apis.kit import ThreadedNode, versions
from waystation.messages.metadata import NOT_ASKED, MetadataRequest, MetadataRequestTopic
from waystation.model.errors import ErrorCode
from waystation.model.ids import NO_TOPIC_ID
from waystation.wire.versions import ApiKey


def about(*names: str, create: bool = False) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=create)


@pytest.mark.parametrize("version", versions(ApiKey.METADATA))
def test_a_topic_is_described_in_every_version(
    node: ThreadedNode, client: Asking, topic: str, version: int
) -> None:
    made = client.create(topic, partitions=2)
    answer = client.ask(about(topic), version)

    (broker,) = answer.brokers
    assert (broker.node_id, broker.host, broker.port) == (1, *node.address)
    assert answer.controller_id == (1 if version >= 1 else -1)
    assert bool(answer.cluster_id) == (version >= 2)
    (told,) = answer.topics
    assert (told.error_code, told.name, told.is_internal) == (0, topic, False)
    assert told.topic_id == (made.topic_id if version >= 10 else NO_TOPIC_ID)
    assert told.topic_authorized_operations == NOT_ASKED
    assert [one.partition_index for one in told.partitions] == [0, 1]
    for one in told.partitions:
        assert (one.error_code, one.leader_id, one.replica_nodes, one.isr_nodes) == (0, 1, [1], [1])
        assert one.leader_epoch == (0 if version >= 7 else -1)
        assert one.offline_replicas == []


def test_no_list_means_all_topics_and_an_empty_one_none(client: Asking, topic: str) -> None:
    client.create(topic)
    everything = client.ask(MetadataRequest(topics=None), 1)

    assert topic in [one.name for one in everything.topics]
    assert client.ask(MetadataRequest(topics=[]), 1).topics == []
    oldest = client.ask(MetadataRequest(topics=[]), 0)
    assert topic in [one.name for one in oldest.topics]


def test_an_unknown_topic_is_unknown(client: Asking) -> None:
    (told,) = client.ask(about("absent"), 9).topics

    assert (told.error_code, told.name) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "absent")


def test_a_topic_is_made_on_first_use_and_can_be_written_at_once(
    client: Asking, topic: str
) -> None:
    (told,) = client.ask(about(topic, create=True), 9).topics

    assert (told.error_code, len(told.partitions)) == (0, 1)
    assert told.partitions[0].leader_id == 1
    # Versions before 4 cannot say that they do not want it.
    (old,) = client.ask(about(topic + "-old"), 3).topics
    assert old.error_code == 0


def test_no_topic_is_made_where_that_is_switched_off(make_node: MakeNode, topic: str) -> None:
    with Asking(*make_node(auto_create_topics_enable="false").address) as client:
        (told,) = client.ask(about(topic, create=True), 9).topics
        assert told.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

        client.configure(BROKER, "1", auto_create_topics_enable="true")
        (told,) = client.ask(about(topic, create=True), 9).topics
        assert told.error_code == 0


def test_an_illegal_name_spoils_no_other(client: Asking, topic: str) -> None:
    legal, illegal, empty = client.ask(about(topic, "a b", "", create=True), 9).topics

    assert legal.error_code == 0
    assert illegal.error_code == empty.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_what_could_not_be_made_says_why(make_node: MakeNode, topic: str) -> None:
    with Asking(*make_node(default_replication_factor="3").address) as client:
        (told,) = client.ask(about(topic, create=True), 9).topics

        assert told.error_code == ErrorCode.INVALID_REPLICATION_FACTOR


def test_a_topic_is_found_by_its_id(client: Asking, topic: str) -> None:
    client.create(topic)
    known = MetadataRequestTopic(name=None, topic_id=client.topic_id(topic))
    unknown = MetadataRequestTopic(name=None, topic_id=uuid4())
    found, missing = client.ask(MetadataRequest(topics=[known, unknown]), 12).topics

    assert (found.error_code, found.name) == (0, topic)
    assert (missing.error_code, missing.name) == (ErrorCode.UNKNOWN_TOPIC_ID, None)
    assert missing.topic_id == unknown.topic_id


@pytest.mark.parametrize("version", [10, 11])
def test_ids_before_their_time_are_refused(client: Asking, topic: str, version: int) -> None:
    client.create(topic)
    by_id = MetadataRequestTopic(name=None, topic_id=client.topic_id(topic))
    (told,) = client.ask(MetadataRequest(topics=[by_id]), version).topics

    assert (told.error_code, told.name) == (ErrorCode.INVALID_REQUEST, "")


def test_a_topic_named_twice_is_told_once(client: Asking, topic: str) -> None:
    client.create(topic)

    assert len(client.ask(about(topic, topic), 9).topics) == 1


def test_authorized_operations_are_told_who_asks(client: Asking, topic: str) -> None:
    client.create(topic)
    request = about(topic)
    request.include_topic_authorized_operations = True
    request.include_cluster_authorized_operations = True
    answer = client.ask(request, 8)

    assert answer.topics[0].topic_authorized_operations == 0b1101_1111_1000
    assert answer.cluster_authorized_operations == 0b1_1111_1010_0000
