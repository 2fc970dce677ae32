"""Consumer groups by client libraries that Python does not have.

Each client program lets two members join a group, says ``{"ready": true}`` once they share all
partitions, and prints every record that a member reads.  After so many records both members
close.  The next run of the same group must go on where they stopped.
"""

import json
import subprocess
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import IO, NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.letters import WrongAnswerError
from tests.compat.target import RUN_TIMEOUT_S, Target

PARTITIONS = 4
_FIRST, _SECOND = 40, 20


class Read(NamedTuple):
    """One record as one of the members was given it."""

    member: str
    partition: int
    offset: int
    value: str


def check_groups(
    target: Target, name: str, command: Sequence[str], assignors: Sequence[str]
) -> None:
    """Let the program at groups of each assignor, all at the same time."""
    with ThreadPoolExecutor(len(assignors)) as pool:
        found = pool.map(lambda one: _check_one(target, name, command, one), assignors)
        problems = [problem for problem in found if problem]
    if problems:
        raise WrongAnswerError("\n".join(problems))


def _check_one(target: Target, name: str, command: Sequence[str], assignor: str) -> str:
    """What is wrong with groups of this assignor; nothing if all is well."""
    topic = Topic(target, f"{name}-{assignor}")
    given = [*command, target.bootstrap, topic.name, f"group-of-{topic.name}", assignor]
    try:
        check_shared(reads_of([*given, str(_FIRST)], lambda: topic.write(_FIRST)))
        topic.write(_SECOND)
        check_resumed(reads_of([*given, str(_SECOND)], lambda: None))
    except WrongAnswerError as error:
        return f"{assignor}: {error}"
    return ""


def check_shared(reads: Sequence[Read]) -> None:
    """Everything was read once, each partition by one member, and both had some."""
    _check_range(reads, 0, _FIRST)
    readers = {read.partition: read.member for read in reads}
    for read in reads:
        if readers[read.partition] != read.member:
            raise WrongAnswerError(f"partition {read.partition} was read by both members")
    if len(set(readers.values())) != 2:
        raise WrongAnswerError(f"one member read everything: {readers}")


def check_resumed(reads: Sequence[Read]) -> None:
    """Exactly what came later was read, by whomever."""
    _check_range(reads, _FIRST, _FIRST + _SECOND)


def _check_range(reads: Sequence[Read], start: int, end: int) -> None:
    wanted = [(n % PARTITIONS, n // PARTITIONS, str(n)) for n in range(start, end)]
    got = [(read.partition, read.offset, read.value) for read in reads]
    if sorted(got) != sorted(wanted):
        missing, extra = sorted(set(wanted) - set(got)), sorted(set(got) - set(wanted))
        twice = len(got) - len(set(got))
        raise WrongAnswerError(
            f"of {len(wanted)} records {len(missing)} are missing ({missing[:3]}), "
            f"{len(extra)} are not wanted ({extra[:3]}), {twice} came twice"
        )


class Topic:
    """Records numbered from zero, spread evenly over the partitions."""

    def __init__(self, target: Target, name: str) -> None:
        self.name, self._written = target.topic(name), 0
        admin = AdminClient({"bootstrap.servers": target.bootstrap})
        admin.create_topics([NewTopic(self.name, PARTITIONS, 1)])[self.name].result()
        self._producer = Producer({"bootstrap.servers": target.bootstrap, "linger.ms": 1})

    def write(self, count: int) -> None:
        """Write so many more."""
        for number in range(self._written, self._written + count):
            self._producer.produce(self.name, str(number), partition=number % PARTITIONS)
        if self._producer.flush(10):
            raise WrongAnswerError(f"librdkafka could not fill {self.name}")
        self._written += count


def reads_of(command: Sequence[str], ready: Callable[[], None]) -> list[Read]:
    """Run the program, call ``ready`` when it is, and gather what its members read."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None, "stdout is a pipe"
        assert running.stderr is not None, "stderr is a pipe"
        complaints: list[str] = []
        listening = threading.Thread(target=_gather, args=(running.stderr, complaints))
        watchdog = threading.Timer(RUN_TIMEOUT_S, running.kill)
        listening.start()
        watchdog.start()
        try:
            reads = list(_told(running.stdout, ready))
        finally:
            watchdog.cancel()
            running.stdout.close()
            running.wait()
            listening.join()
    if running.returncode:
        said = "".join(complaints[-12:])
        raise WrongAnswerError(f"exit code {running.returncode}: {said}")
    return reads


def _told(lines: IO[str], ready: Callable[[], None]) -> list[Read]:
    reads = []
    for line in lines:
        told = json.loads(line)
        if "ready" in told:
            ready()
        else:
            reads.append(Read(**told))
    return reads


def _gather(lines: IO[str], into: list[str]) -> None:
    into.extend(lines)
