"""The options of ``spark.read.format("waystation")``, documented where they are declared.

Names, meanings and defaults are those of Spark's own Kafka source, and its spellings with
``kafka.`` in front are understood (``option_names.py``).  An option that nobody declared is an
error: one that is silently passed over is found out much later.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NamedTuple

from waystation.filters.selecting import Filter
from waystation.model.errors import InvalidFilterError
from waystation.model.ids import TopicPartition
from waystation.model.settings import option
from waystation.spark.errors import BadOptionError
from waystation.spark.offsets import parse_offsets, parse_partitions
from waystation.spark.option_names import (
    CONNECTION,
    PATIENCE,
    Vocabulary,
    by_spelling,
    checked_bootstrap,
    connection_options,
    milliseconds,
    parsed,
)
from waystation.spark.planning import EARLIEST, LATEST, Limits, Position

__all__ = ["ReadOptions", "SourceSettings", "Topics", "parse_options"]

READ_COMMITTED: Final = "read_committed"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSettings:
    """What a user may say, each as text; empty or 0 is as if it were not said."""

    bootstrap_servers: str = option(
        "",
        name="bootstrap.servers",
        doc="Brokers to begin with, `host:port`, several separated by commas. Required.",
    )
    subscribe: str = option(
        "",
        doc="Topics to read, separated by commas. Give this, subscribePattern or assign.",
    )
    subscribe_pattern: str = option(
        "",
        name="subscribePattern",
        doc="Read every topic whose whole name matches this regular expression; topics that "
        "are made later are picked up.",
    )
    assign: str = option(
        "",
        doc='Read these partitions only, as JSON: `{"orders": [0, 1]}`. No others are picked up.',
    )
    starting_offsets: str = option(
        "",
        name="startingOffsets",
        doc="Where to begin: `earliest`, `latest`, or an offset for every partition as JSON, "
        '`{"orders": {"0": 23, "1": -2}}`, where -2 is the earliest and -1 the latest. A '
        "stream that has a checkpoint goes on from there instead. By default earliest, for "
        "streams latest.",
    )
    ending_offsets: str = option(
        "",
        name="endingOffsets",
        doc="Where a batch read ends, written as startingOffsets; the offset itself is not "
        "read. By default latest.",
    )
    starting_timestamp: str = option(
        "",
        name="startingTimestamp",
        doc="Begin with the first record at or after this time: milliseconds since 1970, or "
        "`2026-11-15T12:00:00Z`.",
    )
    ending_timestamp: str = option(
        "",
        name="endingTimestamp",
        doc="A batch read ends before the first record at or after this time.",
    )
    starting_offsets_by_timestamp: str = option(
        "",
        name="startingOffsetsByTimestamp",
        doc="As startingTimestamp, with milliseconds for every partition as JSON.",
    )
    ending_offsets_by_timestamp: str = option(
        "",
        name="endingOffsetsByTimestamp",
        doc="As endingTimestamp, with milliseconds for every partition as JSON.",
    )
    starting_offsets_by_timestamp_strategy: str = option(
        "error",
        name="startingOffsetsByTimestampStrategy",
        choices=("error", "latest"),
        doc="What to do if a partition has no record as young as the time to begin with: stop "
        "with an error, or begin at its end.",
    )
    max_offsets_per_trigger: int = option(
        0,
        name="maxOffsetsPerTrigger",
        at_least=0,
        doc="The most offsets in one micro-batch, shared out by how far partitions are "
        "behind; each that is behind gets at least one.",
    )
    min_offsets_per_trigger: int = option(
        0,
        name="minOffsetsPerTrigger",
        at_least=0,
        doc="Wait until a micro-batch has this many offsets, or for maxTriggerDelay. "
        "Trigger.AvailableNow does not wait.",
    )
    max_trigger_delay: str = option(
        "15m",
        name="maxTriggerDelay",
        doc="The longest wait for minOffsetsPerTrigger: `90s`, `15m`, `1h`.",
    )
    max_bytes_per_trigger: int = option(
        0,
        name="maxBytesPerTrigger",
        at_least=0,
        doc="About the most bytes in one micro-batch, as they are stored: compressed. It is "
        "counted in offsets by what an offset of the partition takes on the brokers' disks on "
        "average.",
    )
    min_partitions: int = option(
        0,
        name="minPartitions",
        at_least=0,
        doc="At least this many tasks, if there are as many offsets: large partitions are cut. "
        "By default each partition is one task.",
    )
    fail_on_data_loss: bool = option(
        True,
        name="failOnDataLoss",
        doc="Whether offsets that are no longer there stop the query; if not, they are passed "
        "over with a warning.",
    )
    include_headers: bool = option(
        False,
        name="includeHeaders",
        doc="Whether there is a column `headers`.",
    )
    isolation_level: str = option(
        READ_COMMITTED,
        name="isolationLevel",
        choices=(READ_COMMITTED, "read_uncommitted"),
        doc="Whether records of transactions are held back until these are committed, and left "
        "out if they are aborted.",
    )
    group_id: str = option(
        "",
        name="groupId",
        doc="Publish a stream's progress as the offsets of this group, so that `waystation "
        "group describe` shows its lag. Where the stream goes on is decided by its "
        "checkpoint alone. The group must not have members.",
    )
    where: str = option(
        "",
        doc="Only rows of which this condition is true, in the grammar of [filters]"
        "(../filters.md): `value.country = 'DE'`. Tasks leave the others out before Spark sees "
        "them; they count as read.",
    )


class Topics(NamedTuple):
    """What is read; one of the three is given."""

    names: tuple[str, ...] = ()
    pattern: str = ""
    partitions: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What the user said, understood; ``client`` holds the client's own options as text."""

    bootstrap: str
    topics: Topics
    starting: Position
    ending: Position
    late_is_an_error: bool
    limits: Limits
    min_partitions: int
    fail_on_data_loss: bool
    include_headers: bool
    isolation: str
    group_id: str
    where: str
    client: dict[str, str]


