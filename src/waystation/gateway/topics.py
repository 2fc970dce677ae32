"""Topics: create, list, describe, configure, add partitions, delete, truncate."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated

import msgspec

from waystation.client.descriptions import ConfigEntry, TopicDescription
from waystation.client.offsets import EARLIEST, LATEST, OffsetAndTime
from waystation.filters.lexing import EXPRESSION_CHARACTERS
from waystation.gateway.problems import ProblemError, refusal
from waystation.gateway.routes import Call, Params, Route
from waystation.model.errors import (
    InvalidRequestError,
    InvalidTopicError,
    PolicyViolationError,
    WaystationError,
)
from waystation.model.ids import TopicPartition

if TYPE_CHECKING:
    from waystation.client.admin import Admin

__all__ = [
    "TOPICS",
    "After",
    "Config",
    "ConfigChange",
    "Count",
    "Limit",
    "OptionValue",
    "TopicName",
    "TopicParams",
    "as_text",
    "config_of",
    "page_of",
]

TopicName = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=249,
        pattern=r"^[a-zA-Z0-9._-]+$",
        description="Letters, digits, '.', '_' and '-'.",
        examples=["orders"],
    ),
]
Count = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
Partition = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Offset = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Since = Annotated[
    str,
    msgspec.Meta(description="Begin at that time: ISO 8601 with an offset, or ms since 1970."),
]
Where = Annotated[
    str,
    msgspec.Meta(
        max_length=EXPRESSION_CHARACTERS,
        description="An SQL condition, such as value.total > 10.",
    ),
]


After = Annotated[
    str, msgspec.Meta(max_length=4_096, description="The next of the last page: names behind it.")
]
Limit = Annotated[int, msgspec.Meta(ge=1, le=10_000)]

OptionValue = str | int | float | bool
"""Options are text; numbers and booleans may be written as what they are."""


class TopicParams(Params, frozen=True):
    """Which topic."""

    topic: TopicName


class ListParams(Params, frozen=True):
    """Which topics."""

    internal: Annotated[
        bool, msgspec.Meta(description="Also those that the cluster keeps for itself.")
    ] = False
    prefix: Annotated[
        str, msgspec.Meta(max_length=249, description="Those whose names begin so.")
    ] = ""
    after: After = ""
    limit: Limit = 1_000


class NewTopic(Params, frozen=True):
    """A topic to create; what is not given is the cluster's default."""

    name: TopicName
    partitions: Count | None = None
    replication_factor: Annotated[int, msgspec.Meta(ge=1, le=2**15 - 1)] | None = None
    config: dict[str, OptionValue] = msgspec.field(default_factory=dict)
    """Options by name, such as retention.ms."""


class Topic(msgspec.Struct, frozen=True):
    """A topic, briefly."""

    name: str
    id: str
    partitions: int
    replication_factor: int
    internal: bool = False


class Topics(msgspec.Struct, frozen=True):
    """A page of topics, by name."""

    topics: list[Topic]
    next: str | None
    """Where to go on, as ``after``; null at the end."""


class MorePartitions(Params, frozen=True):
    """How many partitions a topic is to have; it never gets fewer."""

    partitions: Count


class PartitionState(msgspec.Struct, frozen=True):
    """A partition: who leads it, who holds it, and which offsets it has."""

    partition: int
    leader: int | None
    replicas: list[int]
    in_sync: list[int]
    start_offset: int | None
    """The oldest message; null while there is no leader."""
    end_offset: int | None
    """Where the next message will be."""


class TopicDetails(msgspec.Struct, frozen=True):
    """A topic and its partitions."""

    name: str
    id: str
    internal: bool
    partitions: list[PartitionState]


class Option(msgspec.Struct, frozen=True):
    """An option of a topic, and where its value comes from."""

    value: str | None
    source: str
    documentation: str | None


class Config(msgspec.Struct, frozen=True):
    """The options of a topic by name."""

    config: dict[str, Option]


class ConfigChange(Params, frozen=True):
    """Options to set, and others to return to their default."""

    set: dict[str, OptionValue] = msgspec.field(default_factory=dict)
    unset: list[str] = msgspec.field(default_factory=list)


class Truncation(Params, frozen=True):
    """Messages before an offset are deleted; without one, all there are."""

    before: dict[str, Offset | None] = msgspec.field(default_factory=dict)
    """By partition, as text: {"0": 120}.  Null means everything."""


