"""Groups find their coordinator, survive its restarts, and hear of it when it is lost."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.faulty_node import FaultyDisk
from waystation.broker.broker import Broker
from waystation.broker.coordinators import OFFSETS_TOPIC
from waystation.broker.far_ends import FarEnds
from waystation.broker.group_survey import GroupSurvey
from waystation.broker.posts import partition_of
from waystation.cluster.configs import Alteration, Operation, alter_broker
from waystation.cluster.image import ClusterImage
from waystation.cluster.topics import TopicSpec
from waystation.groups.commands import (
    Commit,
    Committed,
    FetchedOffsets,
    FetchOffsets,
    Join,
    OffsetToCommit,
)
from waystation.model.errors import (
    CoordinatorLoadingError,
    CoordinatorNotAvailableError,
    InvalidGroupIdError,
    NotCoordinatorError,
    WaystationError,
)
from waystation.model.ids import LeaderEpoch, NodeId, ProducerEpoch, ProducerId
from waystation.model.offsets import Millis
from waystation.node.node import Node
from waystation.node.settings import load
from waystation.records.batch import BatchBuilder
from waystation.records.control import Marker
from waystation.records.header import HEADER_BYTES
from waystation.storage.disk import Disk
from waystation.telemetry.metrics import Registry

GROUP = "payments-service"


@asynccontextmanager
async def running(path: Path, disk: Disk | None = None, **options: str) -> AsyncIterator[Broker]:
    """The broker of a whole node."""
    given = {
        "listen": "127.0.0.1:0",
        "http": "none",
        "log.dirs": str(path / "data"),
        "offsets.topic.num.partitions": "3",
        **{name.replace("_", "."): value for name, value in options.items()},
    }
    node = Node(load([("test", given)]), disk=disk)
    try:
        await node.start()
        yield node.broker
    finally:
        await node.stop()


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running(tmp_path) as started:
        yield started


async def ready(broker: Broker) -> None:
    """Let the internal topic be made and loaded."""
    await broker.groups.find(GROUP)
    await until_loaded(broker)


async def until_loaded(broker: Broker) -> None:
    async with asyncio.timeout(10):
        while broker.groups.loading or not broker.groups.machines():
            await asyncio.sleep(0.005)


async def commit(broker: Broker, offset: int, topic: str = "orders", group: str = GROUP) -> Any:
    host = broker.groups.host_of(group)
    offsets = (OffsetToCommit(topic, 0, offset, -1, ""),)
    command = Commit(group, -1, "", None, -1, offsets)
    return await host.ask(lambda now, to: host.machine.commit(now, command, to))


async def fetch(broker: Broker, topic: str = "orders", group: str = GROUP) -> int:
    host = broker.groups.host_of(group)
    command = FetchOffsets(group, ((topic, (0,)),))
    found: FetchedOffsets = await host.ask(
        lambda now, to: host.machine.fetch_offsets(now, command, to)
    )
    return found.offsets[0].offset


def join(broker: Broker, group: str = GROUP) -> "asyncio.Future[object]":
    """A member that waits for others, who never come."""
    answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    host = broker.groups.host_of(group)
    protocols = (("range", b""),)
    command = Join(group, "", None, "client", "/here", "consumer", protocols, 10_000, 10_000, False)
    host.submit(lambda now: host.machine.join(now, command, answer.set_result), answer.set_result)
    return answer


async def make_topic(broker: Broker, name: str) -> None:
    outcome = (await broker.topics.create([TopicSpec(name, 1, 1)]))[name]
    assert not isinstance(outcome, WaystationError), outcome


def led_by(image: ClusterImage, leader: NodeId | None, epoch: int) -> ClusterImage:
    """The same cluster, but for who leads the groups' partitions."""
    topic = image.topics[OFFSETS_TOPIC]
    partitions = tuple(
        one._replace(leader=leader, leader_epoch=LeaderEpoch(epoch)) for one in topic.partitions
    )
    changed = topic._replace(partitions=partitions)
    return replace(
        image,
        topics={**image.topics, OFFSETS_TOPIC: changed},
        topics_by_id={**image.topics_by_id, topic.id: changed},
    )


