"""How a partition gets other replicas, step by step, while it is written and read.

1. *Asked for*: ``reassignments/<topic id>/<n>`` names the target, and the replicas the partition
   had when a change was first asked for.  Any broker writes it; the rest is the controller's.
2. *Under way*: the partition has its old replicas and the new ones; these copy.  Only so many
   partitions are under way at once.
3. *Done*: every new replica is in sync, and as many of the target as ``min.insync.replicas``
   asks for.  In one transaction the partition has exactly the target, in that order, is led by
   one of it, and the wish is gone.

To cancel is to ask for the old replicas again; a target may change at any time.  Nothing is
taken away before what replaces it is in sync, so a step loses nothing whenever it stops.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from waystation.cluster import keys
from waystation.cluster.changes import ABSENT, Changes
from waystation.cluster.elections import Electorate
from waystation.cluster.image import ClusterImage
from waystation.cluster.in_sync_changes import Sets, led_by, successor
from waystation.cluster.parts import PartitionImage, ReassignmentImage, TopicImage
from waystation.cluster.placement import check_assignment
from waystation.cluster.policies import TopicPolicy
from waystation.cluster.values import PartitionValue, ReassignmentValue, TopicValue, encode
from waystation.model.errors import (
    InvalidReplicaAssignmentError,
    NoReassignmentInProgressError,
    UnknownTopicError,
)
from waystation.model.ids import NodeId, TopicPartition

Replicas = tuple[NodeId, ...]

# Steps of one topic share its key, hence one transaction: so many of a kind always fit.
STEPS_MAX = 20


class Moving(NamedTuple):
    """A partition on its way: who holds it now, who is to come and who is to go."""

    partition: TopicPartition
    replicas: Replicas
    target: Replicas
    adding: Replicas
    removing: Replicas


class Steps(NamedTuple):
    """What the next transaction about one topic does, and how many moves it begins."""

    changes: Changes
    begun: int


def reassign(image: ClusterImage, name: str, number: int, target: Sequence[NodeId]) -> Changes:
    """Ask that the partition have exactly ``target``, the preferred leader first."""
    topic, partition = _found(image, name, number)
    (wanted,) = check_assignment([target], [*image.brokers, *partition.replicas])
    drained = [node for node in wanted if node in image.drains]
    if drained:
        raise InvalidReplicaAssignmentError(f"broker {drained[0]} is being drained")
    if wanted == settled(image, topic, number):
        return Changes()
    return asked(image, topic, number, wanted)


def cancel(image: ClusterImage, name: str, number: int) -> Changes:
    """Ask that the partition have the replicas it had before."""
    topic, _ = _found(image, name, number)
    moving = image.reassignment(topic.id, number)
    if moving is None:
        raise NoReassignmentInProgressError(f"{name}-{number} is not being reassigned")
    return asked(image, topic, number, moving.origin)


def asked(image: ClusterImage, topic: TopicImage, number: int, target: Replicas) -> Changes:
    """The wish itself, unchecked; void if the topic or another wish changed meanwhile."""
    moving = image.reassignment(topic.id, number)
    origin = moving.origin if moving else topic.partitions[number].replicas
    key = keys.reassignment(topic.id, number)
    return Changes(
        compares={keys.topic(topic.name): topic.version, key: moving.version if moving else ABSENT},
        puts={key: encode(ReassignmentValue(target=target, origin=origin))},
    )


def settled(image: ClusterImage, topic: TopicImage, number: int) -> Replicas:
    """The replicas that the partition has, or will have once it is reassigned."""
    moving = image.reassignment(topic.id, number)
    return moving.target if moving else topic.partitions[number].replicas


def under_way(image: ClusterImage) -> list[Moving]:
    """Every partition that has, or is to get, other replicas than it is to keep."""
    return [
        _moving(topic, number, moving)
        for topic_id, some in image.reassignments.items()
        if (topic := image.topics_by_id.get(topic_id)) is not None
        for number, moving in sorted(some.items())
        if number < len(topic.partitions)
    ]


def begun(image: ClusterImage) -> int:
    """How many partitions have their new replicas assigned and wait for them."""
    return sum(
        _has_begun(topic, number, moving)
        for topic_id, some in image.reassignments.items()
        if (topic := image.topics_by_id.get(topic_id)) is not None
        for number, moving in some.items()
        if number < len(topic.partitions)
    )


def steps(
    image: ClusterImage,
    topic: TopicImage,
    electorate: Electorate,
    policy: TopicPolicy,
    room: int,
) -> Steps | None:
    """The next steps of a topic's partitions, at most ``room`` of them beginning to copy."""
    some = {
        number: moving
        for number, moving in sorted(image.reassignments.get(topic.id, {}).items())
        if number < len(topic.partitions)
    }
    incomplete = [
        number
        for number, moving in some.items()
        if not {*moving.target} <= {*topic.partitions[number].replicas}
    ]
    # One whose target changed on the way has its room already: else all could wait for each other.
    again = [number for number in incomplete if _has_begun(topic, number, some[number])]
    fresh = [number for number in incomplete if number not in again][:room]
    starting = [*again, *fresh][:STEPS_MAX]
    ending = dict(islice(_finished(topic, some, electorate, policy), STEPS_MAX))
    if not starting and not ending:
        return None
    begins = sum(number in fresh for number in starting)
    return Steps(_taken(image, topic, some, starting, ending), begins)