def parse_options(texts: Mapping[str, str], *, stream: bool | None) -> ReadOptions:
    """Understand options as Spark hands them over; ``BadOptionError`` names the first problem.

    While Spark has not said whether it reads a ``stream``, what suits either is right.
    """
    said, client = _NAMES.sorted_out(texts)
    settings = SourceSettings(**{known.field: parsed(known, said[known]) for known in said})
    connection_options(client)
    _refuse_limits_of_nothing(settings)
    return ReadOptions(
        bootstrap=checked_bootstrap(settings.bootstrap_servers),
        topics=_topics(settings),
        starting=_starting(settings, stream),
        ending=_ending(settings, stream),
        late_is_an_error=settings.starting_offsets_by_timestamp_strategy == "error",
        limits=Limits(
            settings.max_offsets_per_trigger,
            settings.min_offsets_per_trigger,
            settings.max_bytes_per_trigger,
            milliseconds("maxTriggerDelay", settings.max_trigger_delay),
        ),
        min_partitions=settings.min_partitions,
        fail_on_data_loss=settings.fail_on_data_loss,
        include_headers=settings.include_headers,
        isolation=settings.isolation_level,
        group_id=settings.group_id,
        where=_condition(settings.where),
        client={**PATIENCE, **client},
    )


# --- names --------------------------------------------------------------------------------------

_NAMES: Final = Vocabulary(
    known=by_spelling(SourceSettings),
    client=CONNECTION,
    kafka_names={
        "bootstrap.servers": "bootstrap.servers",
        "group.id": "groupid",
        "isolation.level": "isolationlevel",
    },
    instead={
        "path": "a topic is no path: name it with subscribe",
        "topic": "name topics to read with subscribe",
        "topics": "name topics to read with subscribe",
        "auto.offset.reset": "say where to begin with startingOffsets",
        "enable.auto.commit": "set groupId to publish progress as a group's offsets",
        "groupidprefix": "there is no group behind a read; groupId publishes its progress as one",
        "fetchoffset.numretries": "say for how long to retry with kafka.max.block.ms",
        "fetchoffset.retryintervalms": "say how often to retry with kafka.retry.backoff.ms",
        "kafkaconsumer.polltimeoutms": "say how long to wait with kafka.request.timeout.ms",
    },
)


# --- meanings -----------------------------------------------------------------------------------


def _condition(where: str) -> str:
    """The condition, found right where a query is written and not where its tasks run."""
    try:
        return Filter(where).expression if where else ""
    except InvalidFilterError as error:
        raise BadOptionError(f"where: {error}") from None