class Truncated(msgspec.Struct, frozen=True):
    """Where the partitions begin now."""

    start_offsets: dict[str, int]


async def create_topic(call: Call[None, NewTopic]) -> Topic:
    """Create a topic."""
    wanted, admin = call.body, await call.clients.admin()
    try:
        made = await admin.create_topic(
            wanted.name,
            wanted.partitions,
            replication_factor=wanted.replication_factor,
            configs=as_text(wanted.config),
        )
    except InvalidTopicError as error:
        raise _wrong(error, "name", "another name, such as orders") from None
    except PolicyViolationError as error:
        raise _wrong(error, "partitions", "fewer partitions") from None
    return Topic(made.name, str(made.id), made.partitions, made.replication_factor)


async def list_topics(call: Call[ListParams, None]) -> Topics:
    """Topics by name, a page of them."""
    admin, wanted = await call.clients.admin(), call.parameters
    found = {one.name: one for one in await admin.list_topics(internal=wanted.internal)}
    chosen = (name for name in found if name.startswith(wanted.prefix))
    names, further = page_of(chosen, wanted.after, wanted.limit)
    return Topics([_brief(found[name]) for name in names], further)


def page_of(names: Iterable[str], after: str, limit: int) -> tuple[list[str], str | None]:
    """The first names behind ``after``, in order, and where to go on."""
    rest = sorted(name for name in names if name > after)
    page = rest[:limit]
    return page, page[-1] if len(rest) > limit else None


async def add_partitions(call: Call[TopicParams, MorePartitions]) -> Topic:
    """Give a topic more partitions; new messages of a key may go to another than older ones."""
    admin, name = await call.clients.admin(), call.parameters.topic
    try:
        await admin.create_partitions(name, call.body.partitions)
    except PolicyViolationError as error:
        raise _wrong(error, "partitions", "fewer partitions") from None
    found = _brief(await admin.describe_topic(name))
    await call.clients.forget(name)
    return msgspec.structs.replace(found, partitions=call.body.partitions)


async def describe_topic(call: Call[TopicParams, None]) -> TopicDetails:
    """One topic; partitions that nobody leads have no offsets to tell."""
    admin, name = await call.clients.admin(), call.parameters.topic
    found = await admin.describe_topic(name)
    led = [(name, one.partition) for one in found.partitions if one.leader >= 0]
    starts = await admin.list_offsets(dict.fromkeys(led, EARLIEST))
    ends = await admin.list_offsets(dict.fromkeys(led, LATEST))
    return TopicDetails(
        name,
        str(found.id),
        found.internal,
        [
            PartitionState(
                one.partition,
                one.leader if one.leader >= 0 else None,
                list(one.replicas),
                list(one.in_sync),
                _offset(starts, name, one.partition),
                _offset(ends, name, one.partition),
            )
            for one in found.partitions
        ],
    )


async def delete_topic(call: Call[TopicParams, None]) -> None:
    """Delete a topic with everything in it."""
    admin = await call.clients.admin()
    try:
        await admin.delete_topic(call.parameters.topic)
    except InvalidRequestError as error:
        raise _wrong(error, "topic", "DELETE /v1/views/{view}, for each of its views") from None
    await call.clients.forget(call.parameters.topic)


async def get_config(call: Call[TopicParams, None]) -> Config:
    """The options in force."""
    admin = await call.clients.admin()
    return config_of(await admin.describe_configs(call.parameters.topic))


async def change_config(call: Call[TopicParams, ConfigChange]) -> Config:
    """Change some options; the rest stay as they are."""
    admin, topic = await call.clients.admin(), call.parameters.topic
    await admin.describe_topic(topic)
    if call.body.unset:
        _check_unset(call.body, await admin.describe_configs(topic))
    if call.body.set or call.body.unset:
        await admin.alter_configs(topic, set=as_text(call.body.set), unset=call.body.unset)
    return config_of(await admin.describe_configs(topic))


async def truncate_topic(call: Call[TopicParams, Truncation]) -> Truncated:
    """Delete the oldest messages, or all."""
    admin, topic = await call.clients.admin(), call.parameters.topic
    count = len((await admin.describe_topic(topic)).partitions)
    wanted = {_number(text, count): offset for text, offset in call.body.before.items()}
    before = wanted or dict.fromkeys(range(count))
    for number, offset in before.items():
        if offset is not None:
            await _check_within(admin, topic, number, offset)
    starts = await admin.delete_records({(topic, one): at for one, at in before.items()})
    return Truncated({str(where.partition): start for where, start in starts.items()})


