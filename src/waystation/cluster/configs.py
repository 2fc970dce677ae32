"""Options that clients set while the cluster runs: how they are checked and changed.

Nothing is stored that does not parse.  Unknown names, wrong values and broker options that
need a restart are refused, all problems at once; nothing is changed then.

Where a topic and a broker have the same option under different names (``retention.ms``,
``log.retention.ms``), the declaration in ``model/topics.py`` knows both.  Which of several
values is in force is in ``effective.py``.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from waystation.cluster import keys
from waystation.cluster.changes import ABSENT, Changes
from waystation.cluster.image import ClusterImage
from waystation.cluster.parts import ConfigImage, TopicImage
from waystation.cluster.values import ConfigValue, encode
from waystation.model.errors import InvalidConfigError, InvalidRequestError
from waystation.model.settings import Option, options_of, unknown_option
from waystation.model.topics import TopicSettings


class Operation(IntEnum):
    """What an incremental alteration does to an option; Kafka's numbers."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Alteration(NamedTuple):
    """One option, and what shall become of it."""

    name: str
    operation: Operation
    value: str | None = None


def broker_level(one: Option) -> str:
    """The name by which a broker, not a topic, is given the option."""
    return one.kafka or one.name


def check_topic_options(options: Mapping[str, str | None]) -> dict[str, str]:
    """The options of a topic, if every one exists, its value may be, and they go together."""
    checked = _checked(options, _by_name(options_of(TopicSettings)))
    _check_together(checked)
    return checked


def alter_topic(image: ClusterImage, name: str, alterations: Sequence[Alteration]) -> Changes:
    """Change some options of a topic and leave the others."""
    topic, before = image.topic(name), image.topic_options(name)
    options = _altered(before.options, alterations, _by_name(options_of(TopicSettings)))
    _check_together(options)
    return _topic_changes(topic, before, options)


def replace_topic(image: ClusterImage, name: str, options: Mapping[str, str | None]) -> Changes:
    """Set a topic's options to exactly these."""
    topic, before = image.topic(name), image.topic_options(name)
    return _topic_changes(topic, before, check_topic_options(options))


def alter_broker(
    image: ClusterImage, name: str, alterations: Sequence[Alteration], options: Sequence[Option]
) -> Changes:
    """Change some options of broker ``name``, or of all: ``EVERY_BROKER``.

    ``options`` are all that a broker has; those of its topics are added here.
    """
    before = image.broker_options(name)
    known = _changeable(options, (each.name for each in alterations))
    return _changes(keys.broker_config(name), before, _altered(before.options, alterations, known))


def replace_broker(
    image: ClusterImage, name: str, texts: Mapping[str, str | None], options: Sequence[Option]
) -> Changes:
    """Set the options of broker ``name``, or of all, to exactly these."""
    checked = _checked(texts, _changeable(options, texts))
    return _changes(keys.broker_config(name), image.broker_options(name), checked)


def alter_group(
    image: ClusterImage, name: str, alterations: Sequence[Alteration], options: Sequence[Option]
) -> Changes:
    """Change some options of a group, by their own names or Kafka's; it need not exist yet."""
    before = image.group_options(name)
    own = {alias: one.name for alias, one in _by_any_name(options).items()}
    named = [each._replace(name=own.get(each.name, each.name)) for each in alterations]
    options_now = _altered(before.options, named, _by_name(options))
    return _changes(keys.group_config(name), before, options_now)


def replace_group(
    image: ClusterImage, name: str, texts: Mapping[str, str | None], options: Sequence[Option]
) -> Changes:
    """Set the options of a group to exactly these."""
    known = _by_any_name(options)
    checked = _checked(texts, known)
    own = {known[each].name: text for each, text in checked.items()}
    return _changes(keys.group_config(name), image.group_options(name), own)


# --- checking ---------------------------------------------------------------------------------


def _by_name(options: Iterable[Option]) -> dict[str, Option]:
    return {one.name: one for one in options}


def _by_any_name(options: Iterable[Option]) -> dict[str, Option]:
    return {name: one for one in options for name in (one.name, one.kafka) if name is not None}


def _by_broker_level(options: Iterable[Option]) -> dict[str, Option]:
    return {broker_level(one): one for one in options}


def _changeable(options: Sequence[Option], asked: Iterable[str]) -> dict[str, Option]:
    known = _by_broker_level((*options, *options_of(TopicSettings)))
    fixed = [name for name in asked if name in known and not known[name].live]
    if fixed:
        raise InvalidRequestError(
            f"{', '.join(fixed)} cannot change while the broker runs: set it and restart"
        )
    return known


def _altered(
    options: Mapping[str, str], alterations: Sequence[Alteration], known: Mapping[str, Option]
) -> dict[str, str]:
    named = Counter(each.name for each in alterations)
    twice = [name for name, times in named.items() if times > 1]
    if twice:
        raise InvalidRequestError(f"altered twice in one request: {', '.join(twice)}")
    altered = dict(options)
    changed: dict[str, str | None] = {}
    for name, operation, value in alterations:
        if operation is Operation.DELETE:
            altered.pop(name, None)
        elif operation is Operation.SET or name not in known:
            changed[name] = value
        else:
            changed[name] = _edited(altered.get(name), operation, value, known[name])
    return {**altered, **_checked(changed, known)}


def _edited(text: str | None, operation: Operation, value: str | None, one: Option) -> str:
    """A list with items added or taken away, in the order they were given."""
    if one.kind is not tuple:
        raise InvalidConfigError(f"cannot {operation.name} to {one.name}: it is not a list")
    items = _items(one.format(one.default) if text is None else text)
    edits = _items(value or "")
    if operation is Operation.APPEND:
        items += [item for item in dict.fromkeys(edits) if item not in items]
    else:
        items = [item for item in items if item not in edits]
    return one.format(tuple(items))


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _checked(texts: Mapping[str, str | None], known: Mapping[str, Option]) -> dict[str, str]:
    checked: dict[str, str] = {}
    problems = []
    for name, text in texts.items():
        if name not in known:
            problems.append(unknown_option(name, known))
        elif text is None:
            problems.append(f"{name} has no value")
        else:
            try:
                known[name].parse(text)
                checked[name] = text
            except ValueError as problem:
                problems.append(f"{name} {problem}")
    if problems:
        raise InvalidConfigError("; ".join(problems))
    return checked


def _check_together(options: Mapping[str, str]) -> None:
    """Refuse a topic's options that contradict each other; its broker's are not looked at."""
    least, most = options.get("min.compaction.lag.ms"), options.get("max.compaction.lag.ms")
    if least is not None and most is not None and int(least) > int(most):
        raise InvalidConfigError(
            f"min.compaction.lag.ms is {least}, more than max.compaction.lag.ms, {most}"
        )


def _topic_changes(topic: TopicImage, before: ConfigImage, options: Mapping[str, str]) -> Changes:
    """Void if the topic was deleted meanwhile: its options would outlive it."""
    changes = _changes(keys.topic_config(topic.name), before, options)
    return changes.guarded({keys.topic(topic.name): topic.version})


def _changes(key: str, before: ConfigImage, options: Mapping[str, str]) -> Changes:
    compares = {key: before.version}
    if options == before.options:
        return Changes(compares=compares)
    if not options:
        return Changes(compares=compares, deletes=[key] if before.version != ABSENT else ())
    return Changes(compares=compares, puts={key: encode(ConfigValue(options=dict(options)))})
