"""Every client reads a view, crosses long stretches without a match, and commits on it."""

import asyncio
import json
import subprocess
import uuid
from collections.abc import Callable

import aiokafka
import kafka
import pytest
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType
from kafka.admin import KafkaAdminClient
from kafka.admin import NewTopic as KafkaPythonTopic

import waystation
from waystation.client.consumer import Consumer as OwnConsumer

BASE, VIEW = "views-base", "views-of-clients"
# A few at the start, a long stretch without any, a few, and a stretch up to the end.
MATCHES = [0, 5, 18_000, 18_001, 18_020]
COUNT = 24_000


@pytest.fixture(scope="module")
def view(bootstrap: str) -> str:
    """A view with few matches far apart, made by a stock admin client."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(BASE, 1, 1)])[BASE].result(10)
    config = {"view.on": BASE, "view.where": "headers.kind = 'refund' AND value.amount > 100"}
    admin.create_topics([NewTopic(VIEW, -1, -1, config=config)])[VIEW].result(10)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    filler = "x" * 300
    for number in range(COUNT):
        wanted = number in MATCHES
        value = json.dumps({"amount": 500 if wanted else 7, "n": number, "filler": filler})
        kind = b"refund" if wanted or number % 3 == 0 else b"order"
        producer.produce(BASE, value, b"k", partition=0, headers=[("kind", kind)])
        if number % 4_000 == 0:
            producer.poll(0)
    assert producer.flush(30) == 0
    return VIEW


def confluent(bootstrap: str, view: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none"})
    consumer.assign([TopicPartition(view, 0, 0)])
    found = [_checked(one) for one in consumer.consume(len(MATCHES), 20)]
    consumer.close()
    return found


def _checked(message: Message) -> int:
    assert message.error() is None, message.error()
    offset, value = message.offset(), message.value()
    assert offset is not None
    assert value is not None
    assert json.loads(value)["n"] == offset
    return offset


def confluent_group(bootstrap: str, view: str) -> list[int]:
    """Reads with a group to the end, and finds its position where a second member goes on."""
    options = {
        "bootstrap.servers": bootstrap,
        "group.id": str(uuid.uuid4()),
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    first = Consumer(options)
    first.subscribe([view])
    found = [_checked(one) for one in first.consume(3, 20)]
    first.commit(offsets=[TopicPartition(view, 0, found[-1] + 1)], asynchronous=False)
    first.close()
    second = Consumer(options)
    second.subscribe([view])
    found += [_checked(one) for one in second.consume(len(MATCHES) - 3, 20)]
    second.close()
    return found


def aiokafka_client(bootstrap: str, view: str) -> list[int]:
    async def read() -> list[int]:
        consumer = aiokafka.AIOKafkaConsumer(
            view, bootstrap_servers=bootstrap, auto_offset_reset="earliest"
        )
        async with consumer, asyncio.timeout(20):
            return [(await consumer.getone()).offset for _ in MATCHES]

    return asyncio.run(read())


def kafka_python(bootstrap: str, view: str) -> list[int]:
    consumer = kafka.KafkaConsumer(
        view,
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        group_id=None,
        consumer_timeout_ms=20_000,
    )
    found = [next(consumer).offset for _ in MATCHES]
    consumer.close()
    return found


def kcat(bootstrap: str, view: str) -> list[int]:
    """Up to the end, which lies behind a stretch without a match."""
    arguments = ["-C", "-b", bootstrap, "-t", view, "-o", "beginning", "-e", "-q", "-f", "%o\n"]
    done = subprocess.run(
        ["kcat", *arguments], capture_output=True, timeout=30, check=True, text=True
    )
    return [int(line) for line in done.stdout.splitlines()]


def ours(bootstrap: str, view: str) -> list[int]:
    async def read() -> list[int]:
        group = str(uuid.uuid4())
        async with (
            OwnConsumer(
                group, [view], bootstrap=bootstrap, auto_offset_reset="earliest"
            ) as consumer,
            asyncio.timeout(20),
        ):
            found: list[int] = []
            while len(found) < len(MATCHES):
                found += [one.offset for one in await consumer.poll(timeout_ms=1_000)]
            return found

    return asyncio.run(read())


CLIENTS = [confluent, confluent_group, aiokafka_client, kafka_python, kcat, ours]


@pytest.mark.parametrize("client", CLIENTS, ids=lambda one: one.__name__)
def test_a_client_gets_every_match_in_order(
    bootstrap: str, view: str, client: Callable[[str, str], list[int]]
) -> None:
    assert client(bootstrap, view) == MATCHES


def test_confluent_gets_past_a_stretch_without_a_match_to_the_end(
    bootstrap: str, view: str
) -> None:
    """``enable.partition.eof`` says that the reader has got there, though nothing came."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "none", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(view, 0, MATCHES[-1] + 1)])
    message = consumer.poll(20)
    assert message is not None
    error = message.error()
    assert error is not None

    assert error.code() == KafkaError._PARTITION_EOF
    assert message.offset() == COUNT
    consumer.close()


def test_confluent_is_told_that_it_cannot_write(bootstrap: str, view: str) -> None:
    failed: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(view, b"x", on_delivery=lambda error, _: failed.append(error))
    producer.flush(10)

    assert failed[0] is not None
    assert failed[0].code() == KafkaError.TOPIC_EXCEPTION


def test_admins_show_and_refuse(bootstrap: str, view: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    resource = ConfigResource(ResourceType.TOPIC, view)
    configs = admin.describe_configs([resource])[resource].result(10)
    wrong = NewTopic("wrong-view", -1, -1, config={"view.on": BASE, "view.where": "amount > 5"})

    assert configs["view.on"].value == BASE
    assert "amount > 100" in configs["view.where"].value
    with pytest.raises(KafkaException, match="unknown field amount"):
        admin.create_topics([wrong])["wrong-view"].result(10)
    with pytest.raises(KafkaException):
        admin.delete_topics([BASE])[BASE].result(10)


def test_kafka_python_makes_and_deletes_one(bootstrap: str, view: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    configs = {"view.on": BASE, "view.where": "offset >= 23990"}
    admin.create_topics([KafkaPythonTopic("late-ones", -1, -1, topic_configs=configs)])
    consumer = kafka.KafkaConsumer(
        "late-ones", bootstrap_servers=bootstrap, auto_offset_reset="earliest", group_id=None
    )
    found = [next(consumer).offset for _ in range(10)]
    consumer.close()
    admin.delete_topics(["late-ones"])

    assert found == list(range(23_990, 24_000))
    assert "late-ones" not in admin.list_topics()
    admin.close()


def test_our_admin_is_told_that_a_view_cannot_be_truncated(bootstrap: str, view: str) -> None:
    async def truncate() -> None:
        async with waystation.Admin(bootstrap) as admin:
            await admin.delete_records({(view, 0): None})

    with pytest.raises(waystation.WaystationError, match="nothing of a view"):
        asyncio.run(truncate())


def test_our_admin_knows_how_many_lie_ahead(bootstrap: str, view: str) -> None:
    async def look() -> tuple[int | None, int, str]:
        async with waystation.Admin(bootstrap) as admin:
            await admin.alter_group_offsets("behind", {(view, 0): 6})
            lag = (await admin.group_lag("behind"))[waystation.TopicPartition(view, 0)]
            return lag.messages, lag.end, (await admin.describe_view(view)).on

    assert asyncio.run(look()) == (3, COUNT, BASE)
