"""A coordinator, its members and everything that goes wrong between them, from one seed.

Members behave as real clients do (``world_members.py``); some speak the new protocol, some the
classic one (``world_classics.py``).  Topics come, grow and go; the machine crashes and replays its
log, which may have been compacted meanwhile.

After every event these must hold:

- *one owner*: by the book, nobody holds what another holds; and what members believe they own
  under an epoch that counts is held for them;
- *epochs rise*: of the group, and of each member;
- *decisions change nothing*: only applied records do;
- *targets are whole and even*: each partition of a subscribed topic is meant for one subscriber,
  and equal subscriptions get equal shares, give or take one.

Once all is quiet every partition of every subscribed topic is read by one living member.
"""

from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from itertools import combinations
from random import Random

from tests.groups.consumers import Server
from tests.groups.coordinator import GROUP
from tests.groups.world_classics import CooperativeClassic, EagerClassic
from tests.groups.world_members import BEAT_MS, NAMES, SESSION_MS, Consumer, Member, held, nobody
from waystation.groups.book import Book
from waystation.groups.consumer import ConsumerGroup
from waystation.groups.partition_sets import PartitionOf, flat, size
from waystation.groups.records import Record
from waystation.groups.targets import preferred_assignor, topics_of
from waystation.model.machines import Outcome, Waiter
from waystation.model.offsets import Millis

CHAOS_MS, QUIET_MS = 120_000, 90_000
MEMBERS_MAX = 6


