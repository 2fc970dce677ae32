"""Reads topics back with librdkafka, for clients that can send but not read by themselves."""

from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from tests.compat.letters import PARTITIONS, Letter, WrongAnswerError

_PATIENCE_S = 10.0


def read_topic(bootstrap: str, topic: str, partitions: int = PARTITIONS) -> list[Letter]:
    """Every record of the topic, partition by partition, in the form of a letter."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused: partitions are assigned, nothing is committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
        }
    )
    try:
        return [
            _letter(message)
            for partition in range(partitions)
            for message in _messages(consumer, TopicPartition(topic, partition, 0))
        ]
    except KafkaException as error:
        raise WrongAnswerError(f"reading {topic} back: {error}") from None
    finally:
        consumer.close()


def _messages(consumer: Consumer, partition: TopicPartition) -> Iterator[Message]:
    _, end = consumer.get_watermark_offsets(partition, timeout=_PATIENCE_S)
    consumer.assign([partition])
    position = 0
    while position < end:
        message = consumer.poll(_PATIENCE_S)
        if message is None:
            raise WrongAnswerError(f"{partition.topic} ended at {position}, not at {end}")
        if message.error():
            raise KafkaException(message.error())
        position = message.offset() + 1
        yield message


def _letter(message: Message) -> Letter:
    key, value, headers = message.key(), message.value(), message.headers() or []
    return {
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": message.timestamp()[1],
        "key": None if key is None else key.hex(),
        "value": None if value is None else value.hex(),
        "headers": [[name, None if held is None else held.hex()] for name, held in headers],
    }
