"""Share groups over the wire: who is in them, what each reads, where their queues stand."""

from collections.abc import Iterator

import pytest

from tests.apis.conftest import MakeNode, coordinate
from tests.apis.grouping import Grouping
from tests.apis.kit import ThreadedNode, batch_of
from tests.apis.share_grouping import ACKNOWLEDGED, ShareGrouping, assigned
from waystation.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from waystation.messages.offset_fetch import OffsetFetchRequestTopic
from waystation.model.errors import ErrorCode


@pytest.fixture
def sue(coordinator: ThreadedNode) -> Iterator[ShareGrouping]:
    with ShareGrouping(*coordinator.address) as connected:
        yield connected


@pytest.fixture
def sam(coordinator: ThreadedNode) -> Iterator[ShareGrouping]:
    with ShareGrouping(*coordinator.address) as connected:
        yield connected


# --- members ------------------------------------------------------------------------------------


def test_who_joins_is_told_at_once_what_to_read(sue: ShareGrouping, group: str, topic: str) -> None:
    sue.create(topic, 3)

    told = sue.share(group, [topic])

    assert (told.error_code, told.member_id, told.heartbeat_interval_ms) == (0, "ann", 5_000)
    assert assigned(told) == {sue.topic_id(topic): [0, 1, 2]}
    assert sue.share(group, None, told.member_epoch).assignment is None


def test_a_member_without_an_id_is_given_one(sue: ShareGrouping, group: str, topic: str) -> None:
    sue.create(topic)

    told = sue.share(group, [topic], member="")

    assert told.error_code == 0
    assert len(told.member_id) > 10
    assert assigned(told)


def test_two_members_share_the_partitions(
    sue: ShareGrouping, sam: ShareGrouping, group: str, topic: str
) -> None:
    sue.create(topic, 2)
    first = sue.shared(group, topic)

    second = sam.shared(group, topic, member="bob")

    told = sue.share(group, None, first.member_epoch)
    shares = [assigned(one)[sue.topic_id(topic)] for one in (told, second)]
    assert sorted(shares) == [[0], [1]]
    described = sue.described(group, include_authorized_operations=True)
    assert (described.error_code, described.group_state) == (0, "Stable")
    assert (described.assignor_name, len(described.members)) == ("simple", 2)
    assert described.authorized_operations > 0
    (ann,) = [one for one in described.members if one.member_id == "ann"]
    assert (ann.client_id, ann.subscribed_topic_names) == ("kit", [topic])
    (held,) = ann.assignment.topic_partitions
    assert (held.topic_name, len(held.partitions)) == (topic, 1)


def test_who_left_is_gone_and_the_group_stays(sue: ShareGrouping, group: str, topic: str) -> None:
    sue.create(topic)
    sue.shared(group, topic)
    sue.left(group)

    assert sue.described(group).group_state == "Empty"
    again = sue.share(group, None, 1)
    assert (again.error_code, "ann" in again.error_message) == (ErrorCode.UNKNOWN_MEMBER_ID, True)


def test_new_partitions_are_read_too(sue: ShareGrouping, group: str, topic: str) -> None:
    sue.create(topic, 1)
    told = sue.shared(group, topic)
    grown = CreatePartitionsTopic(name=topic, count=3)
    sue.ask(CreatePartitionsRequest(topics=[grown], timeout_ms=9_000), 3)

    while assigned(told) != {sue.topic_id(topic): [0, 1, 2]}:
        after = sue.share(group, None, told.member_epoch)
        told = after if after.assignment is not None else told

    assert sorted(sue.starts(group)) == [(topic, 0), (topic, 1), (topic, 2)]


def test_a_topic_that_comes_later_is_read_then(sue: ShareGrouping, group: str, topic: str) -> None:
    told = sue.share(group, [topic])
    assert (told.error_code, assigned(told)) == (0, {})
    sue.create(topic)

    while not assigned(told):
        after = sue.share(group, None, told.member_epoch)
        told = after if after.assignment is not None else told

    assert assigned(told) == {sue.topic_id(topic): [0]}


