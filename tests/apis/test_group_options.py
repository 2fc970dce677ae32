"""Every option of groups does something; the live ones without a restart."""

import time

import pytest

from tests.apis.asking import BROKER, TOPIC
from tests.apis.conftest import MakeNode, coordinate
from tests.apis.grouping import OFFSETS_TOPIC, Grouping
from tests.apis.kit import ThreadedNode
from tests.apis.options import shows
from waystation.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from waystation.messages.metadata import MetadataRequest, MetadataRequestTopic
from waystation.model.errors import ErrorCode

TOO_SHORT_OR_LONG = ErrorCode.INVALID_SESSION_TIMEOUT


def coordinating(make_node: MakeNode, **options: str) -> ThreadedNode:
    """A node that coordinates groups, without a first delay unless one is given."""
    running = make_node(**{"group_initial_rebalance_delay_ms": "0", **options})
    coordinate(running)
    return running


@shows("group.min.session.timeout.ms", "group.max.session.timeout.ms")
def test_sessions_are_as_long_as_the_broker_allows(make_node: MakeNode) -> None:
    running = coordinating(
        make_node, group_min_session_timeout_ms="100", group_max_session_timeout_ms="200"
    )
    with Grouping(*running.address) as ann:

        def code(timeout_ms: int) -> int:
            return int(ann.join("g", session_timeout_ms=timeout_ms).error_code)

        assert [code(ms) for ms in (99, 100, 200, 201)] == [
            TOO_SHORT_OR_LONG,
            ErrorCode.MEMBER_ID_REQUIRED,
            ErrorCode.MEMBER_ID_REQUIRED,
            TOO_SHORT_OR_LONG,
        ]
        ann.configure(BROKER, "1", group_min_session_timeout_ms="50")
        assert code(50) == ErrorCode.MEMBER_ID_REQUIRED


@shows("group.initial.rebalance.delay.ms")
def test_the_first_generation_waits_for_more_members(make_node: MakeNode) -> None:
    running = coordinating(make_node, group_initial_rebalance_delay_ms="300")
    with Grouping(*running.address) as ann, Grouping(*running.address) as bob:
        began = time.monotonic()
        ann.start_join("g")
        bob.start_join("g")
        first, second = ann.end_join(), bob.end_join()

        assert time.monotonic() - began >= 0.3
        assert first.generation_id == second.generation_id == 1
        assert len(first.members) + len(second.members) == 2


@shows("group.max.size")
def test_a_group_has_as_many_members_as_it_may(make_node: MakeNode) -> None:
    running = coordinating(make_node, group_max_size="1")
    with Grouping(*running.address) as ann, Grouping(*running.address) as bob:
        seat = ann.sit_alone("g")
        full = ErrorCode.GROUP_MAX_SIZE_REACHED

        assert bob.join("g").error_code == full
        ann.configure(BROKER, "1", group_max_size="2")
        assert bob.join("g").error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert ann.heartbeat(seat) == 0


@shows("group.consumer.max.size")
def test_a_server_side_group_has_as_many_members_as_it_may(make_node: MakeNode, topic: str) -> None:
    running = coordinating(make_node, group_consumer_max_size="1")
    with Grouping(*running.address) as ann:
        ann.create(topic)
        assert ann.beat_first("g", "m-1", topic).error_code == 0

        full = ErrorCode.GROUP_MAX_SIZE_REACHED
        assert ann.beat_first("g", "m-2", topic).error_code == full
        ann.configure(BROKER, "1", group_consumer_max_size="2")
        assert ann.beat_first("g", "m-2", topic).error_code == 0


