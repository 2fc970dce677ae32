"""What topics keep for their archive: nothing goes on the word of a position that is not there."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from uuid import UUID

import pytest

from tests.broker.test_coordinators import commit, led_by, ready, running, until_loaded
from waystation.broker.archives import Archives
from waystation.broker.broker import Broker
from waystation.broker.coordinators import OFFSETS_TOPIC
from waystation.cluster.configs import Alteration, Operation, alter_broker, alter_topic
from waystation.cluster.keys import EVERY_BROKER
from waystation.cluster.topics import TopicSpec
from waystation.groups.commands import Commit, OffsetToCommit
from waystation.model.errors import WaystationError
from waystation.model.ids import NodeId, TopicId
from waystation.partition.partition import Partition
from waystation.records.batch import BatchBuilder
from waystation.storage.disk import DiskFile, RealDisk, RealFile
from waystation.telemetry.metrics import Registry

GROUP = "archive-lake"
OPTION = "retention.after.archive"
EAGER_CLEANER = {
    "log_cleaner_backoff_ms": "20",
    "log_flush_offset_checkpoint_interval_ms": "1",
    "recovery_bytes_max": "0",
}


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running(tmp_path) as started:
        yield started


async def topic(broker: Broker, name: str = "orders", **options: str) -> Partition:
    spec = TopicSpec(name, 1, 1, options={OPTION: GROUP, **options})
    outcome = (await broker.topics.create([spec]))[name]
    assert not isinstance(outcome, WaystationError), outcome
    return broker.replicas.get(name, 0)


def archives_of(broker: Broker, registry: Registry | None = None) -> Archives:
    return Archives(broker.groups, broker.replicas, broker.peers, str, registry or Registry())


async def kept_from(broker: Broker, partition: Partition) -> int | None:
    archives = archives_of(broker)
    await archives.look()
    return archives.kept_from(partition)


async def set_option(broker: Broker, topic: str, name: str, value: str) -> None:
    alteration = Alteration(name, Operation.SET, value)
    await broker.topics.configure(lambda image: alter_topic(image, topic, [alteration]))


# --- positions ------------------------------------------------------------------------------


async def test_what_the_group_has_not_committed_is_kept(broker: Broker) -> None:
    orders, bills = await topic(broker), await topic(broker, "bills")
    await ready(broker)
    await commit(broker, 7, group=GROUP)
    await commit(broker, 9, group="somebody else")

    assert await kept_from(broker, orders) == 7
    assert await kept_from(broker, bills) == 0


async def test_a_topic_that_names_no_group_keeps_nothing(broker: Broker) -> None:
    orders = await topic(broker, **{OPTION: ""})
    await ready(broker)
    await commit(broker, 7, group=GROUP)

    assert await kept_from(broker, orders) is None


async def test_everything_is_kept_while_the_coordinator_is_not_known_or_loads(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as broker:
        orders = await topic(broker)
        assert await kept_from(broker, orders) == 0

        await ready(broker)
        await commit(broker, 7, group=GROUP)
        assert await kept_from(broker, orders) == 7

    async with running(tmp_path) as broker:
        orders = broker.replicas.get("orders", 0)
        async with broker.groups._loading:  # nothing more is loaded meanwhile
            assert broker.groups.loading
            assert await kept_from(broker, orders) == 0
        await until_loaded(broker)
        assert await kept_from(broker, orders) == 7


async def test_everything_is_kept_while_another_node_coordinates(broker: Broker) -> None:
    orders = await topic(broker)
    await ready(broker)
    await commit(broker, 7, group=GROUP)
    broker.groups.follow(led_by(broker.image, NodeId(99), 5))

    assert await kept_from(broker, orders) == 0


class SlowFile(RealFile):
    """A file that is synced when it is let."""

    __slots__ = ("_may_sync",)

    def __init__(self, path: Path, may_sync: threading.Event, *, create: bool) -> None:
        self._may_sync = may_sync
        super().__init__(path, create=create)

    def datasync(self) -> None:
        assert self._may_sync.wait(20), "nobody let it sync"
        super().datasync()


class SlowDisk(RealDisk):
    __slots__ = ("may_sync",)

    def __init__(self) -> None:
        self.may_sync = threading.Event()
        self.may_sync.set()

    def open(self, path: Path, *, create: bool = False) -> DiskFile:
        return SlowFile(path, self.may_sync, create=create)


async def test_a_position_counts_once_it_is_committed_itself(tmp_path: Path) -> None:
    disk = SlowDisk()
    async with running(tmp_path, disk) as broker:
        orders = await topic(broker)
        await ready(broker)
        await commit(broker, 3, group=GROUP)
        disk.may_sync.clear()
        waiting = asyncio.create_task(commit(broker, 7, group=GROUP))
        await asyncio.sleep(0)

        assert await kept_from(broker, orders) == 0
        assert not waiting.done()

        disk.may_sync.set()
        await asyncio.wait_for(waiting, 10)

        assert await kept_from(broker, orders) == 7


async def test_a_position_in_a_namesake_does_not_count(broker: Broker) -> None:
    orders = await topic(broker)
    await ready(broker)
    host = broker.groups.host_of(GROUP)
    former_life = TopicId(UUID(int=1))
    command = Commit(
        GROUP, -1, "", None, -1, (OffsetToCommit("orders", 0, 7, -1, "", former_life),)
    )
    await host.ask(lambda now, to: host.machine.commit(now, command, to))

    assert await kept_from(broker, orders) == 0


async def test_the_clusters_own_topics_wait_for_nobody(broker: Broker) -> None:
    orders = await topic(broker, **{OPTION: "own"})
    await ready(broker)
    options, alteration = broker.configs.broker_options, Alteration(OPTION, Operation.SET, GROUP)
    await broker.topics.configure(
        lambda image: alter_broker(image, EVERY_BROKER, [alteration], options)
    )
    archives = archives_of(broker)
    own = broker.replicas.get(OFFSETS_TOPIC, 0)

    assert own.settings.retention_after_archive == GROUP
    assert archives.kept_from(own) is None
    assert archives.kept_from(orders) == 0
    assert broker.configs.archive_groups(broker.image) == {GROUP, "own"}


# --- what is told ---------------------------------------------------------------------------


async def test_what_is_held_back_is_counted_while_the_topic_waits(broker: Broker) -> None:
    registry = Registry()
    archives, orders = archives_of(broker, registry), await topic(broker)
    await topic(broker, "bills")
    await archives.look()
    archives.held(orders, 500)
    archives.held(orders, 700)
    archives.held(broker.replicas.get("bills", 0), 30)

    assert held(registry) == {"orders": 700, "bills": 30}

    await broker.topics.delete("orders")
    await set_option(broker, "bills", OPTION, "")
    await archives.look()

    assert held(registry) == {}


def held(registry: Registry) -> dict[str, float]:
    (family,) = registry.snapshot()
    return {dict(sample.labels)["topic"]: sample.value for sample in family.samples}


# --- compaction -----------------------------------------------------------------------------


async def test_what_is_not_archived_is_not_compacted(tmp_path: Path) -> None:
    async with running(tmp_path, **EAGER_CLEANER) as broker:
        compacted = {"cleanup.policy": "compact", "segment.bytes": "600"}
        orders = await topic(broker, **compacted)
        free = await topic(broker, "free", **compacted, **{OPTION: ""})
        await ready(broker)
        for number in range(6):
            for partition in (orders, free):
                partition.append(keyed(number, broker), 1, broker.clock.now())
        await until(lambda: free.log.clean_end == 5)
        assert orders.log.clean_end == 0

        await commit(broker, 3, group=GROUP)
        await until(lambda: orders.log.clean_end == 3)
        await commit(broker, 6, group=GROUP)
        await until(lambda: orders.log.clean_end == 5)


def keyed(number: int, broker: Broker) -> memoryview:
    batch = BatchBuilder()
    batch.append(b"key", b"%500d" % number, timestamp=broker.clock.now())
    return memoryview(bytearray(batch.build()))


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not true():
            await asyncio.sleep(0.005)
