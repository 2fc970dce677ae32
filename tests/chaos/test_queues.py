"""Queues of real clusters while consumers and brokers die: every message is done once, in order.

Fifty consumers, by librdkafka and by our client, share the messages of four partitions, in the
usual mode and by key; both are queues over one topic, so that each must get everything.  Consumers
are killed, frozen and slow by chance.  Brokers are killed too, which moves leaders, coordinators of
groups and those of the queues' states, or sleep for longer than their leases last and wake up as
leaders who were replaced.  Whatever comes to a consumer is written down, so that counts of
deliveries are held to rise by one.  ``waystation/testing/queue_checker.py`` decides; that it
finds what it looks for is proven in ``tests/testing/test_queue_checker.py``.
"""

import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from tests.support.cluster import LEASE_MS, ProcessCluster
from tests.support.figures import figure
from tests.support.havoc import by_chance, complaints_of
from tests.support.soak import SOAKING, count
from waystation import Admin, WaystationError
from waystation.runtime.loops import run
from waystation.testing.history import HistoryFile
from waystation.testing.programs import Program
from waystation.testing.queue_checker import Fault, QueueVerdict, Rules, check_queue, unsettled
from waystation.testing.queue_history import QueueDiary, QueueEvent, read_queue_histories

pytestmark = [pytest.mark.alone, pytest.mark.timeout(3_600)]

CHAOS_S = int(os.environ.get("WAYSTATION_CHAOS_S") or count(8, 600))
RATE = count(60, 200)
TOPIC, PARTITIONS = "work", 4
GROUPS = {"in-any-order": False, "by-key": True}
PROGRAMS = {"confluent": count(2, 4), "ours": count(3, 6)}
"""How many programs of each kind a queue has, of five consumers each."""
CONSUMERS = 5
LOCK_MS = count(3_000, 5_000)
LIMIT = 1_000
HEARSAY_MS = 4_000
SLEEPS_S = (LEASE_MS / 1_000 + 0.5, LEASE_MS / 1_000 + 2.0)
BROKER_EVERY_S = count(3, 12)
"""While leaders change all the time, little can be held against them."""
PATIENCE_S = count(90, 300)
OPTIONS = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.num.partitions": "3",
    "group.share.heartbeat.interval.ms": "1000",
    "group.share.session.timeout.ms": "6000",
    "replica.lag.time.max.ms": "2000",
}
_LOOK_EVERY_S = 0.25
_WAIT_S = (0.2, 1.5)
_SHOWN = 10


def rules(*, by_key: bool) -> Rules:
    """What is asked of a queue here."""
    return Rules(LOCK_MS, LIMIT, by_key=by_key, hearsay_ms=HEARSAY_MS)


def test_every_message_is_done_once_whatever_happens(tmp_path: Path) -> None:
    chance = by_chance()
    with ProcessCluster(tmp_path / "cluster", 3, options=OPTIONS) as cluster:
        cluster.ask(make_queues)
        with Crowd(cluster, tmp_path, chance) as crowd, watched(cluster, crowd):
            crowd.await_work()
            crowd.suffer(CHAOS_S)
            crowd.finish()
        complaints = complaints_of(cluster)
    for group, by_key in GROUPS.items():
        verdict = check_queue(crowd.events(group), rules(by_key=by_key))
        figure(f"queue {group}, {CHAOS_S} s of {dict(crowd.blows)}: {verdict}")
        demand(group, verdict)
    # Whoever promises no order keeps none: else the other queue's order would prove nothing.
    disordered = check_queue(crowd.events("in-any-order"), rules(by_key=True)).findings
    assert any(one.fault is Fault.OUT_OF_ORDER for one in disordered)
    assert not complaints, "\n".join(complaints[:_SHOWN])


