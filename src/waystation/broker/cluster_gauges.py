"""How the cluster is, as this broker sees it, worked out when somebody scrapes it.

What the whole cluster lacks is told by its controller alone, so that a sum over all brokers counts
it once.
"""

from collections.abc import Callable
from functools import partial

from waystation.broker.controller import Controlling
from waystation.cluster.image import ClusterImage
from waystation.cluster.parts import PartitionImage
from waystation.cluster.preferences import preferences
from waystation.model.ids import NodeId
from waystation.telemetry.metrics import Reading, Registry


class ClusterGauges:
    """Reads the image; owns nothing."""

    def __init__(
        self,
        registry: Registry,
        node: NodeId,
        image: Callable[[], ClusterImage],
        controlling: Controlling,
    ) -> None:
        self._node = node
        self._image = image
        self._controlling = controlling
        for name, doc, read in (
            ("waystation_active_controller", "1 on the broker that decides.", self._active),
            ("waystation_brokers", "Brokers that are registered.", lambda: len(image().brokers)),
            (
                "waystation_offline_partitions",
                "Partitions that nobody leads; told by the controller.",
                self._offline,
            ),
            (
                "waystation_under_replicated_partitions",
                "Partitions led by this broker of which a replica is not in sync.",
                self._under_replicated,
            ),
            (
                "waystation_not_preferred_leaders",
                "Partitions led by another than their preferred leader; told by the controller.",
                self._not_preferred,
            ),
            (
                "waystation_reassigning_partitions",
                "Partitions on their way to other replicas; told by the controller.",
                self._moving,
            ),
        ):
            registry.computed(name, doc, "gauge", partial(_one, read))

    def _active(self) -> float:
        return self._controlling.active

    def _offline(self) -> float:
        if not self._controlling.active:
            return 0
        live = self._image().brokers
        return sum(state.leader not in live for state in self._partitions())

    def _under_replicated(self) -> float:
        return sum(
            state.leader == self._node and len(state.in_sync) < len(state.replicas)
            for state in self._partitions()
        )

    def _not_preferred(self) -> float:
        if not self._controlling.active:
            return 0
        return sum(each.missed for each in preferences(self._image()).values())

    def _moving(self) -> float:
        if not self._controlling.active:
            return 0
        return sum(map(len, self._image().reassignments.values()))

    def _partitions(self) -> list[PartitionImage]:
        return [each for topic in self._image().topics.values() for each in topic.partitions]


def _one(read: Callable[[], float]) -> Reading:
    return [({}, float(read()))]
