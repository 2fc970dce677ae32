"""Scheduled messages in a running broker: in time, once, in order, and kept while they wait."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.broker.scheduled import (
    SetClock,
    after,
    at,
    book,
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
from waystation.broker.broker import Broker
from waystation.cluster.configs import Alteration, Operation, alter_topic
from waystation.cluster.topics import TopicSpec
from waystation.model.errors import ErrorCode, InvalidRecordError, InvalidTopicError
from waystation.model.offsets import Millis, Offset
from waystation.partition.intake import RejectedRecordsError
from waystation.partition.partition import ACKS_ALL
from waystation.records.batch import BatchBuilder
from waystation.records.control import Marker
from waystation.runtime.clock import SystemClock

YEAR_MS = 365 * 86_400_000


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running(tmp_path) as started:
        yield started


async def set_option(broker: Broker, topic: str, name: str, value: str) -> None:
    alteration = Alteration(name, Operation.SET, value)
    await broker.topics.configure(lambda image: alter_topic(image, topic, [alteration]))


# --- delivering -----------------------------------------------------------------------------


async def test_messages_come_in_time_in_the_order_of_times_and_as_they_were(broker: Broker) -> None:
    await make(broker)
    began = broker.clock.now()

    schedule(broker, (b"third", at(began + 1_500)), (b"first", at(began + 100)))
    schedule(broker, (b"second", after(200)), (b"late", at(began - 5_000)))
    await until(lambda: len(delivered(broker)) == 4)

    assert delivered(broker) == [b"late", b"first", b"second", b"third"]
    orders = broker.replicas.get("orders", 0)
    late, first, _, third = rows(orders)
    assert first[2:] == (b"key-first", b"first", at(began + 100))
    assert late[1] <= first[1]
    assert first[1] >= began + 100
    assert third[1] >= began + 1_500


async def test_many_that_are_due_at_once_come_once_each(broker: Broker) -> None:
    await make(broker)
    due = soon(broker, 150)

    for first in range(0, 3_000, 500):
        schedule(broker, *((value, at(due)) for value in values(500, first)))
    await until(lambda: len(delivered(broker)) >= 3_000)

    assert delivered(broker) == values(3_000)
    await until(lambda: not waiting(broker))


async def test_what_is_larger_than_the_target_takes_at_once_comes_in_several_batches(
    broker: Broker,
) -> None:
    await make(broker)
    await set_option(broker, "orders", "max.message.bytes", "2000")

    for number in range(20):
        schedule(broker, (b"%02d" % number * 400, after(100)))
    await until(lambda: len(delivered(broker)) == 20)

    assert [value[:2] for value in delivered(broker)] == [b"%02d" % n for n in range(20)]


async def test_what_the_target_refuses_for_good_holds_up_no_other(broker: Broker) -> None:
    await make(broker)
    await set_option(broker, "orders", "max.message.bytes", "500")

    schedule(broker, (b"x" * 2_000, after(50)), (b"small", after(60)))
    await until(lambda: delivered(broker) == [b"small"])

    assert waiting(broker) == 1


async def test_a_transactions_messages_wait_for_its_end_and_nobody_waits_for_them(
    broker: Broker,
) -> None:
    await make(broker)
    delay = broker.replicas.get("orders.delay", 0)
    for producer, value in ((7, b"committed"), (8, b"aborted")):
        builder = BatchBuilder(is_transactional=True)
        builder.producer_id, builder.producer_epoch, builder.base_sequence = producer, 0, 0  # type: ignore[assignment]
        builder.append(None, value, after(1), timestamp=broker.clock.now())
        delay.append(memoryview(bytearray(builder.build())), ACKS_ALL, broker.clock.now())
    schedule(broker, (b"alone", after(1)))
    await until(lambda: delivered(broker) == [b"alone"])

    for producer, committed in ((7, True), (8, False)):
        marker = Marker(producer, 0, 0, committed)  # type: ignore[arg-type]
        delay.append_marker(marker, broker.clock.now())
    await until(lambda: len(delivered(broker)) == 2)

    assert delivered(broker) == [b"alone", b"committed"]
    assert not waiting(broker)


async def test_each_partition_delivers_to_its_namesake(broker: Broker) -> None:
    await make(broker, partitions=3)

    for number in range(3):
        schedule(broker, (b"%d" % number, after(20)), number=number)
    await until(lambda: all(delivered(broker, number=n) for n in range(3)))

    assert [delivered(broker, number=n) for n in range(3)] == [[b"0"], [b"1"], [b"2"]]


async def test_a_clock_that_is_set_forwards_makes_due_and_backwards_holds_back(
    tmp_path: Path,
) -> None:
    clock = SetClock(SystemClock())
    async with running(tmp_path, clock) as broker:
        await make(broker)
        hour_ms = 3_600_000
        schedule(broker, (b"in an hour", at(soon(broker, hour_ms))))
        schedule(broker, (b"in two", at(soon(broker, 2 * hour_ms))))

        clock.step_ms = hour_ms + 1_000
        await until(lambda: delivered(broker) == [b"in an hour"])
        clock.step_ms = -hour_ms
        schedule(broker, (b"soon", after(50)))
        await until(lambda: len(delivered(broker)) == 2)

        assert delivered(broker) == [b"in an hour", b"soon"]
        assert waiting(broker) == 1


# --- wishes ---------------------------------------------------------------------------------


async def test_messages_are_listed_looked_up_cancelled_and_re_timed(broker: Broker) -> None:
    await make(broker)
    far = soon(broker, YEAR_MS)
    first = schedule(broker, *((value, at(far + n)) for n, value in enumerate(values(5))))
    await until(lambda: waiting(broker) == 5)
    schedules = broker.schedules

    found, rest = schedules.pending("orders.delay", 0, None, 2)
    more, _ = schedules.pending("orders.delay", 0, rest, 10)
    assert [one.offset - first for one in (*found, *more)] == [0, 1, 2, 3, 4]

    outcomes = await schedules.cancel("orders.delay", 0, [Offset(first), Offset(first + 99)])
    assert outcomes[0] is None
    assert "no such message" in str(outcomes[1])
    wish = (Offset(first + 1), Millis(soon(broker, 30)))
    assert await schedules.retime("orders.delay", 0, [wish]) == [None]
    await until(lambda: delivered(broker) == [b"00001"])

    pending, row = await schedules.look_up("orders.delay", 0, Offset(first + 2))
    assert (pending.due, row and row[3]) == (far + 2, b"00002")
    again = await schedules.cancel("orders.delay", 0, [Offset(first), Offset(first + 1)])
    assert all("not pending" in str(one) for one in again)
    assert waiting(broker) == 3


async def test_wishes_about_other_topics_are_refused_with_what_to_do(broker: Broker) -> None:
    await make(broker)

    with pytest.raises(InvalidTopicError, match=r"schedule\.enable"):
        broker.schedules.count("orders", 0)


# --- what is produced -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "problem"),
    [
        ((), "deliver-at"),
        ((("deliver-at", b"tomorrow"),), "deliver-at is 'tomorrow'"),
        ((("deliver-at", b"1"),), "schedule.past.max.ms"),
        ((("deliver-at", b"99999999999999"),), "schedule.horizon.ms"),
        ((("deliver-cron", b"often"),), "deliver-cron"),
    ],
)
async def test_a_batch_with_a_record_that_cannot_be_timed_is_refused(
    broker: Broker, headers: tuple[tuple[str, bytes], ...], problem: str
) -> None:
    await make(broker)

    with pytest.raises(RejectedRecordsError, match=problem) as refused:
        schedule(broker, (b"good", after(1)), (b"bad", headers))

    assert isinstance(refused.value, InvalidRecordError)
    assert refused.value.code == ErrorCode.INVALID_RECORD
    assert [index for index, _ in refused.value.rejected] == [1]
    assert broker.replicas.get("orders.delay", 0).log_end == 0


# --- the companion --------------------------------------------------------------------------


async def test_a_companion_grows_with_its_topic_and_goes_with_it(broker: Broker) -> None:
    await make(broker, partitions=1)

    await broker.topics.add_partitions("orders", 3, None)
    await until(lambda: len(broker.image.topics["orders.delay"].partitions) == 3)
    await broker.topics.delete("orders")

    assert "orders.delay" not in broker.image.topics


async def test_a_topic_of_that_name_becomes_the_companion(broker: Broker) -> None:
    """Whatever its options are: time is the broker's from then on, and nothing expires."""
    await broker.topics.create([TopicSpec("orders.delay", 1, 1), TopicSpec("orders", 2, 1)])
    schedule(broker, (b"from before", ()), (b"timed before", after(1)))

    await set_option(broker, "orders", "schedule.enable", "true")
    await until(lambda: delivered(broker) == [b"timed before"])

    await until(lambda: len(broker.image.topics["orders.delay"].partitions) == 2)
    settings = broker.replicas.get("orders.delay", 0).settings
    assert (settings.message_timestamp_type, settings.retention_ms) == ("LogAppendTime", -1)


