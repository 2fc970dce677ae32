"""Tells leaders what became of messages that are held by receipts.

Receipts of one member whose messages follow each other are said together, and looked for by halves
if one of them is over: it spoils no other.  What all callers say goes together
(``receipt_lines.py``).  Whoever heard nothing asks again; if the message is not held by then, it
was settled by the attempt before, or nobody knows.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

from waystation.client.errors import error_of
from waystation.client.queue_errors import NotHeldError, SettlementUnknownError
from waystation.client.queue_halves import culprits
from waystation.client.queue_settling import Kinds
from waystation.client.receipt_descriptions import Receipt
from waystation.client.receipt_lines import Lines, Saying, UnansweredError
from waystation.client.router import Router
from waystation.model.errors import ErrorCode, WaystationError
from waystation.model.ids import TopicPartition

__all__ = ["Outcomes", "ReceiptSettling"]

Outcomes = dict[Receipt, WaystationError | None]
"""What became of each wish: ``None`` if it was granted."""

_NOT_HELD: Final = (
    "is not held by this receipt (any more): its lock is over, or it was settled already"
)


class ReceiptSettling:
    """Settles messages of one queue."""

    def __init__(self, router: Router, topic: str, group_id: str) -> None:
        self._router, self._topic = router, topic
        self._lines = Lines(router, topic, group_id)

    async def close(self) -> None:
        """Settle nothing more; the router was closed before."""
        await self._lines.close()

    async def settle(
        self, receipts: Iterable[Receipt], kind: int, for_ms: int = 0, why: str = ""
    ) -> Outcomes:
        """Say the same of all; one that is refused spoils no other.

        HOT: once per call that settles.
        """
        asked = dict.fromkeys(receipts)
        tellings = [
            _Telling(self._router, self._lines, self._topic, run, (kind, for_ms, why))
            for run in _runs(sorted(asked, key=_place))
        ]
        if len(tellings) == 1:
            return await tellings[0].outcomes()
        outcomes: Outcomes = {}
        for some in await asyncio.gather(*(one.outcomes() for one in tellings)):
            outcomes |= some
        return {one: outcomes[one] for one in asked}


class _Telling:
    """Receipts of one member and partition, of messages that follow each other."""

    def __init__(
        self,
        router: Router,
        lines: Lines,
        topic: str,
        receipts: Sequence[Receipt],
        said: tuple[int, int, str],
    ) -> None:
        self._router, self._lines, self._said = router, lines, said
        self._receipts = receipts
        self._where = TopicPartition(topic, receipts[0].partition)
        self._in_doubt: WaystationError | None = None
        """An attempt before had no answer."""

    async def outcomes(self) -> Outcomes:
        """What became of each."""
        kind, receipts = self._said[0], self._receipts
        offsets: Kinds = {one.offset: kind for one in receipts}
        try:
            why = await self._tell(offsets)
            refused = {} if why is None else await culprits(offsets, why, self._tell, _never)
        except WaystationError as error:
            if self._in_doubt is None:
                return dict.fromkeys(receipts, error)
            refused = dict.fromkeys(offsets, str(error))
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
            return await self._ask(min(kinds), max(kinds))

        return await self._router.retrying(attempt, self._router.settings.metadata_timeout_ms)

    async def _ask(self, first: int, last: int) -> str | None:
        leader = await self._router.leader_of(self._where)
        topic_id = self._router.view.topics[self._where.topic].id
        member_id = self._receipts[0].member_id
        saying = Saying(self._where.partition, member_id, first, last, *self._said)
        try:
            code = await self._lines.say(leader, topic_id, saying)
        except UnansweredError as error:
            self._in_doubt = error
            raise
        if code and code != ErrorCode.INVALID_RECORD_STATE:
            raise error_of(code, f"partition {self._where}")
        return _NOT_HELD if code else None


def _runs(receipts: Sequence[Receipt]) -> Iterable[Sequence[Receipt]]:
    """Sorted receipts, those together that one saying names."""
    begin = 0
    for at in range(1, len(receipts) + 1):
        if at == len(receipts) or not _follows(receipts[at], receipts[at - 1]):
            yield receipts[begin:at]
            begin = at


def _place(one: Receipt) -> tuple[int, str, int]:
    return one.partition, one.member_id, one.offset


def _follows(one: Receipt, before: Receipt) -> bool:
    return one == before._replace(offset=one.offset) and one.offset == before.offset + 1


def _never() -> bool:
    return False
