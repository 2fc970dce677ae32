"""Kafka's console and admin tools, each doing its everyday job."""

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.letters import FIRST_TIMESTAMP_MS, WrongAnswerError
from tests.compat.reader import read_topic
from tests.compat.target import Target, kafka_classpath, run

_QUICK_START = ("-Xmx256M", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_COUNT = 10


def topics(target: Target) -> None:
    """kafka-topics: create, list, describe, add partitions, delete."""
    tool, name = tool_of(target, "org.apache.kafka.tools.TopicCommand"), target.topic("tool-topics")
    tool("--create", "--topic", name, "--partitions", "3", "--config", "retention.ms=3600000")
    expect(tool("--list"), name)
    described = tool("--describe", "--topic", name)
    expect(described, "PartitionCount: 3", "retention.ms=3600000", "Partition: 2")
    tool("--alter", "--topic", name, "--partitions", "5")
    expect(tool("--describe", "--topic", name), "PartitionCount: 5")
    tool("--delete", "--topic", name)
    refuse(tool("--list"), name)


def console_producer(target: Target) -> None:
    """kafka-console-producer: keys, headers, nulls, compression."""
    name = target.topic("tool-producer")
    create(target, name)
    tool = tool_of(target, "org.apache.kafka.tools.ConsoleProducer")
    properties = ("parse.key=true", "parse.headers=true", "null.marker=NULL", "key.separator=|")
    read_as = [word for one in properties for word in ("--reader-property", one)]
    lines = "colour:red\tk1|v1\ncolour:blue,size:big\tk2|NULL\n"
    tool("--topic", name, "--compression-codec", "zstd", *read_as, given=lines)
    read = [
        (one["key"], one["value"], one["headers"]) for one in read_topic(target.bootstrap, name, 1)
    ]
    blue = [["colour", b"blue".hex()], ["size", b"big".hex()]]
    first = (b"k1".hex(), b"v1".hex(), [["colour", b"red".hex()]])
    if read != [first, (b"k2".hex(), None, blue)]:
        raise WrongAnswerError(f"the log holds {read}")


def console_consumer(target: Target) -> None:
    """kafka-console-consumer: one partition from its beginning, and from an offset."""
    name = target.topic("tool-consumer")
    _fill(target, name)
    tool = tool_of(target, "org.apache.kafka.tools.consumer.ConsoleConsumer")
    shown = ("print.key=true", "print.headers=true", "print.timestamp=true", "print.offset=true")
    show = [word for one in shown for word in ("--formatter-property", one)]
    whole = ("--topic", name, "--partition", "0", "--timeout-ms", "20000")
    read = tool(*whole, "--offset", "earliest", "--max-messages", str(_COUNT), *show)
    expected = [
        f"CreateTime:{FIRST_TIMESTAMP_MS + n}\tOffset:{n}\tnumber:{n}\tkey-{n}\tvalue-{n}"
        for n in range(_COUNT)
    ]
    same(read.splitlines(), expected)
    tail = tool(*whole, "--offset", "8", "--max-messages", "2")
    same(tail.splitlines(), ["value-8", "value-9"])


def configs(target: Target) -> None:
    """kafka-configs: set, show and remove a topic's option; show a broker's."""
    name = target.topic("tool-configs")
    create(target, name)
    tool = tool_of(target, "kafka.admin.ConfigCommand")
    of_topic = ("--entity-type", "topics", "--entity-name", name)
    tool("--alter", *of_topic, "--add-config", "retention.ms=7200000,segment.bytes=2097152")
    expect(tool("--describe", *of_topic), "retention.ms=7200000", "segment.bytes=2097152")
    tool("--alter", *of_topic, "--delete-config", "retention.ms")
    refuse(tool("--describe", *of_topic), "retention.ms=7200000")
    expect(tool("--describe", "--all", *of_topic), "retention.ms=604800000")
    broker = tool("--describe", "--all", "--entity-type", "brokers", "--entity-name", node(target))
    expect(broker, "num.partitions=", "log.dirs=")


def get_offsets(target: Target) -> None:
    """kafka-get-offsets: earliest, latest, by time, of the newest timestamp."""
    name = target.topic("tool-offsets")
    _fill(target, name)
    tool = tool_of(target, "org.apache.kafka.tools.GetOffsetShell")
    wanted = {"earliest": 0, "latest": _COUNT, "max-timestamp": _COUNT - 1}
    wanted[str(FIRST_TIMESTAMP_MS + 4)] = 4
    for time, offset in wanted.items():
        same(tool("--topic", name, "--time", time).split(), [f"{name}:0:{offset}"])


def consumer_groups(target: Target) -> None:
    """kafka-consumer-groups: list, describe, reset and delete a group that read everything."""
    name, group = target.topic("tool-groups"), target.topic("group")
    _fill(target, name)
    for protocol in ("classic", "consumer"):
        _read_in_group(target, name, f"{group}-{protocol}", protocol)
    tool = tool_of(target, "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand")
    expect(tool("--list", "--type", "classic"), f"{group}-classic")
    expect(tool("--list", "--type", "consumer"), f"{group}-consumer")
    for each in (f"{group}-classic", f"{group}-consumer"):
        same(_columns(tool("--describe", "--group", each), name), [["0", "10", "10", "0"]])
        to = ("--reset-offsets", "--group", each, "--topic", name, "--to-offset", "3")
        same(_columns(tool(*to, "--execute"), name, 2), [["0", "3"]])
        same(_columns(tool("--describe", "--group", each), name), [["0", "3", "10", "7"]])
        tool("--delete-offsets", "--group", each, "--topic", name)
        tool("--delete", "--group", each)
    refuse(tool("--list"), group)


def log_dirs(target: Target) -> None:
    """kafka-log-dirs: the partition and its size."""
    name = target.topic("tool-log-dirs")
    _fill(target, name)
    tool = tool_of(target, "org.apache.kafka.tools.LogDirsCommand")
    said = tool("--describe", "--topic-list", name)
    expect(said, '{"')
    described = json.loads(next(line for line in said.splitlines() if line.startswith('{"')))
    found = [
        replica
        for broker in described["brokers"]
        for log_dir in broker["logDirs"]
        for replica in log_dir["partitions"]
    ]
    if [one["partition"] for one in found] != [f"{name}-0"] or found[0]["size"] < 100:
        raise WrongAnswerError(f"it found {found}")


def delete_records(target: Target) -> None:
    """kafka-delete-records: the log starts later, and says so."""
    name = target.topic("tool-delete")
    _fill(target, name)
    where = target.scratch / "delete.json"
    plan = {"version": 1, "partitions": [{"topic": name, "partition": 0, "offset": 6}]}
    where.write_text(json.dumps(plan))
    said = tool_of(target, "org.apache.kafka.tools.DeleteRecordsCommand")(
        "--offset-json-file", str(where)
    )
    expect(said, "low_watermark: 6")
    offsets = tool_of(target, "org.apache.kafka.tools.GetOffsetShell")
    same(offsets("--topic", name, "--time", "earliest").split(), [f"{name}:0:6"])


def dump_log(target: Target) -> None:
    """kafka-dump-log: reads our segments and indexes and finds nothing wrong with them."""
    name = target.topic("tool-dump")
    create(target, name, {"segment.bytes": str(1 << 20)})
    producer, count = Producer({"bootstrap.servers": target.bootstrap}), 100
    for n in range(count):
        producer.produce(name, f"value-{n} ".ljust(16_000, "."), f"key-{n}", partition=0)
        producer.flush(10)  # a batch each, so that the sparse index gets entries
    assert target.data is not None, "only asked for when the data directory is known"
    logs = sorted(target.data.glob(f"**/{name}-0/*.log"))
    if len(logs) < 2:
        raise WrongAnswerError(f"1.6 MB in segments of 1 MB should be two files, found {logs}")
    said = "".join(dump("--print-data-log", "--files", str(log)) for log in logs)
    expect(said, *(f"offset: {n} " for n in range(count)))
    expect(said, *(f"key: key-{n} payload: value-{n} ." for n in range(count)))
    refuse(said, "isvalid: false", "invalid bytes")
    for index in (logs[0].with_suffix(".index"), logs[0].with_suffix(".timeindex")):
        said = dump("--files", str(index))
        expect(said, "offset: ")
        refuse(said, "ismatch", "ut of order", "not found in the log")
    _dump_offsets(target, name)


def _dump_offsets(target: Target, name: str) -> None:
    """Kafka's decoder of group records reads what our coordinator wrote."""
    group = target.topic("tool-dump-group")
    consumer = Consumer({"bootstrap.servers": target.bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(name, 0, 42, "a note")], asynchronous=False)
    consumer.close()
    assert target.data is not None, "only asked for when the data directory is known"
    logs = target.data.glob("**/__consumer_offsets-*/*.log")
    said = "".join(
        dump("--offsets-decoder", "--files", str(log)) for log in logs if group in _text(log)
    )
    expect(said, f'"group":"{group}","topic":"{name}","partition":0', '"offset":42', "a note")
    refuse(said, "isvalid: false", "invalid bytes")


def cluster_id(target: Target) -> None:
    """kafka-cluster: the cluster has an id."""
    said = run([*_java("org.apache.kafka.tools.ClusterTool"), "cluster-id", *_to(target)])
    if not re.search(r"Cluster ID: [\w-]{22}", said):
        raise WrongAnswerError(f"it says {said}")


def api_versions(target: Target) -> None:
    """kafka-broker-api-versions: nothing the Java client needs is missing."""
    said = tool_of(target, "org.apache.kafka.tools.BrokerApiVersionsCommand")()
    expect(said, "Produce(0):", "Fetch(1):", "Metadata(3):", "[usable: ")


TOOLS = {
    "kafka-topics": topics,
    "kafka-console-producer": console_producer,
    "kafka-console-consumer": console_consumer,
    "kafka-configs": configs,
    "kafka-get-offsets": get_offsets,
    "kafka-consumer-groups": consumer_groups,
    "kafka-log-dirs": log_dirs,
    "kafka-delete-records": delete_records,
    "kafka-dump-log": dump_log,
    "kafka-cluster": cluster_id,
    "kafka-broker-api-versions": api_versions,
}


def _text(path: Path) -> str:
    return path.read_bytes().decode("latin-1")


def tool_of(target: Target, program: str) -> Callable[..., str]:
    """The program as a function: arguments in, what it prints out."""

    def tool(*arguments: str, given: str = "") -> str:
        return run([*_java(program), *_to(target), *arguments], given)

    return tool


def _java(program: str) -> list[str]:
    return ["java", *_QUICK_START, "-cp", kafka_classpath(), program]


def _to(target: Target) -> list[str]:
    return ["--bootstrap-server", target.bootstrap]


def dump(*arguments: str) -> str:
    """What kafka-dump-log prints."""
    return run([*_java("org.apache.kafka.tools.DumpLogSegments"), *arguments])


def create(target: Target, name: str, config: dict[str, str] | None = None) -> None:
    """A topic of one partition."""
    admin = AdminClient({"bootstrap.servers": target.bootstrap})
    admin.create_topics([NewTopic(name, 1, 1, config=config or {})])[name].result()


def node(target: Target) -> str:
    """The number of a broker."""
    brokers = AdminClient({"bootstrap.servers": target.bootstrap}).list_topics(timeout=10).brokers
    return str(next(iter(brokers)))


def _fill(target: Target, name: str) -> None:
    """Ten records in one partition, a millisecond apart."""
    create(target, name)
    producer = Producer({"bootstrap.servers": target.bootstrap, "acks": "all"})
    for n in range(_COUNT):
        producer.produce(
            name,
            f"value-{n}",
            f"key-{n}",
            partition=0,
            timestamp=FIRST_TIMESTAMP_MS + n,
            headers={"number": str(n)},
        )
    if producer.flush(10):
        raise WrongAnswerError(f"librdkafka could not fill {name}")


def _read_in_group(target: Target, name: str, group: str, protocol: str) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": target.bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([name])
    read = consumer.consume(_COUNT, 20)
    if len(read) != _COUNT:
        raise WrongAnswerError(f"librdkafka read {len(read)} of {_COUNT} records as {group}")
    consumer.commit(asynchronous=False)
    consumer.close()


def _columns(said: str, topic: str, count: int = 4) -> list[list[str]]:
    """What a table says right of the topic's name, row by row."""
    rows = [line.split() for line in said.splitlines()]
    return [row[row.index(topic) + 1 :][:count] for row in rows if topic in row]


def expect(said: str, *words: str) -> None:
    """All of these were said."""
    for word in words:
        if word not in said:
            raise WrongAnswerError(f"expected {word!r} in:\n{said[-600:]}")


def refuse(said: str, *words: str) -> None:
    """None of these was said."""
    for word in words:
        if word in said:
            raise WrongAnswerError(f"did not expect {word!r} in:\n{said[-600:]}")


def same(got: Iterable[object], wanted: Iterable[object]) -> None:
    """Exactly this was said."""
    got, wanted = list(got), list(wanted)
    if got != wanted:
        raise WrongAnswerError(f"it says {got}, should say {wanted}")
