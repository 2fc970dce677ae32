"""Views are made, shown, grown, refused and deleted, as topics are."""

import pytest

from tests.apis.asking import TOPIC, Asking
from tests.apis.conftest import MakeNode
from tests.apis.grouping import Grouping
from tests.apis.kit import ThreadedNode, batch_of, versions
from tests.apis.share_grouping import ShareGrouping, assigned
from tests.apis.viewing import keyed, make_view, refusal, view_request, walk
from waystation.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from waystation.messages.create_topics import CreatableTopic, CreateTopicsRequest
from waystation.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from waystation.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from waystation.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from waystation.messages.describe_views import DescribeViewsRequest
from waystation.messages.metadata import MetadataRequest, MetadataRequestTopic
from waystation.model.errors import ErrorCode
from waystation.wire.versions import ApiKey

YES = "key = 'yes'"


@pytest.fixture
def view(client: Asking, topic: str) -> str:
    """A view of ``topic``, which has three partitions."""
    client.create(topic, partitions=3)
    name = f"{topic}.yes"
    make_view(client, name, topic, YES)
    return name


# --- made ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(ApiKey.CREATE_TOPICS))
def test_a_view_is_made_as_a_topic_with_two_options(
    client: Asking, topic: str, version: int
) -> None:
    client.create(topic, partitions=3)
    (made,) = client.ask(view_request("v" + topic, topic, YES), version).topics

    assert made.error_code == ErrorCode.NONE
    if version >= 5:
        assert (made.num_partitions, made.replication_factor) == (3, 1)
        told = {one.name: one.value for one in made.configs}
        assert (told["view.on"], told["view.where"]) == (topic, YES)
        assert "retention.ms" in told
    if version >= 7:
        assert made.topic_id == client.topic_id("v" + topic) != client.topic_id(topic)


def test_only_validated_it_is_not_there(client: Asking, topic: str) -> None:
    client.create(topic)
    request = view_request("v" + topic, topic, YES)
    request.validate_only = True

    assert client.ask(request, 7).topics[0].error_code == ErrorCode.NONE
    assert client.ask(DescribeViewsRequest(names=["v" + topic]), 0).views[0].error_code


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("contry = 'DE'", "unknown field contry"),
        ("headers.attempt > 3", "CAST(headers.attempt AS NUMBER)"),
        ("key = 'a' AND", "found the end"),
        ("(" * 40 + "key = 'a'" + ")" * 40, "32"),
        ("key LIKE", "found the end"),
    ],
)
def test_a_wrong_expression_is_refused_and_its_place_shown(
    client: Asking, topic: str, where: str, said: str
) -> None:
    client.create(topic)
    outcome = refusal(client, "v" + topic, topic, where)

    assert outcome.error_code == ErrorCode.INVALID_CONFIG
    assert outcome.error_message.startswith("view.where: ")
    assert said in outcome.error_message
    lines = outcome.error_message.splitlines()
    assert set(lines[-1].strip()) == {"^"}, outcome.error_message


def test_half_a_view_is_none(client: Asking, topic: str) -> None:
    client.create(topic)

    assert "view.where is missing" in refusal(client, "v" + topic, topic, None).error_message
    assert "view.on is missing" in refusal(client, "v" + topic, None, YES).error_message


def test_a_view_has_no_options_of_its_own(client: Asking, topic: str) -> None:
    client.create(topic)
    outcome = refusal(client, "v" + topic, topic, YES, **{"retention.ms": "5"})

    assert outcome.error_code == ErrorCode.INVALID_CONFIG
    assert f"set retention.ms of {topic}" in outcome.error_message


def test_a_view_needs_a_topic_that_is_none_itself_and_not_the_clusters(
    client: Asking, topic: str, view: str, ann: Grouping
) -> None:
    nowhere = refusal(client, "v" + topic, "no-such-topic", YES)
    nested = refusal(client, "v" + topic, view, "offset > 5")
    inside = refusal(client, "v" + topic, "__consumer_offsets", YES)

    assert nowhere.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert nested.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert f"make the view on {topic}, where ({YES}) AND" in nested.error_message
    assert inside.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_view_has_as_many_partitions_as_its_topic(client: Asking, topic: str) -> None:
    client.create(topic, partitions=3)
    request = view_request("v" + topic, topic, YES)
    request.topics[0].num_partitions = 5
    (wrong,) = client.ask(request, 7).topics
    request.topics[0].num_partitions, request.topics[0].replication_factor = 3, 1
    (right,) = client.ask(request, 7).topics

    assert wrong.error_code == ErrorCode.INVALID_REQUEST
    assert f"{topic} has 3" in wrong.error_message
    assert right.error_code == ErrorCode.NONE


