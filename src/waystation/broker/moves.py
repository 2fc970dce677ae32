"""What administrators ask of leaders and replicas: elections, reassignments, drains.

Any broker writes the wish; the rules are in ``cluster/``, and moving what was wished for is the
controller's.  Elections count only while the controller stays the one they were decided under:
otherwise two could decide about one partition.

Each partition of a request has its own outcome: one that is refused spoils no other.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from waystation.broker.view import ClusterView
from waystation.cluster import keys
from waystation.cluster.changes import ABSENT, Changes
from waystation.cluster.draining import Held, drain, evacuate, held, undrain
from waystation.cluster.elections import UncleanElection, elect_preferred, elect_unclean
from waystation.cluster.image import ClusterImage
from waystation.cluster.policies import PolicyOf
from waystation.cluster.reassignment import cancel, reassign, settled
from waystation.model.errors import (
    ElectionNotNeededError,
    InvalidReplicationFactorError,
    NoReassignmentInProgressError,
    StoreUnavailableError,
    WaystationError,
)
from waystation.model.ids import NodeId, TopicPartition

Outcomes = dict[TopicPartition, WaystationError | None]
Decision = Callable[[ClusterImage, TopicPartition], Changes]


class Moves:
    """Changes to who leads and who holds, through one broker."""

    __slots__ = ("_policies", "_share_machines", "_tell_unclean", "_view")

    def __init__(
        self,
        view: ClusterView,
        policies: Callable[[ClusterImage], PolicyOf],
        share_machines: Callable[[], bool],
        tell_unclean: Callable[[UncleanElection], None],
    ) -> None:
        self._view = view
        self._policies = policies
        self._share_machines = share_machines
        self._tell_unclean = tell_unclean

    async def elect_preferred(self, wanted: Iterable[TopicPartition] | None) -> Outcomes:
        """Let preferred leaders lead; of all partitions that are led by another, if ``None``."""
        return await self._elect(
            wanted, lambda image, where: elect_preferred(image, where.topic, where.partition)
        )

    async def elect_unclean(self, wanted: Iterable[TopicPartition] | None) -> Outcomes:
        """Let anyone lead what nobody leads; of all such partitions, if ``None``."""
        told: dict[TopicPartition, UncleanElection | None] = {}

        def decide(image: ClusterImage, where: TopicPartition) -> Changes:
            policy = self._policies(image)(where.topic)
            changes, told[where] = elect_unclean(image, where.topic, where.partition, policy)
            return changes

        outcomes = await self._elect(wanted, decide)
        for where, unclean in told.items():
            if outcomes.get(where) is None and unclean is not None:
                self._tell_unclean(unclean)
        return outcomes

    async def reassign(
        self,
        targets: Mapping[TopicPartition, Sequence[NodeId] | None],
        *,
        allow_factor_change: bool = True,
    ) -> Outcomes:
        """Ask for other replicas; no target cancels what is under way."""

        def decide(image: ClusterImage, where: TopicPartition) -> Changes:
            target = targets[where]
            if target is None:
                return cancel(image, where.topic, where.partition)
            changes = reassign(image, where.topic, where.partition, target)
            if not allow_factor_change:
                _check_factor(image, where, len(target))
            return changes

        return await self._decide_each(list(targets), decide, NoReassignmentInProgressError)

    async def drain(self, node: NodeId) -> tuple[Held, int]:
        """Let ``node`` hold nothing; what it has as yet, and how much of it has nowhere to go."""
        await self._view.change(lambda image: (None, [drain(image, node)]))
        return self._left(node)

    async def undrain(self, node: NodeId) -> tuple[Held, int]:
        """Let ``node`` hold replicas again."""
        await self._view.change(lambda image: (None, [undrain(image, node)]))
        return self._left(node)

    # --- behind the scenes ------------------------------------------------------------------

    async def _elect(self, wanted: Iterable[TopicPartition] | None, decide: Decision) -> Outcomes:
        def guarded(image: ClusterImage, where: TopicPartition) -> Changes:
            office = image.controller
            guard = {keys.CONTROLLER: ABSENT if office is None else office.version}
            return decide(image, where).guarded(guard)

        if wanted is not None:
            return await self._decide_each(list(wanted), guarded, ElectionNotNeededError)
        every = _every_partition(self._view.image)
        return await self._decide_each(every, guarded, ElectionNotNeededError, quiet=True)

    async def _decide_each(
        self,
        wanted: Sequence[TopicPartition],
        decide: Decision,
        done: type[WaystationError],
        *,
        quiet: bool = False,
    ) -> Outcomes:
        """What became of each; decided again where others changed the same first.

        By then some of it may be written already: what was decided once and is refused as
        ``done`` now has happened.  If ``quiet``, partitions that need nothing are left out.
        """
        decided: set[TopicPartition] = set()

        def decide_all(image: ClusterImage) -> tuple[Outcomes, list[Changes]]:
            outcomes: Outcomes = {}
            changes = []
            for where in wanted:
                try:
                    changes.append(decide(image, where))
                except WaystationError as refusal:
                    happened = where in decided and isinstance(refusal, done)
                    if not (quiet and isinstance(refusal, done)) or happened:
                        outcomes[where] = None if happened else refusal
                else:
                    decided.add(where)
                    outcomes[where] = None
            return outcomes, changes

        try:
            return await self._view.change(decide_all)
        except StoreUnavailableError as error:
            return dict.fromkeys(wanted, error)

    def _left(self, node: NodeId) -> tuple[Held, int]:
        image = self._view.image
        stuck = evacuate(image, 0, share_machines=self._share_machines()).stuck
        return held(image, node), sum(one.node == node for one in stuck)


def _check_factor(image: ClusterImage, where: TopicPartition, factor: int) -> None:
    now = len(settled(image, image.topic(where.topic), where.partition))
    if factor != now:
        raise InvalidReplicationFactorError(
            f"{where.topic}-{where.partition} has {now} replicas: {factor} would change that, "
            "which the request does not allow"
        )


def _every_partition(image: ClusterImage) -> list[TopicPartition]:
    return [
        TopicPartition(topic.name, number)
        for topic in image.topics.values()
        for number in range(len(topic.partitions))
    ]
