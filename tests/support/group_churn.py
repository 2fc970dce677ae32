"""Groups whose members come, go, die and freeze at random while producers write.

Members are programs (``group_member.py``).  What happens to them is drawn from a seed; when it
happens to the broker's clock and scheduler is theirs to decide, so a seed repeats the plan and
not the run.
"""

import contextlib
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import ConsumerGroupTopicPartitions, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.figures import figure
from tests.support.group_history import Journal, Log, Processed, Row, complaints, journal_of
from tests.support.group_member import HEARTBEAT_MS, SESSION_MS
from tests.support.workload import read_all
from waystation.testing.process import BrokerProcess

BROKER_OPTIONS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_MS),
}
TOPIC, PARTITIONS = "payments", 6
PRODUCERS, KEYS = 6, 5
_PAUSE_S = 0.03
_CAUGHT_UP_WITHIN_S = 60.0
_CLOSED_WITHIN_S = 20.0
_LOOK_EVERY_S = 0.1


class Setup(NamedTuple):
    """How one member takes part."""

    client: str
    protocol: str
    assignor: str = "uniform"
    session_ms: int = SESSION_MS


class Plan(NamedTuple):
    """A group: its name, what its members may be, and whether one of them always stays.

    A group without members that is joined by another kind of them counts its generations anew.
    """

    group: str
    setups: tuple[Setup, ...]
    always: Setup | None = None


PLANS = (
    Plan("eager", (Setup("confluent", "classic", "range"), Setup("own", "classic", "range"))),
    Plan(
        "cooperative",
        (
            Setup("confluent", "classic", "cooperative-sticky"),
            Setup("own", "classic", "cooperative-sticky"),
        ),
    ),
    Plan("server-side", (Setup("confluent", "consumer"), Setup("own", "consumer"))),
    Plan(
        "migrating",
        (
            Setup("confluent", "classic", "range"),
            Setup("confluent", "consumer"),
            Setup("own", "classic", "range"),
            Setup("own", "consumer"),
        ),
        Setup("confluent", "classic", "range", session_ms=20_000),
    ),
)


class KeyedWriter(threading.Thread):
    """An idempotent producer that numbers the records of each of its keys."""

    def __init__(self, name: str, bootstrap: str, topic: str, pause_s: float) -> None:
        super().__init__(name=name, daemon=True)
        self.acknowledged: list[str] = []
        self.failed: list[str] = []
        self._topic, self._pause_s = topic, pause_s
        self._stopping = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "message.timeout.ms": 120_000,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 20,
                "log_level": 0,
            }
        )

    def run(self) -> None:
        number = 0
        while not self._stopping.wait(self._pause_s):
            for key in range(KEYS):
                name = f"{self.name}-{key}"
                value = f"{name}:{number}"
                self._producer.produce(self._topic, value, name, on_delivery=self._delivered)
            number += 1
            self._producer.poll(0)

    def finish(self) -> None:
        """Stop writing and wait until the fate of everything sent is known."""
        self._stopping.set()
        self.join()
        assert self._producer.flush(_CAUGHT_UP_WITHIN_S) == 0, "some are still under way"

    def _delivered(self, error: object, message: object) -> None:
        if error is not None:
            self.failed.append(str(error))
        else:
            self.acknowledged.append(message.value().decode())  # type: ignore[attr-defined]


