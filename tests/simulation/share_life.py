"""The life of a queue: consumers that die and hang, leaders that change and linger, a coordinator
that crashes, and a network that loses, delays and repeats.

The machines are the product's own: ``SharePartition`` or ``OrderedPartition`` at leaders, and
``ShareStates`` over a log that forgets what was not committed.  What waits in a broker is played
by the classes here.
"""

from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from random import Random
from typing import Any
from uuid import UUID

from tests.simulation.share_witness import Witness
from waystation.model.errors import (
    FencedLeaderEpochError,
    StorageError,
    WaystationError,
)
from waystation.model.ids import LeaderEpoch, TopicId
from waystation.model.machines import Outcome
from waystation.model.offsets import Millis, Offset
from waystation.sharing.leader import QueueLeader, Steps
from waystation.sharing.lineage import Lineage
from waystation.sharing.ordered_partition import OrderedPartition, Shown
from waystation.sharing.persister import Initialize, Read, StateRead, Write
from waystation.sharing.settings import QueueSettings, ShareSettings
from waystation.sharing.share_partition import SharePartition
from waystation.sharing.state_machine import ShareStates
from waystation.sharing.state_records import QueueId, StateRecord, UpdateStored
from waystation.sharing.states import (
    ACCEPT,
    ACQUIRED,
    ARCHIVING,
    AVAILABLE,
    REJECT,
    REJECTED,
    RELEASE,
    RENEW,
    WAITING,
    Acknowledgement,
    Span,
)

QUEUE = QueueId("group", TopicId(UUID(int=7)), 0)
LOCK_MS = 400
CALM_MS = 20_000


class Life:
    """One run: everything follows from the seed."""

    def __init__(
        self,
        seed: int,
        *,
        by_key: bool = False,
        priorities: bool = False,
        messages: int = 150,
        chaos_ms: int = 4_000,
        loses: bool = False,
    ) -> None:
        """With ``loses``, some who come to lead have not got all that was committed."""
        self.random = Random(seed)
        self.now, self._events, self._count = 0, list[tuple[int, int, Callable[[], None]]](), 0
        self.is_calm = False
        self.chaos_ms, self.messages = chaos_ms, messages
        self.group = QueueSettings(
            share_record_lock_duration_ms=LOCK_MS,
            share_order="key" if by_key else "none",
            share_priority=priorities,
            share_priority_window=self.random.choice((8, 40, 1_000)),
            max_deliveries=self.random.choice((3, 6)),
            retry_backoff_ms=self.random.choice((0, 0, 50)),
            dead_letter_topic=self.random.choice(("", "dead")),
        )
        self.broker = ShareSettings(
            group_share_partition_max_record_locks=self.random.choice((10, 60)),
            share_coordinator_snapshot_update_records_per_snapshot=self.random.choice((0, 3, 100)),
        )
        self.is_ordered = self.group.is_ordered
        gaps = {offset for offset in range(messages) if self.random.random() < 0.05}
        self.shown = {
            offset: Shown(
                Offset(offset), self.random.choice((None, b"a", b"b", b"c", b"d")), offset % 10
            )
            for offset in range(messages)
            if offset not in gaps
        }
        self.poison = {offset for offset in self.shown if self.random.random() < 0.04}
        self.witness = Witness(
            {offset: one.key for offset, one in self.shown.items()},
            self.group.max_deliveries,
            self.broker.group_share_partition_max_record_locks,
            by_key=by_key,
        )
        self.produced = self.lost = 0
        self.loses = loses
        self.epochs: list[tuple[LeaderEpoch, Offset]] = []
        """Which leaders wrote the log from where on."""
        self.coordinator = Coordinator(self)
        self.leader = Leader(self, 1)
        self.old_leaders: list[Leader] = []

    # --- time and network ---------------------------------------------------------------------

    def after(self, ms: int, do: Callable[[], None]) -> None:
        """Have something done later."""
        self._count += 1
        heappush(self._events, (self.now + ms, self._count, do))

    def send(self, do: Callable[[], None]) -> None:
        """Have something done elsewhere: late, perhaps never, perhaps twice."""
        if self.is_calm:
            self.after(1, do)
            return
        for _ in range(self.random.choice((0, 1, 1, 1, 1, 1, 1, 1, 2))):
            self.after(self.random.choice((1, 2, 5, 20, 300)), do)

    # --- the run ------------------------------------------------------------------------------

    def run(self) -> "Life":
        """Chaos, then calm, until everything is settled."""
        for number in range(5):
            self.after(self.random.randrange(50), Consumer(self, f"c{number}").step)
        self.after(0, self.produce)
        self.after(self.random.randrange(300, 1_500), self.change_leader)
        self.after(self.random.randrange(200, 1_500), self.coordinator.crash)
        while not self.is_over():
            assert self._events, "nothing happens any more"
            at, _, do = heappop(self._events)
            self.now = at
            if at > self.chaos_ms and not self.is_calm:
                self.is_calm = True
            assert at < self.chaos_ms + CALM_MS, f"stuck at {self.leader.describe()}"
            do()
        self.witness.over(self.messages)
        return self

    def is_over(self) -> bool:
        """Whether the present leader has everything settled and stored."""
        queue = self.leader.queue
        return (
            self.is_calm
            and self.produced == self.messages
            and queue is not None
            and queue.start == self.messages
            and queue.stored == queue.version
        )

    def produce(self) -> None:
        """More messages, a few at a time."""
        epoch = LeaderEpoch(self.leader.epoch)
        if not self.epochs or self.epochs[-1][0] < epoch:
            self.epochs.append((epoch, Offset(self.produced)))
        self.produced = min(self.produced + self.random.randrange(1, 30), self.messages)
        if self.produced < self.messages:
            self.after(self.random.randrange(1, 100), self.produce)

    def change_leader(self) -> None:
        """Another broker leads; the old one may not know for a while."""
        if self.is_calm:
            return
        old = self.leader
        if self.loses and self.random.random() < 0.5:
            self.lose_tail()
        self.leader = Leader(self, old.epoch + 1)
        if old.is_dead or self.random.random() < 0.5:
            old.is_dead = True
        else:
            self.after(self.random.randrange(1_000), old.die)
            self.old_leaders.append(old)
        self.after(self.random.randrange(200, 2_000), self.change_leader)

    def lose_tail(self) -> None:
        """All who have the newest messages are gone, and somebody who has not is to lead."""
        for one in (self.leader, *self.old_leaders):
            one.is_dead = True
        kept = self.random.randrange(max(self.produced - 40, 0), self.produced + 1)
        self.lost += self.produced - kept
        if self.produced == self.messages > kept:
            self.after(self.random.randrange(1, 100), self.produce)
        self.produced = kept
        self.epochs = [one for one in self.epochs if one[1] < kept]
        self.witness.lost(kept)

    def find_leader(self) -> "Leader":
        """Who leads, as far as a consumer knows."""
        lingering = [one for one in self.old_leaders if not one.is_dead]
        if lingering and self.random.random() < 0.3 and not self.is_calm:
            return self.random.choice(lingering)
        return self.leader


