"""What many callers say about messages that they hold by receipt, on its way to leaders.

What is said to one leader in one turn of the loop goes in one request; while some requests are
under way, what comes meanwhile goes together in the next one.  A leader follows or refuses each
saying by itself, so that nobody pays for what another says.
"""

import asyncio
from contextlib import suppress
from typing import Final, NamedTuple

from waystation.client.errors import ClosedError, error_of
from waystation.client.queue_requests import settled_in, where_leaders_are
from waystation.client.router import Router
from waystation.messages.share_acknowledge import (
    AcknowledgePartition,
    AcknowledgeTopic,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
)
from waystation.messages.share_fetch import CLOSE_SESSION, AcknowledgementBatch
from waystation.model.errors import ErrorCode, InvalidRequestError, WaystationError
from waystation.model.ids import NodeId, TopicId, TopicPartition
from waystation.runtime.tasks import Tasks
from waystation.sharing.states import RENEW

__all__ = ["Lines", "Saying", "UnansweredError"]

_UNDER_WAY: Final = 2
_UNANSWERED: Final = (ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT)
_SAID_AT_ONCE: Final = 250
"""A leader follows so many in one turn of its loop."""


class UnansweredError(WaystationError):
    """It was said, and nobody knows whether it was followed."""

    def __init__(self, cause: WaystationError) -> None:
        self.code = cause.code
        super().__init__(str(cause))


class Saying(NamedTuple):
    """What became of the messages ``[first, last]``, all held under one member id."""

    partition: int
    member_id: str
    first: int
    last: int
    kind: int
    for_ms: int = 0
    why: str = ""


class _To(NamedTuple):
    """Whom a request goes to, and what all that it says has in common."""

    leader: NodeId
    topic_id: TopicId
    is_renewing: bool
    for_ms: int


class _Line:
    """What is to be said to one leader."""

    __slots__ = ("is_due", "said", "under_way")

    def __init__(self) -> None:
        self.said: list[tuple[Saying, asyncio.Future[int]]] = []
        self.under_way = 0
        self.is_due = False


class Lines:
    """One queue's, to all its leaders."""

    def __init__(self, router: Router, topic: str, group_id: str) -> None:
        self._router, self._topic, self._group_id = router, topic, group_id
        self._lines: dict[_To, _Line] = {}
        self._tasks = Tasks()
        self._loop = asyncio.get_running_loop()

    async def say(self, leader: NodeId, topic_id: TopicId, saying: Saying) -> int:
        """What a leader answers: an error code, or 0; ``UnansweredError`` if it did not."""
        to = _To(leader, topic_id, saying.kind == RENEW, saying.for_ms)
        line = self._lines.get(to)
        if line is None:
            line = self._lines[to] = _Line()
        answer: asyncio.Future[int] = self._loop.create_future()
        line.said.append((saying, answer))
        if not line.is_due and line.under_way < _UNDER_WAY:
            line.is_due = True
            self._loop.call_soon(self._send, to, line)
        return await answer

    async def close(self) -> None:
        """Say nothing more; the router was closed before, so that nobody waits for answers."""
        await self._tasks.aclose()
        for line in self._lines.values():
            for _, answer in line.said:
                _fail(answer, ClosedError("the queue was closed"))

    def _send(self, to: _To, line: _Line) -> None:
        line.is_due = False
        some, line.said = line.said[:_SAID_AT_ONCE], line.said[_SAID_AT_ONCE:]
        if some:
            line.under_way += 1
            self._tasks.spawn(self._ask(to, line, some), "queue-receipts")
            if line.said and line.under_way < _UNDER_WAY:
                self._send(to, line)

    async def _ask(
        self, to: _To, line: _Line, some: list[tuple[Saying, "asyncio.Future[int]"]]
    ) -> None:
        try:
            told = await self._asked(to, [saying for saying, _ in some])
            for (_, answer), code in zip(some, told, strict=True):
                if code in _UNANSWERED:
                    _fail(answer, UnansweredError(error_of(code, f"queue {self._topic}")))
                elif not answer.done():
                    answer.set_result(code)
        except WaystationError as error:
            for _, answer in some:
                _fail(answer, error)
        finally:
            for _, answer in some:
                _fail(answer, ClosedError("the queue was closed before the answer came"))
            line.under_way -= 1
            if line.said:
                self._send(to, line)
            elif not line.under_way:
                with suppress(KeyError):
                    del self._lines[to]

    async def _asked(self, to: _To, said: list[Saying]) -> list[int]:
        """The leader's answers, in the order of ``said``."""
        parts: dict[int, list[int]] = {}
        for number, one in enumerate(said):
            parts.setdefault(one.partition, []).append(number)
        connection = await self._router.to_node(to.leader)
        timeout_s = self._router.settings.request_timeout_ms / 1_000
        request = self._request(to, said, parts)
        try:
            told = await connection.ask(request, ShareAcknowledgeResponse, timeout_s)
        except WaystationError as error:
            raise UnansweredError(error) if error.code in _UNANSWERED else error from None
        if told.error_code:
            raise error_of(told.error_code, f"queue {self._topic}", told.error_message)
        answers = settled_in(told)
        codes = [0] * len(said)
        for partition, numbers in parts.items():
            answer = answers.get((to.topic_id, partition))
            if answer is None or len(answer.batch_error_codes) != len(numbers):
                raise InvalidRequestError(
                    f"node {to.leader} does not say what became of messages in partition "
                    f"{partition} of {self._topic}: it may be of an older version"
                )
            if answer.error_code not in (0, ErrorCode.INVALID_RECORD_STATE):
                self._strayed(to, partition, answer, told)
            for number, code in zip(numbers, answer.batch_error_codes, strict=True):
                codes[number] = code
        return codes

    def _request(
        self, to: _To, said: list[Saying], parts: dict[int, list[int]]
    ) -> ShareAcknowledgeRequest:
        partitions = [
            AcknowledgePartition(
                partition_index=partition,
                acknowledgement_batches=[_batch(said[number]) for number in numbers],
            )
            for partition, numbers in parts.items()
        ]
        request = ShareAcknowledgeRequest(
            group_id=self._group_id,
            member_id=said[0].member_id,
            share_session_epoch=CLOSE_SESSION,
            is_renew_ack=to.is_renewing,
            topics=[AcknowledgeTopic(topic_id=to.topic_id, partitions=partitions)],
        )
        request.by_receipt, request.for_ms = True, to.for_ms
        return request

    def _strayed(
        self, to: _To, partition: int, one: PartitionData, told: ShareAcknowledgeResponse
    ) -> None:
        hint = one.current_leader.leader_id, one.current_leader.leader_epoch
        named = hint if hint[0] >= 0 else None
        where = TopicPartition(self._topic, partition)
        self._router.strayed(where, to.leader, named, where_leaders_are(told))


def _batch(said: Saying) -> AcknowledgementBatch:
    batch = AcknowledgementBatch(
        first_offset=said.first, last_offset=said.last, acknowledge_types=[said.kind]
    )
    batch.member_id, batch.reason = said.member_id, said.why
    return batch


def _fail(answer: "asyncio.Future[int]", error: WaystationError) -> None:
    if not answer.done():
        answer.set_exception(error)