# --- finding ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("group_id", "partition"),
    [
        ("", 0),
        ("a", 97 % 50),
        ("hello", 99_162_322 % 50),
        ("polygenelubricants", 0),  # hashes to -2**31, whose absolute value is none
        ("\N{GRINNING FACE}", 1_772_899 % 50),  # two units of UTF-16
        ("zzzzzz", 685_785_664 % 50),
    ],
)
def test_a_group_belongs_to_the_partition_that_kafka_gives_it(
    group_id: str, partition: int
) -> None:
    assert partition_of(group_id, 50) == partition


async def test_the_internal_topic_is_made_when_a_coordinator_is_first_looked_for(
    broker: Broker,
) -> None:
    with pytest.raises(CoordinatorNotAvailableError):
        broker.groups.host_of(GROUP)

    found = await asyncio.gather(*(broker.groups.find(f"group-{n}") for n in range(5)))

    image = broker.image
    topic = image.topics[OFFSETS_TOPIC]
    assert set(found) == {(broker.node, image.brokers[broker.node].host, found[0][2])}
    assert topic.internal
    assert len(topic.partitions) == 3
    settings = broker.configs.topic(image, OFFSETS_TOPIC)
    assert (settings.durability, settings.segment_bytes) == ("disk", 100 << 20)
    assert settings.cleanup_policy == ("compact",)


async def test_the_broker_s_defaults_for_topics_are_not_those_of_the_internal_one(
    tmp_path: Path,
) -> None:
    options = {
        "message.max.bytes": "1000",
        "log.cleanup.policy": "delete",
        "durability": "memory",
        "compression.type": "gzip",
    }
    async with running(tmp_path, **options) as broker:
        await ready(broker)
        settings = broker.configs.topic(broker.image, OFFSETS_TOPIC)

    assert settings.max_message_bytes > 10 << 20
    assert (settings.durability, settings.compression_type) == ("disk", "producer")
    assert settings.cleanup_policy == ("compact",)


async def test_a_group_id_that_fits_into_no_key_is_refused(broker: Broker) -> None:
    await ready(broker)
    longest = "ä" * 16_383

    broker.groups.host_of(longest)
    for refused in (longest + "bc", "x" * 40_000):
        with pytest.raises(InvalidGroupIdError):
            broker.groups.host_of(refused)
        with pytest.raises(InvalidGroupIdError):
            await broker.groups.find(refused)


# --- surviving ----------------------------------------------------------------------------------


