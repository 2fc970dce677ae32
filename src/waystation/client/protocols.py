"""What members of a classic group tell each other through the broker, which does not look.

A member offers its assignors by name, each with its subscription; the leader reads those of
the assignor that was chosen, and writes each member's assignment.  The bytes are Kafka's
(``groups/embedded.py``), so that members of other make can lead and be led.
"""

from collections.abc import Iterable, Mapping
from struct import Struct
from typing import NamedTuple

from waystation.client.assignors import (
    Assignor,
    Subscriber,
    assign_by_range,
    assign_round_robin,
)
from waystation.client.sticky import assign_cooperatively, assign_sticky
from waystation.groups.embedded import (
    Assignment,
    EmbeddedProtocolError,
    NamedPartitions,
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from waystation.model.ids import TopicPartition

__all__ = [
    "MemberState",
    "assigned_in",
    "assignment_bytes",
    "is_cooperative",
    "subscriber_of",
    "subscription_bytes",
    "topics_in",
]

_ASSIGNORS: dict[str, Assignor] = {
    "range": assign_by_range,
    "roundrobin": assign_round_robin,
    "sticky": assign_sticky,
    "cooperative-sticky": assign_cooperatively,
}
_GENERATION = Struct(">i")
_ASSIGNMENT_VERSION = b"\x00\x00"


class MemberState(NamedTuple):
    """What a member says of itself when it joins.

    ``owned`` is what it goes on reading, ``previous`` what it had in ``generation``, also when it
    has given that up in order to join.
    """

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...]
    previous: tuple[TopicPartition, ...]
    generation: int


def is_cooperative(assignors: Iterable[str]) -> bool:
    """Whether a member with these may go on reading while it joins: only if none forbids it."""
    return set(assignors) == {"cooperative-sticky"}


def subscription_bytes(assignor: str, state: MemberState) -> bytes:
    """What a member has to say for ``assignor``."""
    user_data = None
    if assignor == "sticky":
        user_data = _sticky_bytes(state.previous, state.generation)
    elif assignor == "cooperative-sticky":
        user_data = _GENERATION.pack(state.generation)
    return write_subscription(
        Subscription(
            topics=state.topics,
            user_data=user_data,
            owned=_by_topic(state.owned),
            generation=state.generation,
        )
    )


def subscriber_of(
    assignor: str, member_id: str, instance_id: str | None, metadata: bytes
) -> Subscriber:
    """A member, from what it said for ``assignor``; one that says nonsense reads nothing."""
    try:
        told = read_subscription(metadata)
    except EmbeddedProtocolError:
        return Subscriber(member_id, (), instance_id)
    owned, generation = _flat(told.owned), told.generation
    if assignor == "sticky" and not owned:
        owned, generation = _sticky_state(told.user_data or b"")
    elif generation < 0 and len(told.user_data or b"") == _GENERATION.size:
        (generation,) = _GENERATION.unpack(told.user_data or b"")
    return Subscriber(member_id, told.topics, instance_id, owned, generation)


def assignment_bytes(
    assignor: str, members: list[Subscriber], partitions: Mapping[str, int]
) -> dict[str, bytes]:
    """What each member is told, by ``assignor`` over topics with so many partitions."""
    assigned = _ASSIGNORS[assignor](members, partitions)
    return {
        member: write_assignment(Assignment(_by_topic(mine))) for member, mine in assigned.items()
    }


def assigned_in(octets: bytes) -> tuple[TopicPartition, ...]:
    """The partitions of an assignment, none if it is unreadable."""
    try:
        return _flat(read_assignment(octets).partitions)
    except EmbeddedProtocolError:
        return ()


def topics_in(octets: bytes) -> tuple[str, ...]:
    """The topics of a subscription, none if it is unreadable."""
    try:
        return read_subscription(octets).topics
    except EmbeddedProtocolError:
        return ()


def _by_topic(partitions: Iterable[TopicPartition]) -> NamedPartitions:
    by_topic: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        by_topic.setdefault(topic, []).append(number)
    return tuple((topic, tuple(numbers)) for topic, numbers in by_topic.items())


def _flat(partitions: NamedPartitions) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic, number) for topic, numbers in partitions for number in numbers
    )


def _sticky_bytes(previous: Iterable[TopicPartition], generation: int) -> bytes:
    """What ``sticky`` remembers: partitions as an assignment has them, then the generation."""
    written = write_assignment(Assignment(_by_topic(previous), user_data=b""))
    return written[len(_ASSIGNMENT_VERSION) : -_GENERATION.size] + _GENERATION.pack(generation)


def _sticky_state(octets: bytes) -> tuple[tuple[TopicPartition, ...], int]:
    """What a member remembers; nothing, if it is new or says it in a way that we do not know."""
    if len(octets) <= _GENERATION.size:
        return (), -1
    try:
        told = read_assignment(_ASSIGNMENT_VERSION + octets[: -_GENERATION.size])
    except EmbeddedProtocolError:
        return (), -1
    (generation,) = _GENERATION.unpack(octets[-_GENERATION.size :])
    return _flat(told.partitions), int(generation)
