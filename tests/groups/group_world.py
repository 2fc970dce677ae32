"""A coordinator, its members and everything that goes wrong between them, from one seed.

Members behave as real clients do: they heartbeat, take their time to give partitions up, lose
requests and answers, repeat them, pause, crash, leave and come back; some speak the new
protocol, some the classic one, eager or cooperative.  Topics come, grow and go; the machine
crashes and replays its log, which may have been compacted meanwhile.

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

from tests.groups.consumers import Server, a_heartbeat
from tests.groups.coordinator import GROUP
from waystation.groups.book import Book
from waystation.groups.classic import ClassicGroup
from waystation.groups.commands import (
    ConsumerHeartbeat,
    ConsumerHeartbeatDone,
    Heartbeat,
    Join,
    Joined,
    JoinedMember,
    Leave,
    Leaving,
    Sync,
    Synced,
)
from waystation.groups.consumer import ConsumerGroup
from waystation.groups.embedded import (
    Assignment,
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from waystation.groups.partition_sets import PartitionOf, flat, grouped, size
from waystation.groups.records import MemberCurrentStored, Record
from waystation.groups.targets import preferred_assignor, topics_of
from waystation.model.errors import (
    FencedInstanceIdError,
    FencedMemberEpochError,
    GroupNotFoundError,
    IllegalGenerationError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    UnknownMemberError,
    UnreleasedInstanceIdError,
    WaystationError,
)
from waystation.model.machines import Outcome, Waiter
from waystation.model.offsets import Millis

BEAT_MS, SESSION_MS, REBALANCE_MS = 1_000, 10_000, 8_000
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
        self._decide(lambda now: request(now, _nobody if lost else to))

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


NAMES = ("t-a", "t-b", "t-c", "other")


class Member:
    """What all clients have in common."""

    def __init__(self, world: World, instance_id: str | None) -> None:
        self.world, self.instance_id = world, instance_id
        self.member_id = ""
        self.epoch = 0
        self.owned: set[PartitionOf] = set()
        self.is_dead = False
        self.is_silent = False
        self.wish = world.wants()
        world.after(world.random.randrange(BEAT_MS), self._beat)

    def counts(self) -> bool:
        """Whether the coordinator would take the member's word for its epoch."""
        group = self.world.machine._groups.get(GROUP)
        if group is None:
            return False
        problem = group.check_commit(self.member_id, self.epoch, None)
        if isinstance(group, ConsumerGroup) and self.member_id in group.book.members:
            current = group.book.current(self.member_id)
            if self.epoch in (current.epoch, current.previous_epoch) and current.epoch > 0:
                beyond = self._existing(self.owned - held(current))
                assert not beyond, f"{self.member_id} owns {beyond}, which nobody holds for it"
                return True
        return problem is None or isinstance(problem, RebalanceInProgressError)

    def _existing(self, partitions: set[PartitionOf]) -> set[PartitionOf]:
        """Classic members own topics by name: of one that is gone they cannot speak."""
        return {one for one in partitions if self.world.topics.of_id(one[0]) is not None}

    def wanted(self) -> set[str]:
        regex = self.wish["topic_regex"]
        names = {topic.name for topic in self.world.topics.all()}
        by_regex = {
            "t-[ab]": {"t-a", "t-b"},
            "t-.*": {name for name in names if name.startswith("t-")},
        }.get(str(regex), set())
        topics = self.wish["topics"]
        assert isinstance(topics, tuple)
        return {*topics, *by_regex}

    def change_mind(self) -> None:
        self.wish = self.world.wants()

    def pause(self) -> None:
        """The process stands still, and believes on what it believes."""
        self.is_silent = True
        self.world.after(self.world.random.choice([3_000, 25_000]), self._wake)

    def crash(self) -> None:
        """The process is gone; its successor comes soon."""
        self._die()
        delay_ms = self.world.random.choice([500, 15_000])
        self.world.after(delay_ms, lambda: self.world.add_member(self.instance_id))

    def leave(self, *, for_good: bool = False) -> None:
        raise NotImplementedError

    def beat(self) -> None:
        raise NotImplementedError

    def _beat(self) -> None:
        if self.is_dead:
            return
        if not self.is_silent:
            self.beat()
        self.world.after(BEAT_MS, self._beat)

    def _wake(self) -> None:
        self.is_silent = False

    def _die(self) -> None:
        self.is_dead = True
        self.owned.clear()
        if self in self.world.members:
            self.world.members.remove(self)