async def test_turned_off_nothing_is_delivered_and_turned_on_again_all_is(broker: Broker) -> None:
    await make(broker)
    schedule(broker, (b"waits", at(soon(broker, 200))))
    await until(lambda: waiting(broker) == 1)

    await set_option(broker, "orders", "schedule.enable", "false")
    schedule(broker, (b"an ordinary message", ()))
    await until(lambda: broker.clock.now() and not broker.schedules.keepers())
    assert delivered(broker) == []
    await set_option(broker, "orders", "schedule.enable", "true")
    await until(lambda: delivered(broker) == [b"waits"])

    assert book(broker).strays == 1


async def test_a_topic_that_cannot_have_a_companion_cannot_be_scheduled(broker: Broker) -> None:
    wanted = {"schedule.enable": "true"}
    await broker.topics.create([TopicSpec("bills_delay", 1, 1), TopicSpec("plain.delay", 1, 1)])
    specs = [TopicSpec(name, 1, 1, options=wanted) for name in ("bills", "x.delay", "y" * 245)]

    outcomes = await broker.topics.create(specs)

    assert "collides with 'bills_delay'" in str(outcomes["bills"])
    assert "itself a place where messages wait" in str(outcomes["x.delay"])
    assert "too long" in str(outcomes["y" * 245])
    with pytest.raises(InvalidTopicError, match="itself a place"):
        await set_option(broker, "plain.delay", "schedule.enable", "true")
    assert sorted(broker.image.topics) == ["bills_delay", "plain.delay"]


