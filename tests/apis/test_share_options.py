"""Every option of share groups does something, the broker's and each group's own; live."""

from typing import Any

import pytest

from tests.apis.asking import BROKER, TOPIC
from tests.apis.conftest import MakeNode, coordinate
from tests.apis.kit import ThreadedNode
from tests.apis.options import shows
from tests.apis.share_grouping import ACKNOWLEDGED, GROUP, STATES_TOPIC, ShareGrouping
from waystation.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from waystation.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from waystation.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from waystation.messages.list_config_resources import ListConfigResourcesRequest
from waystation.model.errors import ErrorCode

OF_GROUP, DEFAULT = 8, 5


def sharing(make_node: MakeNode, **options: str) -> ThreadedNode:
    few = {
        "offsets_topic_num_partitions": "1",
        "share_coordinator_state_topic_num_partitions": "1",
    }
    running = make_node(**{**few, **options})
    coordinate(running)
    return running


def described(client: ShareGrouping, kind: int, name: str, *keys: str) -> dict[str, Any]:
    asked = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
    )
    (told,) = client.ask(DescribeConfigsRequest(resources=[asked]), 4).results
    assert told.error_code == 0, told
    return {one.name: one for one in told.configs}


def refusal(client: ShareGrouping, group: str, option: str, value: str) -> tuple[int, str]:
    told = client.alter(GROUP, group, {option: value})
    return told.error_code, told.error_message or ""


# --- the broker's -------------------------------------------------------------------------------


@shows("group.share.session.timeout.ms", "group.share.heartbeat.interval.ms")
def test_members_are_told_how_often_to_come(make_node: MakeNode) -> None:
    running = sharing(make_node, group_share_heartbeat_interval_ms="777")
    with ShareGrouping(*running.address) as client:
        client.create("t")
        told = client.shared("g", "t")
        assert told.heartbeat_interval_ms == 777

        client.configure(
            BROKER,
            "1",
            group_share_heartbeat_interval_ms="50",
            group_share_session_timeout_ms="200",
        )
        assert client.share("g", None, told.member_epoch).heartbeat_interval_ms == 50

        shares = running.node.broker.groups.host_of("g").machine.shares
        running.until(lambda: not shares.size_of("g"))


@shows("group.share.max.size")
def test_a_share_group_has_no_more_members_than_it_may(make_node: MakeNode) -> None:
    running = sharing(make_node, group_share_max_size="1")
    with ShareGrouping(*running.address) as client:
        client.create("t")
        client.shared("g", "t")

        told = client.share("g", ["t"], member="bob")
        assert told.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED

        client.configure(BROKER, "", group_share_max_size="2")
        assert client.share("g", ["t"], member="bob").error_code == 0


@shows(
    "share.coordinator.state.topic.num.partitions",
    "share.coordinator.state.topic.replication.factor",
    "share.coordinator.state.topic.segment.bytes",
    "share.coordinator.state.topic.min.isr",
)
def test_the_topic_of_states_is_made_as_told(make_node: MakeNode) -> None:
    running = sharing(
        make_node,
        share_coordinator_state_topic_num_partitions="3",
        share_coordinator_state_topic_replication_factor="1",
        share_coordinator_state_topic_segment_bytes=str(2 << 20),
        share_coordinator_state_topic_min_isr="1",
    )
    with ShareGrouping(*running.address) as client:
        client.create("t")
        client.shared("g", "t")

        assert client.partitions_of(STATES_TOPIC) == 3
        told = described(client, TOPIC, STATES_TOPIC)
        assert told["segment.bytes"].value == str(2 << 20)
        assert told["min.insync.replicas"].value == "1"
        assert (told["cleanup.policy"].value, told["durability"].value) == ("compact", "disk")


@shows("share.coordinator.snapshot.update.records.per.snapshot")
def test_states_are_stored_whole_now_and_then(make_node: MakeNode) -> None:
    running = sharing(make_node, share_coordinator_snapshot_update_records_per_snapshot="2")
    with ShareGrouping(*running.address) as client:
        client.create("t")
        topic_id = client.topic_id("t")
        client.find_queue("g", topic_id)
        client.initialize("g", topic_id)
        many = [(at, at, ACKNOWLEDGED, 1) for at in range(1, 60, 2)]
        for _ in range(6):
            assert client.write("g", topic_id, *many).error_code == 0

        kinds = [record.key[1] for record in client.read(STATES_TOPIC) if record.key]
        assert kinds == [0, 1, 1, 0, 1, 1, 0]


# --- a group's own ------------------------------------------------------------------------------


def test_a_group_says_how_often_its_members_come(make_node: MakeNode) -> None:
    running = sharing(make_node)
    with ShareGrouping(*running.address) as client:
        client.create("t")
        client.configure(GROUP, "g", share_heartbeat_interval_ms="123")
        assert client.shared("g", "t").heartbeat_interval_ms == 123
        assert client.shared("other", "t").heartbeat_interval_ms == 5_000

        client.configure(GROUP, "g", share_session_timeout_ms="150")
        client.share("g", None, 1)
        shares = running.node.broker.groups.host_of("g").machine.shares
        running.until(lambda: not shares.size_of("g"))
        assert shares.size_of("other") == 1