def test_a_name_is_a_topics_or_a_views(client: Asking, topic: str, view: str) -> None:
    taken = refusal(client, topic, topic, YES)
    again = refusal(client, view, topic, YES)
    plain = CreatableTopic(name=view, num_partitions=1, replication_factor=1)
    (as_topic,) = client.ask(CreateTopicsRequest(topics=[plain]), 7).topics
    alike = refusal(client, view.replace(".", "_"), topic, YES)

    assert taken.error_code == again.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert as_topic.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert f"a view of {topic}" in as_topic.error_message
    assert alike.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


# --- shown --------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(ApiKey.METADATA))
def test_metadata_shows_it_with_its_topics_leaders(
    client: Asking, topic: str, view: str, version: int
) -> None:
    names = [topic, view]
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
    of_topic, of_view = client.ask(request, version).topics
    everything = client.ask(MetadataRequest(topics=[] if version == 0 else None), version)

    assert of_view.partitions == of_topic.partitions
    assert (of_view.error_code, of_view.name, of_view.is_internal) == (0, view, False)
    assert view in [one.name for one in everything.topics]
    if version >= 12:
        by_id = MetadataRequestTopic(name=None, topic_id=of_view.topic_id)
        assert client.ask(MetadataRequest(topics=[by_id]), version).topics[0].name == view


def test_pages_of_partitions_show_it(client: Asking, topic: str, view: str) -> None:
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=view)])
    (told,) = client.ask(request, 0).topics

    assert [one.partition_index for one in told.partitions] == [0, 1, 2]
    assert told.topic_id == client.topic_id(view)


def test_its_options_are_shown_and_cannot_be_changed(client: Asking, topic: str, view: str) -> None:
    client.configure(TOPIC, topic, retention_ms="12345")
    asked = DescribeConfigsResource(resource_type=TOPIC, resource_name=view)
    (told,) = client.ask(DescribeConfigsRequest(resources=[asked]), 4).results
    configs = {one.name: one for one in told.configs}
    outcome = client.alter(TOPIC, view, {"retention.ms": "5"})

    assert configs["view.on"].value == topic
    assert configs["view.where"].value == YES
    assert configs["retention.ms"].value == "12345"
    assert all(one.read_only for one in told.configs)
    assert outcome.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert f"do it to its topic, {topic}" in str(outcome.error_message)


def test_views_are_listed(client: Asking, topic: str, view: str) -> None:
    every = {one.name: one for one in client.ask(DescribeViewsRequest(names=None), 0).views}
    mine, of_topic, unknown = client.ask(
        DescribeViewsRequest(names=[view, topic, "nothing"]), 0
    ).views

    assert every[view] == mine
    assert (mine.topic, mine.expression, mine.partitions) == (topic, YES, 3)
    assert mine.view_id == client.topic_id(view)
    assert of_topic.error_code == unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "is a topic, not a view" in of_topic.error_message


def test_a_view_grows_with_its_topic_and_not_by_itself(
    client: Asking, topic: str, view: str
) -> None:
    more = CreatePartitionsTopic(name=view, count=5, assignments=None)
    request = CreatePartitionsRequest(topics=[more], timeout_ms=9_000)
    (refused,) = client.ask(request, 3).results
    more.name = topic
    (grown,) = client.ask(request, 3).results
    (told,) = client.ask(MetadataRequest(topics=[MetadataRequestTopic(name=view)]), 12).topics
    client.produce(topic, keyed("no", "yes"), partition=4)

    assert refused.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert grown.error_code == ErrorCode.NONE
    assert len(told.partitions) == 5
    assert walk(client, view, partition=4).offsets == [1]


# --- not written to -----------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(ApiKey.PRODUCE))
def test_nobody_writes_to_it(client: Asking, topic: str, view: str, version: int) -> None:
    told = client.produce(view, batch_of(b"x"), version=version)

    assert told.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    if version >= 8:
        assert told.error_message == (
            f"{view} is a view, which can only be read: do it to its topic, {topic}"
        )
    assert client.start_and_end(topic) == (0, 0)