class MemberProcess:
    """One running member."""

    def __init__(self, journal: Path, bootstrap: str, group: str, topic: str, how: Setup) -> None:
        self.name, self.is_paused = journal.stem, False
        self._journal = journal
        command = [sys.executable, "-m", "tests.support.group_member", str(journal)]
        with journal.with_suffix(".err").open("w") as errors:
            self._errors = Path(errors.name)
            self._process = subprocess.Popen(
                [*command, bootstrap, group, topic, *map(str, how)],
                stderr=errors,
                cwd=Path(__file__).parents[2],
            )

    def pause(self) -> None:
        """Stop it where it is; it owns what it owns and says nothing."""
        self.is_paused = True
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on, as if no time had passed."""
        self.is_paused = False
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """Ask it to leave; ``closed`` waits for that."""
        if self.is_paused:
            self.resume()
        self._process.send_signal(signal.SIGTERM)

    def closed(self) -> None:
        """Wait until it has left; that it ended well is part of the proof."""
        try:
            code = self._process.wait(_CLOSED_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"{self.name} did not close in {_CLOSED_WITHIN_S} s") from None
        if code == -signal.SIGTERM and not self._journal.stat().st_size:
            return  # it had not even begun
        assert code == 0, f"{self.name} ended with {code}: {self._errors.read_text()[-2_000:]}"


class Churn:
    """One group and what happens to its members."""

    def __init__(
        self, plan: Plan, bootstrap: str, topic: str, folder: Path, chance: random.Random, most: int
    ) -> None:
        """At most ``most`` members are alive at a time."""
        self.plan, self.done = plan, dict.fromkeys(("add", "close", "kill", "pause", "resume"), 0)
        self._bootstrap, self._topic = bootstrap, topic
        self._folder = folder / plan.group
        self._folder.mkdir()
        self._chance, self._most = chance, most
        self._alive: list[MemberProcess] = []
        self._leaving: list[MemberProcess] = []
        self._staying: list[MemberProcess] = []
        self._started = 0

    def step(self) -> None:
        """Something happens to somebody."""
        running = [one for one in self._alive if not one.is_paused]
        paused = [one for one in self._alive if one.is_paused]
        choices = ["add"] * 3 * (len(self._alive) < self._most)
        if len(running) > 1:
            choices += ["close", "kill", "pause"]
        choices += ["resume"] * 2 * len(paused)
        action = self._chance.choice(choices or ["nothing"])
        match action:
            case "add":
                self.add()
            case "close":
                self._leave(self._note(action, running))
            case "kill":
                victim = self._note(action, running)
                self._alive.remove(victim)
                victim.kill()
            case "pause":
                self._note(action, running).pause()
            case "resume":
                self._note(action, paused).resume()

    def _note(self, action: str, among: list[MemberProcess]) -> MemberProcess:
        """Whom it happens to; kept beside the journals for whoever has to understand them."""
        whom = self._chance.choice(among)
        self.done[action] += 1
        with (self._folder / "happened.txt").open("a") as notes:
            notes.write(f"{time.monotonic_ns()} {action} {whom.name}\n")
        return whom

    def add(self) -> None:
        """One more member."""
        self._alive.append(self._started_as(self._chance.choice(self.plan.setups)))

    def begin(self) -> None:
        """Two members, one of whom has got to work."""
        if self.plan.always is None:
            self.add()
        else:
            self._staying.append(self._started_as(self.plan.always))
        self.add()
        deadline = time.monotonic() + _CAUGHT_UP_WITHIN_S
        while not any(path.stat().st_size for path in self._folder.glob("*.jsonl")):
            assert time.monotonic() < deadline, f"{self.plan.group}: nobody got a partition"
            time.sleep(_LOOK_EVERY_S)

    def settle(self) -> None:
        """Nobody is paused any more and somebody is there."""
        for one in self._alive:
            if one.is_paused:
                one.resume()
        if not self._alive:
            self.add()

    def close(self) -> None:
        """All leave."""
        for one in list(self._alive):
            self._leave(one)
        for one in self._staying:
            one.close()
        for one in [*self._leaving, *self._staying]:
            one.closed()

    def kill(self) -> None:
        """End whatever still runs; for the end of a test that failed."""
        for one in [*self._alive, *self._leaving, *self._staying]:
            with contextlib.suppress(ProcessLookupError):
                one.kill()

    def journals(self) -> list[Journal]:
        """What the members say they did."""
        return [journal_of(path) for path in sorted(self._folder.glob("*.jsonl"))]

    def check(self, log: Log) -> None:
        """Hold what the members did against what a group may do."""
        journals = self.journals()
        held, processed = sum(map(len, log.values())), sum(map(_rows_of, journals))
        times = processed / held
        figure(f"{self.plan.group}: {held} records processed {times:.2f} times, {self.done}")
        found = complaints(log, journals)
        assert not found, "\n".join([f"group {self.plan.group}, see {self._folder}:", *found])

    def _started_as(self, how: Setup) -> MemberProcess:
        journal = self._folder / f"{self._started:03}-{how.client}.jsonl"
        journal.touch()
        self._started += 1
        self.done["add"] += 1
        return MemberProcess(journal, self._bootstrap, self.plan.group, self._topic, how)

    def _leave(self, one: MemberProcess) -> None:
        self._alive.remove(one)
        self._leaving.append(one)
        one.close()


def create(bootstrap: str) -> None:
    """Make the topic."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(30)


