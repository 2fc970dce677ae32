"""Members of groups as applications have them: real clients, each in a thread of its own.

Every reader joins, reads, commits what it read whenever it gives partitions up, and leaves when
it is closed.  They write into one ``Ledger``, which therefore may complain when a partition has
two owners at a time, and knows who read which record.
"""

import asyncio
import re
import signal
import subprocess
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import kafka
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from waystation.client.consumer import Consumer as OwnConsumer

_POLL_S = 0.05
_PATIENCE_S = 20.0
_CLOSED_WITHIN_S = 5.0
_LOOK_EVERY_S = 0.01


class Read(NamedTuple):
    """One record as a member was given it."""

    member: str
    partition: int
    offset: int
    value: str


class Ledger:
    """Who owns what and who read what, by the members' own words."""

    def __init__(self) -> None:
        self.rows: list[Read] = []
        self.conflicts: list[str] = []
        self.owned: dict[str, frozenset[int]] = defaultdict(frozenset)
        self.revoked: Counter[str] = Counter()
        """How often each member was told to give something up."""
        self._lock = threading.Lock()

    def take(self, member: str, partitions: Iterable[int]) -> None:
        """``member`` begins to own partitions."""
        new = frozenset(partitions)
        with self._lock:
            for other, owned in self.owned.items():
                if other != member and owned & new:
                    self.conflicts.append(f"{sorted(owned & new)}: {other}'s and {member}'s")
            self.owned[member] |= new

    def give_up(self, member: str, partitions: Iterable[int]) -> None:
        """``member`` owns them no more."""
        gone = frozenset(partitions)
        with self._lock:
            self.revoked[member] += bool(gone)
            self.owned[member] -= gone

    def read(self, *read: Read) -> None:
        """Records were handed to a member."""
        self.rows += read

    def is_shared(self, *shares: int) -> bool:
        """Whether the members own so many partitions each, in any order."""
        with self._lock:
            return sorted(len(owned) for owned in self.owned.values() if owned) == sorted(shares)

    def values(self) -> Counter[str]:
        """How often each value was read."""
        return Counter(one.value for one in self.rows)


class Reader(threading.Thread):
    """One member; ``start`` lets it join."""

    def __init__(
        self,
        ledger: Ledger,
        name: str,
        bootstrap: str,
        group: str,
        topic: str,
        options: Mapping[str, Any],
    ) -> None:
        super().__init__(name=name, daemon=True)
        self.closed_s = 0.0
        """How long it took to leave."""
        self.problems: list[str] = []
        self.ledger, self.topic, self.group = ledger, topic, group
        self.bootstrap, self._options = bootstrap, dict(options)
        self._closing = threading.Event()

    def run(self) -> None:
        """The member's life; what goes wrong in it is told by ``close``."""
        try:
            self._live()
        except Exception as error:  # the outermost frame of the thread
            self.problems.append(repr(error))

    def close(self) -> None:
        """Leave the group, and wait until that is done."""
        began = time.perf_counter()
        self._closing.set()
        self._hurry()
        self.join(_PATIENCE_S)
        assert not self.is_alive(), f"{self.name} does not end"
        self.closed_s = time.perf_counter() - began
        assert not self.problems, f"{self.name}: {self.problems}"
        assert self.closed_s < _CLOSED_WITHIN_S, f"{self.name} left within {self.closed_s:.1f} s"

    def _live(self) -> None:
        raise NotImplementedError

    def _hurry(self) -> None:
        """Interrupt whatever would not see that the reader is being closed."""

    def take(self, partitions: Iterable[Any]) -> None:
        """The client says that these are its own."""
        self.ledger.take(self.name, [one.partition for one in partitions])

    def give_up(self, partitions: Iterable[Any]) -> None:
        """The client says that these are its own no more."""
        self.ledger.give_up(self.name, [one.partition for one in partitions])

    def _give_all_up(self) -> None:
        self.ledger.give_up(self.name, self.ledger.owned[self.name])

    def _read(self, partition: int, offset: int, value: bytes) -> None:
        self.ledger.read(Read(self.name, partition, offset, value.decode()))


class ConfluentReader(Reader):
    """librdkafka as it is today."""

    def _live(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": self.group,
                "auto.offset.reset": "earliest",
                "log_level": 0,
                **self._options,
            }
        )
        consumer.subscribe(
            [self.topic],
            on_assign=lambda _, given: self.take(given),
            on_revoke=lambda _, given: self.give_up(given),
            on_lost=lambda _, given: self.give_up(given),
        )
        while not self._closing.is_set():
            for message in consumer.consume(50, _POLL_S):
                if message.error() is not None:
                    self.problems.append(str(message.error()))
                else:
                    self._read(message.partition(), message.offset(), message.value())
        consumer.close()
        self._give_all_up()


