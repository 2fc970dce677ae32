"""Which value of an option is in force, and why.

A topic's own options win over those of its broker, these over those of all brokers, these over
the settings the broker was started with, and these over the defaults.  What is stored and does
not parse, because another version wrote it, is as if it were not there.

One default is not the same for all: where there are three replicas or more, two must be in sync.
Others follow the profile in force, a topic's own or its broker's.  The cluster's own topics have no
profile but their own: whoever commits an offset waits for them.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from enum import IntEnum
from typing import NamedTuple, TypeVar

from waystation.cluster import keys
from waystation.cluster.configs import broker_level
from waystation.cluster.image import ClusterImage
from waystation.cluster.parts import INTERNAL_TOPICS, TopicImage
from waystation.model.ids import NodeId
from waystation.model.settings import BALANCED, PROFILE, PROFILES, Option, options_of, profiled
from waystation.model.topics import TopicSettings

T = TypeVar("T")

_AFTER_ARCHIVE, _AFTER_ACK = "retention.after.archive", "retention.after.ack"
_MIN_INSYNC = "min.insync.replicas"


class Source(IntEnum):
    """Where an option's value comes from; Kafka's numbers."""

    TOPIC = 1
    BROKER = 2
    EVERY_BROKER = 3
    STATIC = 4
    DEFAULT = 5
    GROUP = 8


class Setting(NamedTuple):
    """A value somebody gave an option, and who."""

    name: str
    value: str
    source: Source


class Explained(NamedTuple):
    """An option with its value in force, and all values it was given, the winner first."""

    option: Option
    name: str
    given: tuple[Setting, ...]

    @property
    def value(self) -> str:
        """The text of the value in force."""
        return self.given[0].value

    @property
    def source(self) -> Source:
        """Who gave the value in force."""
        return self.given[0].source


def topic_settings(
    image: ClusterImage,
    name: str,
    node: NodeId,
    static: TopicSettings,
    static_names: Collection[str] = (),
) -> TopicSettings:
    """The options of a topic in force on ``node``, which was started with ``static``.

    ``static_names`` are those that somebody gave it: a default must not be taken for a wish.
    """
    own = image.topic_options(name).options
    with_broker = broker_settings(image, node, static)
    settings = _overlaid(with_broker, own, _own_name)
    layers = [image.topic_options(name), image.broker_options(), image.broker_options(str(node))]
    if settings.profile != BALANCED:
        if not _may_inherit_profile(name, own):
            settings = replace(settings, profile=BALANCED)
        known = _fields_set(image, name, node, static_names)
        settings = profiled(settings, settings.profile, known)
    if _MIN_INSYNC in static_names or any(_MIN_INSYNC in each.options for each in layers):
        return settings
    least = max(settings.min_insync_replicas, _default_min_insync(image, name))
    if least == settings.min_insync_replicas:
        return settings
    return replace(settings, min_insync_replicas=least)


def _fields_set(
    image: ClusterImage, name: str, node: NodeId, static_names: Collection[str]
) -> set[str]:
    """The options of a topic that have a value of their own, whoever gave it."""
    own = image.topic_options(name).options
    return {
        one.field
        for one in options_of(TopicSettings)
        if (one.name in own and _parses(one, own[one.name]))
        or broker_level(one) in static_names
        or len(_given(image, node, {}, one)) > 1
    }


def _may_inherit_profile(name: str, own: Mapping[str, str]) -> bool:
    return name not in INTERNAL_TOPICS or own.get(PROFILE, "").strip() in PROFILES


def _default_min_insync(image: ClusterImage, name: str) -> int:
    """With three replicas one may be missing; with two, both would have to be there always."""
    topic = image.topics.get(name)
    return 2 if topic and replication_factor(image, topic) > 2 else 1


def replication_factor(image: ClusterImage, topic: TopicImage) -> int:
    """How many replicas each of its partitions has at least, while and after it is moved.

    Those that are only on their way do not count: nobody can ask for their acknowledgement.
    """
    moving = image.reassignments.get(topic.id, {})
    return min(
        min(len(moving[number].origin), len(moving[number].target))
        if number in moving
        else len(partition.replicas)
        for number, partition in enumerate(topic.partitions)
    )


def archive_groups(image: ClusterImage, node: NodeId, static: TopicSettings) -> frozenset[str]:
    """The groups that some topic waits for before it lets records go."""
    defaults = broker_settings(image, node, static)
    named = [defaults.retention_after_archive, *defaults.retention_after_ack]
    for own in image.topic_configs.values():
        named.append(own.options.get(_AFTER_ARCHIVE, ""))
        named += own.options.get(_AFTER_ACK, "").split(",")
    return frozenset(group.strip() for group in named if group.strip())


def broker_settings(image: ClusterImage, node: NodeId, static: T) -> T:
    """``static`` with what was set for all brokers and for ``node`` since."""
    for name in (keys.EVERY_BROKER, str(node)):
        static = _overlaid(static, image.broker_options(name).options, broker_level)
    return static


def explain_topic(
    image: ClusterImage, name: str, node: NodeId, static: Mapping[str, str]
) -> list[Explained]:
    """Every option of a topic: what it is and why; ``static`` has broker-level names."""
    own = image.topic_options(name).options
    explained = []
    inherits = _may_inherit_profile(name, own)
    profile = _profile_of_broker(image, node, static) if inherits else BALANCED
    if own.get(PROFILE, "").strip() in PROFILES:
        profile = own[PROFILE].strip()
    for one in options_of(TopicSettings):
        given = _by_profile(_given(image, node, static, one), one, profile)
        if one.name == _MIN_INSYNC:
            least = str(_default_min_insync(image, name))
            given = (*given[:-1], given[-1]._replace(value=least))
        if one.name == PROFILE and not inherits:
            given = given[-1:]
        if one.name in own and _parses(one, own[one.name]):
            given = (Setting(one.name, own[one.name], Source.TOPIC), *given)
        explained.append(Explained(one, one.name, given))
    return explained


def explain_broker(
    image: ClusterImage, node: NodeId, static: Mapping[str, str], options: Sequence[Option]
) -> list[Explained]:
    """Every option of a broker, its topics' defaults included: what it is and why."""
    of_topics = options_of(TopicSettings)
    # What sockets are like was settled when the broker started; topics follow a change at once.
    profiles = (static.get(PROFILE, BALANCED).strip(), _profile_of_broker(image, node, static))
    return [
        Explained(
            one, broker_level(one), _by_profile(_given(image, node, static, one), one, profile)
        )
        for some, profile in zip((options, of_topics), profiles, strict=True)
        for one in some
    ]