def _topics(settings: SourceSettings) -> Topics:
    given = [
        name
        for name, text in (
            ("subscribe", settings.subscribe),
            ("subscribePattern", settings.subscribe_pattern),
            ("assign", settings.assign),
        )
        if text
    ]
    if len(given) != 1:
        found = " and ".join(given) if given else "none"
        raise BadOptionError(
            f"one of subscribe, subscribePattern and assign says what to read; {found} given"
        )
    if settings.assign:
        return Topics(partitions=parse_partitions("assign", settings.assign))
    if settings.subscribe_pattern:
        try:
            re.compile(settings.subscribe_pattern)
        except (re.error, OverflowError, RecursionError) as problem:
            raise BadOptionError(
                f"subscribePattern is {settings.subscribe_pattern!r}, no regular expression: "
                f"{problem}"
            ) from None
        return Topics(pattern=settings.subscribe_pattern)
    names = sorted({name.strip() for name in settings.subscribe.split(",") if name.strip()})
    if not names:
        raise BadOptionError("subscribe names no topic: separate names by commas")
    return Topics(names=tuple(names))


def _starting(settings: SourceSettings, stream: bool | None) -> Position:
    position = _position(
        ("startingOffsets", settings.starting_offsets),
        ("startingTimestamp", settings.starting_timestamp),
        ("startingOffsetsByTimestamp", settings.starting_offsets_by_timestamp),
        LATEST if stream else EARLIEST,
    )
    if stream is False:
        _refuse_edge(position, LATEST, "begin at the latest offset, where nothing follows")
    return position


def _ending(settings: SourceSettings, stream: bool | None) -> Position:
    given = (
        ("endingOffsets", settings.ending_offsets),
        ("endingTimestamp", settings.ending_timestamp),
        ("endingOffsetsByTimestamp", settings.ending_offsets_by_timestamp),
    )
    if stream and (wrong := [name for name, text in given if text]):
        raise BadOptionError(
            f"{wrong[0]} is for batch reads: a stream has no end; leave it away, or use spark.read"
        )
    position = _position(*given, LATEST)
    _refuse_edge(position, EARLIEST, "end at the earliest offset, before which nothing comes")
    return position


def _position(
    offsets: tuple[str, str], time: tuple[str, str], times: tuple[str, str], default: int
) -> Position:
    given = [name for name, text in (offsets, time, times) if text]
    if len(given) > 1:
        raise BadOptionError(f"{' and '.join(given)} contradict each other: give one of them")
    if time[1]:
        return Position(time[0], _moment(*time), {}, by_time=True)
    if times[1]:
        return Position(times[0], None, parse_offsets(*times, lowest=0), by_time=True)
    word = {"": default, "earliest": EARLIEST, "latest": LATEST}.get(offsets[1].strip().lower())
    if word is not None:
        return Position(offsets[0], word, {})
    if not offsets[1].lstrip().startswith("{"):
        raise BadOptionError(
            f"{offsets[0]} is {offsets[1]!r}, must be earliest, latest or an offset for every "
            'partition as JSON: {"orders": {"0": 23, "1": 7}}'
        )
    return Position(offsets[0], None, parse_offsets(*offsets, lowest=EARLIEST))


def _refuse_edge(position: Position, edge: int, why: str) -> None:
    if not position.by_time and edge in (position.everywhere, *position.each.values()):
        raise BadOptionError(f"{position.option}: a batch read cannot {why}")


def _refuse_limits_of_nothing(settings: SourceSettings) -> None:
    most, least = settings.max_offsets_per_trigger, settings.min_offsets_per_trigger
    if most and least > most:
        raise BadOptionError(
            f"minOffsetsPerTrigger is {least}, more than maxOffsetsPerTrigger ({most}): lower it"
        )


def _moment(name: str, text: str) -> int:
    said = text.strip()
    if said.isascii() and said.isdigit() and int(said) < 1 << 63:
        return int(said)
    try:
        moment = datetime.fromisoformat(said)
    except ValueError:
        raise BadOptionError(
            f"{name} is {text!r}, no time: give milliseconds since 1970, or as in "
            "2026-11-15T12:00:00Z"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(int(moment.timestamp() * 1_000), 0)
