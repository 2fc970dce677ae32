"""The producer against a real broker."""

import asyncio
from pathlib import Path

import confluent_kafka
import pytest

import waystation
from waystation import Admin, Consumer, Producer
from waystation.client.errors import DeliveryError, NoSuchPartitionError, TopicMadeAnewError
from waystation.client.partitioner import partition_of_key
from waystation.client.transport import TcpTransport
from waystation.model.errors import MessageTooLargeError
from waystation.testing.process import BrokerProcess

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


async def read_all(bootstrap: str, topic: str, least: int = 0) -> list[waystation.Message]:
    """Everything up to the end; ``least`` waits for what is acknowledged but not readable yet."""
    async with Consumer(topics=topic, bootstrap=bootstrap) as consumer:
        ends = await consumer.end_offsets()
        found: list[waystation.Message] = []
        while (
            any(consumer.position(where) < end for where, end in ends.items()) or len(found) < least
        ):
            found += await consumer.poll()
        return found


@pytest.mark.parametrize("codec", CODECS)
async def test_everything_a_record_has_is_read_back(bootstrap: str, topic: str, codec: str) -> None:
    async with Producer(bootstrap, compression=codec) as producer:
        for number in range(50):
            producer.submit(
                topic,
                b"\x00\xff" * 100 + b"%d" % number,
                key=f"key {number}",
                headers={"trace": b"\x01", "empty": b"", "null": None},
                timestamp=1_700_000_000_000 + number,
            )
        tombstone = await producer.send(topic, None, key=b"gone")
        empty = await producer.send(topic, b"", key=b"")
    messages = await read_all(bootstrap, topic)

    assert [one.offset for one in messages] == list(range(52))
    for number, message in enumerate(messages[:50]):
        assert message.value == b"\x00\xff" * 100 + b"%d" % number
        assert message.key == f"key {number}".encode()
        assert message.timestamp == 1_700_000_000_000 + number
        assert message.headers == (("trace", b"\x01"), ("empty", b""), ("null", None))
    assert (messages[50].key, messages[50].value) == (b"gone", None)
    assert (messages[51].key, messages[51].value) == (b"", b"")
    assert (tombstone.offset, empty.offset) == (50, 51)


@pytest.mark.parametrize("acks", ["0", "1", "all"])
async def test_every_kind_of_acknowledgement_works(bootstrap: str, topic: str, acks: str) -> None:
    async with Producer(bootstrap, acks=acks) as producer:
        told = [await producer.send(topic, b"%d" % number) for number in range(20)]
    messages = await read_all(bootstrap, topic, least=20)

    assert [one.value for one in messages] == [b"%d" % number for number in range(20)]
    assert [one.offset for one in told] == ([-1] * 20 if acks == "0" else list(range(20)))


async def test_order_is_kept_through_many_small_batches(bootstrap: str, topic: str) -> None:
    async with Producer(bootstrap, batch_bytes=500, linger_ms=0) as producer:
        for number in range(5_000):
            producer.submit(topic, b"%d" % number, partition=0)
            if number % 50 == 0:
                await producer.drain()
        await producer.flush()
    messages = await read_all(bootstrap, topic)

    assert [int(one.value or b"-1") for one in messages] == list(range(5_000))


async def test_a_key_goes_where_librdkafka_sends_it(bootstrap: str, topic: str) -> None:
    async with Admin(bootstrap) as admin:
        await admin.create_topic(topic, 7)
    theirs: dict[bytes, int] = {}

    def delivered(error: object, message: confluent_kafka.Message) -> None:
        assert error is None
        theirs[message.key() or b""] = message.partition() or 0

    kafka = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "partitioner": "murmur2_random"}
    )
    keys = [f"customer-{number}".encode() for number in range(100)]
    for key in keys:
        kafka.produce(topic, b"v", key=key, on_delivery=delivered)
    await asyncio.to_thread(kafka.flush, 20)
    async with Producer(bootstrap) as producer:
        ours = {key: (await producer.send(topic, b"v", key=key)).partition for key in keys[:20]}

    assert {key: partition_of_key(key, 7) for key in keys} == theirs
    assert ours == {key: theirs[key] for key in keys[:20]}


async def test_a_message_over_the_topics_limit_is_refused_and_the_next_goes_through(
    bootstrap: str, topic: str
) -> None:
    async with Admin(bootstrap) as admin:
        await admin.create_topic(topic, 1, configs={"max.message.bytes": "1000"})
    async with Producer(bootstrap) as producer:
        with pytest.raises(MessageTooLargeError, match=r"max\.message\.bytes"):
            await producer.send(topic, b"x" * 2_000)
        assert (await producer.send(topic, b"fits")).offset == 0


