"""Views read by client libraries that Python does not have.

The programs are those of ``groups.py``: two members of a group share a view of four partitions,
of which one message in hundreds matches, commit, and go on in a second run.  Made by the Java
client's way, as a topic with two options; only ours has views.
"""

import json
import re
from collections.abc import Callable, Sequence

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat import clients
from tests.compat.groups import PARTITIONS, Read, reads_of
from tests.compat.letters import WrongAnswerError
from tests.compat.target import Target
from tests.compat.tools import expect, refuse, same, tool_of

_EVERY = 400
_FIRST, _SECOND = 1_700, 1_000
_FILLER = "x" * 400


class View:
    """A topic of many messages per partition, and a view of few of them."""

    def __init__(self, target: Target, name: str) -> None:
        self.topic, self.name = target.topic(f"{name}-orders"), target.topic(f"{name}-refunds")
        self._written = 0
        admin = AdminClient({"bootstrap.servers": target.bootstrap})
        config = {"view.on": self.topic, "view.where": "value.kind = 'refund'"}
        admin.create_topics([NewTopic(self.topic, PARTITIONS, 1)])[self.topic].result()
        admin.create_topics([NewTopic(self.name, -1, -1, config=config)])[self.name].result()
        self._producer = Producer({"bootstrap.servers": target.bootstrap, "linger.ms": 5})

    def write(self, count: int) -> list[tuple[int, int]]:
        """So many more to each partition; partition and offset of those that match."""
        matching = []
        for offset in range(self._written, self._written + count):
            wanted = offset % _EVERY == _EVERY - 1
            for partition in range(PARTITIONS):
                kind = "refund" if wanted else "order"
                value = json.dumps({"kind": kind, "filler": _FILLER})
                self._producer.produce(self.topic, value, partition=partition)
                matching += [(partition, offset)] if wanted else []
            self._producer.poll(0)
        if self._producer.flush(30):
            raise WrongAnswerError(f"librdkafka could not fill {self.topic}")
        self._written += count
        return matching


def _check(target: Target, name: str, command: Sequence[str], assignors: Sequence[str]) -> None:
    for assignor in assignors:
        view = View(target, f"{name}-{assignor}")
        given = [*command, target.bootstrap, view.name, f"group-of-{view.name}", assignor]
        wanted = view.write(_FIRST)
        _compare(assignor, reads_of([*given, str(len(wanted))], lambda: None), wanted)
        wanted = view.write(_SECOND)
        _compare(assignor, reads_of([*given, str(len(wanted))], lambda: None), wanted)


def _compare(assignor: str, reads: Sequence[Read], wanted: Sequence[tuple[int, int]]) -> None:
    got = sorted((read.partition, read.offset) for read in reads)
    if got != sorted(wanted):
        raise WrongAnswerError(f"{assignor}: {got} instead of {sorted(wanted)}")


def kafkajs(target: Target) -> str:
    """kafkajs."""
    _check(target, "kafkajs-views", clients.kafkajs_program("groups.js"), ["roundrobin"])
    return clients.kafkajs_version()


def java(target: Target) -> str:
    """Kafka's own client, in both protocols of groups."""
    _check(target, "java-views", clients.java_program("Groups.java"), ["range", "server-side"])
    return clients.java.KAFKA_VERSION


def franz_go(target: Target) -> str:
    """twmb/franz-go, in both protocols of groups."""
    _check(target, "franz-views", [clients.go_program("franzgroups")], ["range", "server-side"])
    return clients.go_version(clients.FRANZ_GO)


def sarama(target: Target) -> str:
    """IBM/sarama."""
    _check(target, "sarama-views", [clients.go_program("saramagroups")], ["range"])
    return clients.go_version(clients.SARAMA)


def kafka_tools(target: Target) -> str:
    """Kafka's scripts show a view, read it, see a group's offsets on it, and delete it."""
    view = View(target, "tools-views")
    wanted = view.write(_SECOND)
    topics = tool_of(target, "org.apache.kafka.tools.TopicCommand")
    described = topics("--describe", "--topic", view.name)
    expect(described, f"PartitionCount: {PARTITIONS}", f"view.on={view.topic}", "view.where=")
    consumer = tool_of(target, "org.apache.kafka.tools.consumer.ConsoleConsumer")
    group = f"group-of-{view.name}"
    read = consumer(
        *("--topic", view.name, "--from-beginning", "--group", group, "--timeout-ms", "30000"),
        *("--max-messages", str(len(wanted)), "--formatter-property", "print.offset=true"),
        *("--formatter-property", "print.partition=true"),
    )
    found = [
        tuple(map(int, re.findall(r"(?:Partition|Offset):(\d+)", line)))
        for line in read.splitlines()
    ]
    same(sorted(found), sorted(wanted))
    groups = tool_of(target, "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand")
    expect(groups("--describe", "--group", group), view.name, str(_SECOND))
    topics("--delete", "--topic", view.name)
    refuse(topics("--list"), view.name)
    return clients.java.KAFKA_VERSION


CHECKS: dict[str, Callable[[Target], str]] = {
    "kafkajs-views": kafkajs,
    "java-views": java,
    "franz-go-views": franz_go,
    "sarama-views": sarama,
    "kafka-tools-views": kafka_tools,
}