class Coordinator:
    """The share coordinator and its log: what is not committed when it crashes is lost."""

    def __init__(self, life: Life) -> None:
        self.life = life
        self.log: list[StateRecord] = []
        self.committed = 0
        self.term = 0
        self.machine = self.load()
        self.submit(lambda now: self.machine.initialize(now, Initialize(QUEUE, 1, Offset(0)), _ok))
        self.committed = len(self.log)

    def load(self) -> ShareStates:
        """Replay, as the log is after compaction."""
        machine = ShareStates(lambda: self.life.broker)
        newest = {_key(record): number for number, record in enumerate(self.log)}
        self.log = [
            record for number, record in enumerate(self.log) if newest[_key(record)] == number
        ]
        for record in self.log:
            machine.apply(record)
        self.committed = len(self.log)
        return machine

    def crash(self) -> None:
        """Lose what was not committed, and begin anew."""
        if self.life.is_calm:
            return
        del self.log[self.committed :]
        self.term += 1
        self.machine = self.load()
        self.life.after(self.life.random.randrange(100, 2_000), self.crash)

    def submit(self, decide: Callable[[Millis], Outcome[StateRecord]]) -> None:
        """Decide, append, apply; answer once it is committed."""
        outcome = decide(Millis(self.life.now))
        self.log.extend(outcome.records)
        for record in outcome.records:
            self.machine.apply(record)
        self.life.after(
            self.life.random.choice((0, 1, 5, 30)),
            partial(self.commit, len(self.log), self.term, outcome),
        )

    def commit(self, end: int, term: int, outcome: Outcome[StateRecord]) -> None:
        """Everything up to ``end`` is safe, unless it was lost before."""
        if term == self.term:
            self.committed = max(self.committed, end)
            for to, answer in outcome.replies:
                to(answer)

    def ask(self, command: Read | Write, to: Callable[[object], None]) -> None:
        """A request from another broker, and its answer, over the network."""

        def answered(answer: object) -> None:
            self.life.send(lambda: to(answer))

        def asked() -> None:
            decide = self.machine.read if isinstance(command, Read) else self.machine.write
            self.submit(lambda now: decide(now, command, answered))  # type: ignore[arg-type]

        self.life.send(asked)


