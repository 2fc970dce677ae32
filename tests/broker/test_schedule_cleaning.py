"""What was delivered goes from a companion's log, what waits stays, and no offset is missing."""

from pathlib import Path

import pytest

from tests.broker.scheduled import (
    after,
    at,
    delivered,
    keeper_of,
    leads,
    make,
    rows,
    running,
    schedule,
    soon,
    until,
    values,
    waiting,
)
from tests.broker.test_schedules import set_option
from waystation.broker.broker import Broker
from waystation.cluster.topics import TopicSpec
from waystation.model.errors import CorruptBatchError
from waystation.model.ids import NodeId
from waystation.records.header import batches
from waystation.scheduling.schedule import Pending
from waystation.testing.cluster import LocalCluster

YEAR_MS = 365 * 86_400_000
EAGER = {
    "log_cleaner_backoff_ms": "20",
    "log_flush_offset_checkpoint_interval_ms": "1",
    "recovery_bytes_max": "0",
    "schedule_buffer_entries": "64",
}


async def filled(broker: Broker) -> None:
    """A log of many segments, 100 KB at least, in which a few messages wait for a year."""
    await make(broker)
    await fill(broker)


async def fill(broker: Broker, rounds: int = 20) -> None:
    await set_option(broker, "orders.delay", "segment.bytes", "20000")
    far = soon(broker, YEAR_MS)
    for number in range(rounds):
        schedule(
            broker,
            *((value + b"x" * 100, after(1)) for value in values(50, number * 50)),
            (b"waits %d" % number, at(far + number)),
        )
    await until(lambda: len(delivered(broker)) == rounds * 50)


def everything(broker: Broker) -> list[Pending]:
    found, start = broker.schedules.pending("orders.delay", 0, None, 100)
    while start is not None:
        more, start = broker.schedules.pending("orders.delay", 0, start, 100)
        found += more
    return found


async def test_what_waits_for_a_year_pins_only_itself(tmp_path: Path) -> None:
    async with running(tmp_path, **EAGER) as broker:
        await filled(broker)
        delay = broker.replicas.get("orders.delay", 0)
        await until(lambda: delay.log.size_bytes < 50_000)

        left = [row[3] for row in rows(delay) if row[3] and row[3].startswith(b"waits")]
        assert left == [b"waits %d" % n for n in range(20)]
        offset = delay.log.segments[0].base_offset
        while (part := delay.read(offset, 1 << 20, at_least_one=True)).region is not None:
            for _, header in batches(part.region.read()):
                assert header.base_offset == offset, "an offset is missing"
                offset = header.next_offset
        assert offset == delay.log_end
        assert waiting(broker) == 20


async def test_a_book_made_anew_of_a_cleaned_log_is_the_same(tmp_path: Path) -> None:
    async with running(tmp_path, **EAGER) as broker:
        await filled(broker)
        delay = broker.replicas.get("orders.delay", 0)
        await until(lambda: delay.log.size_bytes < 50_000)
        before = everything(broker)
        folder = keeper_of(broker).partition.log.path / "schedule"
    for file in folder.iterdir():
        file.unlink()
    async with running(tmp_path, **EAGER) as broker:
        await until(lambda: leads(broker, "orders", 0) and waiting(broker) == 20)

        assert everything(broker) == before
        assert len(delivered(broker)) == 1_000


async def test_replicas_clean_for_themselves_and_whoever_leads_next_repeats_nothing(
    tmp_path: Path,
) -> None:
    options = {name.replace("_", "."): value for name, value in EAGER.items()}
    leases = {"broker.session.timeout.ms": "4000", "default.replication.factor": "3"}
    async with LocalCluster(tmp_path, 3, options={**options, **leases}) as cluster:
        broker = cluster.nodes[1].broker
        assignments = [(0, [NodeId(1), NodeId(2), NodeId(3)])]
        wanted = {"schedule.enable": "true"}
        await broker.topics.create([TopicSpec("orders", assignments=assignments, options=wanted)])
        await cluster.until(lambda: leads(broker, "orders", 0))
        await fill(broker)

        def is_clean(number: int) -> bool:
            log = cluster.nodes[number].broker.replicas.get("orders.delay", 0).log
            return log.clean_end > 0 and log.size_bytes < 50_000

        await cluster.until(lambda: all(map(is_clean, cluster.ids)), 40)
        await cluster.kill(1)
        heirs = [cluster.nodes[number].broker for number in (2, 3)]
        await cluster.until(lambda: any(leads(one, "orders", 0) for one in heirs), 40)
        heir = next(one for one in heirs if leads(one, "orders", 0))
        schedule(heir, (b"last", after(1)))
        await cluster.until(lambda: delivered(heir)[-1:] == [b"last"], 40)

        assert len(delivered(heir)) == 1_001
        await cluster.until(lambda: waiting(heir) == 20)


async def test_a_topic_that_was_made_anew_is_cleaned_as_the_first(tmp_path: Path) -> None:
    """What was known of a log of the same name says nothing about it."""
    async with running(tmp_path, **EAGER) as broker:
        await filled(broker)
        known = broker._schedule_cleaning
        await until(lambda: any(past.end > 600 for past in known._past.values()))
        await broker.topics.delete("orders")
        await until(lambda: broker.replicas.find("orders.delay", 0) is None)

        await make(broker)
        await fill(broker, 9)
        second = broker.replicas.get("orders.delay", 0)
        await until(lambda: second.log.size_bytes < 50_000)

        assert second.log_end < 600
        assert waiting(broker) == 9


async def test_a_pass_that_finds_damage_leaves_nothing_behind(tmp_path: Path) -> None:
    patient = {**EAGER, "log_cleaner_backoff_ms": "3600000"}
    async with running(tmp_path, **patient) as broker:
        await filled(broker)
        log = broker.replicas.get("orders.delay", 0).log
        log.segments[1].file().pwrite(b"!", 100)
        await until(lambda: log.recovery_point > log.segments[2].base_offset)
        cleaning = broker._schedule_cleaning

        with pytest.raises(CorruptBatchError):
            await cleaning._look_at(keeper_of(broker))

        assert not [path for path in log.path.iterdir() if path.suffix in (".cleaned", ".swap")]
        assert log.directory.offline is None