@pytest.mark.parametrize(
    ("epoch", "topics", "code"),
    [
        (0, None, ErrorCode.INVALID_REQUEST),
        (0, [], ErrorCode.INVALID_REQUEST),
        (-2, None, ErrorCode.INVALID_REQUEST),
        (7, None, ErrorCode.UNKNOWN_MEMBER_ID),
        (-1, None, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_nonsense_is_refused(
    sue: ShareGrouping, group: str, epoch: int, topics: list[str] | None, code: ErrorCode
) -> None:
    told = sue.share(group, topics, epoch)

    assert (told.error_code, told.assignment) == (code, None)
    assert told.error_message
    assert sue.described(group).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_needs_a_name(sue: ShareGrouping, topic: str) -> None:
    assert sue.share("", [topic]).error_code == ErrorCode.INVALID_REQUEST
    assert sue.described("").error_code == ErrorCode.INVALID_GROUP_ID
    assert sue.positions("").error_code == ErrorCode.INVALID_GROUP_ID


def test_the_silent_are_removed(make_node: MakeNode) -> None:
    running = make_node(group_share_session_timeout_ms="300", **_FEW)
    coordinate(running)
    with ShareGrouping(*running.address) as client:
        client.create("t")
        client.shared("g", "t")

        running.until(lambda: running.node.broker.groups.host_of("g").machine.shares.size_of("g"))
        running.until(
            lambda: not running.node.broker.groups.host_of("g").machine.shares.size_of("g")
        )

        assert client.described("g").group_state == "Empty"


# --- kinds of groups ----------------------------------------------------------------------------


def test_a_share_group_is_no_consumer_group(sue: ShareGrouping, group: str, topic: str) -> None:
    sue.create(topic)
    sue.shared(group, topic)

    assert sue.join(group, topics=[topic]).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert sue.describe(group).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert "share group" in sue.describe(group).error_message
    assert sue.describe(group, version=5).group_state == "Dead"
    assert sue.describe_server_side(group).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    told = sue.fetch_offsets(group, [OffsetFetchRequestTopic(name=topic, partition_indexes=[0])])
    assert told.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert sue.delete_offsets(group, topic, 0).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert sue.described(group).group_state == "Stable"


def test_a_consumer_group_is_no_share_group(ann: Grouping, sue: ShareGrouping, group: str) -> None:
    ann.start_join(group)
    assert sue.describe(group, version=5).group_state

    told = sue.share(group, ["t"])

    assert told.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert "classic group" in told.error_message
    assert sue.described(group).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert sue.move(group, "t", {0: 0}).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert sue.forget(group, "t").error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_groups_are_listed_by_their_kind(sue: ShareGrouping, group: str, topic: str) -> None:
    sue.create(topic)
    sue.shared(group, topic)

    listed = sue.listed(types_filter=["Share"])

    assert (listed[group].group_type, listed[group].protocol_type) == ("share", "share")
    assert listed[group].group_state == "Stable"
    assert group in sue.listed()
    assert group not in sue.listed(types_filter=["classic", "consumer"])


# --- queues -------------------------------------------------------------------------------------


def test_queues_begin_when_somebody_wants_to_read(
    sue: ShareGrouping, group: str, topic: str
) -> None:
    sue.create(topic, 2)
    assert sue.positions(group).error_code == ErrorCode.GROUP_ID_NOT_FOUND

    sue.shared(group, topic)

    assert sue.starts(group) == {(topic, 0): (-1, -1), (topic, 1): (-1, -1)}
    assert sue.summary(group, sue.topic_id(topic), 1).start_offset == -1


def test_an_empty_group_can_be_moved(sue: ShareGrouping, group: str, topic: str) -> None:
    sue.create(topic, 2)
    sue.produce(topic, batch_of(b"0", b"1", b"2", b"3"))

    told = sue.move(group, topic, {0: 1, 1: 0, 7: 0})

    assert told.error_code == 0, told
    (one,) = told.responses
    assert one.topic_id == sue.topic_id(topic)
    codes = {part.partition_index: part.error_code for part in one.partitions}
    assert codes == {0: 0, 1: 0, 7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert sue.starts(group) == {(topic, 0): (1, 3), (topic, 1): (0, 0)}
    assert sue.described(group).group_state == "Empty"


def test_what_is_settled_is_no_lag(sue: ShareGrouping, group: str, topic: str) -> None:
    sue.create(topic)
    sue.produce(topic, batch_of(b"0", b"1", b"2", b"3"))
    sue.move(group, topic, {0: 0})
    epoch = sue.load(group, sue.topic_id(topic)).state_epoch

    sue.write(group, sue.topic_id(topic), (1, 2, ACKNOWLEDGED, 1), epoch=epoch)

    assert sue.starts(group) == {(topic, 0): (0, 2)}
    told = sue.positions(group, {topic: [0, 9], "no-such-topic": [0]})
    (known, beyond), (gone,) = (one.partitions for one in told.topics)
    assert (known.start_offset, known.lag, known.error_code) == (0, 2, 0)
    for one in (beyond, gone):
        assert (one.start_offset, one.error_code) == (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert sue.positions(group, version=0).topics[0].partitions[0].start_offset == 0


def test_a_group_with_members_is_not_moved(sue: ShareGrouping, group: str, topic: str) -> None:
    sue.create(topic)
    sue.shared(group, topic)

    assert sue.move(group, topic, {0: 0}).error_code == ErrorCode.NON_EMPTY_GROUP
    (told,) = sue.forget(group, topic).responses
    assert told.error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


def test_a_move_fences_who_wrote_before(sue: ShareGrouping, group: str, topic: str) -> None:
    sue.create(topic)
    sue.shared(group, topic)
    sue.left(group)
    epoch = sue.load(group, sue.topic_id(topic)).state_epoch

    sue.move(group, topic, {0: 5})

    told = sue.write(group, sue.topic_id(topic), start=9, epoch=epoch)
    assert told.error_code == ErrorCode.FENCED_STATE_EPOCH
    assert sue.load(group, sue.topic_id(topic)).start_offset == 5


def test_queues_are_forgotten_by_topic(sue: ShareGrouping, group: str, topic: str) -> None:
    sue.create(topic)
    other = f"{topic}-2"
    sue.create(other)
    sue.move(group, topic, {0: 1})
    sue.move(group, other, {0: 2})

    first, second = sue.forget(group, topic, "no-such-topic").responses

    assert (first.topic_name, first.error_code) == (topic, 0)
    assert second.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert list(sue.starts(group)) == [(other, 0)]
    assert sue.summary(group, sue.topic_id(topic)).error_code == ErrorCode.INVALID_REQUEST


def test_a_deleted_topic_takes_its_queues_along(sue: ShareGrouping, group: str, topic: str) -> None:
    sue.create(topic)
    sue.move(group, topic, {0: 1})
    topic_id = sue.topic_id(topic)
    sue.delete(topic)

    while sue.summary(group, topic_id).error_code == 0:
        pass
    assert sue.starts(group) == {}


def test_a_deleted_group_begins_from_nothing(sue: ShareGrouping, group: str, topic: str) -> None:
    sue.create(topic)
    sue.shared(group, topic)
    assert sue.delete_groups(group) == [(group, ErrorCode.NON_EMPTY_GROUP)]
    sue.left(group)
    sue.move(group, topic, {0: 7})

    assert sue.delete_groups(group, "nobody") == [
        (group, 0),
        ("nobody", ErrorCode.GROUP_ID_NOT_FOUND),
    ]

    assert sue.described(group).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert group not in sue.listed()
    assert sue.summary(group, sue.topic_id(topic)).error_code == ErrorCode.INVALID_REQUEST
    sue.shared(group, topic)
    assert sue.starts(group) == {(topic, 0): (-1, -1)}


_FEW = {
    "offsets_topic_num_partitions": "2",
    "share_coordinator_state_topic_num_partitions": "2",
}


def test_a_clean_restart_keeps_groups_and_queues(make_node: MakeNode) -> None:
    running = make_node(**_FEW)
    coordinate(running)
    with ShareGrouping(*running.address) as client:
        client.create("t", 2)
        before = client.shared("g", "t")
        topic_id = client.topic_id("t")
        epoch = client.load("g", topic_id, 1).state_epoch
        client.write("g", topic_id, (3, 4, ACKNOWLEDGED, 1), number=1, epoch=epoch, start=3)
    running.stop()

    running = make_node(**_FEW)

    with ShareGrouping(*running.address) as client:
        running.until(lambda: not running.node.broker.groups.loading)
        told = client.share("g", None, before.member_epoch)
        assert (told.error_code, told.member_epoch) == (0, before.member_epoch)
        # Acknowledged from the start on: the queue begins behind it.
        assert client.starts("g")["t", 1][0] == 3
        assert client.summary("g", topic_id, 1).delivery_complete_count == 2
