"""aiokafka: the asyncio client, which speaks the older versions of the protocol."""

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from tests.clients.sample import CODECS, Sample, samples


@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
@pytest.mark.parametrize("codec", CODECS)
async def test_aiokafka_reads_back_what_it_wrote(
    bootstrap: str, topic: str, codec: str, idempotent: bool
) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(topic, 1, 1)])
    await admin.close()

    offsets = await produce(bootstrap, topic, codec, idempotent=idempotent)

    assert offsets == list(range(len(samples())))
    assert await consume(bootstrap, topic, len(samples())) == samples()


async def produce(bootstrap: str, topic: str, codec: str, *, idempotent: bool) -> list[int]:
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        compression_type=None if codec == "none" else codec,
        enable_idempotence=idempotent,
        acks="all",
    )
    await producer.start()
    try:
        sent = [
            await producer.send(
                topic,
                key=one.key,
                value=one.value,
                headers=list(one.headers),
                timestamp_ms=one.timestamp,
                partition=0,
            )
            for one in samples()
        ]
        return [(await one).offset for one in sent]
    finally:
        await producer.stop()


async def consume(bootstrap: str, topic: str, expected: int) -> list[Sample]:
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    await consumer.seek_to_beginning(partition)
    found: list[Sample] = []
    try:
        while len(found) < expected:
            arrived = await consumer.getmany(partition, timeout_ms=30_000)
            assert arrived, f"only {len(found)} of {expected} arrived"
            found += [
                Sample(one.key, one.value, tuple(one.headers), one.timestamp)
                for one in arrived[partition]
            ]
    finally:
        await consumer.stop()
    return found