async def make_queues(admin: Admin) -> None:
    """One topic, and the groups that share its messages."""
    for group, by_key in GROUPS.items():
        await admin.create_queue(
            TOPIC,
            PARTITIONS,
            group=group,
            order_by_key=by_key,
            lock_ms=LOCK_MS,
            max_deliveries=LIMIT,
        )


def demand(group: str, verdict: QueueVerdict) -> None:
    """Nothing is wrong, and something was tried."""
    found = [str(one) for one in verdict.findings]
    more = [f"and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
    assert not found, "\n".join([f"{group}: {verdict}", *found[:_SHOWN], *more])
    assert verdict.sent > CHAOS_S * RATE / 6, f"{group}: hardly anything was sent: {verdict}"
    assert sum(verdict.again.values()) > 0, f"{group}: nothing came twice: {verdict}"


class Crowd:
    """Senders and consumers of all queues, in programs that are killed and frozen."""

    def __init__(self, cluster: ProcessCluster, folder: Path, chance: Random) -> None:
        self.blows: Counter[str] = Counter()
        self._cluster, self._folder, self._chance = cluster, folder, chance
        self._common = folder / "common"
        self._common.mkdir()
        self._fate = HistoryFile(self._common / "fate.jsonl")
        self.diary = QueueDiary("fate", self._fate.write)
        self._writer = self._program(self._common, "w", "write", TOPIC, str(RATE))
        self._consumers: list[Program] = []
        for group in GROUPS:
            (folder / group).mkdir()
            for role, many in PROGRAMS.items():
                how = (role, TOPIC, group, str(CONSUMERS), str(LOCK_MS))
                self._consumers += [
                    self._program(folder / group, f"{group}-{role}{n}", *how) for n in range(many)
                ]
        self._frozen: list[Program] = []
        self._dead: int | None = None
        self._asleep: int | None = None
        self._spared_until_s = self._asleep_until_s = self._ends_at_s = 0.0

    def __enter__(self) -> "Crowd":
        for program in (self._writer, *self._consumers):
            program.start()
        return self

    def __exit__(self, *_: object) -> None:
        for program in (self._writer, *self._consumers):
            program.kill()
        self._fate.close()

    def events(self, group: str) -> Iterator[QueueEvent]:
        """The history of one queue."""
        folders = (self._common, self._folder / group)
        return read_queue_histories(sorted(p for one in folders for p in one.glob("*.jsonl")))

    def await_work(self) -> None:
        """Until both queues are worked on."""
        self._await(lambda: all(self._is_worked_on(group) for group in GROUPS), "nobody begins")

    def suffer(self, duration_s: float) -> None:
        """Let one thing after the other happen, at moments that nobody expects."""
        blows = [self._kill, self._kill, self._freeze, self._freeze]
        blows += [self._kill_broker, self._let_broker_sleep]
        blows += [self._restart_broker] if SOAKING else []
        self._ends_at_s = time.monotonic() + duration_s
        self._kill_broker()  # at least one, however short it is
        while time.monotonic() < self._ends_at_s:
            time.sleep(self._chance.uniform(*_WAIT_S))
            self._chance.choice(blows)()
            if time.monotonic() > self._asleep_until_s:
                self._wake_broker()
        self._revive_broker()
        if not self.blows["sleep"]:
            self._spared_until_s = 0.0
            self._let_broker_sleep()
        time.sleep(max(0.0, self._asleep_until_s - time.monotonic()))
        self._thaw()
        self._wake_broker()

    def finish(self) -> None:
        """No more is sent; everything that was is done."""
        assert self._writer.is_alive
        self._writer.finish()
        for group, by_key in GROUPS.items():
            self._await(
                lambda group=group, by_key=by_key: (
                    not unsettled(self.events(group), rules(by_key=by_key))
                ),
                f"{group}: not everything is done",
            )
        for program in self._consumers:
            assert program.is_alive
            program.finish()

    # --- what happens ---------------------------------------------------------------------------

    def _kill(self) -> None:
        self._thaw()
        program = self._chance.choice(self._consumers)
        self.diary.died(program.life, CONSUMERS)
        program.kill()
        program.start()
        self.blows["kill"] += 1

    def _freeze(self) -> None:
        """Stop five consumers where they are, until the next blow or the one after."""
        if self._chance.random() < 0.5:
            self._thaw()
        program = self._chance.choice(self._consumers)
        if program not in self._frozen:
            self.diary.remark(f"{program.life} freezes")
            program.freeze()
            self._frozen.append(program)
            self.blows["freeze"] += 1

    def _thaw(self) -> None:
        for program in self._frozen:
            program.thaw()
        self._frozen.clear()

    def _kill_broker(self) -> None:
        if self._are_brokers_spared():
            return
        self._dead = self._chance.choice(self._cluster.ids)
        self.diary.remark(f"broker {self._dead} dies")
        self._cluster.kill(self._dead)
        self.blows["broker"] += 1

    def _restart_broker(self) -> None:
        """A clean end: others lead before it is gone."""
        if self._are_brokers_spared():
            return
        number = self._chance.choice(self._cluster.ids)
        self.diary.remark(f"broker {number} restarts")
        self._cluster.restart(number)
        self.blows["restart"] += 1

    def _let_broker_sleep(self) -> None:
        """Stop a broker for so long that others take over, and let it go on as if nothing was."""
        if self._are_brokers_spared():
            return
        self._asleep = self._chance.choice(self._cluster.ids)
        lasts_s = self._chance.uniform(*SLEEPS_S)
        self._asleep_until_s = time.monotonic() + lasts_s
        self._ends_at_s += lasts_s  # little happens meanwhile, and little can be held against it
        self._spared_until_s = self._asleep_until_s + BROKER_EVERY_S
        self.diary.slept(f"broker {self._asleep}")
        self._cluster.pause(self._asleep)
        self.blows["sleep"] += 1

    def _wake_broker(self) -> None:
        if self._asleep is not None:
            self.diary.woken(f"broker {self._asleep}")
            self._cluster.resume(self._asleep)
            self._asleep = None

    def _are_brokers_spared(self) -> bool:
        """One at a time: who was struck last has recovered, and been there for a while."""
        if time.monotonic() < self._spared_until_s:
            return True
        self._spared_until_s = time.monotonic() + BROKER_EVERY_S
        self._revive_broker()
        self._wake_broker()
        return False

    def _revive_broker(self) -> None:
        if self._dead is not None:
            self._cluster.start(self._dead)
            self._dead = None

    # --- behind the scenes ----------------------------------------------------------------------

    def _program(self, folder: Path, name: str, *how: str) -> Program:
        arguments = ("-m", "tests.support.queue_clients", *how)
        return Program(folder, name, self._cluster.bootstrap, arguments)

    def _is_worked_on(self, group: str) -> bool:
        texts = (one.read_text() for one in (self._folder / group).glob("*.jsonl"))
        return any('"settled"' in text for text in texts)

    def _await(self, true, complaint: str) -> None:  # type: ignore[no-untyped-def]
        deadline = time.monotonic() + PATIENCE_S
        while not true():
            assert time.monotonic() < deadline, complaint
            assert all(program.is_alive for program in self._consumers)
            time.sleep(1.0 if SOAKING else 0.2)


@contextmanager
def watched(cluster: ProcessCluster, crowd: Crowd) -> Iterator[None]:
    """Ask all the time who leads, and write it down: a change of leader explains much."""
    over = threading.Event()

    async def look() -> None:
        async with Admin(cluster.bootstrap) as admin:
            while not over.is_set():
                for one in (await admin.describe_topic(TOPIC)).partitions:
                    crowd.diary.led(one.partition, one.leader, one.epoch)
                over.wait(_LOOK_EVERY_S)

    def watch() -> None:
        while not over.is_set():
            try:
                run(look())
            except WaystationError:
                over.wait(_LOOK_EVERY_S)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
