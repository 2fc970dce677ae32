"""Queues on several brokers: whoever leads the partition serves them, and knows what others did."""

import asyncio
from collections.abc import Iterator
from uuid import UUID

import pytest

from tests.apis.clustering import ThreadedCluster
from tests.apis.kit import batch_of
from tests.apis.sharing import ACCEPT, RELEASE, Sharing, messages, ranges
from waystation.model.error_codes import ErrorCode
from waystation.model.ids import TopicId
from waystation.model.offsets import Offset
from waystation.sharing.persister import Initialize
from waystation.sharing.state_records import QueueId


@pytest.fixture
def consumers(cluster: ThreadedCluster, topic: str) -> Iterator[dict[int, Sharing]]:
    """A connection of one consumer to each broker."""
    made = {number: Sharing(*cluster.node(number).address) for number in (1, 2, 3)}
    for one in made.values():
        one.group = topic
    yield made
    for one in made.values():
        one.close()


def test_who_does_not_lead_says_who_does(
    cluster: ThreadedCluster, consumers: dict[int, Sharing], topic: str
) -> None:
    cluster.create(topic, [1, 2, 3])
    topic_id = begun(cluster, consumers[1], topic)

    reply = consumers[2].take(topic_id)

    (told,) = reply.responses[0].partitions
    assert told.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert told.current_leader.leader_id == 1
    assert [one.node_id for one in reply.node_endpoints] == [1]
    late = consumers[2].say(topic_id, [(0, 0, [ACCEPT])])
    assert late.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert late.current_leader.leader_id == 1


def test_a_new_leader_goes_on_where_the_last_one_was(
    cluster: ThreadedCluster, consumers: dict[int, Sharing], topic: str
) -> None:
    cluster.create(topic, [1, 2, 3])
    old, new = consumers[1], consumers[2]
    topic_id = begun(cluster, old, topic)
    for number in range(4):
        assert old.produce(topic, batch_of(b"%d" % number)).error_code == 0
    assert ranges(old.take(topic_id)) == [(0, 3, 1)]
    assert (
        old.say(topic_id, [(0, 0, [ACCEPT]), (1, 1, [RELEASE]), (3, 3, [ACCEPT])]).error_code == 0
    )
    old.take(topic_id, max_records=1)
    old.send_take(topic_id)
    assert not old.has_reply(0.05)

    cluster.rewrite(topic, leader=2)

    told = old.taken().responses[0].partitions[0]
    assert told.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    late = old.say(topic_id, [(2, 2, [ACCEPT])])
    assert late.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    reply = new.take(topic_id)
    assert ranges(reply) == [(1, 1, 2), (2, 2, 1)]
    assert messages(reply) == [(1, b"1"), (2, b"2")]
    assert new.say(topic_id, [(1, 2, [ACCEPT])]).error_code == 0
    assert new.produce(topic, batch_of(b"4")).error_code == 0
    assert ranges(new.take(topic_id, partitions=())) == [(4, 4, 1)]


def begun(cluster: ThreadedCluster, of: Sharing, topic: str) -> UUID:
    """Let the queue begin, whoever keeps its state; the topic's id."""
    topic_id = of.topic_id(topic)
    command = Initialize(QueueId(of.group, TopicId(topic_id), 0), 1, Offset(0))

    async def begin() -> object:
        told: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        cluster.node(1).broker.share_persister.initialize(command, told.set_result)
        return await told

    assert cluster.wait_for(begin()) is None
    return topic_id