def test_a_consumer_group_says_so_too(make_node: MakeNode) -> None:
    running = sharing(make_node)
    with ShareGrouping(*running.address) as client:
        client.create("t")
        client.configure(GROUP, "c", consumer_heartbeat_interval_ms="321")

        def interval(group: str) -> Any:
            request = ConsumerGroupHeartbeatRequest(
                group_id=group,
                member_id="me",
                member_epoch=0,
                rebalance_timeout_ms=9_000,
                subscribed_topic_names=["t"],
                topic_partitions=[],
            )
            return client.ask(request, 1).heartbeat_interval_ms

        assert (interval("c"), interval("d")) == (321, 5_000)


def test_options_of_a_group_are_kept_and_told(make_node: MakeNode) -> None:
    group = "a/b.c~7E é%:.."
    running = sharing(make_node, group_share_heartbeat_interval_ms="999")
    with ShareGrouping(*running.address) as client:
        client.configure(GROUP, group, max_deliveries="9", share_order="key")
        client.configure(GROUP, group, share_isolation_level="read_committed")
    running.stop()

    running = sharing(make_node, group_share_heartbeat_interval_ms="999")

    with ShareGrouping(*running.address) as client:
        told = described(client, GROUP, group)
        for name, value, source in [
            ("max.deliveries", "9", OF_GROUP),
            ("share.delivery.count.limit", "9", OF_GROUP),
            ("share.order", "key", OF_GROUP),
            ("share.isolation.level", "read_committed", OF_GROUP),
            ("share.auto.offset.reset", "latest", DEFAULT),
            ("share.heartbeat.interval.ms", "999", DEFAULT),
            ("consumer.session.timeout.ms", "45000", DEFAULT),
        ]:
            assert (told[name].value, told[name].config_source) == (value, source), name
            assert not told[name].read_only
        assert list(described(client, GROUP, group, "share.order")) == ["share.order"]
        settings = running.call(lambda: running.node.broker.group_options.of_share_group(group))
        assert (settings.max_deliveries, settings.share_order) == (9, "key")


def test_kafkas_name_and_ours_mean_the_same(make_node: MakeNode) -> None:
    running = sharing(make_node)
    with ShareGrouping(*running.address) as client:
        client.configure(GROUP, "g", share_delivery_count_limit="7")
        assert described(client, GROUP, "g")["max.deliveries"].value == "7"

        replaced = AlterConfigsResource(
            resource_type=GROUP,
            resource_name="g",
            configs=[AlterableConfig(name="share.auto.offset.reset", value="earliest")],
        )
        (told,) = client.ask(AlterConfigsRequest(resources=[replaced]), 2).responses

        assert told.error_code == 0, told
        after = described(client, GROUP, "g")
        assert after["share.auto.offset.reset"].value == "earliest"
        assert (after["max.deliveries"].value, after["max.deliveries"].config_source) == ("5", 5)


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("share.ordr", "key", "did you mean share.order"),
        ("share.order", "random", "must be one of none, key"),
        ("max.deliveries", "0", "must be at least 1"),
        ("share.delivery.count.limit", "many", "whole number"),
        ("share.auto.offset.reset", "by_duration:1h", "PT1H"),
        ("share.record.lock.duration.ms", "1", "at least 100"),
        ("retention.ms", "1", "unknown option retention.ms"),
    ],
)
def test_bad_options_are_refused_by_name(
    coordinator: ThreadedNode, group: str, option: str, value: str, said: str
) -> None:
    with ShareGrouping(*coordinator.address) as client:
        code, message = refusal(client, group, option, value)

        assert code == ErrorCode.INVALID_CONFIG
        assert said in message
        for name in ("", "g" * 600, "é" * 100):
            assert refusal(client, name, "share.order", "key")[0] == ErrorCode.INVALID_REQUEST


def test_groups_with_options_are_listed(coordinator: ThreadedNode, group: str) -> None:
    with ShareGrouping(*coordinator.address) as client:
        client.create(group)
        client.configure(GROUP, group, share_order="key")

        def listed(*kinds: int, version: int = 1) -> set[tuple[int, str]]:
            request = ListConfigResourcesRequest(resource_types=list(kinds))
            told = client.ask(request, version)
            assert told.error_code == 0, told
            return {(one.resource_type, one.resource_name) for one in told.config_resources}

        assert (GROUP, group) in listed(GROUP)
        assert {kind for kind, _ in listed(GROUP)} == {GROUP}
        assert listed(BROKER) == {(BROKER, "1")}
        assert {(GROUP, group), (TOPIC, group), (BROKER, "1")} <= listed()
        assert listed(version=0) == set()
        client.alter(GROUP, group, {"share.order": None})
        assert (GROUP, group) not in listed(GROUP)
        strange = client.ask(ListConfigResourcesRequest(resource_types=[77]), 1)
        assert strange.error_code == ErrorCode.UNSUPPORTED_VERSION