class Leader:
    """A broker in one term as the partition's leader."""

    def __init__(self, life: Life, epoch: int) -> None:
        self.life, self.epoch = life, epoch
        self.is_dead = False
        self.machine: QueueLeader[SharePartition] | None = None
        self._asked = 0
        self.load()

    @property
    def queue(self) -> SharePartition | None:
        """What it leads, once it is loaded."""
        return None if self.machine is None else self.machine.queue

    def describe(self) -> object:
        """For a failing run."""
        return self.epoch, self.queue and self.queue.counts()

    def die(self) -> None:
        """It learns that it does not lead any more."""
        self.is_dead = True

    # --- state --------------------------------------------------------------------------------

    def load(self) -> None:
        """Ask the share coordinator, until it has answered."""
        if self.is_dead or self.queue is not None:
            return
        log = Lineage(Offset(self.life.produced), tuple(self.life.epochs))
        self.life.coordinator.ask(Read(QUEUE, LeaderEpoch(self.epoch), log), self.loaded)
        self.life.after(100, self.load)

    def loaded(self, answer: object) -> None:
        """Begin to serve."""
        if self.is_dead or self.queue is not None:
            return
        if not isinstance(answer, StateRead):
            self.is_dead = isinstance(answer, FencedLeaderEpochError)
            return
        kind = OrderedPartition if self.life.is_ordered else SharePartition
        queue = kind(answer.start, lambda: self.life.group, lambda: self.life.broker)
        queue.load(Millis(self.life.now), answer.batches)
        self.machine = QueueLeader(QUEUE, LeaderEpoch(self.epoch), answer.state_epoch, queue)
        counts = {
            offset: batch.deliveries
            for batch in answer.batches
            for offset in range(batch.first, batch.end)
        }
        self.life.witness.begins(self.epoch, counts)
        self.life.after(0, self.tick)

    def tick(self) -> None:
        """Let locks run out, and keep writing."""
        if self.is_dead or self.machine is None:
            return
        self.sync(lambda queue, now: queue.tick(now))
        self.carry_out(Steps((), self.machine.due()))
        for first, end, *_ in self.machine.dead_letters(5):
            for offset in range(first, end):
                self.life.witness.moved(self.epoch, offset)
            self.life.after(15, partial(self.machine.queue.moved, first, end))
        self.life.after(10, self.tick)

    def carry_out(self, steps: Steps) -> None:
        """Answer, and write; a write that is not answered soon is given up."""
        for to, answer in steps.replies:
            to(answer)
        if steps.write is not None:
            self._asked += 1
            self.life.coordinator.ask(steps.write, partial(self.wrote, self._asked))
            self.life.after(200, partial(self.wrote, self._asked, StorageError("too late")))

    def wrote(self, number: int, answer: object) -> None:
        """A write was answered, or was given up."""
        if self.is_dead or self.machine is None or number != self._asked:
            return
        self._asked += 1  # whatever else comes for this write comes too late
        assert answer is None or isinstance(answer, WaystationError)
        self.carry_out(self.machine.wrote(answer))
        self.is_dead = self.machine.fenced_by is not None

    # --- consumers ----------------------------------------------------------------------------

    def sync(self, do: Callable[[SharePartition, Millis], Any]) -> Any:
        """Let the queue do something, and tell the witness which deliveries have ended."""
        assert self.queue is not None
        before = dict(self.life.witness.holds(self.epoch))
        try:
            return do(self.queue, Millis(self.life.now))
        finally:
            held = {
                offset: member
                for member in dict.fromkeys(before.values())
                for got in self.queue.held_by(member)
                for offset in range(got.first, got.end)
            }
            for offset, member in before.items():
                if held.get(offset) != member:
                    self.life.witness.ended(self.epoch, member, offset)
            check_books(self.queue)

    def fetch(self, member: str, limit: int, to: Callable[[object], None]) -> None:
        """A consumer asks for messages."""
        if self.is_dead or self.queue is None:
            return
        self.sync(lambda queue, now: queue.tick(now))  # who asks may have lost what it gets again
        got = self.sync(lambda queue, now: self.acquire(queue, now, member, limit))
        offsets = []
        for one in got:
            for offset in range(one.first, one.end):
                self.life.witness.delivered(self.epoch, member, offset, one.deliveries)
                offsets.append(offset)
        self.life.send(partial(to, offsets))

    def acquire(self, queue: SharePartition, now: Millis, member: str, limit: int) -> Any:
        """As a host does it: read the log from where the queue says."""
        life = self.life
        if isinstance(queue, OrderedPartition):
            first = queue.admits_from()
            if first is not None and first < life.produced:
                end = min(first + 7, life.produced)
                shown = [life.shown[one] for one in range(first, end) if one in life.shown]
                queue.admit(Offset(end), shown)
            return queue.choose(now, member, limit)
        start = queue.next_offset(now)
        if start is None or start >= life.produced:
            return []
        end = min(start + life.random.randrange(1, 40), life.produced)
        gaps = [
            Span(Offset(one), Offset(one + 1)) for one in range(start, end) if one not in life.shown
        ]
        return queue.acquire(now, member, limit, start, Offset(end), skipped=gaps)

    def acknowledge(
        self, member: str, said: list[tuple[int, int]], to: Callable[[object], None]
    ) -> None:
        """A consumer says what became of messages."""
        if self.is_dead or self.machine is None:
            return
        batches = [Acknowledgement(Offset(at), Offset(at + 1), kind) for at, kind in sorted(said)]
        for offset, kind in said:
            if self.life.witness.holds(self.epoch).get(offset) == member:
                if kind == ACCEPT:
                    self.life.witness.asked_to_accept(offset)
                if kind == REJECT:
                    self.life.witness.asked_to_reject(offset)

        def answered(answer: object) -> None:
            for offset, kind in said if answer is None else ():
                if kind == ACCEPT:
                    self.life.witness.told_accepted(self.epoch, offset)
            self.life.send(partial(to, answer))

        machine = self.machine
        steps = self.sync(lambda _, now: machine.acknowledge(now, member, batches, answered))
        self.carry_out(steps)

    def leave(self, member: str) -> None:
        """A consumer goes."""
        if not self.is_dead and self.queue is not None:
            self.sync(lambda queue, now: queue.leave(now, member))


