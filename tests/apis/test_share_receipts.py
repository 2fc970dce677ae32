"""ShareFetch and ShareAcknowledge by receipts against a running node, field by field."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from tests.apis.kit import ThreadedNode, batch_of
from tests.apis.sharing import ACCEPT, REJECT, RELEASE, Sharing, ranges
from waystation.messages.share_acknowledge import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from waystation.messages.share_fetch import (
    BY_LIMIT,
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ShareFetchRequest,
)
from waystation.model.error_codes import ErrorCode

NOT_HELD = int(ErrorCode.INVALID_RECORD_STATE)


@pytest.fixture
def ann(node: ThreadedNode, topic: str) -> Iterator[Sharing]:
    with Sharing(*node.address) as connected:
        connected.group = topic
        yield connected


@pytest.fixture
def topic_id(ann: Sharing, topic: str) -> UUID:
    """A queue of ten messages; a session keeps it at its leader."""
    ann.create(topic)
    assert ann.produce(topic, batch_of(*(b"%d" % one for one in range(10)))).error_code == 0
    begun = ann.begin(topic)
    assert ann.take(begun, max_records=0).error_code == 0
    return begun


def hold(ann: Sharing, topic_id: UUID, member_id: str, most: int) -> list[tuple[int, int, int]]:
    request = ShareFetchRequest(
        group_id=ann.group,
        member_id=member_id,
        max_wait_ms=5_000,
        min_bytes=1,
        max_bytes=1 << 20,
        max_records=most,
        batch_size=most,
        share_acquire_mode=BY_LIMIT,
        topics=[FetchTopic(topic_id=topic_id, partitions=[FetchPartition(partition_index=0)])],
        by_receipt=True,
    )
    return ranges(ann.ask(request, 2))


def settle(ann: Sharing, topic_id: UUID, *said: tuple[str, int, int, list[int]]) -> Any:
    """What is told of the partition."""
    batches = [
        AcknowledgementBatch(
            first_offset=first, last_offset=last, acknowledge_types=types, member_id=member_id
        )
        for member_id, first, last, types in said
    ]
    request = ShareAcknowledgeRequest(
        group_id=ann.group,
        member_id="ann-1",
        share_session_epoch=-1,
        topics=[
            AcknowledgeTopic(
                topic_id=topic_id,
                partitions=[
                    AcknowledgePartition(partition_index=0, acknowledgement_batches=batches)
                ],
            )
        ],
        by_receipt=True,
    )
    (told,) = ann.ask(request, 2).responses[0].partitions
    return told


def test_many_settle_in_one_request_and_each_counts_by_itself(ann: Sharing, topic_id: UUID) -> None:
    assert hold(ann, topic_id, "ann-1", 3) == [(0, 2, 1)]
    assert hold(ann, topic_id, "bob-1", 2) == [(3, 4, 1)]

    told = settle(
        ann,
        topic_id,
        ("", 0, 0, [ACCEPT]),  # the member of the request
        ("bob-1", 3, 3, [ACCEPT]),
        ("bob-1", 1, 1, [ACCEPT]),  # ann's
        ("forged", 4, 4, [ACCEPT]),
        ("ann-1", 0, 0, [ACCEPT]),  # settled a moment ago
        ("ann-1", 1, 2, [RELEASE, REJECT]),
    )

    assert told.batch_error_codes == [0, 0, NOT_HELD, NOT_HELD, NOT_HELD, 0]
    assert told.error_code == NOT_HELD, "for who does not know of batches"
    assert hold(ann, topic_id, "cleo-1", 1) == [(1, 1, 2)]
    assert settle(ann, topic_id, ("bob-1", 4, 4, [ACCEPT])).error_code == 0


def test_what_cannot_be_meant_is_refused_as_a_whole(ann: Sharing, topic_id: UUID) -> None:
    assert hold(ann, topic_id, "ann-1", 1) == [(0, 0, 1)]

    told = settle(ann, topic_id, ("ann-1", 0, 0, [ACCEPT]), ("ann-1", 0, 0, [ACCEPT, ACCEPT]))

    assert told.batch_error_codes == [int(ErrorCode.INVALID_REQUEST)] * 2
    assert settle(ann, topic_id, ("ann-1", 0, 0, [ACCEPT])).batch_error_codes == [0]
