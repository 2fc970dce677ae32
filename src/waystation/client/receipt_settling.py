"""Tells leaders what became of messages that are held by receipts.

Receipts of one member and one leader go in one request.  A leader follows what is said about a
partition as a whole or not at all, so that a receipt which is over is looked for by halves: it
spoils no other.  Whoever heard nothing asks again; if the message is not held by then, it was
settled by the attempt before, or nobody knows.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from waystation.client.errors import error_of
from waystation.client.queue_errors import NotHeldError, SettlementUnknownError
from waystation.client.queue_halves import culprits
from waystation.client.queue_requests import (
    Named,
    Place,
    acknowledge_request,
    settled_in,
    where_leaders_are,
)
from waystation.client.queue_settling import NO_REASONS, Kinds
from waystation.client.receipt_descriptions import Receipt
from waystation.client.router import Router
from waystation.messages.share_acknowledge import ShareAcknowledgeResponse
from waystation.messages.share_fetch import CLOSE_SESSION
from waystation.model.errors import (
    ErrorCode,
    InvalidRequestError,
    WaystationError,
)
from waystation.model.ids import NodeId, TopicPartition

__all__ = ["Outcomes", "ReceiptSettling"]

Outcomes = dict[Receipt, WaystationError | None]
"""What became of each wish: ``None`` if it was granted."""

_NOT_HELD: Final = (
    "is not held by this receipt (any more): its lock is over, or it was settled already"
)
_AT_ONCE: Final = 16
_UNANSWERED: Final = (ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT)


class _Group(NamedTuple):
    """Receipts that go in one request, if all are led by the same broker."""

    member_id: str
    where: TopicPartition


class ReceiptSettling:
    """Settles messages of one queue."""

    def __init__(self, router: Router, topic: str, group_id: str) -> None:
        self._router, self._topic, self._group_id = router, topic, group_id

    async def settle(
        self, receipts: Iterable[Receipt], kind: int, for_ms: int = 0, why: str = ""
    ) -> Outcomes:
        """Say the same of all; one that is refused spoils no other."""
        asked = dict.fromkeys(receipts)
        groups: dict[_Group, list[Receipt]] = {}
        for one in asked:
            where = TopicPartition(self._topic, one.partition)
            groups.setdefault(_Group(one.member_id, where), []).append(one)
        outcomes: Outcomes = {}
        room = asyncio.Semaphore(_AT_ONCE)

        async def tell(group: _Group, some: list[Receipt]) -> None:
            async with room:
                told = _Telling(self._router, self._group_id, group, kind, for_ms, why)
                outcomes.update(await told.outcomes(some))

        await asyncio.gather(*(tell(group, some) for group, some in groups.items()))
        return {one: outcomes[one] for one in asked}


class _Telling:
    """One member and one partition."""

    def __init__(
        self, router: Router, group_id: str, group: _Group, kind: int, for_ms: int, why: str
    ) -> None:
        self._router, self._name = router, Named(group_id, group.member_id)
        self._where = group.where
        self._kind, self._for_ms, self._why = kind, for_ms, why
        self._in_doubt: WaystationError | None = None
        """An attempt before had no answer."""

    async def outcomes(self, receipts: Sequence[Receipt]) -> Outcomes:
        """What became of each."""
        offsets: Kinds = {one.offset: self._kind for one in receipts}
        try:
            why = await self._tell(offsets)
            refused = {} if why is None else await culprits(offsets, why, self._tell, _never)
        except WaystationError as error:
            return dict.fromkeys(receipts, error)
        return {
            one: self._refusal(one, refused[one.offset]) if one.offset in refused else None
            for one in receipts
        }

    def _refusal(self, receipt: Receipt, why: str) -> WaystationError:
        if self._in_doubt is not None:
            return SettlementUnknownError({self._where: [receipt.offset]}, self._in_doubt)
        return NotHeldError([(self._where, receipt.offset, why)])

    async def _tell(self, kinds: Kinds) -> str | None:
        """Why the leader refuses to follow, if it does; asked again while it is not known."""

        async def attempt() -> str | None:
            return await self._ask(kinds)

        return await self._router.retrying(attempt, self._router.settings.metadata_timeout_ms)

    async def _ask(self, kinds: Kinds) -> str | None:
        topic = await self._router.topic(self._where.topic)
        place = topic.id, self._where.partition
        leader = await self._router.leader_of(self._where)
        reasons = {self._where: dict.fromkeys(kinds, self._why)} if self._why else NO_REASONS
        request = acknowledge_request(
            self._name, CLOSE_SESSION, {self._where: kinds}, {place: self._where}, reasons
        )
        request.by_receipt, request.for_ms = True, self._for_ms
        connection = await self._router.to_node(leader)
        timeout_s = self._router.settings.request_timeout_ms / 1_000
        try:
            told = await connection.ask(request, ShareAcknowledgeResponse, timeout_s)
        except WaystationError as error:
            if error.code in _UNANSWERED:
                self._in_doubt = error
            raise
        return self._refused(leader, place, told)

    def _refused(self, leader: NodeId, place: Place, told: ShareAcknowledgeResponse) -> str | None:
        if told.error_code:
            raise error_of(told.error_code, f"queue {self._where.topic}", told.error_message)
        one = settled_in(told).get(place)
        if one is None:
            raise InvalidRequestError(f"node {leader} says nothing of partition {self._where}")
        if one.error_code == ErrorCode.INVALID_RECORD_STATE:
            return _NOT_HELD
        if one.error_code:
            hint = one.current_leader.leader_id, one.current_leader.leader_epoch
            named = hint if hint[0] >= 0 else None
            self._router.strayed(self._where, leader, named, where_leaders_are(told))
            raise error_of(one.error_code, f"partition {self._where}", one.error_message)
        return None


def _never() -> bool:
    return False