class Consumer(Member):
    """A client of the new protocol."""

    def __init__(self, world: World, instance_id: str | None) -> None:
        super().__init__(world, instance_id)
        self.member_id = world.name("n")
        self._told: set[PartitionOf] | None = None
        self._is_giving_up = False
        self._says_all = True
        self._said_owned: set[PartitionOf] | None = None
        self._assignor = world.random.choice([None, None, None, "range"])

    def beat(self) -> None:
        said: dict[str, object] = {"instance_id": self.instance_id}
        if self.epoch == 0:
            self.owned.clear()
        if self._says_all or self.epoch == 0:
            said |= {"rebalance_timeout_ms": REBALANCE_MS, "assignor": self._assignor, **self.wish}
        if self._says_all or self.epoch == 0 or self._said_owned != self._claimed():
            said["owned"] = grouped(self._claimed())
        self._ask(a_heartbeat(self.member_id, self.epoch, **said))

    def change_mind(self) -> None:
        super().change_mind()
        self._says_all = True

    def leave(self, *, for_good: bool = False) -> None:
        may_return = self.instance_id is not None and not for_good
        epoch = -2 if may_return and self.world.random.random() < 0.7 else -1
        command = a_heartbeat(self.member_id, epoch, instance_id=self.instance_id)
        self._die()
        self._send(command, _nobody)
        if not for_good:
            delay_ms = self.world.random.choice([500, 15_000])
            self.world.after(delay_ms, lambda: self.world.add_member(self.instance_id))

    def _ask(self, command: ConsumerHeartbeat) -> None:
        self._says_all = True  # until an answer comes
        self._said_owned = None
        owned = self._claimed()

        def take(answer: object) -> None:
            if self.is_dead:
                return
            if isinstance(answer, ConsumerHeartbeatDone):
                self._says_all = False
                self._said_owned = owned
                self._obey(answer)
            else:
                self._fail(answer)

        self._send(command, take)

    def _claimed(self) -> set[PartitionOf]:
        """What it owns, and what it will own as soon as it has given up the rest: were that left
        out, the coordinator could take it for given up, and the answer that says so get lost.
        """
        return self.owned | (self._told or set() if self._is_giving_up else set())

    def _send(self, command: ConsumerHeartbeat, to: Waiter) -> None:
        world = self.world
        world.send(lambda now, to: world.machine.consumer_heartbeat(now, command, to), to)
        if world.random.random() < world.loss:  # a request that arrives twice
            world.send(lambda now, to: world.machine.consumer_heartbeat(now, command, to), _nobody)

    def _obey(self, answer: ConsumerHeartbeatDone) -> None:
        assert answer.member_id == self.member_id
        assert answer.member_epoch >= self.epoch, "the epoch went back"
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self._told = flat(answer.assignment)
        if self._told is None or self._is_giving_up:
            return
        if self.owned <= self._told:
            self.owned |= self._told
        else:
            self._is_giving_up = True
            slow_ms = 300 if self.world.is_quiet else 2 * REBALANCE_MS
            takes_ms = self.world.random.choice([0, 300, 2_500, slow_ms])
            self.world.after(takes_ms, self._gave_up)

    def _gave_up(self) -> None:
        self._is_giving_up = False
        if self.is_dead or self._told is None:
            return
        if self.is_silent:
            self.world.after(500, self._gave_up)
            self._is_giving_up = True
            return
        self.owned &= self._told
        self.owned |= self._told

    def _fail(self, error: object) -> None:
        match error:
            case UnknownMemberError() | FencedMemberEpochError() | GroupNotFoundError():
                self.owned.clear()
                self._told, self.epoch = None, 0
                self._is_giving_up = False
            case UnreleasedInstanceIdError():
                pass
            case FencedInstanceIdError():
                self._die()
            case _:
                raise AssertionError(f"{self.member_id} was told {error!r}")


