"""FindMessages: the messages of one key, without going through the log."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from waystation.apis.call import Call
from waystation.apis.errors import told
from waystation.broker.broker import Broker
from waystation.broker.key_finding import Search
from waystation.messages.find_messages import (
    FindMessagesRequest,
    FindMessagesResponse,
    FoundHeader,
    FoundMessage,
)
from waystation.model.errors import InvalidRequestError, OffsetOutOfRangeError, WaystationError
from waystation.model.ids import NO_TOPIC_ID, TopicId
from waystation.model.offsets import Offset
from waystation.partition.partition import Partition
from waystation.records.record import Row

_KEY: Final = "searches by key"
_LIMIT_MAX: Final = 10_000
_BYTES_MAX: Final = 16 << 20
_WAIT_MAX_MS: Final = 60_000


async def answer(broker: Broker, call: Call[FindMessagesRequest]) -> FindMessagesResponse:
    """A page by the index of the leader asked, at once or when there is something."""
    request = call.message
    try:
        _check(broker, request)
        partition = _partition(broker, request)
        partition.check_epoch(-1)
        if request.offset > partition.log.log_end:
            log = partition.log
            raise OffsetOutOfRangeError(Offset(request.offset), log.log_start, log.log_end)
        search = Search(
            bytes(request.key),
            Offset(request.offset),
            request.limit,
            min(request.max_bytes, _BYTES_MAX),
            request.max_wait_ms,
        )
        with _ended_with(call):
            page = await broker.keys.find(partition, search)
    except WaystationError as error:
        code, message = told(error)
        return FindMessagesResponse(error_code=code, error_message=message)
    return FindMessagesResponse(
        messages=[_shown(row) for row in page.rows], next_offset=page.next_offset, end=page.end
    )


def _partition(broker: Broker, request: FindMessagesRequest) -> Partition:
    """The partition by its topic's id, if that is given: the name may be another topic's by now."""
    topic_id = TopicId(request.topic_id)
    name = request.topic if topic_id == NO_TOPIC_ID else ""
    return broker.replicas.get(name, request.partition, topic_id)


@contextmanager
def _ended_with(call: Call[FindMessagesRequest]) -> Iterator[None]:
    """Let a client that asks for a long wait and leaves cost nothing from then on."""
    session, task = call.connection.session, asyncio.current_task()
    waiting: set[asyncio.Task[object] | None] | None = session.get(_KEY)
    if waiting is None:
        waiting = session[_KEY] = set()
        call.connection.when_closed(partial(_end_all, waiting))
    waiting.add(task)
    try:
        yield
    finally:
        waiting.discard(task)


def _end_all(waiting: "set[asyncio.Task[object] | None]") -> None:
    for task in list(waiting):
        if task is not None:
            task.cancel()


def _check(broker: Broker, request: FindMessagesRequest) -> None:
    if broker.views.named(request.topic) is not None:
        raise InvalidRequestError(
            f"{request.topic} is a view: search the topic that it is of for the key"
        )
    if not 1 <= request.limit <= _LIMIT_MAX:
        raise InvalidRequestError(f"a limit of {request.limit}: must be from 1 to {_LIMIT_MAX}")
    if request.offset < 0:
        raise InvalidRequestError(f"offset {request.offset}: must not be negative")
    if request.max_bytes < 1:
        raise InvalidRequestError(f"max_bytes {request.max_bytes}: must be at least 1")
    if not 0 <= request.max_wait_ms <= _WAIT_MAX_MS:
        raise InvalidRequestError(
            f"a wait of {request.max_wait_ms} ms: must be from 0 to {_WAIT_MAX_MS}"
        )


def _shown(row: Row) -> FoundMessage:
    offset, timestamp, _, value, headers = row
    return FoundMessage(
        offset=offset,
        timestamp_ms=timestamp,
        value=value,
        headers=[FoundHeader(name=name, value=content) for name, content in headers],
    )
