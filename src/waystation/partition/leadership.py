"""Who leads a partition, as the coordination store says it, and what that word means for others.

``partition.py`` obeys these words; how they come to be is decided in ``cluster``.
"""

from collections.abc import Sequence
from typing import NamedTuple

from waystation.model.errors import (
    FencedLeaderEpochError,
    NotLeaderError,
    UnknownLeaderEpochError,
)
from waystation.model.ids import LeaderEpoch, NodeId, TopicPartition

__all__ = ["Leadership", "LeadershipInDoubtError", "check_claim"]


class LeadershipInDoubtError(NotLeaderError):
    """The node leads as far as it knows, and hears of nobody who could confirm what is written.

    Clients are told what makes them look for another leader; if there is none they come back.
    """

    def __init__(
        self, partition: TopicPartition, epoch: LeaderEpoch, missing: Sequence[NodeId]
    ) -> None:
        super().__init__(partition, None, epoch)
        self.missing = tuple(missing)

    def __str__(self) -> str:
        names = ", ".join(map(str, self.missing))
        return (
            f"{self.partition} was led here in epoch {self.epoch}; neither the coordination store "
            f"nor its in-sync replicas on {names} are heard of"
        )


class Leadership(NamedTuple):
    """Who leads a partition, under which epoch, and who is in sync: the store's words."""

    leader: NodeId | None
    epoch: LeaderEpoch
    in_sync: tuple[NodeId, ...]
    eligible: tuple[NodeId, ...] = ()
    """Who else may lead: while there is anyone, nothing new commits."""
    replicas: tuple[NodeId, ...] = ()
    version: int = 0
    """Of the stored state: while it is the same, a change that was asked for may still come."""
    revision: int = 0
    """Of the store, when it said so."""

    def given_up_since(
        self, before: "Leadership", asked: Sequence[NodeId] | None
    ) -> tuple[NodeId, ...]:
        """Whose copies count no more, nor may be taken for those made since.

        Who left the in-sync set by somebody else's decision, which ``asked`` is not, may have
        given its copy up too, and been asked for another: both may be news at once.
        """
        gone = []
        for node in before.replicas:
            left = node in before.in_sync and node not in self.in_sync
            ours = asked is not None and node not in asked
            if node not in self.replicas or (left and not ours):
                gone.append(node)
        return tuple(gone)


def check_claim(name: TopicPartition, claimed: int, epoch: LeaderEpoch) -> None:
    """Raise if a request was made for another leader epoch; -1 claims none."""
    if 0 <= claimed < epoch:
        raise FencedLeaderEpochError(
            f"{name} is at leader epoch {epoch}, the request says {claimed}"
        )
    if claimed > epoch:
        raise UnknownLeaderEpochError(
            f"{name} is at leader epoch {epoch}; {claimed} is not known yet"
        )
