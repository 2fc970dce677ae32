"""What members and administrators ask of a share group, and what they are told.

A command's answer is the class named in its docstring, or a ``WaystationError``.
"""

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from waystation.model.ids import TopicId
from waystation.sharing.group_records import Partitions

JOINING_EPOCH, LEAVING_EPOCH = 0, -1


class TopicSeen(Protocol):
    """A topic, as far as share groups look at it."""

    @property
    def name(self) -> str: ...
    @property
    def id(self) -> TopicId: ...
    @property
    def partitions(self) -> int: ...


class TopicsSeen(Protocol):
    """The cluster's topics now; ``version`` rises whenever any of them changes."""

    @property
    def version(self) -> int: ...
    def named(self, name: str) -> TopicSeen | None: ...
    def of_id(self, topic_id: TopicId) -> TopicSeen | None: ...


class ShareHeartbeat(NamedTuple):
    """Join, go on or leave; answered by ``ShareHeartbeatDone``.  Unchanged topics are ``None``."""

    group_id: str
    member_id: str
    member_epoch: int
    client_id: str
    client_host: str
    rack_id: str | None = None
    topics: tuple[str, ...] | None = None


class ShareHeartbeatDone(NamedTuple):
    """The member's epoch, when it is expected again, and what it reads unless that is known."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int
    assigned: Partitions | None


class QueuesDue(NamedTuple):
    """Partitions over which queues have to begin, under that state epoch, before anyone reads.

    Told to whoever carries it out, who says ``queues_begun`` when it is done.
    """

    group_id: str
    state_epoch: int
    partitions: Partitions


class ShareMemberDescription(NamedTuple):
    """A member for an administrator."""

    member_id: str
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    assigned: Partitions


class ShareGroupDescription(NamedTuple):
    """A group for an administrator."""

    group_id: str
    state: str
    epoch: int
    assignment_epoch: int
    members: tuple[ShareMemberDescription, ...]
    begun: Partitions


class OffsetsPermit(NamedTuple):
    """Leave to change the queues of an empty group: under that state epoch, and no older one."""

    group_id: str
    state_epoch: int
    partitions: Partitions


def flat(partitions: Partitions) -> set[tuple[TopicId, int]]:
    """Every partition by itself."""
    return {(topic, index) for topic, indexes in partitions for index in indexes}


def grouped(partitions: Iterable[tuple[TopicId, int]]) -> Partitions:
    """By topic, in the order that makes equal sets equal."""
    by_topic: dict[TopicId, set[int]] = {}
    for topic, index in partitions:
        by_topic.setdefault(topic, set()).add(index)
    return tuple(
        (topic, tuple(sorted(by_topic[topic])))
        for topic in sorted(by_topic, key=lambda topic: topic.int)
    )
