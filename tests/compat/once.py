"""Messages with idempotency keys, read by clients that know nothing of them.

Their batches carry a mark in an attribute bit that Kafka does not use (14).  Here each client gets
such batches, in every codec, and must read what was sent and one more header.
"""

import asyncio
import json
import re
from collections.abc import Callable, Iterable

from tests.compat import clients, letters, spark, tools
from tests.compat.letters import CODECS, PARTITIONS, Letter, WrongAnswerError
from tests.compat.target import Target, need, run
from waystation import Admin, Producer

_MARKED_AT = slice(21, 23)
_MARK = 0x4000


def _sent(target: Target, name: str) -> tuple[str, list[Letter]]:
    """The letters, in a topic per codec whose broker compresses; sent twice, so kept once."""
    prefix, sent = target.topic(f"{name}-once"), letters.with_idempotency_keys()
    asyncio.run(_send(target, prefix, sent))
    return prefix, sent


async def _send(target: Target, prefix: str, sent: Iterable[Letter]) -> None:
    async with Admin(target.bootstrap) as admin, Producer(target.bootstrap) as producer:
        for codec in CODECS:
            topic = letters.topic(prefix, codec)
            configs = {"compression.type": "uncompressed" if codec == "none" else codec}
            await admin.create_topic(topic, PARTITIONS, configs=configs)
            for _ in range(2):
                await asyncio.gather(*(_send_one(producer, topic, one) for one in sent))


async def _send_one(producer: Producer, topic: str, letter: Letter) -> None:
    *headers, (_, key) = [(name, _bytes(value)) for name, value in letter["headers"]]
    assert key is not None, "the last header is the idempotency key"
    await producer.send(
        topic,
        _bytes(letter["value"]),
        key=_bytes(letter["key"]),
        headers=headers,
        partition=letter["partition"],
        timestamp=letter["timestamp"],
        idempotency_key=key.decode(),
    )


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def _check(target: Target, name: str, command: list[str]) -> None:
    prefix, sent = _sent(target, name)
    path = target.scratch / f"{name}-once.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in sent))
    read = run([*command, target.bootstrap, prefix, str(path), "read"])
    letters.check(prefix, read.splitlines(), sent)


def kafkajs(target: Target) -> str:
    """kafkajs."""
    _check(target, "kafkajs", clients.kafkajs_program("letters.js"))
    return clients.kafkajs_version()


def java(target: Target) -> str:
    """Kafka's own client."""
    _check(target, "java", clients.java_program("Letters.java"))
    return clients.java.KAFKA_VERSION


def franz_go(target: Target) -> str:
    """twmb/franz-go."""
    _check(target, "franz", [clients.go_program("franz")])
    return clients.go_version(clients.FRANZ_GO)


def sarama(target: Target) -> str:
    """IBM/sarama."""
    _check(target, "sarama", [clients.go_program("sarama")])
    return clients.go_version(clients.SARAMA)


def kcat(target: Target) -> str:
    """kcat, whose librdkafka is older than flexible versions; it tells lengths and times."""
    need("kcat", "apt install kcat")
    prefix, sent = _sent(target, "kcat")
    for codec in CODECS:
        for partition in range(PARTITIONS):
            of = ["-t", letters.topic(prefix, codec), "-p", str(partition), "-o", "beginning"]
            shown = ["-e", "-q", "-f", "%T %K %S\\n"]
            read = run(["kcat", "-C", "-b", target.bootstrap, *of, *shown])
            wanted = [
                f"{one['timestamp']} {_length(one['key'])} {_length(one['value'])}"
                for one in sent
                if one["partition"] == partition
            ]
            tools.same(read.splitlines(), wanted)
    return str(re.findall(r"librdkafka ([\d.]+)", run(["kcat", "-V"]))[0])


def _length(text: str | None) -> int:
    return -1 if text is None else len(text) // 2


def spark_kafka(target: Target) -> str:
    """Spark's own Kafka connector."""
    return spark.check_reading(target, *_sent(target, "spark-kafka"))


def dump_log(target: Target) -> str:
    """kafka-dump-log finds nothing wrong with a log of such batches, which are marked."""
    prefix, sent = _sent(target, "dump-log")
    assert target.data is not None, "only asked for when the data directory is known"
    for codec in CODECS:
        logs = sorted(target.data.glob(f"**/{letters.topic(prefix, codec)}-*/*.log"))
        said = "".join(tools.dump("--print-data-log", "--files", str(log)) for log in logs)
        tools.same([len(re.findall(r"headerKeys: \[[^\]]*idempotency-key\]", said))], [len(sent)])
        tools.refuse(said, "isvalid: false", "invalid bytes")
        for log in logs:
            if not int.from_bytes(log.read_bytes()[_MARKED_AT], "big") & _MARK:
                raise WrongAnswerError(f"{log} begins with a batch that is not marked")
    return clients.java.KAFKA_VERSION


CHECKS: dict[str, Callable[[Target], str]] = {
    "kafkajs-once": kafkajs,
    "java-once": java,
    "franz-go-once": franz_go,
    "sarama-once": sarama,
    "kcat-once": kcat,
    "spark-kafka-once": spark_kafka,
    "kafka-dump-log-once": dump_log,
}