def _check_unset(wanted: ConfigChange, known: Mapping[str, ConfigEntry]) -> None:
    """A misspelt option would stay as it is, and nobody would notice."""
    for name in wanted.unset:
        if name not in known or name in wanted.set:
            why = "is set in the same call" if name in wanted.set else "is no option of a topic"
            raise refusal(
                400,
                "invalid-field",
                f"{name} {why}",
                field="unset",
                remedy="GET /v1/topics/{topic}/config explains every option",
            )


def _wrong(error: WaystationError, field: str, remedy: str) -> ProblemError:
    return refusal(400, "invalid-field", str(error), field=field, remedy=remedy)


def _offset(told: Mapping[TopicPartition, OffsetAndTime], topic: str, partition: int) -> int | None:
    found = told.get(TopicPartition(topic, partition))
    return None if found is None else found.offset


def _number(text: str, count: int) -> int:
    if text.isascii() and text.isdigit() and int(text) < count:
        return int(text)
    raise refusal(
        400,
        "invalid-field",
        f"there is no partition {text!r}",
        field=f"before.{text}",
        remedy=f"the topic's partitions are 0 to {count - 1}",
    )


async def _check_within(admin: "Admin", topic: str, partition: int, offset: int) -> None:
    where = TopicPartition(topic, partition)
    end = (await admin.list_offsets({where: LATEST}))[where].offset
    if offset > end:
        raise refusal(
            416,
            "offset-out-of-range",
            f"partition {where} ends at offset {end}, so nothing comes before {offset}",
            field=f"before.{partition}",
            remedy=f"{end} at most, or null for everything",
        )


def _brief(topic: TopicDescription) -> Topic:
    replicas = min((len(one.replicas) for one in topic.partitions), default=0)
    return Topic(topic.name, str(topic.id), len(topic.partitions), replicas, topic.internal)


def as_text(options: Mapping[str, OptionValue]) -> dict[str, str]:
    """Options as they are kept: ``true`` is "true"."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in options.items()
    }


def config_of(entries: Mapping[str, ConfigEntry]) -> Config:
    """Options as they are shown."""
    return Config(
        {
            one.name: Option(one.value, one.source.name.lower(), one.documentation)
            for one in entries.values()
        }
    )


TOPICS = [
    Route(
        method="POST",
        path="/v1/topics",
        summary="Create a topic",
        tag="topics",
        handler=create_topic,
        body=NewTopic,
        answer=Topic,
        status=201,
        errors=(409, 504),
    ),
    Route(
        method="GET",
        path="/v1/topics",
        summary="List topics",
        tag="topics",
        handler=list_topics,
        parameters=ListParams,
        answer=Topics,
    ),
    Route(
        method="GET",
        path="/v1/topics/{topic}",
        summary="Describe a topic and its partitions",
        tag="topics",
        handler=describe_topic,
        parameters=TopicParams,
        answer=TopicDetails,
        errors=(504,),
    ),
    Route(
        method="DELETE",
        path="/v1/topics/{topic}",
        summary="Delete a topic with all its messages",
        tag="topics",
        handler=delete_topic,
        parameters=TopicParams,
        status=204,
        errors=(403, 504),
    ),
    Route(
        method="GET",
        path="/v1/topics/{topic}/config",
        summary="The options of a topic, explained",
        tag="topics",
        handler=get_config,
        parameters=TopicParams,
        answer=Config,
    ),
    Route(
        method="PATCH",
        path="/v1/topics/{topic}/config",
        summary="Change options of a topic",
        tag="topics",
        handler=change_config,
        parameters=TopicParams,
        body=ConfigChange,
        answer=Config,
        errors=(403, 504),
    ),
    Route(
        method="POST",
        path="/v1/topics/{topic}/partitions",
        summary="Give a topic more partitions",
        tag="topics",
        handler=add_partitions,
        parameters=TopicParams,
        body=MorePartitions,
        answer=Topic,
        errors=(403, 409, 504),
    ),
    Route(
        method="POST",
        path="/v1/topics/{topic}/truncate",
        summary="Delete the oldest messages of a topic, or all",
        tag="topics",
        handler=truncate_topic,
        parameters=TopicParams,
        body=Truncation,
        body_optional=True,
        answer=Truncated,
        errors=(403, 416, 504),
    ),
]
