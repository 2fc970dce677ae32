"""What the controller decides on an image: elections, steps of reassignments, moves for drains.

A controller has no state of its own.  Whoever takes over decides on the same image the same
things, and a decision is void, not wrong, if what it looked at has changed.

1. Every decision compares the controller's key: one who was replaced changes nothing.
2. No key is written by two decisions of one round, so that they may share transactions.
3. When nothing changes any more, there is nothing left to decide.
4. What an operator must know is told with the decisions: see ``Decisions``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from waystation.cluster import keys
from waystation.cluster.changes import Changes
from waystation.cluster.draining import Stuck, evacuate
from waystation.cluster.elections import (
    Electorate,
    UncleanElection,
    election,
    needed,
    reported,
)
from waystation.cluster.image import ClusterImage
from waystation.cluster.internal_topics import widened
from waystation.cluster.parts import TopicImage
from waystation.cluster.policies import PolicyOf
from waystation.cluster.reassignment import begun, steps
from waystation.cluster.topics import sweep_old
from waystation.model.ids import NodeId, TopicId, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings:
    """How a controller decides; ``policy_of`` tells the policies of an image's topics.

    ``prefer`` lets preferred leaders lead again; it moves leaders that work, so a shell sets it
    now and then, not always.  ``earlier`` is an image of at least a minute ago: what was left
    over then and still is, is swept up.  ``internal`` is how many replicas the cluster's own topics
    shall have.
    """

    node: NodeId
    policy_of: Callable[[ClusterImage], PolicyOf]
    moves_max: int = 50
    share_machines: bool = False
    prefer: bool = False
    earlier: ClusterImage | None = None
    internal: Mapping[str, int] = field(default_factory=dict)


class Leaderless(NamedTuple):
    """A partition that nobody leads, and who of those away could: nobody, if it is unborn."""

    partition: TopicPartition
    holders: tuple[NodeId, ...]


class Decisions(NamedTuple):
    """What to write, and what operators must know.

    ``unclean`` has happened only once its decision is stored; ``unclean_epoch`` of the
    partition's state tells it for good.
    """

    changes: list[Changes]
    unclean: list[UncleanElection]
    leaderless: list[Leaderless]
    stuck: list[Stuck]


def decisions(image: ClusterImage, settings: ControllerSettings) -> Decisions:
    """Everything that ``image`` calls for; nothing if another broker decides by it."""
    office = image.controller
    if office is None or office.node != settings.node:
        return Decisions([], [], [], [])
    draft = _Draft(image, settings)
    for topic in image.topics.values():
        draft.look_at(topic)
    draft.evacuate()
    draft.widen()
    if settings.earlier is not None:
        draft.sweep(settings.earlier)
    guard = {keys.CONTROLLER: office.version}
    guarded = [changes.guarded(guard) for changes in draft.changes]
    return Decisions(guarded, draft.unclean, draft.leaderless, draft.stuck)


class _Draft:
    """The decisions of one round while they are made."""

    def __init__(self, image: ClusterImage, settings: ControllerSettings) -> None:
        self._image = image
        self._settings = settings
        self._policy = settings.policy_of(image)
        self._electorate = Electorate.of(image)
        self._room = max(0, settings.moves_max - begun(image))
        self._busy: set[TopicId] = set()
        self.changes: list[Changes] = []
        self.unclean: list[UncleanElection] = []
        self.leaderless: list[Leaderless] = []
        self.stuck: list[Stuck] = []

    def look_at(self, topic: TopicImage) -> None:
        """Elect where it is needed; move on what is being reassigned and led."""
        stepped = self._step(topic) if topic.id in self._image.reassignments else set()
        prefer, staying = self._settings.prefer, self._electorate.staying
        for number, partition in enumerate(topic.partitions):
            leader = partition.leader
            if leader in staying and (not prefer or leader == partition.replicas[0]):
                continue
            if keys.partition(topic.id, number) in stepped:
                continue
            self._elect(topic, number)

    def _elect(self, topic: TopicImage, number: int) -> None:
        partition = topic.partitions[number]
        policy = self._policy(topic.name)
        elected = needed(partition, self._electorate, policy, prefer=self._settings.prefer)
        if elected is not None:
            self.changes.append(election(self._image, topic, number, elected))
            if elected.unclean:
                self.unclean.append(reported(topic, number, elected))
        leader = partition.leader if elected is None else elected.leader
        if leader is None:
            name = TopicPartition(topic.name, number)
            self.leaderless.append(Leaderless(name, partition.holders))

    def _step(self, topic: TopicImage) -> set[str]:
        """Take the next steps of the topic's moves; the keys that they write."""
        policy = self._policy(topic.name)
        taken = steps(self._image, topic, self._electorate, policy, self._room)
        if taken is None:
            return set()
        self._room -= taken.begun
        self._busy.add(topic.id)
        self.changes.append(taken.changes)
        return {*taken.changes.puts}

    def evacuate(self) -> None:
        """Begin moves off drained nodes, where there is room for more."""
        asked_for = sum(map(len, self._image.reassignments.values()))
        room = max(0, self._settings.moves_max - asked_for)
        share = self._settings.share_machines
        moves, self.stuck = evacuate(self._image, room, share_machines=share, busy=self._busy)
        self.changes += moves

    def widen(self) -> None:
        """Ask for replicas that the cluster's own topics lack, where there is room for more."""
        lacking = {
            name: factor
            for name, factor in self._settings.internal.items()
            if (topic := self._image.topics.get(name)) is not None and topic.id not in self._busy
        }
        asked_for = sum(map(len, self._image.reassignments.values()))
        room = max(0, self._settings.moves_max - asked_for)
        share = self._settings.share_machines
        self.changes += widened(self._image, lacking, room, share_machines=share)

    def sweep(self, earlier: ClusterImage) -> None:
        """Delete what crashes left behind."""
        self.changes += sweep_old(self._image, earlier)
