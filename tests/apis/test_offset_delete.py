"""OffsetDelete: positions go, except where somebody still reads."""

import pytest

from tests.apis.grouping import Grouping
from waystation.model.errors import ErrorCode


def outcomes(told: object) -> list[tuple[int, int]]:
    (topic,) = told.topics  # type: ignore[attr-defined]
    return [(one.partition_index, one.error_code) for one in topic.partitions]


def test_a_position_is_forgotten(ann: Grouping, group: str, topic: str) -> None:
    ann.create(topic, partitions=2)
    for partition in (0, 1):
        ann.commit(group, topic, 5, partition=partition)
    told = ann.delete_offsets(group, topic, 1)

    assert told.error_code == 0
    assert outcomes(told) == [(1, 0)]
    assert ann.committed(group, topic, 1).committed_offset == -1
    assert ann.committed(group, topic, 0).committed_offset == 5
    assert outcomes(ann.delete_offsets(group, topic, 1)) == [(1, 0)], "what is gone stays gone"


def test_what_a_member_reads_is_kept(ann: Grouping, group: str, topic: str) -> None:
    read, unread = f"{topic}-read", f"{topic}-unread"
    for each in (read, unread):
        ann.create(each)
        ann.commit(group, each, 5)
    seat = ann.sit_alone(group, read)

    assert outcomes(ann.delete_offsets(group, read, 0)) == [
        (0, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
    ]
    assert outcomes(ann.delete_offsets(group, unread, 0)) == [(0, 0)]
    assert ann.committed(group, read).committed_offset == 5
    assert ann.committed(group, unread).committed_offset == -1
    assert ann.heartbeat(seat) == 0


def test_a_live_group_of_another_kind_keeps_all(ann: Grouping, group: str, topic: str) -> None:
    ann.create(topic)
    ann.commit(group, topic, 5)
    ann.enter(group, protocol_type="connect", protocols=[("range", b"?")])
    told = ann.delete_offsets(group, topic, 0)

    assert (told.error_code, told.topics) == (ErrorCode.NON_EMPTY_GROUP, [])


def test_what_does_not_exist_spoils_nothing(ann: Grouping, group: str, topic: str) -> None:
    ann.create(topic)
    ann.commit(group, topic, 5)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    assert outcomes(ann.delete_offsets(group, "absent", 0)) == [(0, unknown)]
    assert outcomes(ann.delete_offsets(group, topic, 7, 0, -1)) == [
        (7, unknown), (0, 0), (-1, unknown),
    ]  # fmt: skip


@pytest.mark.parametrize("group_id", ["", "absent"])
def test_no_group_no_offsets(ann: Grouping, topic: str, group_id: str) -> None:
    ann.create(topic)
    told = ann.delete_offsets(group_id, topic, 0)

    code = ErrorCode.GROUP_ID_NOT_FOUND if group_id else ErrorCode.INVALID_GROUP_ID
    assert (told.error_code, told.topics) == (code, [])
