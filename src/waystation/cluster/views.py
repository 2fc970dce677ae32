"""Views: topics that can only be read, and show some of another topic's messages.

A view has no partitions, replicas or options of its own.  It has a name, an id, a topic and an
expression, and everything else is the topic's: leaders, epochs, offsets, how many partitions there
are.  So a view grows with its topic, moves with it, and costs no disk.

1. A view exists only while its topic does: one is made only if the topic is not deleted meanwhile,
   and a topic that has views is not deleted.
2. A name is a topic's or a view's, never both.
3. What a view shows never changes: positions that groups committed keep their meaning.

What the expression may say is in ``filters/``, which this package does not know: who understands
it is handed in.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from waystation.cluster import keys
from waystation.cluster.changes import ABSENT, Changes
from waystation.cluster.image import ClusterImage
from waystation.cluster.parts import TopicImage, ViewImage
from waystation.cluster.values import TopicValue, ViewValue, encode
from waystation.model.errors import (
    InvalidConfigError,
    InvalidFilterError,
    InvalidRequestError,
    InvalidTopicError,
    UnknownTopicError,
    UnknownTopicIdError,
)
from waystation.model.ids import TopicId
from waystation.model.settings import option

ON: Final = "view.on"
WHERE: Final = "view.where"

Understand = Callable[[str], object]
"""Reads an expression, and raises ``InvalidFilterError`` if it is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewSettings:
    """What makes a topic a view, given when it is created; never changed."""

    view_on: str = option(
        "",
        doc="The topic that this view is of. A view has its partitions and offsets, holds nothing "
        "itself and cannot be written to.",
    )
    view_where: str = option(
        "",
        doc="Which messages of the topic the view shows: an expression as docs/filters.md has it.",
    )


class Wanted(NamedTuple):
    """A view that may be made."""

    base: TopicImage
    where: str

    @property
    def options(self) -> dict[str, str]:
        """It as its creator said it."""
        return {ON: self.base.name, WHERE: self.where}


def is_wanted(options: Mapping[str, str | None]) -> bool:
    """Whether a topic that is asked for with these options is to be a view."""
    return ON in options or WHERE in options


def check_view(
    image: ClusterImage, options: Mapping[str, str | None], understand: Understand
) -> Wanted:
    """What the options of a new view say, if it may be."""
    on, where = options.get(ON), options.get(WHERE)
    if not on or not where:
        missing = WHERE if on else ON
        raise InvalidConfigError(f"a view needs both {ON} and {WHERE}; {missing} is missing")
    others = [name for name in options if name not in (ON, WHERE)]
    if others:
        raise InvalidConfigError(
            f"a view has no options but {ON} and {WHERE}; set {', '.join(others)} of {on}"
        )
    base = _base(image, on)
    try:
        understand(where)
    except InvalidFilterError as error:
        raise InvalidConfigError(f"{WHERE}: {error}") from error
    return Wanted(base, where)


def create_view(name: str, view_id: TopicId, wanted: Wanted) -> Changes:
    """Let the view exist, unless a namesake comes or its topic goes meanwhile.

    The topic is written anew as it is: who was about to delete it looks again, and finds a view.
    """
    base = wanted.base
    topic = TopicValue(id=base.id, replicas=base.assignment)
    view = ViewValue(id=view_id, on=base.name, on_id=base.id, where=wanted.where)
    return Changes(
        compares={
            keys.view(name): ABSENT,
            keys.topic(name): ABSENT,
            keys.topic(base.name): base.version,
        },
        puts={keys.view(name): encode(view), keys.topic(base.name): encode(topic)},
    )


def delete_view(view: ViewImage) -> Changes:
    """Let the view exist no more; its topic stays as it is."""
    return Changes(compares={keys.view(view.name): view.version}, deletes=[keys.view(view.name)])


def check_without_views(image: ClusterImage, topic: TopicImage) -> None:
    """Refuse to delete a topic whose views somebody may read."""
    views = [view.name for view in image.views.values() if view.on_id == topic.id]
    if views:
        raise InvalidRequestError(
            f"topic {topic.name!r} has views; delete them first: {', '.join(sorted(views))}"
        )


def orphans(image: ClusterImage) -> Iterator[ViewImage]:
    """Views whose topic is gone all the same: somebody emptied the store by hand."""
    return (view for view in image.views.values() if view.on_id not in image.topics_by_id)


# --- what is shown to readers ---------------------------------------------------------------


def shown_names(image: ClusterImage) -> list[str]:
    """Topics, and views, which clients take for topics."""
    if not image.views:
        return list(image.topics)
    gone = {view.name for view in orphans(image)}
    return [*image.topics, *(name for name in image.views if name not in gone)]


def find_shown(image: ClusterImage, name: str) -> TopicImage | None:
    """The topic or view of that name, a view with its topic's partitions."""
    found = image.topics.get(name)
    if found is None and name in image.views:
        return _as_topic(image, image.views[name])
    return found


def find_shown_by_id(image: ClusterImage, topic_id: TopicId) -> TopicImage | None:
    """The topic or view with that id."""
    found = image.topics_by_id.get(topic_id)
    if found is None and topic_id in image.views_by_id:
        return _as_topic(image, image.views_by_id[topic_id])
    return found


def shown(image: ClusterImage, name: str) -> TopicImage:
    """The topic or view of that name, which must exist."""
    found = find_shown(image, name)
    if found is None:
        raise UnknownTopicError(f"there is no topic {name!r}")
    return found


def shown_by_id(image: ClusterImage, topic_id: TopicId) -> TopicImage:
    """The topic or view with that id, which must exist."""
    found = find_shown_by_id(image, topic_id)
    if found is None:
        raise UnknownTopicIdError(f"there is no topic with id {topic_id}")
    return found


def _as_topic(image: ClusterImage, view: ViewImage) -> TopicImage | None:
    base = image.topics_by_id.get(view.on_id)
    if base is None:
        return None
    return TopicImage(view.name, view.id, base.partitions, view.version)


def _base(image: ClusterImage, on: str) -> TopicImage:
    if on in image.views:
        of = image.views[on]
        raise InvalidTopicError(
            f"{on} is a view itself: make the view on {of.on}, where ({of.where}) AND (...)"
        )
    base = image.topics.get(on)
    if base is None:
        raise UnknownTopicError(f"there is no topic {on!r} to make a view on")
    if base.internal:
        raise InvalidTopicError(f"{on} is the cluster's own: there are no views on it")
    return base
