"""What topics let go because their groups are done with it: nothing on a guess."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.broker.test_coordinators import commit, ready, running
from waystation.broker.acknowledged import Acknowledged, Hold
from waystation.broker.archives import Archives
from waystation.broker.broker import Broker
from waystation.cluster.topics import TopicSpec
from waystation.model.errors import WaystationError
from waystation.model.ids import LeaderEpoch
from waystation.model.offsets import NO_OFFSET, Offset
from waystation.partition.partition import Partition
from waystation.records.batch import BatchBuilder
from waystation.sharing.persister import Initialize, Read, Write
from waystation.sharing.state_records import QueueId
from waystation.sharing.states import ACKNOWLEDGED, StateBatch
from waystation.telemetry.metrics import Registry

ALL = -1


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running(tmp_path) as started:
        yield started


async def topic(broker: Broker, groups: str, **options: str) -> Partition:
    told = {"retention.after.ack": groups, "segment.bytes": "500"}
    told |= {name.replace("_", "."): value for name, value in options.items()}
    outcome = (await broker.topics.create([TopicSpec("orders", 1, 1, options=told)]))["orders"]
    assert not isinstance(outcome, WaystationError), outcome
    partition = broker.replicas.get("orders", 0)
    for _ in range(10):
        builder = BatchBuilder()
        builder.append(None, bytes(300), (), timestamp=broker.clock.now())
        partition.append(memoryview(bytearray(builder.build())), ALL, broker.clock.now())
    return partition


def acknowledged_of(broker: Broker) -> Acknowledged:
    archives = Archives(broker.groups, broker.replicas, broker.peers, str, Registry())
    return Acknowledged(
        broker.share_persister, lambda: broker.share_states.exists, archives, broker.replicas
    )


async def hold(broker: Broker, partition: Partition) -> Hold | None:
    found = acknowledged_of(broker)
    await found.look()
    return found.hold(partition)


async def asked(run: object, command: object) -> object:
    told: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    run(command, told.set_result)  # type: ignore[operator]
    return await told


async def settle(broker: Broker, partition: Partition, group: str, start: int) -> None:
    """Let a queue begin, and have settled everything before an offset, and some after it."""
    persister, queue = broker.share_persister, QueueId(group, partition.topic_id, 0)
    assert await asked(persister.initialize, Initialize(queue, 1, Offset(0))) is None
    await asked(persister.read, Read(queue, LeaderEpoch(0)))
    later = StateBatch(Offset(start + 1), Offset(start + 2), ACKNOWLEDGED, 0)
    write = Write(queue, 1, LeaderEpoch(0), Offset(start), (later,))
    assert await asked(persister.write, write) is None


async def test_a_topic_that_names_nobody_waits_for_nobody(broker: Broker) -> None:
    assert await hold(broker, await topic(broker, "")) is None


async def test_nothing_goes_while_a_group_has_no_position(broker: Broker) -> None:
    partition = await topic(broker, "billing,audit")
    await settle(broker, partition, "billing", 7)

    assert await hold(broker, partition) == Hold(Offset(0), Offset(0))


async def test_what_all_queues_have_settled_may_go(broker: Broker) -> None:
    partition = await topic(broker, "billing,audit")
    await settle(broker, partition, "billing", 7)
    await settle(broker, partition, "audit", 4)

    assert await hold(broker, partition) == Hold(Offset(4), Offset(4))


async def test_what_was_settled_of_lost_messages_lets_no_others_go(broker: Broker) -> None:
    """The log was longer once: an election has lost what the queue was done with."""
    partition = await topic(broker, "billing")
    partition.log.epochs.assign(LeaderEpoch(1), Offset(6))
    await settle(broker, partition, "billing", 40)

    assert await hold(broker, partition) == Hold(Offset(6), Offset(6))


async def test_a_queue_that_has_not_begun_has_no_position(broker: Broker) -> None:
    partition = await topic(broker, "billing")
    queue = QueueId("billing", partition.topic_id, 0)
    await asked(broker.share_persister.initialize, Initialize(queue, 1, NO_OFFSET))

    assert await hold(broker, partition) == Hold(Offset(0), Offset(0))


async def test_a_consumer_group_counts_by_what_it_has_committed(broker: Broker) -> None:
    partition = await topic(broker, "billing,lake")
    await ready(broker)
    await settle(broker, partition, "billing", 7)
    await commit(broker, 3, group="lake")

    assert await hold(broker, partition) == Hold(Offset(3), Offset(3))
    assert broker.configs.archive_groups(broker.image) == {"billing", "lake"}


async def test_a_cap_robs_and_names_whom(broker: Broker) -> None:
    partition = await topic(broker, "billing,audit", retention_after_ack_bytes="1000")
    await settle(broker, partition, "billing", 9)

    found = await hold(broker, partition)

    assert found is not None
    assert found.droppable_before == partition.log.segments[-2].base_offset
    assert found.robbed == ("audit",)


async def test_whole_segments_go(broker: Broker) -> None:
    partition = await topic(broker, "billing")
    await settle(broker, partition, "billing", 4)
    acknowledged = acknowledged_of(broker)
    await acknowledged.look()
    found = acknowledged.hold(partition)
    assert found is not None

    freed = acknowledged.let_go(partition, found, broker.clock.now(), Offset(10))

    assert freed > 0
    assert partition.log.log_start == 4
    assert acknowledged.let_go(partition, found, broker.clock.now(), Offset(2)) == 0
