"""Spark's own Kafka connector, which Spark users have already, as source and sink of our broker."""

import sys
import time

from benchmarks.peers import spark_connector
from benchmarks.peers.broker import PeerMissingError
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tools.test_tools import java_home

from tests.compat import letters, reader
from tests.compat.letters import CODECS, PARTITIONS, Letter, WrongAnswerError
from tests.compat.target import HERE, MissingError, Target, UnreachableError, run

_TIMEOUT_S = 300


def connector(target: Target) -> str:
    """In one read, and as a stream that ends when all is read and goes on where it ended."""
    prefix = target.topic("spark-kafka")
    for codec in CODECS:
        _send(target, letters.topic(prefix, codec), codec)
    return check_reading(target, prefix, letters.letters())


def check_reading(target: Target, prefix: str, sent: list[Letter]) -> str:
    """What the connector reads of the topics of ``prefix``, both ways."""
    told = _run("spark_letters.py", target, prefix)
    batch, _, stream = told.partition("and as a stream\n")
    for lines in (batch, stream):
        letters.check(prefix, lines.splitlines(), sent)
    return spark_connector.connector_version()


def sink(target: Target) -> str:
    """In one write, and by a stream; this sink gives records the time at which it sends them."""
    prefix = target.topic("spark-kafka-sink")
    prefixes = (prefix, f"{prefix}-stream")
    topics = [letters.topic(each, codec) for each in prefixes for codec in CODECS]
    for topic in topics:
        _create(target, topic)
    sent = target.scratch / "letters"
    sent.mkdir()
    letters.write_letters(sent / "letters.json")
    began_ms = int(time.time() * 1_000)
    _run("spark_sink.py", target, prefix, str(sent))
    for topic in topics:
        records = reader.read_topic(target.bootstrap, topic)
        if any(one["timestamp"] < began_ms for one in records):
            raise WrongAnswerError(f"{topic}: a record is older than its write")
        letters.check_topic(topic, _with_their_own_times(records))
    return spark_connector.connector_version()


def _with_their_own_times(records: list[Letter]) -> list[Letter]:
    """Each with the time of the letter that should stand in its place."""
    times = {
        (partition, offset): letter["timestamp"]
        for partition in range(PARTITIONS)
        for offset, letter in enumerate(
            one for one in letters.letters() if one["partition"] == partition
        )
    }
    return [{**one, "timestamp": times.get((one["partition"], one["offset"]))} for one in records]


def _run(program: str, target: Target, prefix: str, *more: str) -> str:
    """What a program prints that has the connector's jars."""
    home = java_home()
    if home is None:
        raise MissingError("java 17+ is not installed: apt install default-jre-headless")
    try:
        jars = ",".join(map(str, spark_connector.fetch_connector()))
    except PeerMissingError as error:
        raise UnreachableError(f"Maven Central is out of reach: {error}") from None
    command = [sys.executable, str(HERE / program), target.bootstrap, prefix, jars]
    arguments = [str(target.scratch), *more]
    return run(["env", f"JAVA_HOME={home}", *command, *arguments], timeout_s=_TIMEOUT_S)


def _create(target: Target, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": target.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result()


def _send(target: Target, topic: str, codec: str) -> None:
    """With librdkafka, which the connector's client does not share a line with."""
    _create(target, topic)
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
