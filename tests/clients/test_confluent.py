"""librdkafka, by way of confluent-kafka."""

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, ResourceType

from tests.clients.sample import CODECS, Sample, samples


@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
@pytest.mark.parametrize("codec", CODECS)
def test_confluent_reads_back_what_it_wrote(
    bootstrap: str, topic: str, codec: str, idempotent: bool
) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1)])[topic].result(10)
    reports = produce(bootstrap, topic, codec, idempotent=idempotent)

    assert [error for error, _ in reports] == [None] * len(samples())
    assert [offset for _, offset in reports] == list(range(len(samples())))
    assert consume(bootstrap, topic, len(samples())) == samples()


def test_confluent_finds_offsets_by_time_and_at_the_ends(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, "none", idempotent=True)
    consumer = Consumer(reader(bootstrap))
    wanted = samples()[100]

    (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, wanted.timestamp)], 10)

    assert found.offset == 100
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), 10) == (0, len(samples()))
    consumer.close()


def test_confluent_administers_topics(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 2, config={"retention.ms": "1234"})])[topic].result(10)
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(10)
    resource = ConfigResource(ResourceType.TOPIC, topic)

    configs = admin.describe_configs([resource])[resource].result(10)

    assert configs["retention.ms"].value == "1234"
    assert len(admin.list_topics(topic, 10).topics[topic].partitions) == 5

    admin.delete_topics([topic])[topic].result(10)

    assert topic not in admin.list_topics(timeout=10).topics


def test_confluent_is_told_why_a_topic_cannot_be(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wrong = {
        "in valid": (NewTopic("in valid", 1), KafkaError.TOPIC_EXCEPTION),
        topic + "-rf": (
            NewTopic(topic + "-rf", 1, replication_factor=3),
            KafkaError.INVALID_REPLICATION_FACTOR,
        ),
        topic + "-config": (
            NewTopic(topic + "-config", 1, config={"retention.mss": "1"}),
            KafkaError.INVALID_CONFIG,
        ),
    }
    for name, (spec, code) in wrong.items():
        with pytest.raises(KafkaException) as raised:
            admin.create_topics([spec])[name].result(10)

        assert raised.value.args[0].code() == code
        assert raised.value.args[0].str()


def produce(
    bootstrap: str, topic: str, codec: str, *, idempotent: bool
) -> list[tuple[object, int]]:
    """What was reported for each sample, in order."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": codec,
            "enable.idempotence": idempotent,
            "acks": "all",
            "linger.ms": 5,
        }
    )
    reports: list[tuple[object, int]] = []
    for one in samples():
        producer.produce(
            topic,
            key=one.key,
            value=one.value,
            headers=list(one.headers),
            timestamp=one.timestamp,
            on_delivery=lambda error, message: reports.append((error, message.offset())),
        )
        producer.poll(0)
    assert producer.flush(30) == 0
    return reports


def consume(bootstrap: str, topic: str, expected: int) -> list[Sample]:
    consumer = Consumer(reader(bootstrap))
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[Sample] = []
    while len(found) < expected:
        messages = consumer.consume(expected - len(found), timeout=30)
        assert messages, f"only {len(found)} of {expected} arrived"
        for message in messages:
            assert message.error() is None, message.error()
            found.append(
                Sample(
                    message.key(),
                    message.value(),
                    tuple(message.headers() or ()),
                    message.timestamp()[1],
                )
            )
    consumer.close()
    return found


def reader(bootstrap: str) -> dict[str, object]:
    """A consumer that assigns itself; there is no group to commit to."""
    return {
        "bootstrap.servers": bootstrap,
        "group.id": "unused",
        "enable.auto.commit": False,
        "check.crcs": True,
    }