async def test_a_companion_is_there_when_its_topic_is(broker: Broker) -> None:
    await broker.topics.create([TopicSpec("orders", 2, 1, options={"schedule.enable": "true"})])

    assert len(broker.image.topics["orders.delay"].partitions) == 2
    await broker.topics.add_partitions("orders", 4, None)
    assert len(broker.image.topics["orders.delay"].partitions) == 4


async def test_how_far_ahead_and_how_late_is_for_the_broker_to_say(tmp_path: Path) -> None:
    async with running(
        tmp_path, schedule_horizon_ms="60000", schedule_past_max_ms="60000"
    ) as broker:
        await make(broker)
        for moment in (soon(broker, 70_000), soon(broker, -70_000)):
            with pytest.raises(RejectedRecordsError):
                schedule(broker, (b"refused", at(moment)))

        schedule(broker, (b"fine", at(soon(broker, -50_000))), (b"too", at(soon(broker, 50_000))))
        await until(lambda: delivered(broker) == [b"fine"])


# --- restarts -------------------------------------------------------------------------------


async def test_what_waits_survives_a_restart_and_is_delivered_once(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await make(broker)
        schedule(broker, (b"before", after(1)), (b"waits", at(soon(broker, 600))))
        await until(lambda: delivered(broker) == [b"before"])
    async with running(tmp_path) as broker:
        await until(lambda: len(delivered(broker)) == 2)

        assert delivered(broker) == [b"before", b"waits"]


async def test_a_damaged_index_is_made_anew_from_the_log(tmp_path: Path) -> None:
    small = {"schedule_buffer_entries": "64"}
    async with running(tmp_path, **small) as broker:
        await make(broker)
        far = soon(broker, YEAR_MS)
        for first in range(0, 500, 50):
            schedule(broker, *((value, at(far)) for value in values(50, first)))
        await until(lambda: book(broker).index.runs and waiting(broker) == 500)
        await until(lambda: book(broker).saved)
        folder = keeper_of(broker).partition.log.path / "schedule"
    for file in folder.glob("*.run"):
        file.write_bytes(b"\0" * file.stat().st_size)
    async with running(tmp_path, **small) as broker:
        await until(lambda: leads(broker, "orders", 0) and waiting(broker) == 500)

        found, _ = broker.schedules.pending("orders.delay", 0, None, 1_000)
        assert len(found) == 500