def catch_up(bootstrap: str, groups: Iterable[str], ends: dict[int, int]) -> None:
    """Wait until each group has committed everything."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    deadline = time.monotonic() + _CAUGHT_UP_WITHIN_S
    for group in groups:
        while (got := _committed(admin, group)) != ends:
            assert time.monotonic() < deadline, f"{group} committed {got}, the logs end at {ends}"
            time.sleep(_LOOK_EVERY_S)


def _committed(admin: AdminClient, group: str) -> dict[int, int]:
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    return {one.partition: one.offset for one in asked[group].result(30).topic_partitions}


def log_of(bootstrap: str, topic: str, partitions: int) -> Log:
    """What the partitions hold."""
    return {
        partition: [_row(offset, value) for offset, value in rows]
        for partition, rows in read_all(bootstrap, topic, partitions).items()
    }


def _rows_of(journal: Journal) -> int:
    return sum(len(event.rows) for event in journal.events if isinstance(event, Processed))


def _row(offset: int, value: str) -> Row:
    key, _, number = value.partition(":")
    return Row(offset, key, int(number))


def check_written(log: Log, writers: Iterable[KeyedWriter]) -> None:
    """Everything acknowledged is in the log."""
    there = {f"{row.key}:{row.number}" for rows in log.values() for row in rows}
    for writer in writers:
        assert not writer.failed, writer.failed[:3]
        lost = [value for value in writer.acknowledged if value not in there]
        assert not lost, f"{len(lost)} of {writer.name} were acknowledged and lost: {lost[:3]}"


def churn(
    churns: list[Churn], chance: random.Random, duration_s: float, at_least_s: float = 0.05
) -> None:
    """Let things happen to members for a while."""
    deadline = time.monotonic() + duration_s
    while time.monotonic() < deadline:
        time.sleep(chance.uniform(at_least_s, 10 * at_least_s))
        chance.choice(churns).step()


def prove(
    broker: BrokerProcess,
    folder: Path,
    chance: random.Random,
    most: int,
    happen: Callable[[list[Churn]], None],
) -> None:
    """Producers write and groups process while things ``happen``; then check all they did."""
    create(broker.bootstrap)
    writers = [KeyedWriter(f"w{n}", broker.bootstrap, TOPIC, _PAUSE_S) for n in range(PRODUCERS)]
    groups = [Churn(plan, broker.bootstrap, TOPIC, folder, chance, most) for plan in PLANS]
    try:
        for writer in writers:
            writer.start()
        for one in groups:
            one.begin()
        happen(groups)
        for writer in writers:
            writer.finish()
        for one in groups:
            one.settle()
        log = log_of(broker.bootstrap, TOPIC, PARTITIONS)
        ends = {partition: len(rows) for partition, rows in log.items() if rows}
        catch_up(broker.bootstrap, [plan.group for plan in PLANS], ends)
        for one in groups:
            one.close()
    finally:
        for one in groups:
            one.kill()
    check_written(log, writers)
    for one in groups:
        one.check(log)
