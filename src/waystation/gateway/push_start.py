"""What a subscriber asks for, and where that begins."""

from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec
from msgspec import Meta

from waystation.client.errors import NoSuchPartitionError, PositionOutOfRangeError
from waystation.client.offsets import EARLIEST, LATEST
from waystation.gateway.groups import GroupName
from waystation.gateway.payloads import Values
from waystation.gateway.problems import ProblemError, refusal
from waystation.gateway.push_ids import NotAnIdError, Resume, mark_of, resumed
from waystation.gateway.push_subscriber import Wanted
from waystation.gateway.reading import filter_of, moment_of
from waystation.gateway.routes import Params
from waystation.gateway.topics import Offset as OffsetField
from waystation.gateway.topics import Partition, Since, TopicName, Where
from waystation.model.ids import TopicPartition
from waystation.model.offsets import Offset

if TYPE_CHECKING:
    from waystation.client.metadata import TopicView
    from waystation.gateway.clients import Clients

__all__ = ["SubscribeParams", "check_member", "wanted_by"]

_MOST_PARTITIONS: Final = 256
_ANEW: Final = "leave it away, and say from where on by from, since or offset"


class SubscribeParams(Params, frozen=True):
    """Which messages, and from where on: at the end of the topic, if nothing else is said."""

    topic: TopicName
    partition: (
        Annotated[Partition, Meta(description="Only this one; all, if not given.")] | None
    ) = None
    begin: Annotated[
        Literal["latest", "earliest"] | None,
        Meta(description="latest, which is the default, or earliest; of a group, where it is new."),
    ] = msgspec.field(name="from", default=None)
    offset: (
        Annotated[
            OffsetField, Meta(description="Begin there; needs partition, unless it is alone.")
        ]
        | None
    ) = None
    since: Since | None = None
    last_event_id: (
        Annotated[
            str,
            Meta(max_length=16_384, description="Go on behind the message that had this id."),
        ]
        | None
    ) = None
    where: Where | None = None
    values: Annotated[
        Values, Meta(description="How values are shown: what is not text, or not JSON, as base64.")
    ] = "text"
    group: (
        Annotated[
            GroupName,
            Meta(description="Share the topic with the other members of this consumer group."),
        ]
        | None
    ) = None
    heartbeat_ms: Annotated[
        int, Meta(ge=100, le=60_000, description="Say so often that all is well.")
    ] = 15_000


async def wanted_by(
    clients: "Clients", given: SubscribeParams, last_event_id: str | None = None
) -> Wanted:
    """What is asked for without a group; ``last_event_id`` is what a header says."""
    _check_one_start(given)
    chosen = None if given.where is None else filter_of(given.where)
    topic = await clients.topic(given.topic)
    # A browser that comes back repeats the address it was given, and knows better meanwhile.
    after = last_event_id or given.last_event_id
    said = _said(after) if after else None
    if said is not None and _is_news(said, topic):
        await clients.forget(topic.name)
        topic = await clients.topic(topic.name)
    partition = given.partition
    if partition is None and given.offset is not None and len(topic.partitions) == 1:
        partition = 0
    reading = [one.partition for one in topic.partitions] if partition is None else [partition]
    await _check_partitions(clients, topic, given, reading)
    if said is not None:
        positions = _resumed(said, topic, reading)
    else:
        positions = await _beginning(clients, topic, given, reading)
    return Wanted(topic, partition, positions, given.values, chosen, given.heartbeat_ms / 1_000)


def check_member(given: SubscribeParams) -> None:
    """A member of a group reads what the group gives it, from where the group is."""
    for name in ("partition", "offset", "since", "last_event_id"):
        if getattr(given, name) is not None:
            raise _invalid(
                name,
                f"{name} is not for members of a group: the group says what is read",
                f"leave group or {name} away",
            )
    if given.where is not None:
        filter_of(given.where)


def _check_one_start(given: SubscribeParams) -> None:
    said = [
        name
        for name, value in (
            ("last_event_id", given.last_event_id),
            ("offset", given.offset),
            ("since", given.since),
            ("from", given.begin),
        )
        if value is not None
    ]
    if len(said) > 1:
        raise _invalid(said[1], f"{said[0]} and {said[1]} exclude each other", "give one of them")


async def _check_partitions(
    clients: "Clients", topic: "TopicView", given: SubscribeParams, reading: list[int]
) -> None:
    there = len(topic.partitions)
    if given.partition is not None and given.partition >= there:
        await (await clients.router()).refresh()  # it may be new
        there = len((await clients.topic(topic.name)).partitions)
        if given.partition >= there:
            raise NoSuchPartitionError(TopicPartition(topic.name, given.partition), there)
    if given.offset is not None and len(reading) > 1:
        raise _invalid(
            "offset",
            f"topic {topic.name} has {there} partitions, and an offset is of one of them",
            f"name a partition, 0 to {there - 1}, or begin by from or since",
        )
    if len(reading) > _MOST_PARTITIONS:
        raise _invalid(
            "partition",
            f"topic {topic.name} has {there} partitions, at most {_MOST_PARTITIONS} are "
            "followed together",
            "name a partition, or be a member of a group",
        )


def _said(after: str) -> Resume:
    try:
        return resumed(after)
    except NotAnIdError as error:
        raise _invalid(
            "last_event_id",
            f"the id cannot be gone on from: {error}",
            f"an id as it came; or {_ANEW}",
        ) from None


def _is_news(said: Resume, topic: "TopicView") -> bool:
    """Whether an id is of a topic that was made anew, or has got partitions, as far as is known."""
    return said.mark != mark_of(topic.id) or max(said.positions) >= len(topic.partitions)


def _resumed(said: Resume, topic: "TopicView", reading: list[int]) -> dict[int, int]:
    mark, positions = said
    if mark != mark_of(topic.id):
        raise refusal(
            410,
            "topic-recreated",
            f"the id is of another topic, or of a topic {topic.name} that was deleted",
            field="last_event_id",
            remedy=_ANEW,
        )
    if not set(reading) & set(positions) or max(positions) >= len(topic.partitions):
        raise _invalid(
            "last_event_id",
            "the id is of other partitions than those that are asked for",
            f"the same partition as before; or {_ANEW}",
        )
    return {where: positions[where] for where in reading if where in positions}


async def _beginning(
    clients: "Clients", topic: "TopicView", given: SubscribeParams, reading: list[int]
) -> dict[int, int]:
    where = {number: TopicPartition(topic.name, number) for number in reading}
    admin = await clients.admin()
    ends = await admin.list_offsets(
        dict.fromkeys(where.values(), LATEST), isolation="read_committed"
    )
    if given.begin != "earliest" and given.since is None and given.offset is None:
        return {number: ends[one].offset for number, one in where.items()}
    moment = EARLIEST if given.since is None else moment_of(given.since)
    found = await admin.list_offsets(dict.fromkeys(where.values(), moment))
    if given.offset is not None:
        (one,) = where.values()
        begin, end = found[one].offset, ends[one].offset
        if not begin <= given.offset <= end:
            raise PositionOutOfRangeError(one, Offset(given.offset), begin, end)
        return {one.partition: given.offset}
    return {
        number: found[one].offset if found[one].offset >= 0 else ends[one].offset
        for number, one in where.items()
    }


def _invalid(field: str, detail: str, remedy: str) -> ProblemError:
    return refusal(400, "invalid-parameter", detail, field=field, remedy=remedy)