def _taken(
    image: ClusterImage,
    topic: TopicImage,
    some: Mapping[int, ReassignmentImage],
    starting: Sequence[int],
    ending: Mapping[int, PartitionValue],
) -> Changes:
    """The steps as one transaction, because they all change the topic's assignment."""
    assignment = list(topic.assignment)
    compares = {keys.topic(topic.name): topic.version}
    puts: dict[str, bytes] = {}
    for number in starting:
        assignment[number] = _both(assignment[number], some[number].target)
        compares[keys.reassignment(topic.id, number)] = some[number].version
    for number, state in ending.items():
        assignment[number] = some[number].target
        compares[keys.reassignment(topic.id, number)] = some[number].version
        compares[keys.partition(topic.id, number)] = topic.partitions[number].version
        puts[keys.partition(topic.id, number)] = encode(state)
        assert state.leader is not None, f"{topic.name}-{number} would be led by nobody"
        compares[keys.broker(state.leader)] = image.brokers[state.leader].version
    puts[keys.topic(topic.name)] = encode(TopicValue(id=topic.id, replicas=tuple(assignment)))
    deletes = [keys.reassignment(topic.id, number) for number in ending]
    return Changes(compares=compares, puts=puts, deletes=deletes)


def finished(
    partition: PartitionImage,
    moving: ReassignmentImage,
    electorate: Electorate,
    policy: TopicPolicy,
) -> PartitionValue | None:
    """The state that ends the move, or ``None`` while it cannot end.

    A partition without a live leader is given one first, by an election of its own.
    """
    target = moving.target
    in_sync = tuple(node for node in target if node in partition.in_sync)
    adding = [node for node in target if node not in moving.origin]
    enough = max(1, min(policy.min_insync, len(target)))
    if len(in_sync) < enough or not {*adding} <= {*in_sync}:
        return None
    if not {*target} <= {*partition.replicas} or partition.leader not in electorate.live:
        return None
    few = len(in_sync) < policy.min_insync
    sets = Sets(in_sync, tuple(node for node in target if few and node in partition.eligible))
    if partition.leader in in_sync:
        return successor(partition, sets)
    for choice in (electorate.staying, electorate.able):
        for node in in_sync:
            if node in choice:
                return led_by(partition, node, sets)
    return None


def _finished(
    topic: TopicImage,
    some: dict[int, ReassignmentImage],
    electorate: Electorate,
    policy: TopicPolicy,
) -> Iterator[tuple[int, PartitionValue]]:
    for number, moving in some.items():
        state = finished(topic.partitions[number], moving, electorate, policy)
        if state is not None:
            yield number, state


def _has_begun(topic: TopicImage, number: int, moving: ReassignmentImage) -> bool:
    return any(node not in moving.origin for node in topic.partitions[number].replicas)


def _both(replicas: Replicas, target: Replicas) -> Replicas:
    """Old ones first: until the move is done, the preferred leader stays who it is."""
    return replicas + tuple(node for node in target if node not in replicas)


def _moving(topic: TopicImage, number: int, moving: ReassignmentImage) -> Moving:
    replicas = topic.partitions[number].replicas
    every = _both(replicas, moving.target)
    return Moving(
        TopicPartition(topic.name, number),
        every,
        moving.target,
        tuple(node for node in moving.target if node not in moving.origin),
        tuple(node for node in every if node not in moving.target),
    )


def _found(image: ClusterImage, name: str, number: int) -> tuple[TopicImage, PartitionImage]:
    topic = image.topic(name)
    if not 0 <= number < len(topic.partitions):
        raise UnknownTopicError(f"topic {name!r} has no partition {number}")
    return topic, topic.partitions[number]