class World(Server):
    """One run; ``loss`` is the share of requests, and of answers, that get lost."""

    def __init__(self, seed: int, *, classic: bool = False) -> None:
        self.random = Random(seed)
        self.classic = classic
        super().__init__(
            group_consumer_session_timeout_ms=SESSION_MS,
            group_consumer_heartbeat_interval_ms=BEAT_MS,
            group_min_session_timeout_ms=1,
        )
        self.loss = 0.0
        self.is_quiet = False
        self.members: list[Member] = []
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._order = 0
        self._names = 0
        self._epochs: dict[str, int] = {}
        self._seen: tuple[object, ...] = ()

    # --- time -----------------------------------------------------------------------------------

    def after(self, ms: int, event: Callable[[], None]) -> None:
        self._order += 1
        heappush(self._events, (self.now + ms, self._order, event))

    def run(self, ms: int) -> None:
        """Let time pass; the coordinator's deadlines are events as all others."""
        until = self.now + ms
        while True:
            deadline = self.machine.next_deadline()
            ours = self._events[0][0] if self._events else until + 1
            if deadline is not None and deadline <= min(ours, until):
                self.now = Millis(max(self.now, deadline))
                self._decide(self.machine.tick)
            elif ours <= until:
                at, _, event = heappop(self._events)
                self.now = Millis(max(self.now, at))
                event()
            else:
                break
            self.check()
        self.now = Millis(until)

    # --- the coordinator --------------------------------------------------------------------------

    def _decide(self, decide: Callable[[Millis], Outcome[Record]]) -> None:
        group = self.machine._groups.get(GROUP)
        before = written(group.book) if isinstance(group, ConsumerGroup) else None
        outcome = decide(self.now)
        if isinstance(group, ConsumerGroup):
            assert written(group.book) == before, "a decision changed what is remembered"
        self.take(outcome)

    def send(self, request: Callable[[Millis, Waiter], Outcome[Record]], to: Waiter) -> None:
        """Over the wire, which may lose the request or the answer."""
        if self.random.random() < self.loss:
            return
        lost = self.random.random() < self.loss
        self._decide(lambda now: request(now, nobody if lost else to))

    def crash(self) -> None:
        """The machine is gone; another one reads what the log holds by now."""
        group = self.machine._groups.get(GROUP)
        if self.random.random() < 0.5:
            cut = self.random.randrange(len(self.log) + 1)
            self.log = [*compacted(self.log[:cut]), *self.log[cut:]]
        replayed = self.replayed()
        if isinstance(group, ConsumerGroup):
            found = replayed._groups.get(GROUP)
            assert isinstance(found, ConsumerGroup), "the group is gone"
            assert found.book == group.book, "a replay found something else"
        self.machine = replayed
        self._decide(self.machine.loaded)

    def change_topics(self) -> None:
        topics = self.topics.all()
        choice = self.random.random()
        if choice < 0.5 and topics:
            topic = self.random.choice(topics)
            if topic.partitions < 9:
                self.topics.grow(topic.name, topic.partitions + self.random.randint(1, 2))
        elif choice < 0.8 or not topics:
            absent = [name for name in NAMES if self.topics.named(name) is None]
            if absent:
                self.topics.create(self.random.choice(absent), self.random.randint(1, 5))
        elif len(topics) > 1:
            self.topics.delete(self.random.choice(topics).name)
        self._decide(self.machine.topics_changed)

    # --- members ----------------------------------------------------------------------------------

    def name(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}{self._names:03}"

    def add_member(self, instance_id: str | None = None) -> None:
        if len(self.members) >= MEMBERS_MAX:
            return
        if instance_id is None and self.random.random() < 0.4:
            instance_id = self.random.choice(["one", "two", "three"])
        if instance_id in [member.instance_id for member in self.members]:
            instance_id = None
        kind = Consumer
        if self.classic and self.random.random() < 0.5:
            kind = self.random.choice([EagerClassic, CooperativeClassic])
        self.members.append(kind(self, instance_id))

    def wants(self) -> dict[str, object]:
        """Some subscription."""
        if not self.classic and self.random.random() < 0.3:
            return {"topics": (), "topic_regex": self.random.choice(["t-[ab]", "t-.*"])}
        if self.random.random() < 0.7:
            return {"topics": NAMES[:3], "topic_regex": ""}
        return {"topics": tuple(self.random.sample(NAMES, 2)), "topic_regex": ""}

    # --- what must hold --------------------------------------------------------------------------

    def check(self) -> None:
        group = self.machine._groups.get(GROUP)
        seen = self.machine, len(self.log), self.topics.version
        if isinstance(group, ConsumerGroup) and seen != self._seen:
            self._check_book(group)
            self._check_targets(group)
        self._seen = seen
        if group is None or group.is_empty:
            self._epochs = {}  # one of the other kind may begin anew
        self._check_beliefs()

    def _check_book(self, group: ConsumerGroup) -> None:
        book, holders = group.book, dict[PartitionOf, str]()
        assert book.epoch >= self._epochs.get("", 0), "the group's epoch went back"
        epochs = {"": book.epoch}
        for member_id in book.members:
            current = book.current(member_id)
            for partition in held(current):
                other = holders.setdefault(partition, member_id)
                assert other == member_id, f"{partition} is held by {other} and {member_id}"
                assert book.owner(partition) == member_id, f"{partition} counts as free"
            if current.epoch >= 0:
                before = self._epochs.get(member_id, 0)
                assert current.epoch >= before, f"{member_id} went back from epoch {before}"
                epochs[member_id] = current.epoch
        assert not set(book.currents) - set(book.members), "strangers hold partitions"
        self._epochs = epochs

    def _check_targets(self, group: ConsumerGroup) -> None:
        book = group.book
        wanted: dict[str, frozenset[str]] = {}
        meant: list[PartitionOf] = []
        for member_id, member in book.members.items():
            seen = map(self.topics.named, topics_of(book, member))
            wanted[member_id] = frozenset(topic.name for topic in seen if topic is not None)
            target = book.targets.get(member_id, ())
            meant.extend(flat(target))
            named = {topic.name for topic_id, _ in target if (topic := self.topics.of_id(topic_id))}
            assert named <= wanted[member_id], f"{member_id} shall read what it does not want"
        assert book.target_epoch == book.epoch, "an epoch has no target"
        assert len(meant) == len(set(meant)), "a partition is meant for two"
        assert set(meant) == self._all_of(frozenset().union(*wanted.values()))
        assignor = preferred_assignor(book, self.settings.group_consumer_assignors)
        if len(set(wanted.values())) == 1 and assignor == "uniform":
            loads = [size(book.targets.get(member_id, ())) for member_id in wanted]
            assert max(loads) - min(loads) <= 1, f"uneven: {loads}"

    def _check_beliefs(self) -> None:
        owning = [member for member in self.members if member.owned and member.counts()]
        for one, other in combinations(owning, 2):
            shared = one.owned & other.owned
            assert not shared, f"{one.member_id} and {other.member_id} both own {shared}"

    def check_quiet(self) -> None:
        """Everyone reads what it shall, and together they read everything."""
        group = self.machine._groups.get(GROUP)
        living = [member for member in self.members if not member.is_dead]
        if not living:
            return
        assert group is not None
        assert group.state == "Stable", f"{group.kind} group is {group.state}"
        speaks_new = any(isinstance(member, Consumer) for member in living)
        assert isinstance(group, ConsumerGroup) == speaks_new, f"it is a {group.kind} group"
        owned: set[PartitionOf] = set()
        for member in living:
            assert member.counts(), f"{member.member_id} is no member"
            assert not owned & member.owned
            owned |= member.owned
            if isinstance(group, ConsumerGroup):
                meant = flat(group.book.targets[member.member_id])
                assert member.owned == meant, f"{member.member_id} does not read what it shall"
        assert owned == self._all_of({name for member in living for name in member.wanted()})

    def _all_of(self, names: Iterable[str]) -> set[PartitionOf]:
        found = [topic for name in names if (topic := self.topics.named(name)) is not None]
        return {(topic.id, index) for topic in found for index in range(topic.partitions)}


