"""ListOffsets: the ends of a log, and places in it by time."""

import pytest

from tests.apis.asking import Asking
from tests.apis.conftest import MakeNode
from tests.apis.kit import batch_of, newest, versions
from waystation.messages.list_offsets import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from waystation.model.errors import ErrorCode
from waystation.wire.versions import ApiKey

NEWEST = newest(ApiKey.LIST_OFFSETS)


@pytest.fixture
def timed(client: Asking, topic: str) -> str:
    """A topic whose records lie at 1000, 3000, 2000, 3000 ms."""
    client.create(topic)
    client.produce(topic, batch_of(b"a", b"b", timestamp=[1_000, 3_000]))
    client.produce(topic, batch_of(b"c", b"d", timestamp=[2_000, 3_000]))
    return topic


@pytest.mark.parametrize("version", versions(ApiKey.LIST_OFFSETS))
def test_the_ends_and_a_time_are_found_in_every_version(
    client: Asking, timed: str, version: int
) -> None:
    epoch = 0 if version >= 4 else -1
    for at, offset, timestamp in [(EARLIEST, 0, -1), (LATEST, 4, -1), (2_000, 1, 3_000)]:
        told = client.offsets(timed, at, version=version)

        assert told.error_code == 0
        assert (told.offset, told.timestamp, told.leader_epoch) == (offset, timestamp, epoch)


@pytest.mark.parametrize(
    ("at", "offset", "timestamp"),
    [(0, 0, 1_000), (1_000, 0, 1_000), (1_001, 1, 3_000), (3_000, 1, 3_000), (3_001, -1, -1)],
)
def test_a_time_finds_the_first_record_at_or_after_it(
    client: Asking, timed: str, at: int, offset: int, timestamp: int
) -> None:
    told = client.offsets(timed, at)

    assert (told.error_code, told.offset, told.timestamp) == (0, offset, timestamp)
    assert told.leader_epoch == (0 if offset >= 0 else -1)


def test_the_newest_record_is_the_first_with_the_greatest_time(client: Asking, timed: str) -> None:
    told = client.offsets(timed, MAX_TIMESTAMP)

    assert (told.offset, told.timestamp, told.leader_epoch) == (1, 3_000, 0)


@pytest.mark.parametrize(
    ("special", "since", "offset"),
    [
        (MAX_TIMESTAMP, 7, 1),
        (EARLIEST_LOCAL, 8, 0),
        (LATEST_TIERED, 9, -1),
        (EARLIEST_PENDING_UPLOAD, 11, -1),
        (-7, 99, -1),
        (-(1 << 63), 99, -1),
    ],
)
def test_a_special_offset_needs_the_version_that_introduced_it(
    client: Asking, timed: str, special: int, since: int, offset: int
) -> None:
    for version in versions(ApiKey.LIST_OFFSETS):
        told = client.offsets(timed, special, version=version)

        expected = 0 if version >= since else ErrorCode.UNSUPPORTED_VERSION
        assert told.error_code == expected
        assert told.offset == (offset if version >= since else -1)


@pytest.mark.parametrize("at", [EARLIEST, LATEST, EARLIEST_LOCAL])
def test_an_empty_log_begins_and_ends_at_zero(client: Asking, topic: str, at: int) -> None:
    client.create(topic)
    told = client.offsets(topic, at)

    assert (told.error_code, told.offset, told.timestamp, told.leader_epoch) == (0, 0, -1, 0)


@pytest.mark.parametrize("at", [0, MAX_TIMESTAMP])
def test_an_empty_log_has_no_records_of_any_time(client: Asking, topic: str, at: int) -> None:
    client.create(topic)
    told = client.offsets(topic, at)

    assert (told.error_code, told.offset, told.timestamp, told.leader_epoch) == (0, -1, -1, -1)


def test_deleted_records_are_not_found(client: Asking, timed: str) -> None:
    client.delete_records(timed, 2)

    assert client.offsets(timed, EARLIEST).offset == 2
    assert client.offsets(timed, 0).offset == 2


def test_a_partition_that_is_not_there_is_unknown(client: Asking, timed: str) -> None:
    assert client.offsets("absent", LATEST).error_code == 3
    assert client.offsets(timed, LATEST, partition=1).error_code == 3


def test_another_leader_epoch_is_fenced_or_unknown(make_node: MakeNode, topic: str) -> None:
    first = make_node()
    with Asking(*first.address) as client:
        client.create(topic)
    first.stop()
    with Asking(*make_node().address) as client:
        assert client.offsets(topic, LATEST, current_leader_epoch=1).error_code == 0
        old = client.offsets(topic, LATEST, current_leader_epoch=0)
        assert old.error_code == ErrorCode.FENCED_LEADER_EPOCH
        new = client.offsets(topic, LATEST, current_leader_epoch=2)
        assert new.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_a_partition_named_twice_is_refused(client: Asking, timed: str) -> None:
    twice = [ListOffsetsPartition(partition_index=0, timestamp=LATEST)] * 2
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=timed, partitions=twice)])
    (told,) = client.ask(request, NEWEST).topics[0].partitions

    assert told.error_code == ErrorCode.INVALID_REQUEST


def test_records_that_are_not_committed_have_no_offset_yet(make_node: MakeNode, topic: str) -> None:
    with Asking(*make_node().address) as client:
        client.create(topic, min_insync_replicas="2")
        client.produce(topic, batch_of(b"x"), acks=1)

        assert client.offsets(topic, LATEST).offset == 0
        assert client.offsets(topic, 0).offset == -1
        assert client.read(topic) == []
