"""What a topic's options mean to those who decide about its partitions.

Deciders take a ``PolicyOf`` rather than settings: elections need three answers about a topic,
not its forty options, and simulations give them directly.
"""

from collections.abc import Callable, Collection
from functools import cache
from typing import NamedTuple

from waystation.cluster.effective import topic_settings
from waystation.cluster.image import ClusterImage
from waystation.model.ids import NodeId
from waystation.model.topics import TopicSettings


class TopicPolicy(NamedTuple):
    """How many must be in sync, whether a crash may lose records, whether availability wins."""

    min_insync: int = 1
    memory: bool = False
    unclean: bool = False


PolicyOf = Callable[[str], TopicPolicy]


def policy_of(
    image: ClusterImage, node: NodeId, static: TopicSettings, static_names: Collection[str] = ()
) -> PolicyOf:
    """The policies that are in force by ``image``, for a broker started with ``static``."""

    @cache
    def policy(name: str) -> TopicPolicy:
        settings = topic_settings(image, name, node, static, static_names)
        return TopicPolicy(
            settings.min_insync_replicas,
            settings.durability == "memory",
            settings.unclean_leader_election_enable,
        )

    return policy
