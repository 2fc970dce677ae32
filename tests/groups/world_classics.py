"""Clients of a group by the classic protocol, eager or cooperative."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.groups.coordinator import GROUP
from tests.groups.world_members import BEAT_MS, NAMES, REBALANCE_MS, SESSION_MS, Member, nobody
from waystation.groups.classic import ClassicGroup
from waystation.groups.commands import (
    Heartbeat,
    Join,
    Joined,
    JoinedMember,
    Leave,
    Leaving,
    Sync,
    Synced,
)
from waystation.groups.embedded import (
    Assignment,
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from waystation.groups.records import Record
from waystation.model.errors import (
    FencedInstanceIdError,
    IllegalGenerationError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    UnknownMemberError,
    WaystationError,
)
from waystation.model.machines import Outcome, Waiter
from waystation.model.offsets import Millis

if TYPE_CHECKING:
    from tests.groups.group_world import World


class Classic(Member):
    """A client of the classic protocol."""

    protocol = ""

    def __init__(self, world: "World", instance_id: str | None) -> None:
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
        self.world.send(lambda now, to: self.world.machine.leave(now, said, to), nobody)
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
