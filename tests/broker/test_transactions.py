"""Transactions find their coordinator, survive its restarts, and hear of it when it is lost."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.apis.kit import batch_of
from tests.broker.test_coordinators import make_topic, running, values
from tests.broker.test_markers import follow
from tests.support.faulty_node import FaultyDisk
from waystation.broker.broker import Broker
from waystation.broker.transactions import STATE_TOPIC
from waystation.cluster.image import ClusterImage
from waystation.model.errors import (
    ConcurrentTransactionsError,
    CoordinatorLoadingError,
    CoordinatorNotAvailableError,
    InvalidRequestError,
    InvalidTxnStateError,
    NotCoordinatorError,
    TransactionAbortableError,
)
from waystation.model.ids import (
    LeaderEpoch,
    NodeId,
    ProducerEpoch,
    ProducerId,
    TopicPartition,
)
from waystation.partition.partition import Partition
from waystation.transactions.commands import (
    Add,
    End,
    Ended,
    Init,
    Initialised,
    TransactionDescription,
)

NAME = "payments"
ORDERS = TopicPartition("orders", 0)
OPTIONS = {"transaction_state_log_num_partitions": "3"}


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running(tmp_path, **OPTIONS) as started:
        await make_topic(started, "orders")
        await ready(started)
        yield started


async def ready(broker: Broker) -> None:
    """Let the internal topic be made and loaded."""
    await broker.transactions.find(NAME)
    await until_loaded(broker)


async def until_loaded(broker: Broker) -> None:
    async with asyncio.timeout(10):
        while broker.transactions.loading or not broker.transactions.machines():
            await asyncio.sleep(0.005)


async def ask(broker: Broker, event: str, command: Any) -> Any:
    host = broker.transactions.host_of(NAME)
    return await host.ask(lambda now, to: getattr(host.machine, event)(now, command, to))


async def init(broker: Broker, timeout_ms: int = 60_000) -> tuple[str, ProducerId, ProducerEpoch]:
    fresh = await broker.producer_ids.take()
    found: Initialised = await ask(broker, "init", Init(NAME, timeout_ms, fresh=fresh))
    return NAME, found.producer_id, found.epoch


async def write(broker: Broker, writer: tuple[str, ProducerId, ProducerEpoch]) -> Partition:
    """Write a record in the transaction, as Produce does."""
    await broker.transactions.admit(*writer, [ORDERS], implicit=True)
    partition = broker.replicas.get(*ORDERS)
    batch = batch_of(b"x", producer=(writer[1], writer[2], 0), transactional=True)
    partition.append(memoryview(bytearray(batch)), -1, broker.clock.now())
    return partition


def describe(broker: Broker) -> TransactionDescription:
    found: TransactionDescription = broker.transactions.host_of(NAME).machine.describe(NAME)
    return found


async def until_state(broker: Broker, state: str) -> None:
    async with asyncio.timeout(10):
        while describe(broker).state != state:
            await asyncio.sleep(0.005)


def led_by(image: ClusterImage, leader: NodeId | None, epoch: int) -> ClusterImage:
    """The same cluster, but for who leads the partitions of transactions."""
    topic = image.topics[STATE_TOPIC]
    partitions = tuple(
        one._replace(leader=leader, leader_epoch=LeaderEpoch(epoch)) for one in topic.partitions
    )
    changed = topic._replace(partitions=partitions)
    return replace(
        image,
        topics={**image.topics, STATE_TOPIC: changed},
        topics_by_id={**image.topics_by_id, topic.id: changed},
    )


# --- finding ------------------------------------------------------------------------------------


async def test_the_internal_topic_is_made_when_a_coordinator_is_first_looked_for(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, **OPTIONS) as broker:
        with pytest.raises(CoordinatorNotAvailableError):
            broker.transactions.host_of(NAME)
        for refused in ("", "x" * 40_000):
            with pytest.raises(InvalidRequestError):
                await broker.transactions.find(refused)
        assert STATE_TOPIC not in broker.image.topics

        node, _, _ = await broker.transactions.find(NAME)

        topic = broker.image.topics[STATE_TOPIC]
        assert (node, topic.internal, len(topic.partitions)) == (broker.node, True, 3)
        settings = broker.configs.topic(broker.image, STATE_TOPIC)
        assert (settings.durability, settings.cleanup_policy) == ("disk", ("compact",))
        assert (settings.segment_bytes, settings.min_insync_replicas) == (100 << 20, 1)


# --- admitting ----------------------------------------------------------------------------------


async def test_who_adds_by_writing_is_admitted_and_the_coordinator_knows(broker: Broker) -> None:
    writer = await init(broker)

    with pytest.raises(TransactionAbortableError):
        await broker.transactions.admit(*writer, [ORDERS], implicit=False)

    await broker.transactions.admit(*writer, [ORDERS], implicit=True)

    assert describe(broker).partitions == (ORDERS,)
    await broker.transactions.admit(*writer, [ORDERS], implicit=False)


async def test_nobody_is_admitted_while_nobody_can_be_asked(broker: Broker) -> None:
    writer = await init(broker)
    broker.transactions.follow(led_by(broker.image, NodeId(7), 5))

    with pytest.raises(CoordinatorNotAvailableError, match="node 7 cannot be asked"):
        await broker.transactions.admit(*writer, [ORDERS], implicit=True)


# --- ending -------------------------------------------------------------------------------------


async def test_a_decision_is_written_where_the_transaction_wrote(broker: Broker) -> None:
    writer = await init(broker)
    partition = await write(broker, writer)
    ended: Ended = await ask(broker, "end", End(*writer, commit=True, bumps=True))
    await until_state(broker, "CompleteCommit")

    assert ended == Ended(writer[1], ProducerEpoch(writer[2] + 1))
    assert partition.last_stable == partition.log_end == 2
    assert values(broker, "waystation_transactions_total") == {"committed": 1, "aborted": 0}
    assert values(broker, "waystation_transaction_markers_total") == {"": 1}


async def test_who_comes_next_waits_for_the_markers_of_what_was_before(broker: Broker) -> None:
    writer = await init(broker)
    partition = await write(broker, writer)
    leadership = partition.leadership
    follow(partition)
    await ask(broker, "end", End(*writer, commit=True))
    again = asyncio.create_task(init(broker))
    await asyncio.sleep(0.05)
    assert not again.done()
    partition.follow_store(leadership)

    assert await asyncio.wait_for(again, 10) == (NAME, writer[1], writer[2] + 1)


async def test_who_waits_for_markers_too_long_is_told_to_come_again(broker: Broker) -> None:
    writer = await init(broker)
    follow(await write(broker, writer))
    await ask(broker, "end", End(*writer, commit=True))

    with pytest.raises(ConcurrentTransactionsError):
        await init(broker)


async def test_a_restart_writes_the_markers_that_are_still_due(tmp_path: Path) -> None:
    async with running(tmp_path, **OPTIONS) as broker:
        await make_topic(broker, "orders")
        await ready(broker)
        writer = await init(broker)
        follow(await write(broker, writer))
        await ask(broker, "end", End(*writer, commit=False))
        assert describe(broker).state == "PrepareAbort"
    async with running(tmp_path, **OPTIONS) as broker:
        await until_loaded(broker)
        await until_state(broker, "CompleteAbort")
        partition = broker.replicas.get(*ORDERS)

        assert partition.last_stable == partition.log_end == 2
        assert len(partition.log.aborted(0, 2)) == 1
        again: Ended = await ask(broker, "end", End(*writer, commit=False))
        assert again.producer_id == writer[1]
        with pytest.raises(InvalidTxnStateError):
            await ask(broker, "end", End(*writer, commit=True))


async def test_a_coordinator_that_lost_its_post_writes_nothing_more(broker: Broker) -> None:
    writer = await init(broker)
    partition = await write(broker, writer)
    leadership = partition.leadership
    follow(partition)
    await ask(broker, "end", End(*writer, commit=True))
    image = broker.image
    broker.transactions.follow(led_by(image, None, 5))
    partition.follow_store(leadership)
    broker.transactions.markers.try_now()
    await asyncio.sleep(0.2)
    assert partition.log_end == 1

    # Whoever coordinates next finds what there is to do.
    broker.transactions.follow(image)
    await until_loaded(broker)
    await until_state(broker, "CompleteCommit")
    assert partition.last_stable == 2


# --- trouble ------------------------------------------------------------------------------------


async def test_who_waits_is_told_when_leadership_is_lost(broker: Broker) -> None:
    writer = await init(broker)
    follow(await write(broker, writer))
    await ask(broker, "end", End(*writer, commit=True))
    waiting = asyncio.create_task(init(broker))
    await asyncio.sleep(0.02)
    broker.transactions.follow(led_by(broker.image, NodeId(7), 5))

    with pytest.raises(NotCoordinatorError):
        await waiting


async def test_a_full_disk_costs_an_answer_and_no_more(tmp_path: Path) -> None:
    path = tmp_path / "data"
    quota = tmp_path / "data.quota"
    options = {**OPTIONS, "disk_reserve_bytes": "0"}
    async with running(tmp_path, FaultyDisk([path]), **options) as broker:
        await make_topic(broker, "orders")
        await ready(broker)
        writer = await init(broker)
        quota.write_text("1")
        with pytest.raises(NotCoordinatorError):
            await ask(broker, "add", Add(*writer, frozenset((ORDERS,))))
        with pytest.raises(CoordinatorLoadingError):
            broker.transactions.host_of(NAME)
        quota.unlink()
        await until_loaded(broker)

        assert describe(broker).state == "Empty"
        await write(broker, writer)
        await ask(broker, "end", End(*writer, commit=True))
        await until_state(broker, "CompleteCommit")


async def test_the_log_of_transactions_is_compacted_and_forgets_nothing(tmp_path: Path) -> None:
    options = {
        "transaction_state_log_num_partitions": "1",
        "transaction_state_log_segment_bytes": "2000",
        "log_cleaner_backoff_ms": "10",
    }
    async with running(tmp_path, **options) as broker:
        await make_topic(broker, "orders")
        await ready(broker)
        for _ in range(50):
            writer = await init(broker)
    async with running(tmp_path, **options) as broker:
        log = broker.replicas.get(STATE_TOPIC, 0).log
        async with asyncio.timeout(20):
            while log.size_bytes > 4_000:
                await asyncio.sleep(0.02)
    async with running(tmp_path, **options) as broker:
        await until_loaded(broker)

        assert await init(broker) == (NAME, writer[1], writer[2] + 1)
