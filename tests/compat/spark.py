"""Spark's own Kafka connector, which Spark users have already, as a source over our broker."""

import sys

from benchmarks.peers import spark_connector
from benchmarks.peers.broker import PeerMissingError
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tools.test_tools import java_home

from tests.compat import letters
from tests.compat.letters import CODECS, PARTITIONS, WrongAnswerError
from tests.compat.target import HERE, MissingError, Target, UnreachableError, run

_TIMEOUT_S = 300


def connector(target: Target) -> str:
    """In one read, and as a stream that ends when all is read and goes on where it ended."""
    home = java_home()
    if home is None:
        raise MissingError("java 17+ is not installed: apt install default-jre-headless")
    try:
        jars = ",".join(map(str, spark_connector.fetch_connector()))
    except PeerMissingError as error:
        raise UnreachableError(f"Maven Central is out of reach: {error}") from None
    prefix = target.topic("spark-kafka")
    for codec in CODECS:
        _send(target, letters.topic(prefix, codec), codec)
    program = [sys.executable, str(HERE / "spark_letters.py")]
    arguments = [target.bootstrap, prefix, jars, str(target.scratch)]
    told = run(["env", f"JAVA_HOME={home}", *program, *arguments], timeout_s=_TIMEOUT_S)
    batch, _, stream = told.partition("and as a stream\n")
    for lines in (batch, stream):
        letters.check(prefix, lines.splitlines())
    return spark_connector.connector_version()


def _send(target: Target, topic: str, codec: str) -> None:
    """With librdkafka, which the connector's client does not share a line with."""
    admin = AdminClient({"bootstrap.servers": target.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result()
    producer = Producer({"bootstrap.servers": target.bootstrap, "compression.type": codec})
    for letter in letters.letters():
        producer.produce(
            topic,
            _bytes(letter["value"]),
            _bytes(letter["key"]),
            partition=letter["partition"],
            timestamp=letter["timestamp"],
            headers=[(name, _bytes(value)) for name, value in letter["headers"]],
        )
    if producer.flush(30):
        raise WrongAnswerError(f"librdkafka could not fill {topic}")


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)
