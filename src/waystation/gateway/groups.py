"""Consumer groups: list, describe with lag, reset, delete."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta

from waystation.client.group_descriptions import PartitionLag
from waystation.client.offsets import LATEST
from waystation.client.resets import By, ResetTo
from waystation.client.timing import moment_ms
from waystation.gateway.payloads import Moment
from waystation.gateway.problems import refusal
from waystation.gateway.routes import Call, Params, Route
from waystation.gateway.topics import After, Limit, Offset, Partition, TopicName, page_of
from waystation.model.errors import InvalidRequestError
from waystation.model.ids import TopicPartition

if TYPE_CHECKING:
    from waystation.client.admin import Admin

__all__ = ["GROUPS"]

GroupName = Annotated[str, Meta(min_length=1, max_length=4_096)]


class GroupParams(Params, frozen=True):
    """Which group."""

    group: GroupName


class Group(msgspec.Struct, frozen=True):
    """A group, briefly."""

    group: str
    state: str
    kind: str
    coordinator: int


class ListParams(Params, frozen=True):
    """Which groups."""

    prefix: Annotated[str, Meta(max_length=4_096, description="Those whose names begin so.")] = ""
    after: After = ""
    limit: Limit = 1_000


class Groups(msgspec.Struct, frozen=True):
    """A page of groups, by name."""

    groups: list[Group]
    next: str | None
    """Where to go on, as ``after``; null at the end."""


class TopicAndPartition(msgspec.Struct, frozen=True):
    """A partition of a topic."""

    topic: str
    partition: int


class Member(msgspec.Struct, frozen=True):
    """A member, and what it reads."""

    member: str
    client: str
    host: str
    assignment: list[TopicAndPartition]


class Lag(msgspec.Struct, frozen=True):
    """How far a group is behind in one partition."""

    topic: str
    partition: int
    committed_offset: int | None
    """Of a queue: everything before is settled."""
    end_offset: int
    messages: int | None
    """How many wait; null where nothing was committed."""
    oldest_ms: int | None
    """The timestamp of the oldest of them."""


class GroupDetails(msgspec.Struct, frozen=True):
    """A group, its members and its lag; more about queues: GET /v1/queues/{queue}."""

    group: str
    kind: str
    state: str
    assignor: str
    members: list[Member]
    lag: list[Lag]


class At(Params, frozen=True):
    """A partition of a topic; all of them if none is named."""

    topic: TopicName
    partition: Partition | None = None


class Reset(Params, frozen=True):
    """Where a group without members is to go on: exactly one of the first four."""

    to: Literal["earliest", "latest"] | None = None
    offset: Offset | None = None
    since: (
        Annotated[Moment, Meta(description="ISO 8601 with an offset, or ms since 1970.")] | None
    ) = None
    by: (
        Annotated[
            int, Meta(ge=-(2**62), le=2**62, description="So many messages on; back, if negative.")
        ]
        | None
    ) = None
    partitions: Annotated[
        list[At], Meta(description="All that the group has committed, if none are named.")
    ] = msgspec.field(default_factory=list)
    dry_run: bool = False


class Move(msgspec.Struct, frozen=True):
    """Where a partition is taken from, and to."""

    topic: str
    partition: int
    before: int | None
    after: int


class Moves(msgspec.Struct, frozen=True):
    """What a reset did, or would do."""

    moves: list[Move]


async def list_groups(call: Call[ListParams, None]) -> Groups:
    """Groups by name, a page of them."""
    admin, wanted = await call.clients.admin(), call.parameters
    found = {one.group_id: one for one in await admin.list_groups()}
    chosen = (name for name in found if name.startswith(wanted.prefix))
    names, further = page_of(chosen, wanted.after, wanted.limit)
    page = [found[name] for name in names]
    return Groups(
        [Group(one.group_id, one.state, one.kind, one.coordinator) for one in page], further
    )


async def describe_group(call: Call[GroupParams, None]) -> GroupDetails:
    """One group with its lag."""
    admin, name = await call.clients.admin(), call.parameters.group
    found = (await admin.describe_groups(name))[name]
    read = {where for member in found.members for where in member.assignment}
    if found.kind == "share":
        lag = await _queue_lag(admin, name)
    else:
        lag = [_lag(where, one) for where, one in (await admin.group_lag(name, read)).items()]
    return GroupDetails(
        name,
        found.kind,
        found.state,
        found.assignor,
        [
            Member(
                one.member_id,
                one.client_id,
                one.host,
                [TopicAndPartition(*where) for where in one.assignment],
            )
            for one in found.members
        ],
        sorted(lag, key=lambda one: (one.topic, one.partition)),
    )


async def reset_group(call: Call[GroupParams, Reset]) -> Moves:
    """Move a group; its members must have been stopped."""
    admin, name, wanted = await call.clients.admin(), call.parameters.group, call.body
    to = _target(wanted)
    partitions: list[tuple[str, int]] = []
    for at in wanted.partitions:
        count = len((await admin.describe_topic(at.topic)).partitions)
        if at.partition is not None and at.partition >= count:
            raise refusal(
                400,
                "invalid-field",
                f"topic {at.topic} has no partition {at.partition}",
                field="partitions",
                remedy=f"its partitions are 0 to {count - 1}",
            )
        chosen = range(count) if at.partition is None else [at.partition]
        partitions += [(at.topic, one) for one in chosen]
    if not (partitions or await admin.is_share_group(name) or await admin.group_offsets(name)):
        await admin.describe_groups(name)  # says so if there is no such group
    moves = await admin.reset_group_offsets(name, to, partitions or None, dry_run=wanted.dry_run)
    return Moves([Move(*where, move.before, move.after) for where, move in moves.items()])


async def delete_group(call: Call[GroupParams, None]) -> None:
    """Delete a group with all that it has committed."""
    admin = await call.clients.admin()
    await admin.delete_groups(call.parameters.group)


def _target(wanted: Reset) -> ResetTo:
    said: dict[str, Any] = {
        "to": wanted.to,
        "offset": wanted.offset,
        "since": wanted.since,
        "by": wanted.by,
    }
    given = [name for name, value in said.items() if value is not None]
    if len(given) != 1:
        raise refusal(
            400,
            "invalid-field",
            "a reset goes to one place" if given else "a reset needs a place to go to",
            field=given[1] if given else "to",
            remedy="give one of to, offset, since and by",
        )
    if wanted.since is not None:
        return _moment(wanted.since)
    return By(wanted.by) if wanted.by is not None else said[given[0]]


def _moment(since: Moment) -> datetime:
    try:
        return datetime.fromtimestamp(moment_ms(since, "since") / 1_000, UTC)
    except (InvalidRequestError, ValueError, OverflowError, OSError) as error:
        raise refusal(
            400, "invalid-field", str(error), field="since", remedy="2030-01-31T09:00:00Z"
        ) from None


async def _queue_lag(admin: "Admin", name: str) -> list[Lag]:
    starts = await admin.share_group_offsets(name)
    ends = await admin.list_offsets(dict.fromkeys(starts, LATEST))
    return [
        Lag(*where, one.start, ends[where].offset, one.lag, None) for where, one in starts.items()
    ]


def _lag(where: TopicPartition, lag: PartitionLag) -> Lag:
    return Lag(*where, lag.committed, lag.end, lag.messages, lag.oldest_at)


GROUPS = [
    Route(
        method="GET",
        path="/v1/groups",
        summary="List consumer groups",
        tag="groups",
        handler=list_groups,
        parameters=ListParams,
        answer=Groups,
    ),
    Route(
        method="GET",
        path="/v1/groups/{group}",
        summary="Describe a group, its members and its lag",
        tag="groups",
        handler=describe_group,
        parameters=GroupParams,
        answer=GroupDetails,
        errors=(504,),
    ),
    Route(
        method="POST",
        path="/v1/groups/{group}/reset",
        summary="Let a group go on elsewhere",
        tag="groups",
        handler=reset_group,
        parameters=GroupParams,
        body=Reset,
        answer=Moves,
        errors=(409, 504),
    ),
    Route(
        method="DELETE",
        path="/v1/groups/{group}",
        summary="Delete a group with all that it has committed",
        tag="groups",
        handler=delete_group,
        parameters=GroupParams,
        status=204,
        errors=(409, 504),
    ),
]
