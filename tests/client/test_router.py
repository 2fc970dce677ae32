"""The routing layer against scripted nodes: who is asked, how often, what is said at last."""

import asyncio
from random import Random

import pytest
from tests.support.scripted_broker import ScriptedBroker

from waystation.client.errors import BrokerUnreachableError, NoSuchPartitionError
from waystation.client.router import Router
from waystation.client.settings import ConnectionSettings
from waystation.model.errors import InvalidTopicError, UnknownTopicError
from waystation.model.ids import NodeId, TopicPartition
from waystation.wire.message import Message
from waystation.wire.versions import ApiKey

FAST = ConnectionSettings(retry_backoff_ms=1, retry_backoff_max_ms=2, metadata_timeout_ms=200)


def router_to(broker: ScriptedBroker, bootstrap: str = "node-1:9092") -> Router:
    return Router(bootstrap, FAST, connect=broker.connect, chance=Random(7))


async def test_nobody_there_is_told_at_once_for_every_address() -> None:
    broker = ScriptedBroker()
    broker.refuses = {1, 2}
    router = router_to(broker, "node-1:9092,node-2:9092")

    with pytest.raises(BrokerUnreachableError) as caught:
        await router.start()
    assert caught.value.causes == {
        "node-1:9092": "connection refused",
        "node-2:9092": "connection refused",
    }
    assert "waystation serve" in str(caught.value)


async def test_one_address_that_answers_is_enough() -> None:
    broker = ScriptedBroker()
    broker.refuses = {2, 3}
    router = router_to(broker, "node-3:9092,node-2:9092,node-1:9092")
    await router.start()

    assert list(router.view.brokers) == [1]
    await router.close()


async def test_a_topic_is_waited_for() -> None:
    broker = ScriptedBroker(topic="not-yet")
    router = router_to(broker)
    await router.start()
    asking = asyncio.create_task(router.topic("orders"))
    while len(broker.requests(ApiKey.METADATA)) < 4:
        await asyncio.sleep(0)
    broker.topic = "orders"

    assert (await asking).name == "orders"
    await router.close()


async def test_a_topic_that_never_comes_is_an_error_that_names_it() -> None:
    broker = ScriptedBroker()
    router = router_to(broker)
    await router.start()

    with pytest.raises(UnknownTopicError, match="topic refunds does not exist"):
        await router.topic("refunds")
    await router.close()


async def test_a_name_that_cannot_be_is_an_error_at_once() -> None:
    broker = ScriptedBroker()
    metadata = broker.metadata

    def refuse(request: Message) -> Message:
        response = metadata(request)
        for topic in response.topics:  # type: ignore[attr-defined]
            topic.error_code = 17
        return response

    broker.handlers[ApiKey.METADATA] = refuse
    router = router_to(broker)
    await router.start()

    with pytest.raises(InvalidTopicError, match="letters, digits"):
        await router.topic("no good")
    assert len(broker.requests(ApiKey.METADATA)) < 4
    await router.close()


async def test_many_callers_share_one_refresh() -> None:
    broker = ScriptedBroker()
    router = router_to(broker)
    await router.start()
    before = len(broker.requests(ApiKey.METADATA))
    await asyncio.gather(*(router.refresh() for _ in range(50)))

    assert len(broker.requests(ApiKey.METADATA)) - before <= 2
    await router.close()


async def test_a_partition_that_the_topic_lacks_is_said_with_those_it_has() -> None:
    broker = ScriptedBroker(leaders=(1, 1))
    router = router_to(broker)
    await router.start()

    with pytest.raises(NoSuchPartitionError, match="0 to 1"):
        await router.leader_of(TopicPartition("orders", 2))
    await router.close()


async def test_connections_are_shared_and_replaced_once_lost() -> None:
    broker = ScriptedBroker()
    router = router_to(broker)
    await router.start()
    first, second = await asyncio.gather(router.to_node(NodeId(1)), router.to_node(NodeId(1)))

    assert first is second

    first.close()

    assert router.connected(NodeId(1)) is None
    assert await router.to_node(NodeId(1)) is not first
    await router.close()


async def test_the_image_is_refreshed_when_it_is_old() -> None:
    broker = ScriptedBroker()
    young = ConnectionSettings(metadata_max_age_ms=100, retry_backoff_ms=1)
    router = Router("node-1:9092", young, connect=broker.connect)
    await router.start()
    changed = asyncio.Event()
    router.on_change.append(changed.set)
    await changed.wait()

    assert len(broker.requests(ApiKey.METADATA)) >= 2
    await router.close()


async def test_a_start_that_failed_can_be_tried_again() -> None:
    broker = ScriptedBroker()
    broker.refuses = {1}
    router = router_to(broker)
    with pytest.raises(BrokerUnreachableError):
        await router.start()
    broker.refuses = set()
    await router.start()

    assert list(router.view.brokers) == [1]
    await router.close()
