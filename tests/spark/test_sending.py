"""Batches of a task reach real brokers from a thread of their own, whatever happens meanwhile."""

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from tests.spark.topics import ask, create
from tests.support.soak import count
from waystation import Consumer, Producer
from waystation.client.errors import BrokerUnreachableError, MessageRefusedError
from waystation.client.options import ProducerOptions
from waystation.client.transactor import PreparedTransaction
from waystation.model.errors import (
    MessageTooLargeError,
    UnknownTopicError,
    WaystationError,
)
from waystation.spark.encode import Encoder
from waystation.spark.sending import Sending
from waystation.testing.process import BrokerProcess

QUICK: ProducerOptions = {"retry_backoff_ms": 10, "retry_backoff_max_ms": 100}


@pytest.fixture(autouse=True)
def nothing_stays_behind() -> Iterator[None]:
    yield
    assert "spark-sending" not in [thread.name for thread in threading.enumerate()]


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that may be killed, if it is started again."""
    process = BrokerProcess(tmp_path_factory.mktemp("mortal") / "data")
    with process.start():
        yield process


def frame(first: int, rows: int, keys: int = 7) -> pa.RecordBatch:
    numbers = range(first, first + rows)
    return pa.record_batch(
        {
            "key": pa.array([f"key-{number % keys}" for number in numbers]),
            "value": pa.array([str(number) for number in numbers]),
        }
    )


def put_all(sending: Sending, encoder: Encoder, *frames: pa.RecordBatch) -> None:
    for one in frames:
        for packed in encoder.add(one):
            sending.put(packed)
    for packed in encoder.flush():
        sending.put(packed)


def read(bootstrap: str, topic: str, rows: int) -> dict[bytes, list[int]]:
    """What is committed, by key in the order of offsets; nothing follows ``rows``."""

    async def reading() -> dict[bytes, list[int]]:
        found = defaultdict(list)
        left = rows
        async with (
            asyncio.timeout(20),
            Consumer(topics=topic, bootstrap=bootstrap, isolation="read_committed") as consumer,
        ):
            while left > 0:
                for one in await consumer.poll():
                    found[one.key or b""].append(int(one.value or b""))
                    left -= 1
            assert not await consumer.poll(100)
        return dict(found)

    return asyncio.run(reading())


def by_key(rows: int, keys: int = 7) -> dict[bytes, list[int]]:
    return {b"key-%d" % key: list(range(key, rows, keys)) for key in range(min(keys, rows))}


def end(bootstrap: str, prepared: PreparedTransaction, *, commit: bool) -> None:
    async def ending() -> None:
        async with Producer(bootstrap) as producer:
            await producer.end(prepared, commit=commit)

    asyncio.run(ending())


def test_rows_are_there_by_key_and_in_order_after_flush(bootstrap: str) -> None:
    create(bootstrap, "sent-plain", 3)
    with Sending(bootstrap, {"batch_bytes": 2_000, "compression": "lz4"}) as sending:
        sending.start()
        encoder = sending.encoder("sent-plain")
        put_all(sending, encoder, frame(0, 3_000), frame(3_000, 2_000))
        sending.flush()

        assert read(bootstrap, "sent-plain", 5_000) == by_key(5_000)


def test_a_prepared_transaction_counts_once_it_is_committed_by_anyone(bootstrap: str) -> None:
    create(bootstrap, "sent-prepared", 2)
    with Sending(bootstrap, {}) as sending:
        sending.start("sending-prepared")
        put_all(sending, sending.encoder("sent-prepared"), frame(0, 500))
        prepared = sending.prepare()

    assert prepared.transactional_id == "sending-prepared"
    assert read(bootstrap, "sent-prepared", 0) == {}
    end(bootstrap, prepared, commit=True)
    assert read(bootstrap, "sent-prepared", 500) == by_key(500)


def test_what_was_aborted_is_never_seen(bootstrap: str) -> None:
    create(bootstrap, "sent-aborted", 2)
    with Sending(bootstrap, {}) as sending:
        sending.start("sending-aborted")
        encoder = sending.encoder("sent-aborted")
        put_all(sending, encoder, frame(0, 500))
        sending.abort()
        sending.abort()  # harmless

    assert read(bootstrap, "sent-aborted", 0) == {}


def test_put_waits_while_too_much_is_under_way(bootstrap: str) -> None:
    create(bootstrap, "sent-slowly", 2)
    most = 0
    with Sending(bootstrap, {"batch_bytes": 8_000, "buffer_bytes": 30_000}) as sending:
        sending.start()
        encoder = sending.encoder("sent-slowly")
        for first in range(0, 20_000, 2_000):
            for packed in encoder.add(frame(first, 2_000)):
                sending.put(packed)
                most = max(most, sending._under_way_bytes)
        for packed in encoder.flush():
            sending.put(packed)
        sending.flush()

        assert sending._under_way_bytes == 0
    assert 8_000 < most <= 30_000
    assert read(bootstrap, "sent-slowly", 20_000) == by_key(20_000)


def test_a_topic_that_does_not_exist_is_an_error_and_is_not_created(bootstrap: str) -> None:
    with Sending(bootstrap, {}) as sending:
        sending.start()
        with pytest.raises(UnknownTopicError, match="create it with `waystation topic create"):
            put_all(sending, sending.encoder("sent-nowhere"), frame(0, 1))

    names = [one.name for one in ask(bootstrap, lambda admin: admin.list_topics())]
    assert "sent-nowhere" not in names


def test_a_topic_tells_its_partitions_and_what_it_takes(bootstrap: str) -> None:
    create(bootstrap, "sent-small", 3, max_message_bytes="5000")
    with Sending(bootstrap, {}) as sending:
        sending.start()

        assert sending.topic("sent-small") == ("sent-small", 3, (0, 1, 2), 5_000)
        large = pa.record_batch({"value": pa.array([b"x" * 5_000])})
        with pytest.raises(MessageRefusedError, match="the topic takes 5000"):
            list(sending.encoder("sent-small").add(large))
        put_all(sending, sending.encoder("sent-small"), frame(0, 2_000))
        sending.flush()

    assert read(bootstrap, "sent-small", 2_000) == by_key(2_000)


@pytest.mark.parametrize("transactional_id", [None, "sending-shrunk"])
def test_the_first_error_of_a_send_comes_out_of_every_later_call(
    bootstrap: str, transactional_id: str | None
) -> None:
    """A topic that took less from one moment to the next: neither flush nor prepare succeed."""
    topic = f"sent-shrunk-{transactional_id}"
    create(bootstrap, topic, 1)
    with Sending(bootstrap, {}) as sending:
        sending.start(transactional_id)
        encoder = sending.encoder(topic)
        packed = [*encoder.add(frame(0, 2_000)), *encoder.flush()]
        ask(bootstrap, lambda admin: admin.alter_configs(topic, set={"max.message.bytes": "500"}))
        for one in packed:
            sending.put(one)
        with pytest.raises(WaystationError, match=r"max.message.bytes"):
            sending.prepare() if transactional_id else sending.flush()
        with pytest.raises(MessageTooLargeError):
            sending.put(packed[0])
        with pytest.raises(MessageTooLargeError):
            sending.flush()
        sending.abort()

    assert read(bootstrap, topic, 0) == {}


def test_a_batch_that_is_refused_at_once_is_not_missing_in_a_prepared_transaction(
    bootstrap: str,
) -> None:
    create(bootstrap, "sent-refused", 1)
    with Sending(bootstrap, {}) as sending:
        sending.start("sending-refused")
        encoder = sending.encoder("sent-refused")
        first, second = ([*encoder.add(frame(0, 10)), *encoder.flush()] for _ in range(2))
        sending.put(first[0])
        sending.put(second[0]._replace(partition=5))
        with pytest.raises(UnknownTopicError, match="no partition 5"):
            sending.prepare()
        sending.abort()

    assert read(bootstrap, "sent-refused", 0) == {}


def test_a_broker_that_is_not_there_is_told_at_once() -> None:
    with Sending("127.0.0.1:1", {}) as sending, pytest.raises(BrokerUnreachableError):
        sending.start()


def test_closing_leaves_undelivered_batches_and_does_not_wait(mortal: BrokerProcess) -> None:
    create(mortal.bootstrap, "sent-late", 1)
    sending = Sending(mortal.bootstrap, QUICK)
    sending.start("sending-closed")
    encoder = sending.encoder("sent-late")
    packed = [*encoder.add(frame(0, 10)), *encoder.flush()]
    mortal.kill()
    sending.put(packed[0])
    began = time.monotonic()
    sending.close()
    sending.close()
    took_s = time.monotonic() - began
    mortal.start()

    assert took_s < 5


def test_the_tasks_own_questions_run_on_the_same_loop(bootstrap: str) -> None:
    async def whose() -> tuple[str, Any]:
        return threading.current_thread().name, asyncio.get_running_loop()

    with Sending(bootstrap, {}) as sending:
        first, second = sending.run(whose()), sending.run(whose())

    assert first == second
    assert first[0] == "spark-sending"


@pytest.mark.parametrize("number", range(count(1, 20)))
def test_rows_are_there_once_and_in_order_though_the_broker_is_killed(
    mortal: BrokerProcess, number: int
) -> None:
    rows, steps, topic = 20_000, 20, f"sent-through-{number}"
    create(mortal.bootstrap, topic, 3)
    with Sending(mortal.bootstrap, {**QUICK, "batch_bytes": 3_000}) as sending:
        sending.start()
        encoder = sending.encoder(topic)
        for step in range(steps):
            for packed in encoder.add(frame(step * rows // steps, rows // steps)):
                sending.put(packed)
            if step == 5 + number % 10:
                mortal.kill()
                mortal.start()
        for packed in encoder.flush():
            sending.put(packed)
        sending.flush()

    assert read(mortal.bootstrap, topic, rows) == by_key(rows)
