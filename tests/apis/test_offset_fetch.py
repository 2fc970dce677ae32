"""OffsetFetch: where groups were, in every version's own form."""

from uuid import uuid4

import pytest

from tests.apis.grouping import FETCH_IDS_FROM, SEVERAL_GROUPS_FROM, Grouping
from tests.apis.kit import versions
from waystation.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from waystation.model.errors import ErrorCode
from waystation.wire.versions import ApiKey

VERSIONS = versions(ApiKey.OFFSET_FETCH)
EPOCH_FROM, ALL_FROM = 5, 2


@pytest.mark.parametrize("version", VERSIONS)
def test_a_position_is_told_in_every_version(
    ann: Grouping, group: str, topic: str, version: int
) -> None:
    ann.create(topic)
    ann.commit(group, topic, 42, metadata="a note", leader_epoch=0)
    told = ann.committed(group, topic, version=version)

    assert (told.committed_offset, told.metadata, told.error_code) == (42, "a note", 0)
    assert told.committed_leader_epoch == (0 if version >= EPOCH_FROM else -1)


@pytest.mark.parametrize("version", VERSIONS)
def test_who_has_committed_nothing_is_nowhere_and_that_is_no_error(
    ann: Grouping, group: str, topic: str, version: int
) -> None:
    ann.create(topic)
    told = ann.committed(group, topic, 7, version=version)

    assert (told.committed_offset, told.metadata, told.error_code) == (-1, "", 0)
    assert told.committed_leader_epoch == -1


def test_a_topic_that_is_not_there_is_no_error_by_name(ann: Grouping, group: str) -> None:
    told = ann.fetch_offsets(group, [OffsetFetchRequestTopic(name="absent", partition_indexes=[3])])

    assert told.error_code == 0
    (one,) = told.topics[0].partitions
    assert (one.partition_index, one.committed_offset, one.error_code) == (3, -1, 0)


@pytest.mark.parametrize("version", range(ALL_FROM, VERSIONS[-1] + 1))
def test_no_list_means_all(ann: Grouping, group: str, topic: str, version: int) -> None:
    other = f"{topic}-other"
    for name in (topic, other):
        ann.create(name, partitions=3)
        ann.commit(group, name, 5, partition=2)
        ann.commit(group, name, 4, partition=0)
    told = ann.fetch_offsets(group, None, version=version)

    assert told.error_code == 0
    by_id = version >= FETCH_IDS_FROM
    positions = {
        (one.topic_id if by_id else one.name): [
            (each.partition_index, each.committed_offset) for each in one.partitions
        ]
        for one in told.topics
    }
    names = [ann.topic_id(name) if by_id else name for name in (topic, other)]
    assert positions == {name: [(0, 4), (2, 5)] for name in names}


@pytest.mark.parametrize("version", range(ALL_FROM, VERSIONS[-1] + 1))
def test_all_of_an_unknown_group_is_nothing(ann: Grouping, group: str, version: int) -> None:
    told = ann.fetch_offsets(group, None, version=version)

    assert (told.error_code, told.topics) == (0, [])


def test_an_empty_list_is_nothing(ann: Grouping, group: str, topic: str) -> None:
    ann.create(topic)
    ann.commit(group, topic, 1)

    assert ann.fetch_offsets(group, []).topics == []


@pytest.mark.parametrize("version", range(SEVERAL_GROUPS_FROM, VERSIONS[-1] + 1))
def test_many_groups_are_asked_at_once(ann: Grouping, group: str, topic: str, version: int) -> None:
    ann.create(topic)
    named = OffsetFetchRequestTopic(name=topic, topic_id=ann.topic_id(topic), partition_indexes=[0])
    groups = [f"{group}-{number}" for number in range(9)]
    for number, each in enumerate(groups):
        ann.commit(each, topic, number)
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=each, topics=[named]) for each in groups],
        require_stable=True,
    )
    told = ann.ask(request, version).groups

    assert [(one.group_id, one.topics[0].partitions[0].committed_offset) for one in told] == [
        (each, number) for number, each in enumerate(groups)
    ]
    assert ann.ask(OffsetFetchRequest(groups=[]), version).groups == []


def test_an_id_that_no_topic_has_is_told_so(ann: Grouping, group: str, topic: str) -> None:
    ann.create(topic, partitions=2)
    ann.commit(group, topic, 8, partition=1)
    unknown = OffsetFetchRequestTopic(topic_id=uuid4(), partition_indexes=[0, 1])
    known = OffsetFetchRequestTopic(topic_id=ann.topic_id(topic), partition_indexes=[1, 0])
    first, second = ann.fetch_offsets(group, [unknown, known], version=10).topics

    assert first.topic_id == unknown.topic_id
    assert [(one.committed_offset, one.metadata, one.error_code) for one in first.partitions] == [
        (-1, "", ErrorCode.UNKNOWN_TOPIC_ID)
    ] * 2
    assert [(one.partition_index, one.committed_offset) for one in second.partitions] == [
        (1, 8), (0, -1),
    ]  # fmt: skip


def test_a_topic_made_anew_has_no_positions(ann: Grouping, group: str, topic: str) -> None:
    ann.create(topic)
    ann.commit(group, topic, 8)
    ann.delete(topic)
    ann.create(topic)

    assert ann.committed(group, topic).committed_offset == -1
    assert ann.committed(group, topic, version=10).committed_offset == -1
    assert ann.fetch_offsets(group, None).topics == []


@pytest.mark.parametrize("version", [9, 10])
def test_a_member_may_prove_that_it_is_current(
    ann: Grouping, group: str, topic: str, version: int
) -> None:
    ann.create(topic)
    epoch = ann.beat_first(group, "m-1", topic).member_epoch

    def code(member_id: str | None, member_epoch: int) -> int:
        told = ann.fetch_offsets(
            group, None, version=version, member_id=member_id, member_epoch=member_epoch
        )
        return int(told.error_code)

    assert code("m-1", epoch) == 0
    assert code(None, -1) == 0
    assert code("m-1", epoch + 1) == ErrorCode.STALE_MEMBER_EPOCH
    assert code("ghost", epoch) == ErrorCode.UNKNOWN_MEMBER_ID
