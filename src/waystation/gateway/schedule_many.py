"""Many messages that wait, in one call: cancel those that are named or chosen, re-time those named.

A call does a bounded part and says whether there is more, so that it can be repeated until there is
none: what is cancelled waits no more.  Each message has its own outcome; one that cannot be called
back any more spoils no other.
"""

from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from msgspec import Meta

from waystation.client.schedule_descriptions import MessageId, Scheduled
from waystation.client.schedules import Outcomes
from waystation.client.timing import moment_ms
from waystation.gateway.finding import key_of
from waystation.gateway.payloads import Moment
from waystation.gateway.problems import refusal
from waystation.gateway.routes import Call, Params, Route
from waystation.gateway.schedules import (
    NewTime,
    bad_time,
    check_partition,
    due_of,
    found_in_time,
    named,
    schedules_of,
)
from waystation.gateway.topics import Partition, TopicName
from waystation.model.errors import InvalidRecordError, InvalidRequestError
from waystation.scheduling.errors import NotPendingError

if TYPE_CHECKING:
    from waystation.client.schedules import Schedules

__all__ = ["MANY_SCHEDULES"]

_MOST: Final = 1_000

Ids = Annotated[
    list[Annotated[str, Meta(max_length=40)]],
    Meta(min_length=1, max_length=_MOST, description="By their ids: 0-17."),
]
Due = Annotated[Moment, Meta(description="ISO 8601 with an offset, or ms since 1970.")]


class ManyParams(Params, frozen=True):
    """Which topic."""

    topic: TopicName


class Chosen(Params, frozen=True):
    """Messages that wait: by their ids, or all that fit the rest, of which something is given."""

    ids: Ids | None = None
    since: Annotated[Due, Meta(description="Due at that time or later.")] | None = None
    before: Annotated[Due, Meta(description="Due before that time.")] | None = None
    key: str | None = None
    key_base64: bytes | None = None
    partition: Partition | None = None
    limit: Annotated[
        int, Meta(ge=1, le=_MOST, description="How many of them at most, the earliest first.")
    ] = _MOST

    @property
    def is_choice(self) -> bool:
        """Whether anything but ids is given."""
        given = (self.since, self.before, self.key, self.key_base64, self.partition)
        return any(one is not None for one in given)


class NewTimes(NewTime, frozen=True, kw_only=True):
    """Another time for many; one of ``deliver_at`` and ``deliver_after``."""

    ids: Ids


class Refused(msgspec.Struct, frozen=True):
    """A message that stays as it is, and why."""

    id: str
    why: str


class Cancelled(msgspec.Struct, frozen=True):
    """What became of them."""

    cancelled: int
    refused: list[Refused]
    more: bool
    """Whether more of those that were chosen may wait: call again."""


class Retimed(msgspec.Struct, frozen=True):
    """What became of them."""

    retimed: int
    due_ms: int
    refused: list[Refused]


async def cancel_many(call: Call[ManyParams, Chosen]) -> Cancelled:
    """Let messages never be delivered."""
    wanted = call.body
    if (wanted.ids is None) is not wanted.is_choice:
        raise refusal(
            400,
            "invalid-field",
            "messages are named by their ids, or chosen by since, before, key and partition",
            field="ids",
            remedy='give the one or the other; {"since": 0} chooses all',
        )
    schedules = await schedules_of(call.clients, call.parameters.topic)
    if wanted.ids is not None:
        there, nowhere = await _sorted(schedules, wanted.ids)
        return _cancelled({**await schedules.cancel_all(there), **nowhere}, more=False)
    await check_partition(schedules, wanted.partition)
    found, is_complete = await _found(schedules, wanted)
    outcomes = await schedules.cancel_all(found[: wanted.limit])
    return _cancelled(outcomes, more=len(found) > wanted.limit or not is_complete)


async def retime_many(call: Call[ManyParams, NewTimes]) -> Retimed:
    """Give messages another time; of those that recur, only the next."""
    due = due_of(call.body)
    schedules = await schedules_of(call.clients, call.parameters.topic)
    there, nowhere = await _sorted(schedules, call.body.ids)
    outcomes = {**await schedules.retime_all(dict.fromkeys(there, due)), **nowhere}
    for error in outcomes.values():
        if isinstance(error, InvalidRecordError):  # the time is the same for all
            raise bad_time(call.body, error) from None
    refused = _refused(outcomes)
    return Retimed(len(outcomes) - len(refused), due, refused)


async def _found(schedules: "Schedules", wanted: Chosen) -> tuple[list[Scheduled], bool]:
    """One more than are wanted, if there are, and whether everything was looked at."""
    key = key_of(wanted.key, wanted.key_base64)
    pending = schedules.pending(
        start=_moment(wanted.since, "since"),
        end=_moment(wanted.before, "before"),
        key=key,
        partition=wanted.partition,
        limit=wanted.limit + 1,
        details=key is not None,
    )
    return await found_in_time(pending)


def _moment(given: Moment | None, field: str) -> int | None:
    try:
        moment = None if given is None else moment_ms(given, field)
        if moment is not None and moment >= 2**63:
            raise InvalidRequestError(f"{field} {moment} is beyond all time")
    except InvalidRequestError as error:
        raise refusal(
            400,
            "invalid-field",
            str(error),
            field=field,
            remedy="2030-01-31T09:00:00Z, or milliseconds since 1970",
        ) from None
    return moment


async def _sorted(schedules: "Schedules", texts: list[str]) -> tuple[list[MessageId], Outcomes]:
    """Ids to ask for, and what is known of those in partitions that there are none of."""
    ids = [named(one, "ids") for one in texts]
    count = await schedules.count_partitions()
    nowhere: Outcomes = {
        one: NotPendingError(str(one), "there is no such partition")
        for one in ids
        if one.partition >= count
    }
    return [one for one in ids if one not in nowhere], nowhere


def _cancelled(outcomes: Outcomes, *, more: bool) -> Cancelled:
    refused = _refused(outcomes)
    return Cancelled(len(outcomes) - len(refused), refused, more)


def _refused(outcomes: Outcomes) -> list[Refused]:
    return [Refused(str(name), str(why)) for name, why in outcomes.items() if why is not None]


MANY_SCHEDULES = [
    Route(
        method="POST",
        path="/v1/topics/{topic}/schedules/cancel",
        summary="Cancel many messages that wait",
        tag="schedules",
        handler=cancel_many,
        parameters=ManyParams,
        body=Chosen,
        answer=Cancelled,
        errors=(409, 504),
    ),
    Route(
        method="POST",
        path="/v1/topics/{topic}/schedules/retime",
        summary="Give many messages that wait another time",
        tag="schedules",
        handler=retime_many,
        parameters=ManyParams,
        body=NewTimes,
        answer=Retimed,
        errors=(409, 504),
    ),
]