def chaos(world: World) -> None:
    """Something happens, now and again."""
    random = world.random
    choice = random.random()
    if choice < 0.2:
        world.add_member()
    elif choice < 0.3:
        world.change_topics()
    elif choice < 0.4:
        world.crash()
    elif world.members:
        member = random.choice(world.members)
        random.choice([member.pause, member.crash, member.leave, member.change_mind])()


def run(seed: int, *, classic: bool = False) -> World:
    """A life full of trouble, and then peace."""
    world = World(seed, classic=classic)
    for name in NAMES[: world.random.randint(1, 3)]:
        world.topics.create(name, world.random.randint(1, 6))
    for _ in range(world.random.randint(1, 4)):
        world.add_member()
    world.loss = world.random.choice([0.0, 0.05, 0.2])
    for at_ms in range(0, CHAOS_MS, 4_000):
        world.after(at_ms + world.random.randrange(4_000), lambda: chaos(world))
    world.run(CHAOS_MS + 20_000)
    world.loss, world.is_quiet = 0.0, True
    if classic and world.random.random() < 0.4:
        for member in [member for member in world.members if isinstance(member, Consumer)]:
            member.leave(for_good=True)
    world.run(QUIET_MS)
    world.check_quiet()
    return world


def compacted(log: list[Record]) -> list[Record]:
    """The newest record of every key, where it was."""
    newest = {_key(record): at for at, record in enumerate(log)}
    return [record for at, record in enumerate(log) if newest[_key(record)] == at]


def written(book: Book) -> list[object]:
    """All that a book says, apart from it."""
    values = [getattr(book, name) for name in Book.__slots__]
    return [dict(value) if isinstance(value, dict) else value for value in values]


def _key(record: Record) -> tuple[object, ...]:
    kind = type(record).__name__.removesuffix("Stored").removesuffix("Forgotten")
    kind = kind.removesuffix("Resolved").removesuffix("Committed")
    names = ("group_id", "member_id", "regex", "topic", "partition")
    return kind, *(getattr(record, name, None) for name in names)
