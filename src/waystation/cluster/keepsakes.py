"""What only the store knows, as each broker has it in a file of its own: options, and views.

Messages tell which topics there were, and logs what groups had read.  How a topic was to be kept
or scheduled, how a group's queue was to deliver, and what a view showed stands in no log.  So every
broker writes it down when it changes (``broker/keepsakes.py``), and when a store is lost,
``rebuilding.py`` takes the newest of what was found.

A keepsake says what was true at its revision, and may be some seconds old, or from before its
broker was away.  Options of a topic count only for the life of the topic that they were set for.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from waystation.cluster.image import ClusterImage
from waystation.model.errors import MetadataFormatError
from waystation.model.ids import TopicId

__all__ = ["FILE_NAME", "Keepsake", "KeptView", "is_same", "keepsake_of", "newest", "read_keepsake"]

FILE_NAME = "cluster-options.json"

Options = dict[str, str]


class KeptView(msgspec.Struct, frozen=True):
    """A view, as its value in the store has it."""

    id: TopicId
    on: str
    on_id: TopicId
    where: str


class KeptTopic(msgspec.Struct, frozen=True):
    """A topic's own options."""

    id: TopicId
    options: Options


class Keepsake(msgspec.Struct, frozen=True, tag_field="v", tag=1):
    """All of it, at one revision of the store."""

    cluster_id: str | None
    revision: int
    topics: dict[str, KeptTopic] = {}
    groups: dict[str, Options] = {}
    brokers: dict[str, Options] = {}
    views: dict[str, KeptView] = {}

    def encoded(self) -> bytes:
        """The file's content."""
        return msgspec.json.encode(self)


def is_same(one: ClusterImage, other: ClusterImage) -> bool:
    """Whether two images have the same to keep; costs nothing."""
    return (
        one.views is other.views
        and one.topic_configs is other.topic_configs
        and one.broker_configs is other.broker_configs
        and one.group_configs is other.group_configs
        and one.cluster_id == other.cluster_id
    )


def keepsake_of(image: ClusterImage) -> Keepsake:
    """What is to be kept of an image."""
    return Keepsake(
        image.cluster_id,
        image.revision,
        {
            name: KeptTopic(image.topics[name].id, dict(config.options))
            for name, config in image.topic_configs.items()
            if name in image.topics
        },
        {name: dict(config.options) for name, config in image.group_configs.items()},
        {name: dict(config.options) for name, config in image.broker_configs.items()},
        {
            name: KeptView(view.id, view.on, view.on_id, view.where)
            for name, view in image.views.items()
        },
    )


def read_keepsake(data: bytes | str | msgspec.Raw, where: str) -> Keepsake:
    """What a file says; ``where`` names it, should it be damaged."""
    try:
        return msgspec.json.decode(data, type=Keepsake)
    except msgspec.MsgspecError as problem:
        raise MetadataFormatError(where, str(problem)) from problem


def newest(keepsakes: Iterable[Keepsake | None], cluster_id: str | None) -> Keepsake | None:
    """The one that knows most of that cluster."""
    ours: list[Any] = [one for one in keepsakes if one is not None and one.cluster_id == cluster_id]
    return max(ours, key=lambda one: one.revision, default=None)
