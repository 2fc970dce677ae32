"""Share groups by seed: members come, go and fall silent, topics change, coordinators restart."""

from random import Random
from uuid import UUID

import pytest

from tests.sharing.test_group_machine import SESSION_MS, Coordinator
from tests.support.soak import count
from waystation.model.errors import UnknownMemberError
from waystation.model.ids import TopicId
from waystation.model.offsets import Millis
from waystation.sharing.group_commands import flat

NAMES = ("orders", "bills", "mail")


class Life:
    """Members as they see themselves: the epoch and the partitions they were told."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.group = Coordinator()
        self.epochs: dict[str, int] = {}
        self.reads: dict[str, set[tuple[TopicId, int]]] = {}
        self.born = 0

    def beat(self, name: str, *topics: str) -> None:
        done = self.group.beat(name, self.epochs.get(name, 0), *topics)
        if isinstance(done, UnknownMemberError):
            self.epochs.pop(name), self.reads.pop(name, None)
            return
        self.epochs[name] = done.member_epoch
        if done.assigned is not None:
            self.reads[name] = flat(done.assigned)

    def step(self) -> None:
        random, group = self.random, self.group
        group.now += random.choice((1, 1_000, 10_000))
        group.is_slow = random.random() < 0.2
        group.carry_out(group.machine.tick(Millis(group.now)))
        name = random.choice([*self.epochs, ""])
        match random.randrange(10):
            case 0 | 1 if len(self.epochs) < 8:
                self.born += 1
                wanted = random.sample(NAMES, random.randrange(1, 4))
                self.beat(f"m{self.born}", *wanted)
            case 2 if name:
                group.beat(name, -1)
                self.epochs.pop(name), self.reads.pop(name, None)
            case 3 if name:  # dies without a word
                self.epochs.pop(name), self.reads.pop(name, None)
            case 4:
                topic = random.choice(NAMES)
                known = group.topics.all.get(topic)
                if known is None:
                    fresh = TopicId(UUID(int=random.getrandbits(120)))
                    group.topics.put(topic, fresh, random.randrange(1, 5))
                elif random.random() < 0.3:
                    group.topics.drop(topic)
                else:
                    group.topics.put(topic, known.id, known.partitions + 1)
                group.carry_out(group.machine.topics_changed(Millis(group.now)))
            case 5:
                group.orders.clear()
                group.restart()
            case 6 if name:
                self.beat(name, *random.sample(NAMES, random.randrange(1, 4)))
            case _:
                for one in list(self.epochs):
                    self.beat(one)

    def settle(self) -> None:
        """Let everyone who is left hear the last news, and the silent ones be removed."""
        self.group.is_slow = False
        for due in self.group.orders:
            self.group.machine.order_failed(Millis(self.group.now), due)
        self.group.orders.clear()
        for _ in range(4):
            self.group.now += SESSION_MS // 2
            for name in list(self.epochs):
                self.beat(name)
            self.group.carry_out(self.group.machine.tick(Millis(self.group.now)))
        for name in list(self.epochs):
            self.beat(name)


@pytest.mark.parametrize("seed", range(count(30, 2_000)))
def test_everything_is_read_by_whoever_is_left(seed: int) -> None:
    life = Life(seed)
    for _ in range(60):
        life.step()
    life.settle()
    described = life.group.describe()
    wanted = {member.member_id: member.topics for member in described.members}

    assert set(wanted) == set(life.epochs)
    assert {name: life.reads.get(name, set()) for name in wanted} == {
        member.member_id: flat(member.assigned) for member in described.members
    }
    there = {topic.id for topic in life.group.topics.all.values()}
    assert {topic for reads in life.reads.values() for topic, _ in reads} <= there
    for topic in life.group.topics.all.values():
        readers = [name for name, topics in wanted.items() if topic.name in topics]
        read = {index for name in readers for found, index in life.reads[name] if found == topic.id}
        assert read == (set(range(topic.partitions)) if readers else set())
        assert all(any(found == topic.id for found, _ in life.reads[name]) for name in readers)
    life.group.restart()
    assert life.group.describe() == described._replace(
        members=tuple(
            member._replace(member_epoch=described.assignment_epoch) for member in described.members
        )
    )