class KafkaPythonReader(Reader):
    """kafka-python, whose heartbeats have a thread of their own."""

    def _live(self) -> None:
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=100,
            **self._options,
        )
        consumer.subscribe([self.topic], listener=_KafkaPythonListener(self))
        while not self._closing.is_set():
            for rows in consumer.poll(int(_POLL_S * 1_000)).values():
                for one in rows:
                    self._read(one.partition, one.offset, one.value)
            # 3.0.12 forgets an assignment that arrives between two polls: its next poll only
            # looks whether there is something to join.
            coordinator = consumer._coordinator
            if coordinator.rejoining and not coordinator.need_rejoin():
                coordinator.request_rejoin()
        consumer.close()
        self._give_all_up()


class _KafkaPythonListener(kafka.ConsumerRebalanceListener):
    def __init__(self, reader: KafkaPythonReader) -> None:
        self._reader = reader

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        self._reader.take(assigned)

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        self._reader.give_up(revoked)

    def on_partitions_lost(self, lost: Iterable[Any]) -> None:
        self._reader.give_up(lost)


class AiokafkaReader(Reader):
    """aiokafka, on a loop of its own."""

    def _live(self) -> None:
        asyncio.run(self._live_on_a_loop())

    async def _live_on_a_loop(self) -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=100,
            **self._options,
        )
        consumer.subscribe([self.topic], listener=_AiokafkaListener(self))
        await consumer.start()
        while not self._closing.is_set():
            arrived = await consumer.getmany(timeout_ms=int(_POLL_S * 1_000))
            for rows in arrived.values():
                for one in rows:
                    self._read(one.partition, one.offset, one.value)
        await consumer.stop()
        self._give_all_up()


class _AiokafkaListener(ConsumerRebalanceListener):
    def __init__(self, reader: AiokafkaReader) -> None:
        self._reader = reader

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        self._reader.take(assigned)

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        self._reader.give_up(revoked)


class KcatReader(Reader):
    """kcat: a process of its own, with an older librdkafka.

    It says on stderr what it is assigned, so that the ledger learns of it a moment late.
    """

    _MOVED = re.compile(r"rebalanced.*(assign|revoke)")
    _PARTITION = re.compile(r"\[(\d+)\]")

    _process: subprocess.Popen[str] | None = None

    def _live(self) -> None:
        command = ["kcat", "-b", self.bootstrap, "-u", "-f", "%p %o %s\n"]
        given = {"auto.offset.reset": "earliest", "heartbeat.interval.ms": "100", **self._options}
        for name, value in given.items():
            command += ["-X", f"{name}={value}"]
        command += ["-G", self.group, self.topic]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            self._process = process
            listening = threading.Thread(target=self._listen, args=[process], daemon=True)
            listening.start()
            assert process.stdout is not None, "stdout is a pipe"
            for line in process.stdout:
                partition, offset, value = line.split()
                self._read(int(partition), int(offset), value.encode())
            listening.join()
        if process.returncode:
            self.problems.append(f"kcat ended with {process.returncode}")
        self._give_all_up()

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None, "stderr is a pipe"
        for line in process.stderr:
            if found := self._MOVED.search(line):
                moved = [int(number) for number in self._PARTITION.findall(line)]
                (self.ledger.take if found[1] == "assign" else self.ledger.give_up)(
                    self.name, moved
                )
            elif "ERROR" in line:
                self.problems.append(line.strip())

    def _hurry(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)


class OwnReader(Reader):
    """Waystation's own client, on a loop of its own."""

    def _live(self) -> None:
        asyncio.run(self._live_on_a_loop())

    async def _live_on_a_loop(self) -> None:
        consumer = OwnConsumer(
            self.group,
            [self.topic],
            bootstrap=self.bootstrap,
            heartbeat_interval_ms=100,
            on_assigned=self.take,
            on_revoked=self.give_up,
            **self._options,
        )
        async with consumer:
            while not self._closing.is_set():
                for one in await consumer.poll(timeout_ms=int(_POLL_S * 1_000)):
                    self._read(one.partition, one.offset, one.value or b"")
        self._give_all_up()


def until(true: Callable[[], bool], what: Callable[[], object]) -> None:
    """Wait until something holds; ``what`` says how things are if it never does."""
    deadline = time.monotonic() + _PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, f"still not after {_PATIENCE_S} s: {what()}"
        time.sleep(_LOOK_EVERY_S)


class Topic:
    """A topic that records are written to, numbered from zero; each partition gets as many."""

    def __init__(self, bootstrap: str, name: str, partitions: int) -> None:
        self.name, self.partitions, self.written = name, partitions, 0
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(name, partitions)])[name].result(10)
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1, "log_level": 0})

    def write(self, count: int) -> None:
        """Write so many more, and wait until they are there."""
        for number in range(self.written, self.written + count):
            self._producer.produce(self.name, str(number), partition=number % self.partitions)
        assert self._producer.flush(_PATIENCE_S) == 0, "the producer could not write"
        self.written += count