def _profile_of_broker(image: ClusterImage, node: NodeId, static: Mapping[str, str]) -> str:
    (one,) = [each for each in options_of(TopicSettings) if each.name == PROFILE]
    return _given(image, node, static, one)[0].value.strip()


def _by_profile(given: tuple[Setting, ...], one: Option, profile: str) -> tuple[Setting, ...]:
    """``given`` with the default of a profile before the one for everybody."""
    if profile not in one.profiles:
        return given
    text = one.format(one.profiles[profile])
    return (*given[:-1], Setting(PROFILE, text, Source.DEFAULT), given[-1])


def group_settings(image: ClusterImage, group_id: str, base: T) -> T:
    """``base`` with what was set for the group itself."""
    return _overlaid(base, image.group_options(group_id).options, _own_name)


def explain_group(image: ClusterImage, group_id: str, bases: Sequence[object]) -> list[Explained]:
    """Every option of a group, also under Kafka's name; what ``bases`` say is the default."""
    own, explained = image.group_options(group_id).options, []
    for base in bases:
        for one in options_of(type(base)):
            text = one.format(getattr(base, one.field))
            for name in (one.name, one.kafka):
                if name is None:
                    continue
                given: tuple[Setting, ...] = (Setting(name, text, Source.DEFAULT),)
                if one.name in own and _parses(one, own[one.name]):
                    given = (Setting(name, own[one.name], Source.GROUP), *given)
                explained.append(Explained(one, name, given))
    return explained


def _given(
    image: ClusterImage, node: NodeId, static: Mapping[str, str], one: Option
) -> tuple[Setting, ...]:
    name = broker_level(one)
    layers = (
        (Source.BROKER, image.broker_options(str(node)).options),
        (Source.EVERY_BROKER, image.broker_options().options),
        (Source.STATIC, static),
        (Source.DEFAULT, {name: one.format(one.default)}),
    )
    return tuple(
        Setting(name, texts[name], source)
        for source, texts in layers
        if name in texts and _parses(one, texts[name])
    )


def _own_name(one: Option) -> str:
    return one.name


def _overlaid(base: T, texts: Mapping[str, str], name_of: Callable[[Option], str]) -> T:
    if not texts:
        return base
    values = {
        one.field: one.parse(texts[name_of(one)])
        for one in options_of(type(base))
        if name_of(one) in texts and _parses(one, texts[name_of(one)])
    }
    return replace(base, **values)  # type: ignore[type-var]


def _parses(one: Option, text: str) -> bool:
    try:
        one.parse(text)
    except ValueError:
        return False
    return True
