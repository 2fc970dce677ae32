"""How far leaders are from where the assignment would have them.

Who comes back after a failure follows what it once led.  Letting it lead again moves leaders that
work, so it is done only where a broker misses a good share of what it is preferred for.
"""

from collections.abc import Mapping
from typing import NamedTuple

from waystation.cluster.image import ClusterImage
from waystation.model.ids import NodeId


class Preference(NamedTuple):
    """How many partitions name a broker first, and how many of these somebody else leads."""

    preferred: int
    missed: int

    @property
    def percentage(self) -> float:
        """The share that it misses."""
        return 100 * self.missed / self.preferred


def preferences(image: ClusterImage) -> Mapping[NodeId, Preference]:
    """For each broker that is there and named first anywhere."""
    found: dict[NodeId, Preference] = {}
    for topic in image.topics.values():
        for partition in topic.partitions:
            first = partition.replicas[0]
            if first in image.brokers:
                preferred, missed = found.get(first, (0, 0))
                found[first] = Preference(preferred + 1, missed + (partition.leader != first))
    return found


def is_imbalanced(image: ClusterImage, percentage: float) -> bool:
    """Whether some broker misses more than ``percentage`` of what it is preferred for."""
    return any(each.percentage > percentage for each in preferences(image).values())
