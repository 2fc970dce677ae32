"""Clients of a group, by the new protocol; the classic ones are in ``world_classics.py``.

They behave as real ones do: they heartbeat, take their time to give partitions up, lose requests
and answers, repeat them, pause, crash, leave and come back.
"""

from typing import TYPE_CHECKING

from tests.groups.consumers import a_heartbeat
from tests.groups.coordinator import GROUP
from waystation.groups.commands import (
    ConsumerHeartbeat,
    ConsumerHeartbeatDone,
)
from waystation.groups.consumer import ConsumerGroup
from waystation.groups.partition_sets import PartitionOf, flat, grouped
from waystation.groups.records import MemberCurrentStored
from waystation.model.errors import (
    FencedInstanceIdError,
    FencedMemberEpochError,
    GroupNotFoundError,
    RebalanceInProgressError,
    UnknownMemberError,
    UnreleasedInstanceIdError,
)
from waystation.model.machines import Waiter

if TYPE_CHECKING:
    from tests.groups.group_world import World

BEAT_MS, SESSION_MS, REBALANCE_MS = 1_000, 10_000, 8_000
NAMES = ("t-a", "t-b", "t-c", "other")


class Member:
    """What all clients have in common."""

    def __init__(self, world: "World", instance_id: str | None) -> None:
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

    def __init__(self, world: "World", instance_id: str | None) -> None:
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
        self._send(command, nobody)
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
            world.send(lambda now, to: world.machine.consumer_heartbeat(now, command, to), nobody)

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


def held(current: MemberCurrentStored) -> set[PartitionOf]:
    return flat(current.assigned) | flat(current.revoking)


def nobody(answer: object) -> None:
    """Whoever no longer listens."""
