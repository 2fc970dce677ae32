"""Messages that wait for their time: list, look up, cancel, give another time.

Sending one is ``POST /v1/topics/{topic}/messages`` with a time; the answer names its id.  Without
an error, what was cancelled is never delivered, and what has another time goes then.  Many at once:
``schedule_many.py``.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType

from waystation.client.message import Message
from waystation.client.schedule_descriptions import MessageId, Place, Scheduled, ScheduledMessage
from waystation.client.timing import delay_ms, moment_ms
from waystation.gateway.finding import key_of
from waystation.gateway.payloads import Moment, StoredMessage, Values, shown
from waystation.gateway.problems import ProblemError, refusal
from waystation.gateway.reading import moment_of
from waystation.gateway.routes import Call, Params, Route
from waystation.gateway.topics import Partition, TopicName
from waystation.model.errors import (
    ErrorCode,
    InvalidRecordError,
    InvalidRequestError,
    WaystationError,
)
from waystation.model.offsets import Millis

if TYPE_CHECKING:
    from waystation.client.schedules import Schedules
    from waystation.gateway.clients import Clients

__all__ = [
    "SCHEDULES",
    "NewTime",
    "bad_time",
    "check_partition",
    "due_of",
    "found_in_time",
    "named",
    "schedules_of",
]

_SEARCH_S: Final = 10.0

When = Annotated[str, Meta(description="ISO 8601 with an offset, or ms since 1970.")]


class ListParams(Params, frozen=True):
    """What waits, of which a part is wanted."""

    topic: TopicName
    since: Annotated[When, Meta(description="Due at that time or later.")] | None = None
    before: Annotated[When, Meta(description="Due before that time.")] | None = None
    key: str | None = None
    key_base64: bytes | None = None
    partition: Partition | None = None
    after: Annotated[str, Meta(max_length=80, description="The next of the last page.")] | None = (
        None
    )
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 100


class ScheduleParams(Params, frozen=True):
    """Which message."""

    topic: TopicName
    schedule: Annotated[
        str, Meta(max_length=40, description="Its id, as sending it has answered: 0-17.")
    ]


class ShowParams(ScheduleParams, frozen=True):
    """Which message, and how it is shown."""

    values: Values = "text"


class Schedule(msgspec.Struct, frozen=True):
    """A message that waits; ``cron`` and ``zone`` say what it follows if it recurs."""

    id: str
    due_ms: int
    sent_ms: int | None
    value_bytes: int | None
    key: str | UnsetType | None = UNSET
    key_base64: bytes | UnsetType = UNSET
    cron: str | None = None
    zone: str | None = None


class Waiting(msgspec.Struct, frozen=True):
    """A page of what waits, the earliest first."""

    schedules: list[Schedule]
    next: str | None
    """Where to go on, as ``after``; null at the end."""


class ShownSchedule(StoredMessage, frozen=True, kw_only=True):
    """A message that waits, with all that is in it; its timestamp is when it was sent."""

    id: str
    due_ms: int
    cron: str | None
    zone: str | None


class NewTime(Params, frozen=True):
    """Another time; one of the two."""

    deliver_at: (
        Annotated[Moment, Meta(description="ISO 8601 with an offset, or ms since 1970.")] | None
    ) = None
    deliver_after: Annotated[Moment, Meta(description="From now on: '10m', or ms.")] | None = None


async def list_schedules(call: Call[ListParams, None]) -> Waiting:
    """A page of what waits for a topic."""
    wanted = call.parameters
    start = None if wanted.since is None else moment_of(wanted.since)
    end = None if wanted.before is None else moment_of(wanted.before, "before")
    after = None if wanted.after is None else _place(wanted.after)
    schedules = await schedules_of(call.clients, wanted.topic)
    await check_partition(schedules, wanted.partition)
    pending = schedules.pending(
        start=start,
        end=end,
        key=key_of(wanted.key, wanted.key_base64),
        partition=wanted.partition,
        after=after,
        limit=wanted.limit + 1,
    )
    found, is_complete = await found_in_time(pending)
    is_more = len(found) > wanted.limit or not is_complete
    page = found[: wanted.limit]
    return Waiting([_brief(one) for one in page], str(page[-1].place) if is_more else None)


async def found_in_time(
    pending: AsyncIterator[Scheduled], within_s: float = _SEARCH_S
) -> tuple[list[Scheduled], bool]:
    """What is found for as long as a call may search, and whether everything was looked at.

    Those of one key may be few among millions; a problem if there was no time to find any.
    """
    found: list[Scheduled] = []
    with suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            async for one in pending:
                found += [one]  # one by one: they count also if there is no time for all
            return found, True
    if not found:
        raise refusal(
            504,
            "search-too-long",
            f"none was found within {within_s:g} s, and there is more to look through",
            field="key",
            remedy="narrow it down with since, before or partition",
        )
    return found, False


async def show_schedule(call: Call[ShowParams, None]) -> ShownSchedule:
    """One message that waits."""
    schedules, name = await _named(call.clients, call.parameters)
    try:
        return _shown(await schedules.get(name), call.parameters.values)
    except WaystationError as error:
        raise _not_pending(error, 404) from None


async def cancel_schedule(call: Call[ScheduleParams, None]) -> None:
    """Let a message never be delivered; one that recurs, never again."""
    schedules, name = await _named(call.clients, call.parameters)
    try:
        await schedules.cancel(name)
    except WaystationError as error:
        raise _not_pending(error, 410) from None


async def retime_schedule(call: Call[ScheduleParams, NewTime]) -> ShownSchedule:
    """Give a message another time; of one that recurs, only the next."""
    due = due_of(call.body)
    schedules, name = await _named(call.clients, call.parameters)
    try:
        await schedules.retime(name, due)
        return _shown(await schedules.get(name), "text")
    except InvalidRecordError as error:
        raise bad_time(call.body, error) from None
    except WaystationError as error:
        raise _not_pending(error, 410) from None


async def schedules_of(clients: "Clients", topic: str) -> "Schedules":
    """What waits for a topic; a problem if it keeps nothing for later."""
    await clients.topic(topic)
    admin = await clients.admin()
    schedules = admin.schedules(topic)
    try:
        await schedules.count_partitions()
    except InvalidRequestError as error:
        raise refusal(
            409,
            "not-schedulable",
            f"topic {topic} keeps no messages for later: {error}",
            field="topic",
            remedy='PATCH /v1/topics/{topic}/config with {"set": {"schedule.enable": "true"}}',
        ) from None
    return schedules


async def check_partition(schedules: "Schedules", partition: int | None) -> None:
    """A problem if there is no such partition."""
    count = await schedules.count_partitions()
    if partition is not None and partition >= count:
        raise refusal(
            404,
            "no-such-partition",
            f"{schedules.companion} has no partition {partition}",
            field="partition",
            remedy=f"its partitions are 0 to {count - 1}",
        )


def named(text: str, field: str = "schedule") -> MessageId:
    """The id that ``text`` is; a problem if it is none."""
    try:
        name = MessageId.of(text)
        if name.partition >= 2**31 or name.offset >= 2**63:
            raise InvalidRequestError(f"{text!r} is beyond all messages")
    except InvalidRequestError as error:
        raise refusal(
            400,
            "invalid-parameter",
            str(error),
            field=field,
            remedy="partition and offset, such as 0-17: the schedule_id of the answer to sending",
        ) from None
    return name


async def _named(clients: "Clients", wanted: ScheduleParams) -> "tuple[Schedules, MessageId]":
    name = named(wanted.schedule)
    schedules = await schedules_of(clients, wanted.topic)
    if name.partition >= await schedules.count_partitions():
        raise _gone(f"{name} is not pending: there is no such partition", 404)
    return schedules, name


def _place(text: str) -> Place:
    try:
        place = Place.of(text)
        if max(place) >= 2**63 or place.partition >= 2**31:
            raise InvalidRequestError(f"{text!r} is beyond all lists")
    except InvalidRequestError as error:
        raise refusal(
            400,
            "invalid-parameter",
            str(error),
            field="after",
            remedy="the next of the last page, as it was answered",
        ) from None
    return place


def due_of(wanted: NewTime) -> Millis:
    """When it shall be due; a problem if that is not one time."""
    given = [one for one in (wanted.deliver_at, wanted.deliver_after) if one is not None]
    if len(given) != 1:
        raise refusal(
            400,
            "invalid-field",
            "a message has one time",
            field="deliver_after" if given else "deliver_at",
            remedy="give one of deliver_at and deliver_after",
        )
    try:
        if wanted.deliver_at is not None:
            due = moment_ms(wanted.deliver_at, "deliver_at")
        else:
            assert wanted.deliver_after is not None, "one of the two is given"
            due = Millis(int(time.time() * 1_000) + delay_ms(wanted.deliver_after, "deliver_after"))
        if due >= 2**63:
            raise InvalidRequestError(f"{due} is beyond all time")
    except InvalidRequestError as error:
        raise bad_time(wanted, error) from None
    return due


def bad_time(wanted: NewTime, error: WaystationError) -> ProblemError:
    """What to tell of a time that cannot be meant."""
    return refusal(
        400,
        "invalid-field",
        str(error),
        field="deliver_at" if wanted.deliver_at is not None else "deliver_after",
        remedy="a time to come, such as '2030-01-31T09:00:00Z', or '10m'",
    )


def _not_pending(error: WaystationError, status: int) -> Exception:
    """What to tell of a message that does not wait (any more)."""
    return _gone(str(error), status) if error.code == ErrorCode.RESOURCE_NOT_FOUND else error


def _gone(why: str, status: int) -> ProblemError:
    return refusal(
        status,
        "not-pending",
        why,
        field="schedule",
        remedy="it stays as it is; GET /v1/topics/{topic}/schedules lists what waits",
    )


def _brief(one: Scheduled) -> Schedule:
    key = shown([Message(one.key, None, one.topic, one.partition, one.offset, one.due)], "text")[0]
    return Schedule(
        str(one.id),
        one.due,
        one.sent,
        one.value_bytes,
        key.key,
        key.key_base64,
        one.cron,
        one.zone,
    )


def _shown(one: ScheduledMessage, values: Values) -> ShownSchedule:
    message = Message(
        one.key, one.value, one.topic, one.partition, one.offset, one.sent, one.headers
    )
    plain = shown([message], values)[0]
    return ShownSchedule(
        **{name: getattr(plain, name) for name in StoredMessage.__struct_fields__},
        id=str(one.id),
        due_ms=one.due,
        cron=one.cron,
        zone=one.zone,
    )


SCHEDULES = [
    Route(
        method="GET",
        path="/v1/topics/{topic}/schedules",
        summary="List what waits for its time",
        tag="schedules",
        handler=list_schedules,
        parameters=ListParams,
        answer=Waiting,
        errors=(409, 504),
    ),
    Route(
        method="GET",
        path="/v1/topics/{topic}/schedules/{schedule}",
        summary="Show a message that waits",
        tag="schedules",
        handler=show_schedule,
        parameters=ShowParams,
        answer=ShownSchedule,
        errors=(409, 504),
    ),
    Route(
        method="DELETE",
        path="/v1/topics/{topic}/schedules/{schedule}",
        summary="Cancel a message that waits",
        tag="schedules",
        handler=cancel_schedule,
        parameters=ScheduleParams,
        status=204,
        errors=(409, 410, 504),
    ),
    Route(
        method="PATCH",
        path="/v1/topics/{topic}/schedules/{schedule}",
        summary="Give a message that waits another time",
        tag="schedules",
        handler=retime_schedule,
        parameters=ScheduleParams,
        body=NewTime,
        answer=ShownSchedule,
        errors=(409, 410, 504),
    ),
]
