"""Members of the server-side protocol, and a coordinator for them.

``Consumer`` behaves as a careful client does: it gives partitions up before it says so, reads
them only after it was told to, and drops everything when it is fenced.
"""

from typing import Any

from tests.groups.coordinator import GROUP, Coordinator, Topics
from waystation.groups.commands import (
    ConsumerGroupDescription,
    ConsumerHeartbeat,
    ConsumerHeartbeatDone,
    TopicSeen,
)
from waystation.groups.consumer import ConsumerGroup
from waystation.groups.partition_sets import flat, grouped
from waystation.groups.records import Partitions
from waystation.model.errors import WaystationError
from waystation.model.ids import TopicId

REBALANCE_MS = 60_000


class GrowingTopics(Topics):
    """Topics that may get more partitions."""

    def grow(self, name: str, partitions: int) -> None:
        self._topics[name] = self._topics[name]._replace(partitions=partitions)
        self.version += 1

    def all(self) -> list[TopicSeen]:
        return list(self._topics.values())


class Server(Coordinator):
    """A coordinator of groups of the server-side protocol."""

    topics: GrowingTopics

    def __init__(self, **settings: object) -> None:
        super().__init__(**settings)
        self.topics = GrowingTopics()
        self.machine = self._new_machine()
        self.take(self.machine.loaded(self.now))

    @property
    def group(self) -> ConsumerGroup:
        group = self.machine._groups[GROUP]
        assert isinstance(group, ConsumerGroup), group
        return group

    def create(self, name: str, partitions: int) -> TopicId:
        topic_id = self.topics.create(name, partitions)
        self.take(self.machine.topics_changed(self.now))
        return topic_id

    def grow(self, name: str, partitions: int) -> None:
        self.topics.grow(name, partitions)
        self.take(self.machine.topics_changed(self.now))

    def drop(self, name: str) -> None:
        self.topics.delete(name)
        self.take(self.machine.topics_changed(self.now))

    def beat(self, member_id: str, epoch: int, **said: Any) -> Any:
        """The answer to one heartbeat that says nothing but what is told here."""
        return self.answer(a_heartbeat(member_id, epoch, **said))

    def answer(self, command: ConsumerHeartbeat) -> Any:
        return self.ask(lambda now, to: self.machine.consumer_heartbeat(now, command, to)).value

    def joined(self, member_id: str, *topics: str, **said: Any) -> ConsumerHeartbeatDone:
        """A member that joined, which must succeed."""
        answer = self.answer(a_join(member_id, *topics, **said))
        assert isinstance(answer, ConsumerHeartbeatDone), answer
        return answer

    def described(self) -> ConsumerGroupDescription:
        answer = self.ask(lambda now, to: self.machine.describe_consumer(now, GROUP, to)).value
        assert isinstance(answer, ConsumerGroupDescription), answer
        return answer


def a_heartbeat(member_id: str, epoch: int, **said: Any) -> ConsumerHeartbeat:
    usual = ConsumerHeartbeat(
        group_id=GROUP,
        member_id=member_id,
        member_epoch=epoch,
        instance_id=None,
        rack_id=None,
        rebalance_timeout_ms=-1,
        topics=None,
        topic_regex=None,
        assignor=None,
        owned=None,
        client_id="app",
        client_host="/127.0.0.1",
    )
    return usual._replace(**said)


def a_join(member_id: str, *topics: str, **said: Any) -> ConsumerHeartbeat:
    told = {"rebalance_timeout_ms": REBALANCE_MS, "topics": topics, "owned": (), **said}
    return a_heartbeat(member_id, 0, **told)


class Consumer:
    """One member over a wire that never fails."""

    def __init__(self, server: Server, member_id: str, *topics: str, **said: Any) -> None:
        self.server, self.member_id = server, member_id
        self.instance_id: str | None = said.get("instance_id")
        self.owned: Partitions = ()
        self.epoch = 0
        self.replies: list[ConsumerHeartbeatDone] = []
        self._take(server.joined(member_id, *topics, **said))

    @property
    def reads(self) -> set[tuple[TopicId, int]]:
        return flat(self.owned)

    def beat(self, **said: Any) -> ConsumerHeartbeatDone:
        """Say what is owned, and do at once as told."""
        told = {"owned": self.owned, "instance_id": self.instance_id, **said}
        answer = self.server.beat(self.member_id, self.epoch, **told)
        if isinstance(answer, WaystationError):
            raise answer
        self._take(answer)
        return self.replies[-1]

    def leave(self, epoch: int = -1) -> None:
        self.server.beat(self.member_id, epoch, instance_id=self.instance_id)

    def _take(self, answer: ConsumerHeartbeatDone) -> None:
        self.replies.append(answer)
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.owned = answer.assignment


def settle(*consumers: Consumer, rounds: int = 10) -> None:
    """Let all heartbeat until nothing changes any more."""
    for _ in range(rounds):
        before = [(one.epoch, one.owned) for one in consumers]
        for one in consumers:
            one.beat()
        if [(one.epoch, one.owned) for one in consumers] == before:
            return
    raise AssertionError(f"not settled after {rounds} rounds")


def partitions(topic_id: TopicId, *indexes: int) -> Partitions:
    return grouped((topic_id, index) for index in indexes)
