"""OffsetForLeaderEpoch: where epochs end, so that readers notice a log that was cut."""

import pytest

from tests.apis.asking import Asking
from tests.apis.conftest import MakeNode
from tests.apis.kit import batch_of, versions
from waystation.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from waystation.model.errors import ErrorCode
from waystation.wire.versions import ApiKey

UNKNOWN = (0, -1, -1)


def end_of(
    client: Asking,
    topic: str,
    epoch: int,
    *,
    version: int = 4,
    current: int = -1,
    partition: int = 0,
) -> tuple[int, int, int]:
    asked = OffsetForLeaderPartition(
        partition=partition, current_leader_epoch=current, leader_epoch=epoch
    )
    request = OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic, partitions=[asked])]
    )
    (told,) = client.ask(request, version).topics[0].partitions
    return told.error_code, told.leader_epoch, told.end_offset


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_FOR_LEADER_EPOCH))
def test_the_present_epoch_ends_where_the_log_does(
    client: Asking, topic: str, version: int
) -> None:
    client.create(topic)
    assert end_of(client, topic, 0, version=version) == (0, 0, 0)
    client.produce(topic, batch_of(b"a", b"b"))

    assert end_of(client, topic, 0, version=version) == (0, 0, 2)
    assert end_of(client, topic, 1, version=version) == UNKNOWN
    assert end_of(client, topic, -1, version=version) == UNKNOWN


def test_each_life_of_the_leader_is_an_epoch(make_node: MakeNode, topic: str) -> None:
    """Epoch 0 writes two records, 1 none, 2 one, 3 none yet."""
    for values in ([b"a", b"b"], [], [b"c"]):
        running = make_node()
        with Asking(*running.address) as client:
            if topic not in running.call(lambda running=running: running.node.broker.image.topics):
                client.create(topic)
            if values:
                client.produce(topic, batch_of(*values))
        running.stop()

    with Asking(*make_node().address) as client:
        assert end_of(client, topic, 0) == (0, 0, 2)
        assert end_of(client, topic, 1) == (0, 0, 2)
        assert end_of(client, topic, 2) == (0, 2, 3)
        assert end_of(client, topic, 3) == (0, 3, 3)
        assert end_of(client, topic, 4) == UNKNOWN
        fenced, unknown = ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH
        assert end_of(client, topic, 0, current=2) == (fenced, -1, -1)
        assert end_of(client, topic, 0, current=3) == (0, 0, 2)
        assert end_of(client, topic, 0, current=4) == (unknown, -1, -1)


def test_a_partition_that_is_not_there_is_unknown(client: Asking, topic: str) -> None:
    client.create(topic)

    assert end_of(client, "absent", 0) == (3, -1, -1)
    assert end_of(client, topic, 0, partition=1) == (3, -1, -1)
