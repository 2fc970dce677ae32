"""The life of a schedule by seed: three replicas, a target, clients, and everything that fails.

Nodes lose power, also in the middle of writing; leaders change, with or without the tail of the
log; requests and answers are lost or late; clocks step; the target forgets and refuses; the log
is cleaned.  ``Witness`` says what must have happened; ``BrokenPromiseError`` is a promise broken.
"""

import random
from collections import Counter
from pathlib import Path

from tests.scheduling.companion import Companion
from tests.scheduling.target import Target
from tests.scheduling.witness import BrokenPromiseError, Witness
from waystation.model.errors import CoordinatorLoadingError, WaystationError
from waystation.model.ids import LeaderEpoch, ProducerId, TopicPartition
from waystation.model.offsets import Millis, Offset
from waystation.records.record import Headers
from waystation.scheduling.checkpoint import CHECKPOINT
from waystation.scheduling.delivery import delivery_batch
from waystation.scheduling.errors import NotPendingError
from waystation.scheduling.index import Steps
from waystation.scheduling.mover import Append, Ask, Fence, Look, Outcome, Send, Token
from waystation.scheduling.records import Cancelled, Retimed
from waystation.scheduling.schedule import Schedule
from waystation.scheduling.settings import ScheduleSettings
from waystation.storage.schedule_files import ScheduleFiles
from waystation.testing.disk import PowerLossError, SimulatedDisk

TARGET = TopicPartition("orders", 0)
BEGAN = 1_800_000_000_000
REMEMBERED_MS = 60_000
LATE_MS = 20_000
"""How long a request may be on its way."""
SETTINGS = ScheduleSettings(
    schedule_batch_records=4,
    schedule_near_entries=8,
    schedule_buffer_entries=6,
    schedule_trust_ms=5_000,
)
FOLDER = Path("/partition/schedule")


ACTIONS = [
    (20, "_produce"),
    (6, "_transact"),
    (24, "_commit"),
    (30, "_feed"),
    (30, "_lead"),
    (24, "_deliver"),
    (16, "_pass_time"),
    (3, "_step_clock"),
    (1, "_pause"),
    (8, "_wish"),
    (30, "_keep_up"),
    (3, "_crash"),
    (3, "_elect"),
    (2, "_change_target"),
    (3, "_clean"),
]
WEIGHTS = [weight for weight, _ in ACTIONS]


class Node:
    """One replica: a disk, and a schedule on it."""

    def __init__(self, number: int, seed: int, log: Companion) -> None:
        self.number, self.log = number, log
        self.disk = SimulatedDisk(seed)
        self.disk.make_directory(FOLDER.parent)
        self.disk.sync_directory(FOLDER.parent.parent)
        self.upkeep: Steps | None = None
        self.schedule = self._opened()

    def restart(self, *, without_index: bool = False) -> None:
        self.disk.crash()
        if without_index:
            self.disk.unlink(FOLDER / CHECKPOINT)
        self.upkeep = None
        self.schedule = self._opened()

    def feed(self) -> None:
        for batch in self.log.from_(self.schedule.applied):
            self.schedule.apply(batch)

    def work(self, chance: random.Random) -> None:
        """One step of upkeep, in which power may be lost."""
        if self.upkeep is None:
            self.upkeep = self.schedule.upkeep()
        if chance.random() < 0.05:
            self.disk.lose_power(chance.randrange(6))
        try:
            step = next(self.upkeep, None)
            if step is None:
                self.upkeep = None
            else:
                step()
        except PowerLossError:
            self.restart()

    def _opened(self) -> Schedule:
        files = ScheduleFiles(self.disk, FOLDER)
        return Schedule.opened(TARGET, files, SETTINGS, self.log.has)


