"""The states of queues over the wire, keys 83 to 87, and who keeps them."""

from collections.abc import Iterator
from uuid import UUID, uuid4

import pytest

from tests.apis.conftest import MakeNode
from tests.apis.kit import ThreadedNode
from tests.apis.share_grouping import (
    ACKNOWLEDGED,
    AVAILABLE,
    STATES_TOPIC,
    ShareGrouping,
    batches_of,
)
from waystation.messages.find_coordinator import SHARE, FindCoordinatorRequest
from waystation.messages.read_share_group_state import (
    PartitionData,
    ReadShareGroupStateRequest,
    ReadStateData,
)
from waystation.model.errors import ErrorCode


@pytest.fixture
def topic_id() -> UUID:
    return uuid4()


@pytest.fixture
def sue(coordinator: ThreadedNode, group: str, topic_id: UUID) -> Iterator[ShareGrouping]:
    with ShareGrouping(*coordinator.address) as connected:
        found = connected.find_queue(group, topic_id)
        assert (found.error_code, found.node_id) == (0, 1), found
        yield connected


# --- who keeps it -------------------------------------------------------------------------------


def test_the_first_who_looks_has_the_internal_topic_made(make_node: MakeNode) -> None:
    running = make_node(share_coordinator_state_topic_num_partitions="3")
    with ShareGrouping(*running.address) as client:
        assert client.partitions_of(STATES_TOPIC) == 0

        found = client.find_queue("g", uuid4(), version=1)

        assert (found.error_code, found.node_id, found.port) == (0, 1, running.address[1])
        assert client.partitions_of(STATES_TOPIC) == 3


@pytest.mark.parametrize("key", ["", "g", "g:1", ":AAAAAAAAAAAAAAAAAAAAAQ:0", "g:short:0", "g:a:b"])
def test_what_names_no_queue_is_refused(sue: ShareGrouping, key: str) -> None:
    (told,) = sue.ask(
        FindCoordinatorRequest(key_type=SHARE, coordinator_keys=[key]), 6
    ).coordinators

    assert told.error_code == ErrorCode.INVALID_REQUEST
    assert "GROUP:TOPIC_ID:PARTITION" in told.error_message


# --- what is kept -------------------------------------------------------------------------------


def test_what_a_leader_writes_its_follower_reads(
    sue: ShareGrouping, group: str, topic_id: UUID
) -> None:
    assert sue.initialize(group, topic_id, epoch=3, start=10).error_code == 0

    told = sue.write(
        group, topic_id, (10, 14, ACKNOWLEDGED, 1), (15, 15, AVAILABLE, 2), epoch=3, notes=(4, b"n")
    )

    assert told.error_code == 0, told
    found = sue.load(group, topic_id, leader=1)
    assert (found.error_code, found.state_epoch, found.start_offset) == (0, 3, 10)
    assert batches_of(found) == [(10, 14, ACKNOWLEDGED, 1), (15, 15, AVAILABLE, 2)]
    assert (found.notes_version, bytes(found.notes)) == (4, b"n")


def test_a_summary_counts_what_is_settled_and_fences_nobody(
    sue: ShareGrouping, group: str, topic_id: UUID
) -> None:
    sue.initialize(group, topic_id, start=5)
    sue.write(group, topic_id, (6, 8, ACKNOWLEDGED, 1), leader=2)

    told, older = sue.summary(group, topic_id), sue.summary(group, topic_id, version=0)

    assert (told.error_code, told.start_offset, told.delivery_complete_count) == (0, 5, 3)
    assert (told.state_epoch, told.leader_epoch) == (1, 2)
    assert older.start_offset == 5
    assert sue.write(group, topic_id, start=6, leader=2).error_code == 0


def test_leaders_that_were_replaced_are_fenced(
    sue: ShareGrouping, group: str, topic_id: UUID
) -> None:
    sue.initialize(group, topic_id)
    sue.load(group, topic_id, leader=5)

    for told in (sue.write(group, topic_id, leader=4), sue.load(group, topic_id, leader=4)):
        assert told.error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert "another broker leads" in told.error_message


def test_what_was_before_a_new_beginning_is_fenced(
    sue: ShareGrouping, group: str, topic_id: UUID
) -> None:
    sue.initialize(group, topic_id, epoch=1)
    sue.initialize(group, topic_id, epoch=2, start=7)

    told = sue.write(group, topic_id, epoch=1)

    assert told.error_code == ErrorCode.FENCED_STATE_EPOCH
    assert sue.initialize(group, topic_id, epoch=1).error_code == ErrorCode.FENCED_STATE_EPOCH
    assert sue.load(group, topic_id).start_offset == 7


def test_a_queue_that_was_deleted_is_not_known(
    sue: ShareGrouping, group: str, topic_id: UUID
) -> None:
    sue.initialize(group, topic_id)
    assert sue.erase(group, topic_id).error_code == 0
    assert sue.erase(group, topic_id).error_code == 0

    for told in (sue.load(group, topic_id), sue.summary(group, topic_id)):
        assert told.error_code == ErrorCode.INVALID_REQUEST
        assert "initialize it first" in told.error_message


def test_nonsense_is_refused(sue: ShareGrouping, group: str, topic_id: UUID) -> None:
    assert sue.initialize("", topic_id).error_code == ErrorCode.INVALID_GROUP_ID
    assert sue.initialize(group, topic_id, start=-9).error_code == ErrorCode.INVALID_REQUEST
    assert sue.initialize("g" * 40_000, topic_id).error_code == ErrorCode.INVALID_REQUEST
    sue.initialize(group, topic_id)
    for batch in [(3, 1, ACKNOWLEDGED, 1), (0, 1, 77, 1), (-4, 1, AVAILABLE, 1)]:
        assert sue.write(group, topic_id, batch).error_code == ErrorCode.INVALID_REQUEST


def test_one_request_is_answered_as_a_whole_and_in_its_order(
    sue: ShareGrouping, group: str, topic_id: UUID
) -> None:
    numbers = [5, 3, 4, 0, 3]
    for number in {3, 4}:
        sue.initialize(group, topic_id, number, start=number)
    request = ReadShareGroupStateRequest(
        group_id=group,
        topics=[
            ReadStateData(
                topic_id=topic_id,
                partitions=[PartitionData(partition=number, leader_epoch=1) for number in numbers],
            ),
            ReadStateData(topic_id=topic_id, partitions=[]),
        ],
    )

    first, second = sue.ask(request, 0).results

    assert [one.partition for one in first.partitions] == numbers
    assert [one.start_offset for one in first.partitions if not one.error_code] == [3, 4, 3]
    assert second.partitions == []
