"""The options in force on this broker, and why: see ``cluster/effective.py`` for the rules."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from waystation.broker.settings import BrokerSettings
from waystation.cluster.effective import (
    Explained,
    Setting,
    Source,
    archive_groups,
    broker_settings,
    explain_broker,
    explain_topic,
    topic_settings,
)
from waystation.cluster.image import ClusterImage
from waystation.cluster.parts import ConfigImage
from waystation.cluster.placement import default_factor, sites_for_new
from waystation.cluster.policies import PolicyOf, policy_of
from waystation.cluster.topics import TopicDefaults
from waystation.cluster.views import ON, ViewSettings
from waystation.model.ids import NodeId
from waystation.model.settings import Option, options_of
from waystation.model.topics import TopicSettings

T = TypeVar("T")

_FACTOR = "default.replication.factor"


class Configs:
    """What the node was started with, overlaid by what was changed since."""

    __slots__ = (
        "_broker",
        "_image",
        "_known",
        "_node",
        "_static",
        "_topics",
        "broker_options",
    )

    def __init__(
        self,
        node: NodeId,
        image: Callable[[], ClusterImage],
        broker: BrokerSettings,
        topics: TopicSettings,
        static: Mapping[str, str],
        broker_options: Sequence[Option],
    ) -> None:
        """``static`` are texts by broker-level name; ``broker_options`` all but the topics'."""
        self._node = node
        self._image = image
        self._broker = broker
        self._topics = topics
        self._static = static
        self.broker_options = broker_options
        self._known: tuple[ClusterImage, dict[str, TopicSettings]] = (ClusterImage(), {})

    def broker(self, image: ClusterImage) -> BrokerSettings:
        """The broker's settings as ``image`` has them."""
        return broker_settings(image, self._node, self._broker)

    def in_force(self, image: ClusterImage, started_with: T) -> T:
        """Any other group of the node's settings, as ``image`` has them."""
        return broker_settings(image, self._node, started_with)

    def topic(self, image: ClusterImage, name: str) -> TopicSettings:
        """A topic's settings as ``image`` has them; asked for each of its partitions."""
        of, known = self._known
        if of is not image:
            # Both at once: threads that make logs ask too, of another image than the loop.
            known = {}
            self._known = (image, known)
        if name not in known:
            known[name] = topic_settings(image, name, self._node, self._topics, self._static)
        return known[name]

    def policy_of(self, image: ClusterImage) -> PolicyOf:
        """What ``image`` says to those who decide about partitions."""
        return policy_of(image, self._node, self._topics, self._static)

    def topic_defaults(self, image: ClusterImage) -> TopicDefaults:
        """What a topic gets that does not say."""
        settings = self.broker(image)
        layers = (
            self._static,
            image.broker_options().options,
            image.broker_options(str(self._node)).options,
        )
        factor = settings.default_replication_factor
        if not any(_FACTOR in texts for texts in layers):
            share = settings.replicas_share_machine
            factor = default_factor(sites_for_new(image), share_machines=share)
        return TopicDefaults(settings.num_partitions, factor, settings.replicas_share_machine)

    def archive_groups(self, image: ClusterImage) -> frozenset[str]:
        """The groups that topics of ``image`` wait for before they let records go."""
        return archive_groups(image, self._node, self._topics)

    def explain_topic(self, name: str, options: Mapping[str, str] | None = None) -> list[Explained]:
        """Every option of a topic; ``options`` are its own if it is not made yet."""
        image = self._image()
        if options is not None:
            own = {**image.topic_configs, name: ConfigImage(options, 0)}
            image = replace(image, topic_configs=own)
        return explain_topic(image, name, self._node, self._static)

    def explain_view(self, options: Mapping[str, str]) -> list[Explained]:
        """What makes a view, and every option of its topic, by which it lives."""
        own = [
            Explained(one, one.name, (Setting(one.name, options[one.name], Source.TOPIC),))
            for one in options_of(ViewSettings)
        ]
        return own + self.explain_topic(options[ON])

    def explain_broker(self) -> list[Explained]:
        """Every option of this broker."""
        return explain_broker(self._image(), self._node, self._static, self.broker_options)
