"""ListScheduled: what waits in a partition, by time (``docs/protocol/schedules.md``)."""

import asyncio
from collections.abc import Mapping, Sequence

from waystation.apis.call import Call
from waystation.apis.scheduled import place_of
from waystation.broker.broker import Broker
from waystation.messages.list_scheduled import (
    NO_TIME,
    ListedMessage,
    ListScheduledRequest,
    ListScheduledResponse,
)
from waystation.model.errors import InvalidRequestError, WaystationError
from waystation.records.record import Row
from waystation.scheduling.schedule import Pending
from waystation.scheduling.wheel import Due

_PLAIN_MAX, _DETAILED_MAX = 10_000, 1_000
_SLICE = 500
"""How many are looked at between two turns of the loop: some hundred microseconds."""


async def answer(broker: Broker, call: Call[ListScheduledRequest]) -> ListScheduledResponse:
    """A page by the book of the leader asked, which has everything committed."""
    request = call.message
    try:
        _check(request)
        topic, partition = place_of(request.topic, request.partition)
        found, following = await _page(broker, topic, partition, request)
        rows: Mapping[int, Row] = {}
        if request.details or request.key is not None:
            offsets = [one.offset for one in found]
            rows = await broker.schedules.rows(topic, partition, offsets)
        waiting = broker.schedules.count(topic, partition)
    except WaystationError as error:
        return ListScheduledResponse(error_code=error.code, error_message=str(error))
    if request.key is not None:
        found = [one for one in found if one.offset in rows and rows[one.offset][2] == request.key]
    next_ms, next_offset = (NO_TIME, NO_TIME) if following is None else following
    return ListScheduledResponse(
        waiting=waiting,
        messages=[_listed(one, rows.get(one.offset)) for one in found],
        next_ms=next_ms,
        next_offset=next_offset,
    )


async def _page(
    broker: Broker, topic: str, partition: int, request: ListScheduledRequest
) -> tuple[Sequence[Pending], Due | None]:
    """About ``limit`` messages, read a slice at a time, and where the next page begins."""
    found: list[Pending] = []
    following: Due | None = (request.from_ms, request.from_offset)
    while following is not None and len(found) < request.limit:
        if found:
            await asyncio.sleep(0)
        size = min(_SLICE, request.limit - len(found))
        some, following = broker.schedules.pending(topic, partition, following, size)
        if request.until_ms == NO_TIME:
            found += some
            continue
        found += (one for one in some if one.due < request.until_ms)
        if following is not None and following[0] >= request.until_ms:
            following = None
    return found, following


def _listed(one: Pending, row: Row | None) -> ListedMessage:
    listed = ListedMessage(offset=one.offset, due_ms=one.due)
    if one.cron is not None:
        listed.cron, listed.zone = one.cron.text, one.cron.zone
    if row is not None:
        _, listed.sent_ms, listed.key, value, _ = row
        listed.value_bytes = -1 if value is None else len(value)
    return listed


def _check(request: ListScheduledRequest) -> None:
    most = _DETAILED_MAX if request.details or request.key is not None else _PLAIN_MAX
    if not 1 <= request.limit <= most:
        raise InvalidRequestError(f"a limit of {request.limit}: must be from 1 to {most}")
    if request.from_ms < 0 or request.from_offset < 0:
        raise InvalidRequestError(
            f"from {request.from_ms} at offset {request.from_offset}: neither may be negative"
        )
    if request.until_ms < NO_TIME:
        raise InvalidRequestError(f"until {request.until_ms}: must be at least 0, or -1 for no end")