class Classic(Member):
    """A client of the classic protocol."""

    protocol = ""

    def __init__(self, world: World, instance_id: str | None) -> None:
        super().__init__(world, instance_id)
        self.wish = {"topics": NAMES[:3], "topic_regex": ""}
        self.epoch = -1
        self._must_join = True
        self._waits_until = 0
        self._request = 0
        self._leads_since: int | None = None
        self._machine: object = None
        self._assigned_in = -1

    def counts(self) -> bool:
        """Who was away for a whole round may own what others have by now.

        A static member can be: it finds out when it gets its share, as in Kafka.
        """
        group = self.world.machine._groups.get(GROUP)
        if isinstance(group, ClassicGroup) and self._assigned_in < group.generation - 1:
            return False
        return super().counts()

    def change_mind(self) -> None:
        topics = self.world.random.choice([NAMES[:3], NAMES[:2]])
        self.wish = {"topics": topics, "topic_regex": ""}
        self._must_join = True

    def beat(self) -> None:
        if self.world.now < self._waits_until:
            return
        if self._leads_since is not None and self._leads_since != self.world.topics.version:
            self._must_join = True  # the leader looks for new partitions itself
        if self._must_join:
            self._join()
        else:
            said = Heartbeat(GROUP, self.epoch, self.member_id, self.instance_id)
            self._ask(lambda now, to: self.world.machine.heartbeat(now, said, to), self._beaten)

    def leave(self, *, for_good: bool = False) -> None:
        self._die()
        said = Leave(GROUP, (Leaving(self.member_id, self.instance_id),))
        self.world.send(lambda now, to: self.world.machine.leave(now, said, to), _nobody)
        if not for_good:
            self.world.after(5_000, lambda: self.world.add_member(self.instance_id))

    def _give_up_before_joining(self) -> None:
        raise NotImplementedError

    def _join(self) -> None:
        self._give_up_before_joining()
        self._leads_since = None
        said = Join(
            GROUP,
            self.member_id,
            self.instance_id,
            "app",
            "/127.0.0.1",
            "consumer",
            ((self.protocol, self._subscription()),),
            SESSION_MS,
            REBALANCE_MS,
        )
        self._ask(lambda now, to: self.world.machine.join(now, said, to), self._joined)

    def _subscription(self) -> bytes:
        by_name: dict[str, list[int]] = {}
        for topic_id, index in sorted(self.owned):
            topic = self.world.topics.of_id(topic_id)
            if topic is not None:
                by_name.setdefault(topic.name, []).append(index)
        owned = tuple((name, tuple(indexes)) for name, indexes in by_name.items())
        topics = self.wish["topics"]
        assert isinstance(topics, tuple)
        return write_subscription(Subscription(topics, owned=owned))

    def _ask(
        self,
        request: Callable[[Millis, Waiter], Outcome[Record]],
        then: Callable[[object], None],
    ) -> None:
        self._request += 1
        this_one = self._request
        patience_ms = 2 * REBALANCE_MS if then == self._joined else 2 * BEAT_MS
        self._waits_until = self.world.now + patience_ms

        def take(answer: object) -> None:
            if not self.is_dead and this_one == self._request:
                self._waits_until = 0
                then(answer)

        self.world.send(request, lambda answer: self.world.after(1, lambda: take(answer)))

    def _beaten(self, answer: object) -> None:
        if answer is not None:
            self._fail(answer)

    def _joined(self, answer: object) -> None:
        if isinstance(answer, MemberIdRequiredError):
            self.member_id = answer.member_id
        elif isinstance(answer, Joined):
            # A classic group that crashes before it shared out has the same generation again.
            if answer.member_id == self.member_id and self._machine is self.world.machine:
                assert answer.generation >= self.epoch, "the generation went back"
            self._machine = self.world.machine
            self.member_id, self.epoch = answer.member_id, answer.generation
            self._sync(answer)
        else:
            self._fail(answer)

    def _sync(self, joined: Joined) -> None:
        shares: tuple[tuple[str, bytes], ...] = ()
        if joined.leader == joined.member_id:
            self._leads_since = self.world.topics.version
            shares = tuple(self._share_out(joined.members).items())
        said = Sync(
            GROUP,
            joined.generation,
            joined.member_id,
            self.instance_id,
            joined.protocol_type,
            joined.protocol,
            shares,
        )
        self._ask(lambda now, to: self.world.machine.sync(now, said, to), self._synced)

    def _synced(self, answer: object) -> None:
        if not isinstance(answer, Synced):
            self._fail(answer)
            return
        told = {
            (topic.id, index)
            for name, indexes in read_assignment(answer.assignment).partitions
            if (topic := self.world.topics.named(name)) is not None
            for index in indexes
        }
        self._assigned_in = self.epoch
        self._must_join = not self.owned <= told
        self.owned &= told
        self.owned |= told

    def _share_out(self, members: tuple[JoinedMember, ...]) -> dict[str, bytes]:
        """In turns; but what another one still owns, only once it has given it up."""
        wants, owners = dict[str, tuple[str, ...]](), dict[tuple[str, int], str]()
        for one in members:
            subscription = read_subscription(one.subscription)
            wants[one.member_id] = subscription.topics
            for name, indexes in subscription.owned:
                owners.update(dict.fromkeys(((name, i) for i in indexes), one.member_id))
        shares: dict[str, dict[str, list[int]]] = {member_id: {} for member_id in wants}
        for topic in self.world.topics.all():
            takers = sorted(m for m, topics in wants.items() if topic.name in topics)
            for index in range(topic.partitions if takers else 0):
                taker = takers[index % len(takers)]
                if owners.get((topic.name, index), taker) == taker:
                    shares[taker].setdefault(topic.name, []).append(index)
        return {
            member_id: write_assignment(Assignment(tuple((n, tuple(i)) for n, i in share.items())))
            for member_id, share in shares.items()
        }

    def _fail(self, error: object) -> None:
        self._must_join = True
        match error:
            case UnknownMemberError():
                self.owned.clear()
                self.member_id, self.epoch = "", -1
            case IllegalGenerationError():
                self.owned.clear()
                self.epoch = -1
            case RebalanceInProgressError():
                pass
            case FencedInstanceIdError():
                self._die()
            case WaystationError():
                raise AssertionError(f"{self.member_id} was told {error!r}")


class EagerClassic(Classic):
    """Gives up everything before it joins."""

    protocol = "range"

    def _give_up_before_joining(self) -> None:
        self.owned.clear()


class CooperativeClassic(Classic):
    """Keeps what it owns until it is told otherwise."""

    protocol = "range"

    def _give_up_before_joining(self) -> None:
        pass


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


def held(current: MemberCurrentStored) -> set[PartitionOf]:
    return flat(current.assigned) | flat(current.revoking)


def _key(record: Record) -> tuple[object, ...]:
    kind = type(record).__name__.removesuffix("Stored").removesuffix("Forgotten")
    kind = kind.removesuffix("Resolved").removesuffix("Committed")
    names = ("group_id", "member_id", "regex", "topic", "partition")
    return kind, *(getattr(record, name, None) for name in names)


def _nobody(answer: object) -> None:
    """Whoever no longer listens."""
