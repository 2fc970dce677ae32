"""Membership of share groups: who reads what, who is late, and what a replay knows."""

from typing import Any, NamedTuple
from uuid import UUID

import pytest

from waystation.model.errors import (
    FencedMemberEpochError,
    GroupFullError,
    GroupNotFoundError,
    GroupSubscribedError,
    InvalidRequestError,
    NonEmptyGroupError,
    UnknownMemberError,
)
from waystation.model.ids import TopicId
from waystation.model.machines import Outcome
from waystation.model.offsets import Millis
from waystation.sharing.group_commands import QueuesDue, ShareHeartbeat
from waystation.sharing.group_machine import ShareGroups
from waystation.sharing.group_records import GroupRecord
from waystation.sharing.settings import ShareSettings

SESSION_MS = 45_000
ORDERS, BILLS = TopicId(UUID(int=1)), TopicId(UUID(int=2))


class Topic(NamedTuple):
    name: str
    id: TopicId
    partitions: int


class Topics:
    """A cluster in which topics come and go."""

    def __init__(self) -> None:
        self.version = 0
        self.all = {"orders": Topic("orders", ORDERS, 2)}

    def put(self, name: str, topic_id: TopicId, partitions: int) -> None:
        self.all[name] = Topic(name, topic_id, partitions)
        self.version += 1

    def drop(self, name: str) -> None:
        del self.all[name]
        self.version += 1

    def named(self, name: str) -> Topic | None:
        return self.all.get(name)

    def of_id(self, topic_id: TopicId) -> Topic | None:
        return next((topic for topic in self.all.values() if topic.id == topic_id), None)


class Coordinator:
    """A machine, its log, and a share coordinator that carries out orders at once, or not."""

    def __init__(self, topics: Topics | None = None, **settings: Any) -> None:
        self.topics, self.now = topics or Topics(), 0
        self.settings = ShareSettings(**settings)
        self.orders: list[QueuesDue] = []
        self.is_slow = False
        self.log: list[GroupRecord] = []
        self.machine = self.new_machine()

    def new_machine(self) -> ShareGroups:
        return ShareGroups(
            lambda: self.settings,
            self.topics,
            lambda: f"new-{len(self.log)}",
            self.orders.append,  # type: ignore[arg-type]
        )

    def carry_out(self, outcome: Outcome[GroupRecord]) -> None:
        self.log.extend(outcome.records)
        for record in outcome.records:
            self.machine.apply(record)
        for to, answer in outcome.replies:
            to(answer)
        while self.orders and not self.is_slow:
            due = self.orders.pop()
            self.carry_out(self.machine.queues_begun(Millis(self.now), due, due.partitions))

    def ask(self, what: str, *command: Any) -> Any:
        answers: list[Any] = []
        ask = getattr(self.machine, what)
        self.carry_out(ask(Millis(self.now), *command, answers.append))
        (answer,) = answers
        return answer

    def beat(self, member: str, epoch: int, *topics: str, group: str = "g") -> Any:
        said = topics or None
        return self.ask("heartbeat", ShareHeartbeat(group, member, epoch, "c", "h", None, said))

    def join(self, member: str, *topics: str) -> int:
        """Join, and hear of what is to be read."""
        epoch = self.beat(member, 0, *(topics or ("orders",))).member_epoch
        return int(self.beat(member, epoch).member_epoch)

    def describe(self) -> Any:
        return self.ask("describe", "g")

    def reads(self) -> dict[str, Any]:
        return {member.member_id: member.assigned for member in self.describe().members}

    def restart(self) -> None:
        """Replay the log, as compaction leaves it."""
        self.machine = self.new_machine()
        for record in self.log:
            self.machine.apply(record)
        self.carry_out(self.machine.loaded(Millis(self.now)))


def test_a_member_reads_once_its_queues_have_begun() -> None:
    group = Coordinator()
    group.is_slow = True
    joined = group.beat("a", 0, "orders")

    assert (joined.member_epoch, joined.assigned) == (1, ())
    assert group.orders == [("g", 1, ((ORDERS, (0, 1)),))]
    group.is_slow = False
    group.beat("a", 1)
    news = group.beat("a", 1)
    assert (news.member_epoch, news.assigned) == (2, ((ORDERS, (0, 1)),))
    assert group.beat("a", 2).assigned is None, "no news"


def test_members_share_partitions() -> None:
    group = Coordinator()
    for name in "abcde":
        group.join(name)

    readers = [indexes for ((_, indexes),) in group.reads().values()]
    assert sorted(readers) in ([(0,)] * 3 + [(1,)] * 2, [(0,)] * 2 + [(1,)] * 3)
    assert group.describe().state == "Stable"


def test_who_leaves_and_who_is_silent_is_replaced() -> None:
    group = Coordinator()
    for name in "abc":
        group.join(name)
    assert group.beat("a", -1).member_epoch == -1
    group.now = SESSION_MS - 1
    group.beat("b", 1)
    group.now = SESSION_MS
    assert group.machine.next_deadline() == SESSION_MS
    group.carry_out(group.machine.tick(Millis(group.now)))

    assert group.reads() == {"b": ((ORDERS, (0, 1)),)}
    assert isinstance(group.beat("c", 3), UnknownMemberError)
    assert isinstance(group.beat("a", 3), UnknownMemberError)
    group.now = 3 * SESSION_MS
    group.carry_out(group.machine.tick(Millis(group.now)))
    assert group.describe().state == "Empty"


