"""Transactions of confluent-kafka, aiokafka, kafka-python 3 and our own client.

Who reads what is committed sees whole transactions and nothing else, whoever wrote them.
"""

import asyncio
import time

import pytest

from tests.clients.transactional import READERS, WRITERS, FencedError, Writer
from waystation import Admin, Consumer, Producer

END = b"the end"


@pytest.fixture(params=WRITERS, scope="module")
def client(request: pytest.FixtureRequest) -> str:
    """Each client in turn."""
    return str(request.param)


@pytest.fixture
def writer(client: str) -> type[Writer]:
    return WRITERS[client]


def write_plainly(bootstrap: str, topic: str, *values: bytes) -> None:
    async def write() -> None:
        async with Producer(bootstrap) as producer:
            for value in values:
                await producer.send(topic, value, partition=0)

    asyncio.run(write())


def make(bootstrap: str, topic: str, partitions: int = 1) -> None:
    async def create() -> None:
        async with Admin(bootstrap) as admin:
            await admin.create_topic(topic, partitions)

    asyncio.run(create())


def committed_offset(bootstrap: str, group_id: str, topic: str) -> int | None:
    async def ask() -> int | None:
        async with Consumer(group_id, bootstrap=bootstrap, auto_commit=False) as consumer:
            found = (await consumer.committed([(topic, 0)]))[(topic, 0)]  # type: ignore[index]
            return None if found is None else found.offset

    return asyncio.run(ask())


def test_committed_transactions_are_read_and_aborted_ones_are_not(
    bootstrap: str, topic: str, client: str, writer: type[Writer]
) -> None:
    make(bootstrap, topic, 2)
    with writer(bootstrap, topic) as producer:
        producer.begin()
        producer.send(topic, b"one", b"two")
        producer.send(topic, b"elsewhere", partition=1)
        producer.commit()
        producer.begin()
        producer.send(topic, b"taken back")
        producer.abort()
        producer.begin()
        producer.send(topic, b"three")
        producer.commit()
    write_plainly(bootstrap, topic, END)
    read = READERS[client]

    assert read(bootstrap, topic, END, committed=True) == [b"one", b"two", b"three", END]
    assert read(bootstrap, topic, END, committed=False) == [
        *(b"one", b"two", b"taken back", b"three"),
        END,
    ]


def test_a_second_instance_fences_the_first(
    bootstrap: str, topic: str, writer: type[Writer]
) -> None:
    make(bootstrap, topic)
    with writer(bootstrap, topic) as first:
        first.begin()
        first.send(topic, b"of the first")
        with writer(bootstrap, topic) as second:
            second.begin()
            second.send(topic, b"of the second")
            second.commit()
            with pytest.raises(FencedError):
                send_and_commit(first, topic)
    write_plainly(bootstrap, topic, END)

    seen = READERS["waystation"](bootstrap, topic, END, committed=True)
    assert seen == [b"of the second", END]


def test_a_transaction_that_takes_too_long_is_aborted(
    bootstrap: str, topic: str, writer: type[Writer]
) -> None:
    make(bootstrap, topic)
    with writer(bootstrap, topic, 1_000) as producer:
        producer.begin()
        producer.send(topic, b"too late")
        began = time.monotonic()
        write_plainly(bootstrap, topic, END)

        # Readers wait behind the open transaction, and not longer than it may be open.
        seen = READERS["waystation"](bootstrap, topic, END, committed=True)
        assert seen == [END]
        assert time.monotonic() - began < 5
        with pytest.raises(FencedError):
            send_and_commit(producer, topic)


def test_offsets_count_when_their_transaction_does(
    bootstrap: str, topic: str, writer: type[Writer]
) -> None:
    make(bootstrap, topic)
    group_id = f"group of {topic}"[-200:]
    write_plainly(bootstrap, topic, *[b"%d" % number for number in range(10)])
    with writer(bootstrap, topic) as producer:
        producer.begin()
        producer.send_offsets(group_id, topic, 4)

        assert committed_offset(bootstrap, group_id, topic) is None

        producer.commit()
        producer.begin()
        producer.send(topic, b"taken back")
        producer.send_offsets(group_id, topic, 9)
        producer.abort()

    assert committed_offset(bootstrap, group_id, topic) == 4


def send_and_commit(producer: Writer, topic: str) -> None:
    producer.send(topic, b"of one who is fenced")
    producer.commit()