def test_nothing_of_it_is_deleted(client: Asking, topic: str, view: str) -> None:
    client.produce(topic, keyed("yes", "yes"))
    told = client.delete_records(view, 1)

    assert told.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert client.start_and_end(topic) == (0, 2)


# --- deleted ------------------------------------------------------------------------------------


def test_a_topic_with_views_is_not_deleted(client: Asking, topic: str, view: str) -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=9_000)
    (refused,) = client.ask(request, 6).responses
    client.delete(view)
    (done,) = client.ask(request, 6).responses

    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert f"delete them first: {view}" in refused.error_message
    assert done.error_code == ErrorCode.NONE


def test_a_view_is_deleted_by_id_and_its_topic_stays(client: Asking, topic: str, view: str) -> None:
    client.produce(topic, keyed("yes"))
    asked = DeleteTopicState(name=None, topic_id=client.topic_id(view))
    (done,) = client.ask(DeleteTopicsRequest(topics=[asked], timeout_ms=9_000), 6).responses

    assert (done.error_code, done.name) == (ErrorCode.NONE, view)
    assert client.fetch(view, 0).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert len(client.read(topic)) == 1


def test_another_view_of_the_name_has_another_id(client: Asking, topic: str, view: str) -> None:
    client.produce(topic, keyed("yes", "no"))
    before = client.topic_id(view)
    client.delete(view)
    make_view(client, view, topic, "key = 'no'")
    stale = client.fetch(view, 0, version=13, topic_id=before)

    assert client.topic_id(view) != before
    assert stale.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert walk(client, view, version=13).offsets == [1]


def test_views_are_there_after_a_restart(make_node: MakeNode, topic: str) -> None:
    node = make_node()
    with Asking(*node.address) as client:
        client.create(topic)
        client.produce(topic, keyed("no", "yes", "no"))
        make_view(client, "v" + topic, topic, YES)
        known = client.topic_id("v" + topic)
    node.stop()

    with Asking(*make_node().address) as client:
        assert client.topic_id("v" + topic) == known
        assert walk(client, "v" + topic).offsets == [1]


# --- groups -------------------------------------------------------------------------------------


def test_groups_commit_on_it_by_name_and_by_id(ann: Grouping, group: str, topic: str) -> None:
    base = topic + "-base"
    ann.create(base)
    ann.produce(base, keyed("yes", "no", "yes"))
    make_view(ann, topic, base, YES)

    assert ann.commit(group, topic, 1) == ErrorCode.NONE
    assert ann.committed(group, topic).committed_offset == 1
    assert ann.commit(group, topic, 3, version=10) == ErrorCode.NONE
    assert ann.committed(group, topic, version=10).committed_offset == 3
    assert ann.committed(group, base).committed_offset == -1


def test_what_was_committed_goes_with_the_view(ann: Grouping, group: str, topic: str) -> None:
    base = topic + "-base"
    ann.create(base)
    ann.produce(base, keyed("yes"))
    make_view(ann, topic, base, YES)
    ann.commit(group, topic, 1)
    ann.delete(topic)
    make_view(ann, topic, base, "key = 'no'")

    assert ann.committed(group, topic).committed_offset == -1


def test_members_are_given_partitions_of_it(ann: Grouping, group: str, topic: str) -> None:
    base = topic + "-base"
    ann.create(base, partitions=2)
    make_view(ann, topic, base, YES)
    told = ann.beat_first(group, "member-of-views", topic)

    assert told.error_code == ErrorCode.NONE
    (given,) = told.assignment.topic_partitions
    assert (given.topic_id, given.partitions) == (ann.topic_id(topic), [0, 1])


def test_queues_are_refused_and_told_what_to_read(
    coordinator: ThreadedNode, group: str, topic: str
) -> None:
    base = topic + "-base"
    with ShareGrouping(*coordinator.address) as sue:
        sue.create(base)
        make_view(sue, topic, base, YES)
        refused = sue.share(group, [topic])

    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert "is a view" in refused.error_message
    assert base in refused.error_message


def test_a_view_that_comes_under_a_queues_feet_is_not_given_to_it(
    coordinator: ThreadedNode, group: str, topic: str
) -> None:
    base = topic + "-base"
    with ShareGrouping(*coordinator.address) as sue:
        sue.create(base)
        told = sue.share(group, [base, topic])
        make_view(sue, topic, base, YES)
        again = sue.share(group, None, told.member_epoch)

        assert assigned(told) == {sue.topic_id(base): [0]}
        assert again.error_code == ErrorCode.NONE
        assert again.assignment is None
