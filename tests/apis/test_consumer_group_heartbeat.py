"""ConsumerGroupHeartbeat: one request to join, to go on and to leave."""

from typing import Any
from uuid import UUID

import pytest

from tests.apis.conftest import MakeNode, coordinate
from tests.apis.grouping import Grouping
from tests.apis.kit import versions
from waystation.messages.consumer_group_heartbeat import LEAVE_FOR_A_WHILE, TopicPartitions
from waystation.model.errors import ErrorCode
from waystation.wire.versions import ApiKey

VERSIONS = versions(ApiKey.CONSUMER_GROUP_HEARTBEAT)


def given(told: Any) -> list[tuple[UUID, list[int]]]:
    return [(one.topic_id, one.partitions) for one in told.assignment.topic_partitions]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_member_alone_reads_everything(
    ann: Grouping, group: str, topic: str, version: int
) -> None:
    ann.create(topic, partitions=3)
    told = ann.beat_first(group, "m-1", topic, version=version)

    assert (told.error_code, told.error_message) == (0, None)
    assert told.member_id == "m-1"
    assert told.member_epoch > 0
    assert told.heartbeat_interval_ms == 5_000
    assert given(told) == [(ann.topic_id(topic), [0, 1, 2])]
    owned = [TopicPartitions(topic_id=ann.topic_id(topic), partitions=[2, 0, 1])]
    again = ann.beat(group, "m-1", told.member_epoch, topic_partitions=owned, version=version)
    assert (again.error_code, again.member_epoch) == (0, told.member_epoch)
    assert again.assignment is None, "nothing has changed"


def test_the_oldest_version_may_be_given_an_id(ann: Grouping, group: str, topic: str) -> None:
    ann.create(topic)
    told = ann.beat_first(group, "", topic, version=0)

    assert told.error_code == 0
    assert told.member_id
    assert ann.beat(group, told.member_id, told.member_epoch, version=0).error_code == 0


def test_partitions_move_only_when_they_were_given_up(
    ann: Grouping, bob: Grouping, group: str, topic: str
) -> None:
    ann.create(topic, partitions=2)
    topic_id = ann.topic_id(topic)
    first = ann.beat_first(group, "m-1", topic)
    second = bob.beat_first(group, "m-2", topic)
    assert given(second) == []

    told = ann.beat(group, "m-1", first.member_epoch)
    ((_, keeps),) = given(told)
    assert len(keeps) == 1
    assert bob.beat(group, "m-2", second.member_epoch).assignment is None
    kept = [TopicPartitions(topic_id=topic_id, partitions=keeps)]
    ann.beat(group, "m-1", told.member_epoch, topic_partitions=kept)
    moved = bob.beat(group, "m-2", second.member_epoch)
    assert given(moved) == [(topic_id, [1 - keeps[0]])]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_member_that_left_is_unknown(ann: Grouping, group: str, topic: str, version: int) -> None:
    ann.create(topic)
    epoch = ann.beat_first(group, "m-1", topic, version=version).member_epoch
    told = ann.beat(group, "m-1", -1, version=version)

    assert (told.error_code, told.member_id, told.member_epoch) == (0, "m-1", -1)
    gone = ann.beat(group, "m-1", epoch, version=version)
    assert gone.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert gone.error_message


def test_a_static_member_comes_back_to_what_it_had(
    ann: Grouping, bob: Grouping, group: str, topic: str
) -> None:
    ann.create(topic)
    first = ann.beat_first(group, "m-1", topic, instance_id="i-1")
    taken = bob.beat_first(group, "m-2", topic, instance_id="i-1")
    assert taken.error_code == ErrorCode.UNRELEASED_INSTANCE_ID

    told = ann.beat(group, "m-1", LEAVE_FOR_A_WHILE, instance_id="i-1")
    assert (told.error_code, told.member_epoch) == (0, LEAVE_FOR_A_WHILE)
    back = bob.beat_first(group, "m-2", topic, instance_id="i-1")
    assert (back.error_code, given(back)) == (0, given(first))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("said", "code"),
    [
        ({"group": ""}, ErrorCode.INVALID_REQUEST),
        ({"epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"epoch": 5, "member": ""}, ErrorCode.INVALID_REQUEST),
        ({"epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"topic_partitions": None}, ErrorCode.INVALID_REQUEST),
        ({"topic_partitions": [TopicPartitions(partitions=[0])]}, ErrorCode.INVALID_REQUEST),
        ({"server_assignor": "none such"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"epoch": 5}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"epoch": 5, "group": "absent"}, ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_what_cannot_be_is_refused_with_a_reason(
    ann: Grouping,
    group: str,
    topic: str,
    version: int,
    said: dict[str, Any],
    code: ErrorCode,
) -> None:
    ann.create(topic)
    epoch = ann.beat_first(group, "m-1", topic).member_epoch
    joining = {
        "rebalance_timeout_ms": 9_000,
        "subscribed_topic_names": [topic],
        "topic_partitions": [],
    }
    asked = {**joining, "group": group, "member": "m-2", "epoch": 0, **said}
    who = (asked.pop("group"), asked.pop("member"), asked.pop("epoch"))
    told = ann.beat(*who, version=version, **asked)

    assert told.error_code == code
    assert told.error_message
    assert (told.member_id, told.member_epoch, told.assignment) == (None, 0, None)
    assert ann.beat(group, "m-1", epoch).error_code == 0


def test_only_the_oldest_version_may_join_without_an_id(
    ann: Grouping, group: str, topic: str
) -> None:
    ann.create(topic)

    told = ann.beat_first(group, "", topic, version=1)
    assert told.error_code == ErrorCode.INVALID_REQUEST


def test_topics_may_be_named_by_a_pattern(ann: Grouping, group: str, topic: str) -> None:
    for name in (f"{topic}-a", f"{topic}-b", f"other-{topic}"):
        ann.create(name)
    asked = {"subscribed_topic_names": None, "subscribed_topic_regex": f"{topic}-.*"}
    told = ann.beat_first(group, "m-1", **asked)

    assert told.error_code == 0
    wanted = sorted(ann.topic_id(f"{topic}-{one}") for one in "ab")
    assert sorted(topic_id for topic_id, _ in given(told)) == wanted
    bad = ann.beat_first(group, "m-2", **{**asked, "subscribed_topic_regex": "("})
    assert bad.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_a_stale_epoch_is_fenced(ann: Grouping, group: str, topic: str) -> None:
    ann.create(topic)
    epoch = ann.beat_first(group, "m-1", topic).member_epoch

    assert ann.beat(group, "m-1", epoch + 7).error_code == ErrorCode.FENCED_MEMBER_EPOCH


def test_a_full_group_takes_nobody_and_is_unharmed(make_node: MakeNode, topic: str) -> None:
    running = make_node(group_consumer_max_size="1")
    coordinate(running)
    with Grouping(*running.address) as ann:
        ann.create(topic)
        epoch = ann.beat_first("g", "m-1", topic).member_epoch

        assert ann.beat_first("g", "m-2", topic).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
        assert ann.beat("g", "m-1", epoch).error_code == 0