async def test_offsets_are_there_after_a_restart_and_loading_needs_nobody_to_ask(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as broker:
        await make_topic(broker, "orders")
        await ready(broker)
        for number in range(20):
            assert await commit(broker, 100 + number, group=f"group-{number}") == Committed((None,))
    async with running(tmp_path) as broker:
        await until_loaded(broker)
        found = [await fetch(broker, group=f"group-{number}") for number in range(20)]

        assert found == [100 + number for number in range(20)]
        assert await fetch(broker, group="another") == -1


async def test_offsets_survive_the_compaction_of_their_log(tmp_path: Path) -> None:
    """Compaction is the machine's snapshot: the newest of each offset, and nothing forgotten."""
    options = {
        "offsets.topic.num.partitions": "1",
        "offsets.topic.segment.bytes": "2000",
        "log.cleaner.backoff.ms": "10",
    }
    async with running(tmp_path, **options) as broker:
        for topic in ("orders", "gone"):
            await make_topic(broker, topic)
        await ready(broker)
        await commit(broker, 1, "gone")
        await broker.topics.delete("gone")
        for offset in range(200):
            await commit(broker, offset, group=f"group-{offset % 7}")
    async with running(tmp_path, **options) as broker:
        log = broker.replicas.get(OFFSETS_TOPIC, 0).log
        async with asyncio.timeout(20):
            while log.size_bytes > 100 * HEADER_BYTES:  # of which 200 commits take 200
                await asyncio.sleep(0.02)
    async with running(tmp_path, **options) as broker:
        await until_loaded(broker)
        found = [await fetch(broker, group=f"group-{number}") for number in range(7)]

        assert found == [196, 197, 198, 199, 193, 194, 195]
        assert await fetch(broker, "gone") == -1


async def test_no_machine_answers_before_it_is_loaded(broker: Broker) -> None:
    await ready(broker)
    image = broker.image
    epoch = image.topics[OFFSETS_TOPIC].partitions[0].leader_epoch
    broker.groups.follow(led_by(image, broker.node, epoch + 1))

    with pytest.raises(CoordinatorLoadingError):
        broker.groups.host_of(GROUP)
    assert broker.groups.machines() == []
    assert broker.groups.loading == 3


async def test_who_waits_is_told_when_leadership_is_lost(broker: Broker) -> None:
    await ready(broker)
    waiting = join(broker)
    elsewhere = NodeId(7)
    broker.groups.follow(led_by(broker.image, elsewhere, 5))

    assert isinstance(await waiting, NotCoordinatorError)
    with pytest.raises(NotCoordinatorError, match="node 7"):
        broker.groups.host_of(GROUP)
    with pytest.raises(CoordinatorNotAvailableError):
        await broker.groups.find(GROUP)

    broker.groups.follow(led_by(broker.image, None, 6))

    with pytest.raises(CoordinatorNotAvailableError):
        broker.groups.host_of(GROUP)


async def test_leadership_that_comes_back_is_taken_up_with_everything_known(broker: Broker) -> None:
    await make_topic(broker, "orders")
    await ready(broker)
    await commit(broker, 42)
    image = broker.image
    broker.groups.follow(led_by(image, None, 9))
    broker.groups.follow(image)
    await until_loaded(broker)

    assert await fetch(broker) == 42


async def test_a_full_disk_costs_an_answer_and_no_more(tmp_path: Path) -> None:
    path = tmp_path / "data"
    quota = tmp_path / "data.quota"
    async with running(tmp_path, FaultyDisk([path]), disk_reserve_bytes="0") as broker:
        await make_topic(broker, "orders")
        await ready(broker)
        await commit(broker, 1)
        quota.write_text("1")
        with pytest.raises(NotCoordinatorError):
            await commit(broker, 2)
        with pytest.raises(CoordinatorLoadingError):
            broker.groups.host_of(GROUP)
        quota.unlink()
        await until_loaded(broker)

        assert await fetch(broker) == 1

        await commit(broker, 3)

        assert await fetch(broker) == 3


async def test_a_shutdown_answers_those_who_wait(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await ready(broker)
        waiting = join(broker)

    assert isinstance(waiting.result(), NotCoordinatorError)


# --- following ----------------------------------------------------------------------------------


async def test_offsets_of_a_deleted_topic_are_forgotten(broker: Broker) -> None:
    await make_topic(broker, "orders")
    await ready(broker)
    await commit(broker, 5)
    await broker.topics.delete("orders")

    assert await fetch(broker) == -1


async def test_options_of_groups_change_while_the_broker_runs(broker: Broker) -> None:
    alteration = Alteration("group.initial.rebalance.delay.ms", Operation.SET, "0")
    options = broker.configs.broker_options
    await broker.topics.configure(
        lambda image: alter_broker(image, str(broker.node), [alteration], options)
    )
    await ready(broker)

    assert not isinstance(await asyncio.wait_for(join(broker), 5), WaystationError)


def values(broker: Broker, name: str, registry: Registry | None = None) -> dict[str, float]:
    """A metric's samples by their labels."""
    families = {family.name: family for family in (registry or broker.registry).snapshot()}
    return {
        " ".join(value for _, value in sample.labels): sample.value
        for sample in families[name].samples
    }


async def test_lag_is_told_in_messages_and_in_seconds(broker: Broker) -> None:
    await make_topic(broker, "orders")
    await ready(broker)
    partition, now = broker.replicas.get("orders", 0), broker.clock.now()
    for age_s in (90, 60, 30):
        batch = BatchBuilder()
        batch.append(None, b"old", timestamp=now - age_s * 1_000)
        batch.append(None, b"newer", timestamp=now - age_s * 1_000 + 10_000)
        partition.append(memoryview(bytearray(batch.build())), 1, now)
    async with asyncio.timeout(10):
        while partition.high_watermark < 6:
            await asyncio.sleep(0.005)
    await commit(broker, 3, group="behind")
    await commit(broker, 6, group="done")
    await broker.survey.look()

    messages = values(broker, "waystation_group_lag_messages")
    seconds = values(broker, "waystation_group_lag_seconds")
    assert messages == {"behind 0 orders": 3, "done 0 orders": 0}
    assert seconds["done 0 orders"] == 0
    assert 50 <= seconds["behind 0 orders"] < 60
    assert values(broker, "waystation_group_offsets") == {"": 2}
    assert values(broker, "waystation_groups") == {"classic Empty": 2}
    assert values(broker, "waystation_group_offsets_committed_total") == {"": 2}

    await commit(broker, 5, group="behind")
    await broker.survey.look()

    assert values(broker, "waystation_group_lag_messages")["behind 0 orders"] == 1
    assert 19 <= values(broker, "waystation_group_lag_seconds")["behind 0 orders"] < 25


async def test_behind_nothing_but_markers_nobody_is_late(broker: Broker) -> None:
    await make_topic(broker, "orders")
    await ready(broker)
    partition, now = broker.replicas.get("orders", 0), broker.clock.now()
    hour_ago = Millis(now - 3_600_000)
    for producer in range(3):
        marker = Marker(ProducerId(producer), ProducerEpoch(0), 0, committed=True)
        partition.append_marker(marker, hour_ago)
    await commit(broker, 1)
    async with asyncio.timeout(10):
        while partition.high_watermark < 3:
            await asyncio.sleep(0.005)
    await broker.survey.look()

    assert list(values(broker, "waystation_group_lag_messages").values()) == [2]
    assert list(values(broker, "waystation_group_lag_seconds").values()) == [0.0]

    batch = BatchBuilder()
    batch.append(None, b"new", timestamp=now - 20_000)
    partition.append(memoryview(bytearray(batch.build())), 1, now)
    async with asyncio.timeout(10):
        while partition.high_watermark < 4:
            await asyncio.sleep(0.005)
    await broker.survey.look()

    (seconds,) = values(broker, "waystation_group_lag_seconds").values()
    assert 20 <= seconds < 60


async def test_only_the_largest_lags_have_lines_of_their_own(broker: Broker) -> None:
    await make_topic(broker, "orders")
    await ready(broker)
    partition, now = broker.replicas.get("orders", 0), broker.clock.now()
    batch = BatchBuilder()
    for _ in range(50):
        batch.append(None, b"x", timestamp=now)
    partition.append(memoryview(bytearray(batch.build())), 1, now)
    async with asyncio.timeout(10):
        while partition.high_watermark < 50:
            await asyncio.sleep(0.005)
    for number in range(20):
        await commit(broker, 2 * number, group=f"group-{number:02}")
    registry, groups = Registry(), broker.groups
    survey = GroupSurvey(
        groups.machines,
        lambda: groups.loading,
        broker.replicas,
        FarEnds(broker.peers, lambda: broker.image),
        broker.clock,
        registry,
        listed_max=3,
    )
    await survey.look()

    assert values(broker, "waystation_group_lag_messages", registry) == {
        "group-00 0 orders": 50,
        "group-01 0 orders": 48,
        "group-02 0 orders": 46,
    }
    assert values(broker, "waystation_group_lags_unlisted", registry) == {"": 17}
    assert values(broker, "waystation_group_offsets", registry) == {"": 20}


async def test_members_are_counted_by_the_state_of_their_group(tmp_path: Path) -> None:
    async with running(tmp_path, group_initial_rebalance_delay_ms="0") as broker:
        await ready(broker)
        await join(broker)
        await broker.survey.look()

        assert values(broker, "waystation_group_members") == {"": 1}
        assert values(broker, "waystation_groups") == {"classic CompletingRebalance": 1}
        assert values(broker, "waystation_group_partitions_loading") == {"": 0}
