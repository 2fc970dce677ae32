"""Kafka's tools for share groups: groups of consumers that share the partitions of a queue."""

from confluent_kafka import Producer

from tests.compat.letters import WrongAnswerError
from tests.compat.target import Target
from tests.compat.tools import create, dump, expect, refuse, same, tool_of

_COUNT = 5
_VALUES = [f"value-{n}" for n in range(_COUNT)]


def share_groups(target: Target) -> None:
    """kafka-share-groups, kafka-configs and kafka-console-share-consumer work together.

    A queue's messages are read from where its group's config says, once.
    """
    name, group = target.topic("tool-shares"), target.topic("share-group")
    _fill(target, name)
    configs = tool_of(target, "kafka.admin.ConfigCommand")
    of_group = ("--entity-type", "groups", "--entity-name", group)
    wanted = "share.auto.offset.reset=earliest,share.record.lock.duration.ms=15000"
    configs("--alter", *of_group, "--add-config", wanted)
    expect(configs("--describe", *of_group), *wanted.split(","))

    same(_read(target, name, group), _VALUES)

    tool = tool_of(target, "org.apache.kafka.tools.consumer.group.ShareGroupCommand")
    expect(tool("--list", "--state"), group, "Empty")
    one = ("--group", group)
    same(_rows(tool("--describe", *one), name), [["0", str(_COUNT), "0"]])
    moved = tool("--reset-offsets", *one, "--topic", name, "--to-earliest", "--execute")
    same(_rows(moved, name), [["0", "0"]])
    same(_rows(tool("--describe", *one), name), [["0", "0", str(_COUNT)]])
    same(_read(target, name, group), _VALUES)
    expect(tool("--delete-offsets", *one, "--topic", name), "Successful")
    expect(tool("--delete", *one), "successful")
    refuse(tool("--list"), group)


def dump_shares(target: Target) -> None:
    """kafka-dump-log: reads what our coordinators remember of share groups and their queues."""
    name, group = target.topic("tool-dump-shares"), target.topic("dump-share-group")
    _fill(target, name)
    configs = tool_of(target, "kafka.admin.ConfigCommand")
    of_group = ("--entity-type", "groups", "--entity-name", group)
    configs("--alter", *of_group, "--add-config", "share.auto.offset.reset=earliest")
    same(_read(target, name, group), _VALUES)
    assert target.data is not None, "only asked for when the data directory is known"
    for topic, decoder, word in (
        ("__consumer_offsets", "--offsets-decoder", f'"groupId":"{group}"'),
        ("__share_group_state", "--share-group-state-decoder", '"startOffset":'),
    ):
        logs = target.data.glob(f"**/{topic}-*/*.log")
        ours = [log for log in logs if group.encode() in log.read_bytes()]
        said = "".join(dump(decoder, "--files", str(log)) for log in ours)
        expect(said, group, word)
        refuse(said, "isvalid: false", "invalid bytes", "Exception")


TOOLS = {"kafka-share-groups": share_groups, "kafka-dump-log-shares": dump_shares}


def _fill(target: Target, name: str) -> None:
    create(target, name)
    producer = Producer({"bootstrap.servers": target.bootstrap, "acks": "all"})
    for value in _VALUES:
        producer.produce(name, value, partition=0)
    if producer.flush(10):
        raise WrongAnswerError(f"librdkafka could not fill {name}")


def _read(target: Target, name: str, group: str) -> list[str]:
    """What a share consumer of Kafka's is given, and acknowledges."""
    tool = tool_of(target, "org.apache.kafka.tools.consumer.ConsoleShareConsumer")
    asked = ("--topic", name, "--group", group, "--max-messages", str(_COUNT))
    return tool(*asked, "--timeout-ms", "20000").split()


def _rows(said: str, topic: str) -> list[list[str]]:
    """What a table says right of the topic's name, row by row."""
    rows = [line.split() for line in said.splitlines()]
    return [row[row.index(topic) + 1 :] for row in rows if topic in row]