def check_books(queue: SharePartition) -> None:
    """What a queue counts as it goes is what a look at all of it finds."""
    backlog = queue._backlog
    found = dict.fromkeys((AVAILABLE, WAITING, ACQUIRED, ARCHIVING), 0)
    settled = 0
    for first, end, cell in backlog.ranges.runs_from(queue.start):
        state = ARCHIVING if cell.state == REJECTED else cell.state
        if state in found:
            found[state] += end - first
        else:
            settled += end - first
        assert (cell.lock is not None) == (cell.state == ACQUIRED), f"{cell} at {first}"
    counts = queue.counts()
    assert counts[2:] == (*found.values(), settled), f"{counts} is not {found}, {settled}"
    locks = [lock for one in queue._locks.members() for lock in queue._locks.of(one)]
    assert sum(lock.held for lock in locks) == counts.acquired, "a lock holds something else"
    if isinstance(queue, OrderedPartition):
        for offset in queue._candidates:
            assert backlog.ranges.at(offset).state == AVAILABLE, f"{offset} cannot go"
        lines = [line for line in queue._lines.values() if not line.waiting and not line.blocked]
        assert not lines, "a line is remembered in which nobody stands"


class Consumer:
    """Takes messages, works on them, says what became of them; or dies, hangs, or forgets."""

    def __init__(self, life: Life, name: str) -> None:
        self.life, self.name, self.lives = life, name, 0
        self.held: list[int] = []
        self.leader: Leader | None = None

    @property
    def member(self) -> str:
        """Its name in its present life."""
        return f"{self.name}.{self.lives}"

    def step(self) -> None:
        """One turn."""
        random, life = self.life.random, self.life
        life.after(random.randrange(1, 60), self.step)
        fate = 1.0 if life.is_calm else random.random()
        if fate < 0.02:  # dies, and comes back as another
            self.lives, self.held = self.lives + 1, []
            return
        if fate < 0.03 and self.leader is not None:
            life.send(partial(self.leader.leave, self.member))
            self.lives, self.held = self.lives + 1, []
            return
        if fate < 0.05:  # hangs for longer than its locks last
            return
        if self.held and self.leader is not None and not self.leader.is_dead:
            said = [(offset, self.decide(offset)) for offset in self.held]
            self.held = [offset for offset, kind in said if kind == RENEW]
            life.send(partial(self.leader.acknowledge, self.member, said, _ok))
            return
        self.held, self.leader = [], life.find_leader()
        limit = random.randrange(1, 12)
        life.send(partial(self.leader.fetch, self.member, limit, partial(self.got, self.lives)))

    def got(self, lives: int, offsets: object) -> None:
        """Messages arrive, unless it died meanwhile."""
        assert isinstance(offsets, list)
        if lives == self.lives:
            self.held = sorted({*self.held, *offsets})

    def decide(self, offset: int) -> int:
        """What it says of a message."""
        if offset in self.life.poison:
            return self.life.random.choice((RELEASE, RELEASE, REJECT))
        if self.life.is_calm:
            return ACCEPT
        return self.life.random.choice((ACCEPT,) * 14 + (RELEASE, RELEASE, RENEW, REJECT))


def _key(record: StateRecord) -> object:
    """Under which key compaction keeps the newest."""
    return (record.queue, record.slot) if isinstance(record, UpdateStored) else record.queue


def _ok(answer: object) -> None:
    assert answer is None or isinstance(answer, WaystationError), f"answered by {answer!r}"
