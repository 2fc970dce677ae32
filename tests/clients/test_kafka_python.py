"""kafka-python 3, idempotent by default."""

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic

from tests.clients.sample import CODECS, Sample, samples


@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
@pytest.mark.parametrize("codec", CODECS)
def test_kafka_python_reads_back_what_it_wrote(
    bootstrap: str, topic: str, codec: str, idempotent: bool
) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([NewTopic(topic, 1, 1)])
    admin.close()

    offsets = produce(bootstrap, topic, codec, idempotent=idempotent)

    assert offsets == list(range(len(samples())))
    assert consume(bootstrap, topic, len(samples())) == samples()


def produce(bootstrap: str, topic: str, codec: str, *, idempotent: bool) -> list[int]:
    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        compression_type=None if codec == "none" else codec,
        enable_idempotence=idempotent,
        acks="all",
    )
    sent = [
        producer.send(
            topic,
            key=one.key,
            value=one.value,
            headers=list(one.headers),
            timestamp_ms=one.timestamp,
            partition=0,
        )
        for one in samples()
    ]
    producer.flush(30)
    offsets = [one.get(10).offset for one in sent]
    producer.close()
    return offsets


def consume(bootstrap: str, topic: str, expected: int) -> list[Sample]:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, consumer_timeout_ms=30_000)
    consumer.assign([TopicPartition(topic, 0)])
    consumer.seek_to_beginning()
    found: list[Sample] = []
    for one in consumer:
        found.append(Sample(one.key, one.value, tuple(one.headers), one.timestamp))
        if len(found) == expected:
            break
    consumer.close()
    return found