async def test_batches_over_the_topics_limit_are_halved(bootstrap: str, topic: str) -> None:
    async with Admin(bootstrap) as admin:
        await admin.create_topic(topic, 1, configs={"max.message.bytes": "1000"})
    async with Producer(bootstrap) as producer:
        for number in range(100):
            producer.submit(topic, b"%0100d" % number)
        await producer.flush()
    messages = await read_all(bootstrap, topic)

    assert [int(one.value or b"-1") for one in messages] == list(range(100))


async def test_a_surge_past_the_buffer_waits_and_loses_nothing(bootstrap: str, topic: str) -> None:
    async with Producer(bootstrap, buffer_bytes=64 << 10) as producer:
        await asyncio.gather(*(producer.send(topic, b"x" * 500) for _ in range(2_000)))

    assert len(await read_all(bootstrap, topic)) == 2_000


async def test_a_topic_that_was_made_anew_has_the_partitions_it_has_now(
    bootstrap: str, topic: str
) -> None:
    async with Admin(bootstrap) as admin, Producer(bootstrap) as producer, asyncio.timeout(20):
        await admin.create_topic(topic, 8)
        for number in range(8):
            await producer.send(topic, "first life", partition=number)
        await admin.delete_topic(topic)
        await admin.create_topic(topic, 2)
        keys = [f"key {number}" for number in range(30)]
        told = [await producer.send(topic, "second life", key=key) for key in keys]
        assert {one.partition for one in told} == {0, 1}
        many = await asyncio.gather(*(producer.send(topic, "keyless") for _ in range(30)))
        assert {one.partition for one in many} <= {0, 1}
        with pytest.raises(NoSuchPartitionError, match="are 0 to 1"):
            await producer.send(topic, "there is none", partition=2)
        await admin.create_partitions(topic, 4)
        assert (await producer.send(topic, "there is by now", partition=3)).offset == 0


async def test_what_is_under_way_to_a_partition_that_is_gone_fails_soon(
    bootstrap: str, topic: str
) -> None:
    async with Admin(bootstrap) as admin, Producer(bootstrap) as producer, asyncio.timeout(20):
        await admin.create_topic(topic, 3)
        await producer.send(topic, "first life", partition=2)
        await admin.delete_topic(topic)
        await admin.create_topic(topic, 1)
        lost = [producer.submit(topic, "x", partition=2) for _ in range(3)]
        for one in lost:
            with pytest.raises(TopicMadeAnewError, match="made anew, without partition 2"):
                await one
        with pytest.raises(DeliveryError, match="3 records were not delivered"):
            await producer.flush()
        assert (await producer.send(topic, "goes on")).partition == 0


async def test_a_lost_connection_costs_time_and_nothing_else(bootstrap: str, topic: str) -> None:
    opened: list[TcpTransport] = []

    async def connect(address: tuple[str, int]) -> TcpTransport:
        loop = asyncio.get_running_loop()
        _, protocol = await loop.create_connection(lambda: TcpTransport(address), *address)  # type: ignore[arg-type]
        opened.append(protocol)
        return protocol

    async with Producer(bootstrap, connect=connect, retry_backoff_ms=5) as producer:  # type: ignore[arg-type]
        for number in range(1_000):
            producer.submit(topic, b"%d" % number, partition=0)
            if number % 100 == 50:
                await producer.drain()
                opened[-1].close()
        await producer.flush()
    messages = await read_all(bootstrap, topic)

    assert [int(one.value or b"-1") for one in messages] == list(range(1_000))
    assert len(opened) > 1


async def test_a_killed_broker_loses_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data").start()
    try:
        async with Producer(broker.bootstrap, linger_ms=1, retry_backoff_ms=20) as producer:
            for number in range(3_000):
                producer.submit("orders", b"%d" % number)
                if number % 20 == 0:
                    await asyncio.sleep(0.001)
                if number in (1_000, 2_000):
                    await asyncio.to_thread(_restart, broker)
            await producer.flush()
        messages = await read_all(broker.bootstrap, "orders")
    finally:
        broker.stop()

    assert [int(one.value or b"-1") for one in messages] == list(range(3_000))


def _restart(broker: BrokerProcess) -> None:
    broker.kill()
    broker.start()
