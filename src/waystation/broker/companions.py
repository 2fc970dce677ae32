"""The places where scheduled messages wait: topics that come and grow with the ones they are for.

1. A topic with ``schedule.enable`` has a companion (``scheduling/topics.py``) with as many
   partitions, on the same brokers where these are there, so that deliveries need no network.
2. A companion keeps what waits, whatever options somebody gives it (``in_force``): the time of a
   message is the broker's, nothing of it expires, and what it holds is on disk.
3. It is made by whichever broker controls the cluster when it hears of the option, grows when the
   topic does, and goes when the topic is deleted; turned off, it stays as it is.
4. A topic that had the companion's name before is taken as it is, and gets the partitions it lacks.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final

from waystation.broker.topics import Topics
from waystation.cluster.changes import Changes
from waystation.cluster.image import ClusterImage
from waystation.cluster.keys import topic_config
from waystation.cluster.parts import TopicImage
from waystation.cluster.topics import TopicSpec, delete_topic
from waystation.cluster.values import ConfigValue, decode
from waystation.model.errors import InvalidTopicError, TopicExistsError, WaystationError
from waystation.model.topics import TopicSettings
from waystation.runtime.tasks import Tasks
from waystation.scheduling.topics import SUFFIX, companion_of, target_of
from waystation.telemetry.logs import get_logger

__all__ = ["Companions", "companion_spec", "in_force"]

_OPTION: Final = "schedule.enable"
_ON: Final = ("true", "yes", "on", "1")
_CONFIGS: Final = topic_config("")
_INHERITED: Final = ("max.message.bytes", "min.insync.replicas")
_SEGMENT_BYTES: Final = 64 << 20
_FOREVER: Final = -1

_events = get_logger("schedules")


def in_force(settings: TopicSettings) -> TopicSettings:
    """A companion's options: what scheduling needs wins over what somebody set."""
    return replace(
        settings,
        cleanup_policy=("delete",),
        retention_ms=_FOREVER,
        retention_bytes=_FOREVER,
        retention_after_archive="",
        message_timestamp_type="LogAppendTime",
        durability="disk",
        schedule_enable=False,
    )


def companion_spec(image: ClusterImage, topic: TopicImage) -> TopicSpec:
    """The companion of ``topic``, should it be made now."""
    own = image.topic_options(topic.name).options
    options: dict[str, str | None] = {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "durability": "disk",
        "message.timestamp.type": "LogAppendTime",
        "retention.bytes": str(_FOREVER),
        "retention.ms": str(_FOREVER),
        "segment.bytes": str(_SEGMENT_BYTES),
        **{name: own[name] for name in _INHERITED if name in own},
    }
    name = topic.name + SUFFIX
    if all(node in image.brokers for replicas in topic.assignment for node in replicas):
        return TopicSpec(name, assignments=list(enumerate(topic.assignment)), options=options)
    factor = len(topic.assignment[0])
    return TopicSpec(name, len(topic.assignment), factor, options=options)


class Companions:
    """Makes what is missing, at the broker that controls the cluster."""

    def __init__(
        self,
        topics: Topics,
        image: Callable[[], ClusterImage],
        settings_of: Callable[[str], TopicSettings],
        controls: Callable[[], bool],
    ) -> None:
        """``settings_of`` tells a topic's options as they are in force."""
        self._topics = topics
        self._image = image
        self._settings_of = settings_of
        self._controls = controls
        self._tasks = Tasks()
        self._refused: dict[str, str] = {}
        self._making = asyncio.Lock()
        self._maker: asyncio.Task[Any] | None = None
        topics.along, topics.check, topics.after = self._going_along, _check, self.complete

    def follow(self) -> None:
        """Act on a new image."""
        if self._controls() and not len(self._tasks) and any(self._behind(self._image())):
            self._tasks.spawn(self.complete(), "companions")

    async def complete(self) -> None:
        """Make what is missing, whoever controls the cluster."""
        itself = asyncio.current_task()
        if self._maker is itself or not any(self._behind(self._image())):
            return
        async with self._making:
            self._maker = itself
            try:
                await self._make()
            finally:
                self._maker = None

    async def aclose(self) -> None:
        """Make nothing more."""
        await self._tasks.aclose()

    def _behind(self, image: ClusterImage) -> Iterable[tuple[TopicImage, TopicImage | None]]:
        """Topics whose companion is missing, or has fewer partitions, and that companion."""
        for topic in self._candidates(image):
            if not self._is_enabled(topic.name):
                continue
            known = image.topics.get(topic.name + SUFFIX)
            if known is None or len(known.partitions) < len(topic.partitions):
                yield topic, known

    def _candidates(self, image: ClusterImage) -> Iterable[TopicImage]:
        """Those that have the option of their own; all, if it is on for who does not say.

        There may be thousands of topics, and every change of the cluster asks.
        """
        if self._settings_of("").schedule_enable:
            return image.topics.values()
        own = [name for name, one in image.topic_configs.items() if _OPTION in one.options]
        return [image.topics[name] for name in own if name in image.topics]

    def _is_enabled(self, topic: str) -> bool:
        return target_of(topic + SUFFIX) == topic and self._settings_of(topic).schedule_enable

    def _going_along(self, image: ClusterImage, topic: str) -> list[Changes]:
        """The companion goes first: a crash in between leaves a topic that gets another."""
        known = image.topics.get(topic + SUFFIX)
        if known is None or topic not in image.topics or not self._is_enabled(topic):
            return []
        return [delete_topic(known)]

    async def _make(self) -> None:
        image = self._image()
        for topic, known in list(self._behind(image)):
            try:
                if known is None:
                    spec = companion_spec(image, topic)
                    outcome = (await self._topics.create([spec]))[spec.name]
                    if isinstance(outcome, WaystationError):
                        raise outcome
                else:
                    count, now = len(topic.partitions), len(known.partitions)
                    added = topic.assignment[now:]
                    await self._topics.add_partitions(known.name, count, added)
                self._refused.pop(topic.name, None)
            except TopicExistsError:
                pass  # another broker was quicker
            except WaystationError as error:
                self._tell(topic.name, str(error))

    def _tell(self, topic: str, reason: str) -> None:
        """Once per reason: it is tried again with every change of the cluster."""
        if self._refused.get(topic) != reason:
            self._refused[topic] = reason
            _events.warning("companion.not.made", topic=topic, reason=reason)


def _check(image: ClusterImage, changes: Changes) -> None:
    """Refuse ``schedule.enable`` for a topic that cannot have a companion."""
    for key, stored in changes.puts.items():
        topic = key.removeprefix(_CONFIGS)
        if topic == key:
            continue
        if decode(ConfigValue, key, stored).options.get(_OPTION, "").lower() not in _ON:
            continue
        companion = companion_of(topic)
        look_alike = companion.replace(".", "_")
        for known in image.topics:
            if known != companion and known.replace(".", "_") == look_alike:
                raise InvalidTopicError(
                    f"the messages of {topic!r} would wait in {companion!r}, which collides with "
                    f"{known!r}: '.' and '_' count as one in metrics"
                )
