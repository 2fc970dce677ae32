"""A coordinator without a broker: a machine, its log in a list, and a clock that is told the time.

It does what a host does: decide, append, apply, answer.
"""

from collections.abc import Callable, Iterable
from itertools import count
from uuid import UUID

from waystation.groups.commands import (
    Commit,
    Committed,
    DeleteOffsets,
    FetchedOffsets,
    FetchOffsets,
    GroupDescription,
    Heartbeat,
    Join,
    Joined,
    Leave,
    Leaving,
    Left,
    OffsetToCommit,
    Sync,
    Synced,
    TopicSeen,
    TransactionalCommit,
)
from waystation.groups.embedded import Subscription, write_subscription
from waystation.groups.machine import Groups
from waystation.groups.records import Record
from waystation.groups.settings import GroupSettings
from waystation.model.errors import MemberIdRequiredError, WaystationError
from waystation.model.ids import ProducerEpoch, ProducerId, TopicId
from waystation.model.machines import Outcome, Waiter
from waystation.model.offsets import Millis
from waystation.records.control import Marker

GROUP = "orders-readers"
START = Millis(1_700_000_000_000)
SESSION_MS, REBALANCE_MS = 10_000, 60_000


class Answer:
    """Whoever asked: holds the one answer, once there is one."""

    def __init__(self) -> None:
        self._answers: list[object] = []

    def __call__(self, answer: object) -> None:
        self._answers.append(answer)
        assert len(self._answers) == 1, f"answered twice: {self._answers}"

    @property
    def is_there(self) -> bool:
        return bool(self._answers)

    @property
    def value(self) -> object:
        assert self._answers, "not answered yet"
        return self._answers[0]

    @property
    def joined(self) -> Joined:
        assert isinstance(self.value, Joined), self.value
        return self.value

    @property
    def synced(self) -> Synced:
        assert isinstance(self.value, Synced), self.value
        return self.value

    @property
    def left(self) -> Left:
        assert isinstance(self.value, Left), self.value
        return self.value


class Topics:
    """The cluster's topics, as a test makes and deletes them."""

    def __init__(self) -> None:
        self.version = 0
        self.archives: set[str] = set()
        self._topics: dict[str, TopicSeen] = {}
        self._ids = count(1)

    def create(self, name: str, partitions: int = 1) -> TopicId:
        topic_id = TopicId(UUID(int=next(self._ids)))
        self._topics[name] = TopicSeen(name, topic_id, partitions)
        self.version += 1
        return topic_id

    def delete(self, name: str) -> None:
        del self._topics[name]
        self.version += 1

    def named(self, name: str) -> TopicSeen | None:
        return self._topics.get(name)

    def of_id(self, topic_id: TopicId) -> TopicSeen | None:
        return next((topic for topic in self._topics.values() if topic.id == topic_id), None)

    def names(self) -> Iterable[str]:
        return self._topics

    def wait_for(self, group_id: str) -> bool:
        return group_id in self.archives


class Producers:
    """What the log knows of transactional producers, as a test says."""

    def __init__(self) -> None:
        self.refused: WaystationError | None = None
        """What everyone is told."""

    def refusal(self, producer_id: ProducerId, epoch: ProducerEpoch) -> WaystationError | None:
        return self.refused

    def refusal_of_marker(self, marker: Marker) -> WaystationError | None:
        return self.refused


def subscription(*topics: str, **more: object) -> bytes:
    """What a consumer of these topics says of itself."""
    return write_subscription(Subscription(topics, **more))  # type: ignore[arg-type]


def a_join(member_id: str = "", **different: object) -> Join:
    """A consumer's JoinGroup, different where told."""
    usual = Join(
        group_id=GROUP,
        member_id=member_id,
        instance_id=None,
        client_id="app",
        client_host="/127.0.0.1",
        protocol_type="consumer",
        protocols=(("range", subscription("orders")),),
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=REBALANCE_MS,
    )
    return usual._replace(**different)  # type: ignore[arg-type]


