"""OffsetCommit: positions of members and of others, each partition with its own outcome."""

from uuid import uuid4

import pytest

from tests.apis.grouping import COMMIT_IDS_FROM, Grouping, Seat, commit_request
from tests.apis.kit import versions
from waystation.groups.records import NEVER, OffsetCommitted
from waystation.messages.offset_commit import (
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from waystation.model.errors import ErrorCode
from waystation.wire.versions import ApiKey

VERSIONS = versions(ApiKey.OFFSET_COMMIT)
EPOCH_FROM, RETENTION_UNTIL, EPOCHS_FROM = 6, 4, 9
OLD_AND_NEW = [VERSIONS[0], COMMIT_IDS_FROM - 1, COMMIT_IDS_FROM]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_position_is_kept_in_every_version(
    ann: Grouping, group: str, topic: str, version: int
) -> None:
    ann.create(topic, partitions=2)
    asked = {"partition": 1, "metadata": "a note", "leader_epoch": 0, "version": version}

    assert ann.commit(group, topic, 42, **asked) == 0
    kept = ann.committed(group, topic, 1)
    assert (kept.committed_offset, kept.metadata, kept.error_code) == (42, "a note", 0)
    assert kept.committed_leader_epoch == (0 if version >= EPOCH_FROM else -1)
    assert ann.committed(group, topic, 0).committed_offset == -1


def test_no_note_is_an_empty_one(ann: Grouping, group: str, topic: str) -> None:
    ann.create(topic)

    assert ann.commit(group, topic, 1, metadata=None) == 0
    assert ann.committed(group, topic).metadata == ""


@pytest.mark.parametrize("version", range(2, RETENTION_UNTIL + 1))
def test_old_clients_may_say_how_long(ann: Grouping, group: str, topic: str, version: int) -> None:
    ann.create(topic)
    ann.commit(group, topic, 1, version=version, retention_time_ms=5_000)
    ann.commit(group, topic, 2, version=version)

    first, second = ann.remembered(group)
    assert isinstance(first, OffsetCommitted)
    assert isinstance(second, OffsetCommitted)
    assert first.expires_at == first.committed_at + 5_000
    assert second.expires_at == NEVER


def test_a_member_commits_under_its_generation(ann: Grouping, group: str, topic: str) -> None:
    ann.create(topic)
    seat = ann.sit_alone(group, topic)

    for version in VERSIONS:
        assert ann.commit(group, topic, version, version=version, seat=seat) == 0
    assert ann.committed(group, topic).committed_offset == VERSIONS[-1]


@pytest.mark.parametrize("version", OLD_AND_NEW)
@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"member_id": "ghost"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation": 0}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation": 2}, ErrorCode.ILLEGAL_GENERATION),
        (None, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
    ids=["unknown member", "old generation", "future generation", "an outsider"],
)
def test_nobody_else_moves_a_live_group(
    ann: Grouping,
    group: str,
    topic: str,
    version: int,
    changes: dict[str, str] | None,
    code: ErrorCode,
) -> None:
    ann.create(topic)
    seat = ann.sit_alone(group, topic)
    other = None if changes is None else seat._replace(**changes)  # type: ignore[arg-type]

    assert ann.commit(group, topic, 7, version=version, seat=other) == code
    assert ann.committed(group, topic).committed_offset == -1
    assert ann.heartbeat(seat) == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_a_generation_of_a_group_that_is_not_there_is_over(
    ann: Grouping, group: str, topic: str, version: int
) -> None:
    ann.create(topic)
    told = ann.commit(group, topic, 1, seat=Seat(group, "ghost", 3), version=version)

    is_new = version >= EPOCHS_FROM
    assert told == (ErrorCode.GROUP_ID_NOT_FOUND if is_new else ErrorCode.ILLEGAL_GENERATION)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_member_of_the_server_side_protocol_commits_under_its_epoch(
    ann: Grouping, group: str, topic: str, version: int
) -> None:
    ann.create(topic)
    epoch = ann.beat_first(group, "m-1", topic).member_epoch
    is_new = version >= EPOCHS_FROM

    def commit(member_id: str, epoch: int) -> int:
        return ann.commit(group, topic, 5, seat=Seat(group, member_id, epoch), version=version)

    stale = ErrorCode.STALE_MEMBER_EPOCH if is_new else ErrorCode.UNSUPPORTED_VERSION
    assert commit("m-1", epoch + 1) == stale
    assert commit("ghost", epoch) == ErrorCode.UNKNOWN_MEMBER_ID
    assert ann.committed(group, topic).committed_offset == -1
    assert ann.commit(group, topic, 5, seat=Seat(group, "m-1", epoch)) == 0


def test_a_static_member_must_be_itself(ann: Grouping, group: str, topic: str) -> None:
    ann.create(topic)
    seat = ann.sit_alone(group, topic, instance_id="i-1")
    other = seat._replace(member_id="ghost")

    assert ann.commit(group, topic, 1, seat=seat, group_instance_id="i-1") == 0
    told = ann.commit(group, topic, 2, seat=other, group_instance_id="i-1")
    assert told == ErrorCode.FENCED_INSTANCE_ID


@pytest.mark.parametrize("version", OLD_AND_NEW)
def test_what_does_not_exist_spoils_nothing(
    ann: Grouping, group: str, topic: str, version: int
) -> None:
    ann.create(topic)
    by_id = version >= COMMIT_IDS_FROM
    unknown_id = uuid4()
    here = OffsetCommitRequestTopic(
        name=topic,
        topic_id=ann.topic_id(topic),
        partitions=[position(9, 1), position(0, 5), position(-1, 1)],
    )
    nowhere = OffsetCommitRequestTopic(
        name="absent", topic_id=unknown_id, partitions=[position(0, 5)]
    )
    first, second = ann.ask(commit_request(group, [nowhere, here]), version).topics

    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [(one.partition_index, one.error_code) for one in first.partitions] == [
        (0, ErrorCode.UNKNOWN_TOPIC_ID if by_id else unknown)
    ]
    assert [(one.partition_index, one.error_code) for one in second.partitions] == [
        (9, unknown), (0, 0), (-1, unknown),
    ]  # fmt: skip
    assert ann.committed(group, topic).committed_offset == 5


def test_a_note_that_is_too_long_spoils_no_other(ann: Grouping, group: str, topic: str) -> None:
    ann.create(topic, partitions=2)
    both = [position(0, 5, "x" * 4_097), position(1, 6, "x" * 4_096)]
    named = OffsetCommitRequestTopic(name=topic, partitions=both)
    (told,) = ann.ask(commit_request(group, [named]), 9).topics

    assert [one.error_code for one in told.partitions] == [ErrorCode.OFFSET_METADATA_TOO_LARGE, 0]
    assert ann.committed(group, topic, 0).committed_offset == -1
    assert ann.committed(group, topic, 1).committed_offset == 6


def test_nothing_to_commit_is_no_mistake(ann: Grouping, group: str) -> None:
    assert ann.ask(commit_request(group, []), 9).topics == []


def test_the_nameless_group_may_commit_as_it_could_of_old(ann: Grouping, topic: str) -> None:
    ann.create(topic)

    assert ann.commit("", topic, 3) == 0
    assert ann.committed("", topic).committed_offset == 3


def position(partition: int, offset: int, metadata: str = "") -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_metadata=metadata
    )
