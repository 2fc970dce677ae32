"""Which brokers hold which partition.

The same topic id and the same brokers always give the same placement: the start is drawn from
the id, not from chance, so that small topics do not all begin on the first broker.

1. Replicas of one partition are on different brokers.
2. Preferred leaders of a topic differ by at most one partition between any two brokers.
3. Followers of one broker's partitions are spread over all the others, so that the load of a
   dead leader does not fall on a single one.
4. Partitions added later continue the round where it stopped.

A manual assignment is checked here too, and obeyed as it is.
"""

from collections.abc import Collection, Iterable, Sequence

from waystation.model.errors import InvalidReplicaAssignmentError, InvalidReplicationFactorError
from waystation.model.ids import NodeId, TopicId

Assignment = tuple[tuple[NodeId, ...], ...]


def place(
    topic_id: TopicId, partitions: range, factor: int, brokers: Collection[NodeId]
) -> Assignment:
    """The replicas of each partition in ``partitions``, the preferred leader first."""
    if factor > len(brokers):
        raise InvalidReplicationFactorError(
            f"replication factor {factor} is larger than the number of brokers: "
            f"{len(brokers)} registered"
        )
    ring = sorted(brokers)
    start = topic_id.int % len(ring)
    return tuple(_replicas(ring, start + number, factor) for number in partitions)


def _replicas(ring: Sequence[NodeId], turn: int, factor: int) -> tuple[NodeId, ...]:
    """The leader takes its turn; followers come after it, one further with every round."""
    others = len(ring) - 1
    leader, rounds = turn % len(ring), turn // len(ring)
    steps = (1 + (rounds + nth) % others for nth in range(factor - 1))
    return (ring[leader], *(ring[(leader + step) % len(ring)] for step in steps))


def check_assignment(
    replicas: Iterable[Sequence[NodeId]], brokers: Collection[NodeId], factor: int | None = None
) -> Assignment:
    """The assignment, if every partition has ``factor`` different brokers that are there.

    Without a ``factor`` the first partition sets it.
    """
    checked = tuple(tuple(each) for each in replicas)
    factor = len(checked[0]) if factor is None and checked else factor
    for each in checked:
        if not each:
            raise InvalidReplicaAssignmentError("a partition is assigned to no broker")
        if len(set(each)) < len(each):
            raise InvalidReplicaAssignmentError(f"one partition names a broker twice: {each}")
        unknown = [node for node in each if node not in brokers]
        if unknown:
            raise InvalidReplicaAssignmentError(
                f"broker {unknown[0]} is not registered; there are {sorted(brokers)}"
            )
        if len(each) != factor:
            raise InvalidReplicaAssignmentError(
                f"a partition has {len(each)} replicas where the others have {factor}"
            )
    return checked