class Coordinator:
    """One machine and its host; settings by name."""

    def __init__(self, **settings: object) -> None:
        settings.setdefault("group_initial_rebalance_delay_ms", 0)
        self.settings = GroupSettings(**settings)  # type: ignore[arg-type]
        self.now = START
        self.topics, self.producers = Topics(), Producers()
        self.log: list[Record] = []
        self._ids = count(1)
        self.machine = self._new_machine()
        self.take(self.machine.loaded(self.now))

    def _new_machine(self) -> Groups:
        return Groups(
            lambda: self.settings, self.topics, lambda: f"id{next(self._ids)}", self.producers
        )

    # --- what a host does ---------------------------------------------------------------------

    def ask(self, decide: Callable[[Millis, Waiter], Outcome[Record]]) -> Answer:
        answer = Answer()
        self.take(decide(self.now, answer))
        return answer

    def take(self, outcome: Outcome[Record]) -> None:
        for record in outcome.records:
            self.log.append(record)
            self.machine.apply(record)
        for to, answer in outcome.replies:
            to(answer)

    def wait(self, ms: int) -> None:
        """Let time pass, and what falls due happen when it does."""
        until = Millis(self.now + ms)
        deadline = self.machine.next_deadline()
        while deadline is not None and deadline <= until:
            self.now = max(self.now, deadline)
            self.take(self.machine.tick(self.now))
            deadline = self.machine.next_deadline()
        self.now = until

    def restart(self) -> list[Waiter]:
        """Crash and replay; those who waited are answered by nobody."""
        abandoned = self.machine.abandon()
        self.machine = self.replayed()
        self.take(self.machine.loaded(self.now))
        return abandoned

    def replayed(self) -> Groups:
        """Another machine, that has read the log."""
        machine = self._new_machine()
        for record in self.log:
            machine.apply(record)
        return machine

    # --- what members ask ---------------------------------------------------------------------

    def join(self, member_id: str = "", **different: object) -> Answer:
        """Join; a new dynamic member does so twice, as Kafka's clients do."""
        command = a_join(member_id, **different)
        answer = self.ask(lambda now, to: self.machine.join(now, command, to))
        if answer.is_there and isinstance(answer.value, MemberIdRequiredError) and not member_id:
            return self.join(answer.value.member_id, **different)
        return answer

    def join_once(self, member_id: str = "", **different: object) -> Answer:
        command = a_join(member_id, **different)
        return self.ask(lambda now, to: self.machine.join(now, command, to))

    def sync(
        self,
        joined: Joined,
        assignments: dict[str, bytes] | None = None,
        group_id: str = GROUP,
        instance_id: str | None = None,
        **different: object,
    ) -> Answer:
        usual = Sync(
            group_id,
            joined.generation,
            joined.member_id,
            instance_id,
            joined.protocol_type,
            joined.protocol,
            tuple((assignments or {}).items()),
        )
        command = usual._replace(**different)  # type: ignore[arg-type]
        return self.ask(lambda now, to: self.machine.sync(now, command, to))

    def heartbeat(
        self,
        joined: Joined,
        instance_id: str | None = None,
        generation: int | None = None,
        group_id: str = GROUP,
    ) -> object:
        spoken_of = joined.generation if generation is None else generation
        command = Heartbeat(group_id, spoken_of, joined.member_id, instance_id)
        return self.ask(lambda now, to: self.machine.heartbeat(now, command, to)).value

    def leave(self, *members: tuple[str, str | None], group_id: str = GROUP) -> Left:
        command = Leave(group_id, tuple(Leaving(*member) for member in members))
        return self.ask(lambda now, to: self.machine.leave(now, command, to)).left

    def stable(self, *instance_ids: str | None, **different: object) -> list[Joined]:
        """A stable group of so many members; the first one leads and gives each its own id."""
        joins = [self.join(instance_id=one, **different) for one in instance_ids]
        self.wait(2 * self.settings.group_initial_rebalance_delay_ms)
        while not all(join.is_there for join in joins):  # the eldest ones must join again
            joins = [
                self.join(join.joined.member_id, instance_id=one, **different)
                if join.is_there
                else join
                for one, join in zip(instance_ids, joins, strict=True)
            ]
        members = [join.joined for join in joins]
        leader = next(joined for joined in members if joined.member_id == joined.leader)
        assignments = {one.member_id: one.member_id.encode() for one in leader.members}
        group_id = str(different.get("group_id", GROUP))
        for one, joined in zip(instance_ids, members, strict=True):
            if joined is not leader:
                self.sync(joined, instance_id=one, group_id=group_id)
        self.sync(leader, assignments, instance_id=leader_instance(leader), group_id=group_id)
        return members

    # --- offsets and administration -----------------------------------------------------------

    def commit(
        self,
        offsets: dict[tuple[str, int], int],
        generation: int = -1,
        member_id: str = "",
        instance_id: str | None = None,
        group_id: str = GROUP,
        retention_ms: int = -1,
        metadata: str = "",
    ) -> object:
        told = tuple(
            OffsetToCommit(topic, partition, offset, 3, metadata)
            for (topic, partition), offset in offsets.items()
        )
        command = Commit(group_id, generation, member_id, instance_id, retention_ms, told)
        return self.ask(lambda now, to: self.machine.commit(now, command, to)).value

    def committed(self, *args: object, **kwargs: object) -> None:
        """Commit, which must succeed."""
        answer = self.commit(*args, **kwargs)  # type: ignore[arg-type]
        assert isinstance(answer, Committed), answer
        assert not any(answer.errors), answer

    def commit_in(
        self,
        producer: int,
        offsets: dict[tuple[str, int], int],
        /,
        generation: int = -1,
        member_id: str = "",
        **different: object,
    ) -> object:
        """Commit offsets in a producer's transaction."""
        told = tuple(OffsetToCommit(*place, offset, 3, "") for place, offset in offsets.items())
        usual = TransactionalCommit(
            GROUP, generation, member_id, None, told, ProducerId(producer), ProducerEpoch(0)
        )
        command = usual._replace(**different)  # type: ignore[arg-type]
        return self.ask(lambda now, to: self.machine.commit_in_transaction(now, command, to)).value

    def end(self, producer: int, *, committed: bool) -> object:
        """End a producer's transaction."""
        marker = Marker(ProducerId(producer), ProducerEpoch(0), 0, committed)
        return self.ask(lambda now, to: self.machine.end_transaction(now, marker, to)).value

    def stable_offsets(self, *places: tuple[str, int]) -> dict[tuple[str, int], int | str]:
        """What one is told who requires stable offsets: an offset, or an error's name."""
        topics = tuple((topic, (partition,)) for topic, partition in places) or None
        command = FetchOffsets(GROUP, topics, require_stable=True)
        fetched = self.ask(lambda now, to: self.machine.fetch_offsets(now, command, to)).value
        assert isinstance(fetched, FetchedOffsets), fetched
        return {
            (one.topic, one.partition): one.offset if one.error is None else one.error.code.name
            for one in fetched.offsets
        }

    def offsets(self, group_id: str = GROUP) -> dict[tuple[str, int], int]:
        command = FetchOffsets(group_id, None)
        fetched = self.ask(lambda now, to: self.machine.fetch_offsets(now, command, to)).value
        assert isinstance(fetched, FetchedOffsets), fetched
        return {(one.topic, one.partition): one.offset for one in fetched.offsets}

    def delete_offsets(self, *topics: tuple[str, tuple[int, ...]], group_id: str = GROUP) -> object:
        command = DeleteOffsets(group_id, topics)
        return self.ask(lambda now, to: self.machine.delete_offsets(now, command, to)).value

    def delete(self, group_id: str = GROUP) -> object:
        return self.ask(lambda now, to: self.machine.delete(now, group_id, to)).value

    def describe(self, group_id: str = GROUP) -> GroupDescription:
        answer = self.ask(lambda now, to: self.machine.describe(now, group_id, to)).value
        assert isinstance(answer, GroupDescription), answer
        return answer

    def state(self, group_id: str = GROUP) -> str:
        return self.describe(group_id).state


def leader_instance(leader: Joined) -> str | None:
    return next(one.instance_id for one in leader.members if one.member_id == leader.member_id)