@shows("group.consumer.session.timeout.ms", "group.consumer.heartbeat.interval.ms")
def test_a_member_that_is_silent_for_too_long_is_gone(make_node: MakeNode, topic: str) -> None:
    running = coordinating(
        make_node,
        group_consumer_session_timeout_ms="200",
        group_consumer_heartbeat_interval_ms="77",
    )
    with Grouping(*running.address) as ann:
        ann.create(topic)
        told = ann.beat_first("g", "m-1", topic)
        assert told.heartbeat_interval_ms == 77

        until = time.monotonic() + 9
        while ann.describe_server_side("g").members:
            assert time.monotonic() < until, "it is still a member"
        gone = ann.beat("g", "m-1", told.member_epoch)
        assert gone.error_code == ErrorCode.UNKNOWN_MEMBER_ID


@shows("group.consumer.assignors")
def test_only_the_brokers_assignors_are_there(make_node: MakeNode, topic: str) -> None:
    running = coordinating(make_node, group_consumer_assignors="range")
    with Grouping(*running.address) as ann:
        ann.create(topic)
        refused = ann.beat_first("g", "m-1", topic, server_assignor="uniform")

        assert refused.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
        assert ann.beat_first("g", "m-1", topic).error_code == 0
        assert ann.describe_server_side("g").assignor_name == "range"


@shows("group.consumer.migration.policy")
@pytest.mark.parametrize(("policy", "changes"), [("disabled", False), ("upgrade", True)])
def test_a_live_group_changes_its_protocol_only_where_that_is_allowed(
    make_node: MakeNode, topic: str, policy: str, changes: bool
) -> None:
    running = coordinating(make_node, group_consumer_migration_policy=policy)
    with Grouping(*running.address) as ann, Grouping(*running.address) as bob:
        ann.create(topic)
        seat = ann.sit_alone("g", topic)
        told = bob.beat_first("g", "m-2", topic)

        assert (told.error_code == 0) == changes
        if not changes:
            assert ann.heartbeat(seat) == 0


@shows("offset.metadata.max.bytes")
def test_a_note_is_as_long_as_it_may_be(make_node: MakeNode, topic: str) -> None:
    running = coordinating(make_node, offset_metadata_max_bytes="5")
    with Grouping(*running.address) as ann:
        ann.create(topic)
        too_large = ErrorCode.OFFSET_METADATA_TOO_LARGE

        assert ann.commit("g", topic, 1, metadata="12345") == 0
        assert ann.commit("g", topic, 2, metadata="123456") == too_large
        ann.configure(BROKER, "1", offset_metadata_max_bytes="6")
        assert ann.commit("g", topic, 2, metadata="123456") == 0


@shows("offsets.retention.check.interval.ms")
def test_offsets_that_have_expired_are_looked_for_as_often_as_told(
    make_node: MakeNode, topic: str
) -> None:
    running = coordinating(make_node, offsets_retention_check_interval_ms="20")
    with Grouping(*running.address) as ann:
        ann.create(topic)
        assert ann.commit("g", topic, 1, version=2, retention_time_ms=1) == 0

        until = time.monotonic() + 9
        while ann.committed("g", topic).committed_offset == 1:
            assert time.monotonic() < until, "it is still kept"


@shows(
    "offsets.topic.num.partitions",
    "offsets.topic.replication.factor",
    "offsets.topic.segment.bytes",
)
def test_the_internal_topic_is_made_as_told(make_node: MakeNode) -> None:
    running = coordinating(
        make_node,
        offsets_topic_num_partitions="7",
        offsets_topic_replication_factor="2",
        offsets_topic_segment_bytes="5000000",
    )
    with Grouping(*running.address) as ann:
        named = MetadataRequestTopic(name=OFFSETS_TOPIC)
        (made,) = ann.ask(MetadataRequest(topics=[named]), 9).topics
        resource = DescribeConfigsResource(resource_type=TOPIC, resource_name=OFFSETS_TOPIC)
        (told,) = ann.ask(DescribeConfigsRequest(resources=[resource]), 4).results

        # There is one broker, so there is one replica.
        assert [one.replica_nodes for one in made.partitions] == [[1]] * 7
        options = {one.name: one.value for one in told.configs}
        assert options["segment.bytes"] == "5000000"
        assert options["cleanup.policy"] == "compact"
        assert options["durability"] == "disk"
