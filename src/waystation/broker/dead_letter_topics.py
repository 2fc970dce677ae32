"""The topics that dead letters go to: found, or made when the first one dies.

A topic that is made for dead letters has as many partitions and replicas as the one they come from,
takes messages that are larger by what is said about them, and keeps them until somebody deletes
them.  One that exists is taken as it is.
"""

from collections.abc import Callable
from typing import Final

from waystation.broker.configs import Configs
from waystation.broker.moving import Courier
from waystation.broker.topics import Topics
from waystation.cluster.image import ClusterImage
from waystation.cluster.parts import INTERNAL_TOPICS
from waystation.cluster.topics import TopicSpec
from waystation.model.errors import ErrorCode, TopicExistsError, WaystationError
from waystation.model.ids import TopicPartition
from waystation.sharing.dead_letters import dead_letter_partition
from waystation.telemetry.logs import get_logger

__all__ = ["DeadLetterTopics", "NoTargetError"]

_BATCH_BYTES: Final = 512 << 10
_HEADERS_BYTES: Final = 64 << 10

_events = get_logger("dead-letters")


class NoTargetError(WaystationError):
    """Dead letters cannot go where their group wants them."""

    code = ErrorCode.INVALID_TOPIC_EXCEPTION


class DeadLetterTopics:
    """Where dead letters of this broker's queues go."""

    def __init__(
        self,
        courier: Courier,
        topics: Topics,
        configs: Configs,
        image: Callable[[], ClusterImage],
    ) -> None:
        """``image`` is the cluster as this broker acts on it."""
        self.courier = courier
        self._topics = topics
        self._configs = configs
        self._image = image

    async def target(self, source: TopicPartition, name: str) -> TopicPartition:
        """The partition for those of ``source``; its topic is made if there is none."""
        if name == source.topic or name in INTERNAL_TOPICS:
            raise NoTargetError(
                f"{name} cannot take the dead letters of {source.topic}: name another topic in "
                "share.dead.letter.topic of the group"
            )
        image = self._image()
        if name not in image.topics:
            await self._make(source.topic, name)
            image = self._image()
        partitions = len(image.topic(name).partitions)
        return TopicPartition(name, dead_letter_partition(source.partition, partitions))

    def partitions_of(self, name: str) -> int:
        """How many partitions a topic has that is to be written to."""
        found = self._image().topics.get(name)
        if found is None or found.internal:
            raise NoTargetError(
                f"dead letters cannot be sent to {name}, which is no topic for clients: create it, "
                "or name another with `--to`"
            )
        return len(found.partitions)

    def batch_bytes(self, name: str) -> int:
        """How large a batch to the topic may be."""
        return min(self._configs.topic(self._image(), name).max_message_bytes, _BATCH_BYTES)

    async def _make(self, source: str, name: str) -> None:
        image = self._image()
        known = image.topic(source)
        replicas = max(len(one.replicas) for one in known.partitions)
        largest = self._configs.topic(image, source).max_message_bytes
        options = {
            "cleanup.policy": "delete",
            "retention.ms": "-1",
            "retention.bytes": "-1",
            "max.message.bytes": str(min(largest + _HEADERS_BYTES, (1 << 31) - 1)),
        }
        factor = self._topics.factor_now(replicas)
        spec = TopicSpec(name, len(known.partitions), factor, options=options)
        outcome = (await self._topics.create([spec]))[name]
        if isinstance(outcome, TopicExistsError):
            return
        if isinstance(outcome, WaystationError):
            raise NoTargetError(f"the dead-letter topic {name} cannot be made: {outcome}")
        _events.info("dead_letter_topic.made", topic=name, source=source, replicas=factor)