class Life:
    """``run`` lives it through; the same seed is the same life."""

    def __init__(self, seed: int, steps: int = 400) -> None:
        self.chance = random.Random(seed)
        self.steps = steps
        self.true_now, self.skew = BEGAN, 0
        self.log, self.target, self.witness = Companion(), Target(), Witness()
        self.nodes = [Node(n, seed * 10 + n, self.log) for n in range(3)]
        self.leader = 0
        self.seen: Counter[str] = Counter()
        self.network: list[tuple[int, Node, Schedule, Ask, bytes]] = []
        self.open: list[ProducerId] = []
        self.calm = False
        self._producers = 100
        self._messages = 0
        self._elect()

    @property
    def now(self) -> Millis:
        return Millis(self.true_now + self.skew)

    @property
    def schedule(self) -> Schedule:
        return self.nodes[self.leader].schedule

    def run(self) -> None:
        for _ in range(self.steps):
            _, action = self.chance.choices(ACTIONS, WEIGHTS)[0]
            getattr(self, action)()
            self.witness.check_target(self.target)
        self._finish()

    # --- clients ------------------------------------------------------------------------

    def _produce(self) -> None:
        self.log.produce(self._some(), self.now)

    def _transact(self) -> None:
        if self.open and self.chance.random() < 0.5:
            producer = self.open.pop(self.chance.randrange(len(self.open)))
            committed = self.chance.random() < 0.6
            self.log.mark(producer, committed, self.now)
            self.seen["committed" if committed else "aborted"] += 1
            return
        self._producers += 1
        producer = ProducerId(self._producers)
        self.open.append(producer)
        for _ in range(self.chance.randint(1, 2)):
            self.log.produce(self._some(), self.now, producer)

    def _some(self) -> list[tuple[bytes, Headers]]:
        found = []
        for _ in range(self.chance.randint(1, 3)):
            self._messages += 1
            found.append((b"%d" % self._messages, self._headers()))
        return found

    def _headers(self) -> Headers:
        match self.chance.randrange(12):
            case 0:
                return (("deliver-cron", b"* * * * *"),)
            case 1:
                return (("other", b"stray"),)
            case 2 | 3:
                return (("deliver-after", b"%d" % self.chance.randrange(2_000)),)
            case 4:
                return (("deliver-at", b"%d" % (self.now - self.chance.randrange(1_000))),)
            case 5 | 6:  # many at one time
                second = self.now // 1_000 + self.chance.randrange(10)
                return (("deliver-at", b"%d000" % second),)
            case 7:  # long after this life
                return (("deliver-at", b"%d" % (self.now + self.chance.randrange(10**11))),)
            case _:
                return (("deliver-at", b"%d" % (self.now + self.chance.randrange(20_000))),)

    def _wish(self) -> None:
        """Cancel or re-time something, perhaps what is gone or not there yet."""
        offset = Offset(self.chance.randrange(max(self.log.end, 1)))
        row = self.log.row(offset)
        try:
            if self.chance.random() < 0.5:
                wish: Cancelled | Retimed = self.schedule.cancel(offset, row)
            else:
                to = Millis(self.now + self.chance.randrange(-2_000, 15_000))
                wish = self.schedule.retime(offset, row, to, self.now)
        except NotPendingError as error:
            self.seen[error.why.split(",")[0]] += 1
            return
        except CoordinatorLoadingError:
            self.seen["loading"] += 1
            return
        self.seen[type(wish).__name__] += 1
        self.log.decide(wish, self.now)

    # --- the log ------------------------------------------------------------------------

    def _commit(self) -> None:
        ends = self.log.ends()
        self._commit_to(self.chance.choice(ends))

    def _commit_to(self, end: Offset) -> None:
        if end > self.log.committed:
            before, self.log.committed = self.log.committed, end
            self.witness.follow(self.log.from_(before))

    def _feed(self) -> None:
        self.chance.choice(self.nodes).feed()

    def _elect(self) -> None:
        """Somebody leads, who may lack what is not committed."""
        self.nodes[self.leader].schedule.resign()
        self.log.cut(self.chance.choice(self.log.ends()))
        self.log.epoch = LeaderEpoch(self.log.epoch + 1)
        self.leader = self.chance.randrange(3)
        self._take_office()
        self.open = [one for one in self.open if self.chance.random() < 0.9]

    def _take_office(self) -> None:
        self.schedule.lead(self.log.epoch, self.log.end)
        self.seen["elections"] += 1

    def _clean(self) -> None:
        schedule = self.schedule
        everyone_has = min(node.schedule.saved for node in self.nodes)
        *_, keeping = schedule.keeping(Offset(0), schedule.applied, everyone_has)
        before = len(self.log.batches)
        self.log.clean(keeping)
        self.seen["cleaned"] += before - len(self.log.batches)

    # --- the leader ---------------------------------------------------------------------

    def _lead(self) -> None:
        node, schedule = self.nodes[self.leader], self.schedule
        node.feed()
        if schedule.mover.needs_producer(TARGET):
            self._producers += 1
            schedule.mover.enrol(ProducerId(self._producers))
        refused = schedule.refused()
        if refused is not None:
            self.seen["put off"] += 1
            row = self.log.row(Offset(refused[1]))
            self.log.decide(schedule.put_off(refused, row, Millis(self.now + 3_000)), self.now)
        items = schedule.due(self.now)
        if items:
            items = items[: self.chance.randint(1, len(items))]
            self.witness.check_decision(items, self.now, schedule)
            self.log.decide(schedule.decide(items, self.now), self.now)
        elif self.chance.random() < 0.3:
            for append in schedule.mover.settle():
                self.log.decide(append.decision, self.now)
        for ask in schedule.mover.work(self.now):
            self._ask(node, schedule, ask)

    def _ask(self, node: Node, schedule: Schedule, ask: Ask) -> None:
        self.seen[type(ask).__name__] += 1
        batch = b""
        match ask:
            case Append(decision):
                self.seen[type(decision).__name__] += 1
                self.log.decide(decision, self.now)
                return
            case Send(_, decided):
                rows = [self.log.row(Offset(offset)) for _, offset in decided.items]
                if None in rows:
                    raise BrokenPromiseError(f"a record of {decided} is gone")
                batch = delivery_batch(decided, [row for row in rows if row is not None])
        self.network.append((self.true_now, node, schedule, ask, batch))

    def _deliver(self) -> None:
        """Something arrives, or does not, or its answer does not; in any order."""
        arriving = [one for one in self.network if self.calm or one[0] <= self.true_now]
        if not arriving:
            return
        chosen = self.chance.choice(arriving)
        self.network.remove(chosen)
        _, node, schedule, ask, batch = chosen
        luck = 1.0 if self.calm else self.chance.random()
        if luck < 0.15:  # no answer, and the request is still on its way
            later = self.true_now + self.chance.randrange(LATE_MS)
            self.network.append((later, node, schedule, ask, batch))
            outcome = Outcome.UNCLEAR
        elif luck < 0.2:
            outcome = Outcome.UNCLEAR
        elif luck < 0.3:
            outcome = Outcome.NOT_NOW
        else:
            outcome = self._reach(ask, batch)
            if luck < 0.45:
                outcome = Outcome.UNCLEAR
        self.seen[f"{type(ask).__name__} {outcome.name}"] += 1
        if node.schedule is schedule:
            schedule.mover.answered(_token(ask), outcome, self.now)

    def _reach(self, ask: Ask, batch: bytes) -> Outcome:
        now = Millis(self.true_now)
        match ask:
            case Send():
                return self.target.produce(batch, now)
            case Fence(_, producer_id, epoch):
                return self.target.fence(producer_id, epoch, now)
            case Look(_, decided):
                return self.target.look(decided)
        raise AssertionError(ask)

    # --- faults -------------------------------------------------------------------------

    def _pass_time(self) -> None:
        self.true_now += self.chance.randrange(1, self.chance.choice((20, 1_000)))
        self.target.forget(Millis(self.true_now), REMEMBERED_MS)

    def _step_clock(self) -> None:
        self.skew = self.chance.randrange(-8_000, 8_000)

    def _pause(self) -> None:
        """Long enough for the target to forget, and for requests on the way to be gone."""
        self.true_now += self.chance.choice((10_000, 70_000))
        gone = self.true_now - REMEMBERED_MS + LATE_MS
        self.network = [one for one in self.network if one[0] > gone]
        self._pass_time()

    def _keep_up(self) -> None:
        node = self.chance.choice(self.nodes)
        before = node.schedule
        node.work(self.chance)
        if node.schedule is not before:
            self._reborn(node)

    def _crash(self) -> None:
        node = self.chance.choice(self.nodes)
        node.restart(without_index=self.chance.random() < 0.3)
        self._reborn(node)

    def _reborn(self, node: Node) -> None:
        self.seen["crashes"] += 1
        if node.number == self.leader:
            self._elect()

    def _change_target(self) -> None:
        self.target.most_records = self.chance.choice((1, 2, 1_000, 1_000))
        if self.chance.random() < 0.3 and self._messages:
            self.target.poison = {b"%d" % self.chance.randint(1, self._messages)}
        else:
            self.target.poison = set()

    # --- the end ------------------------------------------------------------------------

    def _finish(self) -> None:
        """All calms down; then everything that was promised must come to pass."""
        self.calm, self.skew = True, 0
        self.target.most_records, self.target.poison = 1_000, set()
        for producer in self.open:
            self.log.mark(producer, True, self.now)
        for _ in range(400):
            self.true_now += 250
            self._commit_to(self.log.end)
            for node in self.nodes:
                node.feed()
            self._lead()
            while self.network:
                self._deliver()
            self._keep_up()
            self.witness.check_target(self.target)
        self.witness.check_all_came(self.now)
        self.witness.check_delivered(self.target)
        for node in self.nodes:
            node.feed()
            self.witness.check_pending(node.schedule)


def _token(ask: Ask) -> Token:
    assert not isinstance(ask, Append)
    return ask.token


def lived(seed: int) -> Life:
    """A whole life; errors of the code count as broken promises."""
    life = Life(seed)
    try:
        life.run()
    except (AssertionError, WaystationError, KeyError, FileNotFoundError) as error:
        raise BrokenPromiseError(f"seed {seed}: {error!r}") from error
    return life