def test_nothing_is_remembered_of_members_that_never_said_goodbye() -> None:
    """Each consumer that is killed comes back under another name."""
    group = Coordinator()
    group.join("stays")
    for number in range(20):
        group.join(f"killed-{number}")
        group.now += SESSION_MS - 1
        group.beat("stays", 1)
        group.now += 1
        group.carry_out(group.machine.tick(Millis(group.now)))

    assert list(group.machine._epochs["g"]) == ["stays"]


def test_a_member_that_missed_an_answer_is_told_again() -> None:
    group = Coordinator()
    group.join("a")
    group.join("b")

    late = group.beat("a", 1)
    assert late.assigned is not None
    assert late.member_epoch == group.describe().assignment_epoch
    assert isinstance(group.beat("a", 99), FencedMemberEpochError)


def test_topics_that_come_grow_and_go_are_followed() -> None:
    group = Coordinator()
    group.join("a", "orders", "bills")
    group.topics.put("bills", BILLS, 1)
    group.topics.put("orders", ORDERS, 3)
    group.carry_out(group.machine.topics_changed(Millis(0)))

    assert group.reads() == {"a": ((ORDERS, (0, 1, 2)), (BILLS, (0,)))}
    group.topics.drop("orders")
    group.carry_out(group.machine.topics_changed(Millis(0)))
    assert group.reads() == {"a": ((BILLS, (0,)),)}
    assert group.describe().begun == ((BILLS, (0,)),)
    assert group.machine.topics_changed(Millis(0)) == Outcome()


def test_a_replay_knows_everything() -> None:
    group = Coordinator()
    group.join("a")
    group.join("b")
    group.beat("b", -1)
    group.join("c", "orders", "bills")
    group.beat("a", 1)
    before = group.describe()
    group.restart()
    after = group.describe()

    assert after == before
    assert group.machine.next_deadline() == SESSION_MS
    assert group.beat("a", before.epoch).assigned is None


def test_orders_that_were_lost_are_given_again() -> None:
    group = Coordinator()
    group.is_slow = True
    group.beat("a", 0, "orders")
    group.orders.clear()
    group.beat("a", 1)
    assert group.orders == []
    group.restart()
    assert len(group.orders) == 1
    due = group.orders.pop()
    group.machine.order_failed(Millis(0), due)
    group.beat("a", 1)
    assert group.orders == [due]


def test_a_group_has_as_many_members_as_it_may() -> None:
    group = Coordinator(group_share_max_size=1)
    group.join("a")

    assert isinstance(group.beat("b", 0, "orders"), GroupFullError)
    assert group.beat("a", 0, "orders").member_id == "a"


def test_offsets_are_altered_and_deleted_only_while_nobody_reads() -> None:
    group = Coordinator()
    epoch = group.join("a")
    wanted = ((ORDERS, (0,)),)

    assert isinstance(group.ask("permit_alter", "g", wanted), NonEmptyGroupError)
    assert isinstance(group.ask("permit_delete", "g", [ORDERS]), GroupSubscribedError)
    assert isinstance(group.ask("delete", "g"), NonEmptyGroupError)
    group.beat("a", -1)
    permit = group.ask("permit_alter", "g", wanted)
    assert permit.state_epoch > epoch
    assert group.ask("permit_alter", "g", wanted).state_epoch > permit.state_epoch
    assert group.ask("permit_delete", "g", [ORDERS]).partitions == ((ORDERS, (0, 1)),)
    assert group.describe().begun == ()
    assert group.ask("permit_alter", "new", wanted).state_epoch == 1
    assert dict(group.machine.listing()) == {"g": "Empty", "new": "Empty"}


def test_a_deleted_group_is_forgotten() -> None:
    group = Coordinator()
    group.join("a")
    group.beat("a", -1)

    assert group.ask("delete", "g").partitions == ((ORDERS, (0, 1)),)
    assert group.describe().state == "Dead"
    group.restart()
    assert "g" not in group.machine
    assert isinstance(group.ask("delete", "g"), GroupNotFoundError)
    assert isinstance(group.ask("permit_delete", "g", [ORDERS]), GroupNotFoundError)


@pytest.mark.parametrize(
    ("member", "epoch", "topics", "name"),
    [
        ("a", 0, (), "g"),
        ("", 1, ("orders",), "g"),
        ("a", -2, ("orders",), "g"),
        ("a", 0, ("orders",), ""),
        ("a" * 9_000, 0, ("orders",), "g"),
        ("a\0b", 0, ("orders",), "g"),
    ],
)
def test_what_contradicts_the_protocol_is_refused(
    member: str, epoch: int, topics: tuple[str, ...], name: str
) -> None:
    group = Coordinator()

    assert isinstance(group.beat(member, epoch, *topics, group=name), InvalidRequestError)
    assert group.log == []


def test_who_names_no_id_is_given_one() -> None:
    group = Coordinator()

    assert group.beat("", 0, "orders").member_id == "new-0"
