"""Transactions over HTTP: begin, add messages and offsets, commit or abort, at any node.

Everything about a transaction is in its id (``transaction_ids.py``), its coordinator and its
partitions; a node keeps only what spares it to ask again.  So a node may die between two calls,
and the next call goes to another.

An add that fails when something may have been stored already aborts the transaction: who commits
all the same must not have a part of it committed.
"""

import time
from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from waystation.client.group_offsets import NOBODY, CommittedOffset
from waystation.client.group_offsets import Identity as MemberIdentity
from waystation.client.joined import JoinedTransaction, TransactionRecord, begin_transaction
from waystation.gateway.once import no_once_key
from waystation.gateway.problems import ProblemError, problem_of, refusal
from waystation.gateway.routes import Call, Route
from waystation.gateway.transaction_bodies import (
    Added,
    AddedMessage,
    Begun,
    KeptOffsets,
    NewMessages,
    NewOffsets,
    NewTopicMessage,
    NewTransaction,
    TransactionParams,
    TransactionState,
)
from waystation.gateway.transaction_ids import TransactionId
from waystation.gateway.transaction_messages import check_there, placed
from waystation.gateway.transaction_slots import Slots
from waystation.gateway.transaction_standing import (
    ABORTED,
    COMMITTED,
    COMMITTING,
    EMPTY,
    OPEN,
    UNKNOWN,
    ended_problem,
    has_ended,
    settled,
    state_of,
    unknown_problem,
)
from waystation.model.errors import (
    InvalidTxnStateError,
    TransactionalIdNotFoundError,
    WaystationError,
)
from waystation.model.ids import TopicPartition
from waystation.model.offsets import Millis, Offset

if TYPE_CHECKING:
    from waystation.gateway.clients import Clients

__all__ = ["transaction_routes"]

_MOST: Final = 4_096
_WITHIN_MS: Final = 30_000
_ASKED_AFTER: Final = 16
_ERRORS: Final = (403, 409, 410, 429, 504)

TransactionCall = Call[TransactionParams, None]


class Transactions:
    """The transactions that one node takes part in; at most ``most`` that it has begun are open."""

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._slots = Slots(most)
        self._joined: OrderedDict[TransactionId, JoinedTransaction] = OrderedDict()

    async def begin_transaction(self, call: Call[None, NewTransaction]) -> Begun:
        """Begin one; it is aborted when its time is over."""
        timeout_ms = call.body.timeout_ms
        router = await call.clients.writing_router()
        if self._slots.is_full:
            await self._ask_after_oldest(call.clients)
        expires_at = Millis(_now() + timeout_ms)
        name = self._slots.take(_now(), expires_at)
        try:
            identity = await begin_transaction(router, name, timeout_ms, _WITHIN_MS)
        except BaseException:
            self._slots.ended(name, _now())
            raise
        id_ = TransactionId(name, identity, expires_at)
        self._keep(id_, JoinedTransaction(router, name, identity, _WITHIN_MS, is_new=True))
        return Begun(str(id_), expires_at)

    async def add_messages(
        self, call: Call[TransactionParams, NewMessages | list[NewTopicMessage]]
    ) -> Added:
        """Add messages; they are visible once the transaction is committed, all at once."""
        no_once_key(call.headers, "messages of transactions have no idempotency key")
        id_ = await self._open(call)
        messages = call.body if isinstance(call.body, list) else call.body.messages
        places = await placed(call.clients, messages, _now())
        records: dict[TopicPartition, list[TransactionRecord]] = {}
        for where, record in places:
            records.setdefault(where, []).append(record)
        joined = await self._join(call.clients, id_)
        try:
            offsets = await joined.add(records)
        except WaystationError as error:
            raise await self._failed(call.clients, id_, error) from None
        left = {where: iter(some) for where, some in offsets.items()}
        return Added([AddedMessage(*where, next(left[where])) for where, _ in places])

    async def add_offsets(self, call: Call[TransactionParams, NewOffsets]) -> KeptOffsets:
        """Keep offsets of a consumer group, if and when the transaction is committed."""
        id_, body = await self._open(call), call.body
        member = MemberIdentity(body.member_id, body.generation) if body.member_id else NOBODY
        offsets = {
            TopicPartition(one.topic, one.partition): CommittedOffset(
                Offset(one.offset), one.metadata
            )
            for one in body.offsets
        }
        await check_there(call.clients, body.offsets)
        joined = await self._join(call.clients, id_)
        try:
            await joined.commit_offsets(body.group, member, offsets)
        except WaystationError as error:
            raise await self._failed(call.clients, id_, error) from None
        return KeptOffsets(body.group, len(offsets))

    async def commit_transaction(self, call: TransactionCall) -> TransactionState:
        """Commit; to ask again is answered as the first time."""
        return await self._end(call, commit=True)

    async def abort_transaction(self, call: TransactionCall) -> TransactionState:
        """Abort; to ask again is answered as the first time."""
        return await self._end(call, commit=False)

    async def describe_transaction(self, call: TransactionCall) -> TransactionState:
        """How it stands."""
        id_ = _parsed(call)
        found = await state_of(call.clients, id_)
        if found.state == UNKNOWN:
            raise unknown_problem(id_)
        return found

    # --- parts ----------------------------------------------------------------------------------

    async def _open(self, call: Call[TransactionParams, Any]) -> TransactionId:
        """The transaction; a problem if its time is over, and then it is aborted."""
        id_ = _parsed(call)
        if id_.expires_at <= _now():
            joined = await self._join(call.clients, id_)
            with suppress(WaystationError):
                await joined.end(commit=False)
            raise ended_problem(id_, (await state_of(call.clients, id_)).state, _now())
        return id_

    async def _join(self, clients: "Clients", id_: TransactionId) -> JoinedTransaction:
        joined = self._joined.pop(id_, None)
        if joined is None:
            router = await clients.writing_router()
            joined = JoinedTransaction(router, id_.transactional_id, id_.identity, _WITHIN_MS)
        self._keep(id_, joined)
        return joined

    def _keep(self, id_: TransactionId, joined: JoinedTransaction) -> None:
        self._joined[id_] = joined
        if len(self._joined) > self._most:
            self._joined.popitem(last=False)  # what it knew can be asked for

    async def _end(self, call: TransactionCall, *, commit: bool) -> TransactionState:
        id_ = _parsed(call)
        if commit and id_.expires_at <= _now():
            found = await state_of(call.clients, id_)
            if found.state in (COMMITTED, COMMITTING):
                return await settled(call.clients, id_, COMMITTED)
            await self._open(call)
        joined = await self._join(call.clients, id_)
        try:
            await joined.end(commit=commit)
        except WaystationError as error:
            if not has_ended(error):
                raise
            raise await self._refused(call.clients, id_, error, commit=commit) from None
        self._over(id_)
        return await settled(call.clients, id_, COMMITTED if commit else ABORTED)

    async def _refused(
        self, clients: "Clients", id_: TransactionId, error: WaystationError, *, commit: bool
    ) -> ProblemError:
        """Why a transaction could not be ended so."""
        found = await state_of(clients, id_)
        if found.state == OPEN and commit and isinstance(error, InvalidTxnStateError):
            return refusal(
                409,
                "empty-transaction",
                "nothing was added to the transaction",
                remedy="add something, or abort it",
            )
        return ended_problem(id_, found.state, _now())

    async def _failed(
        self, clients: "Clients", id_: TransactionId, error: WaystationError
    ) -> ProblemError:
        """The problem of an add that failed; some of it may be stored, so nothing may count."""
        if has_ended(error):
            state = (await state_of(clients, id_)).state
            if state != OPEN:
                return ended_problem(id_, state, _now())
        joined = await self._join(clients, id_)
        with suppress(WaystationError):
            await joined.end(commit=False)
        self._over(id_)
        problem = problem_of(error)
        return refusal(
            problem.status,
            problem.type.rpartition(":")[2],
            f"{problem.detail}; the transaction was aborted",
            field=problem.field,
            remedy=f"{problem.remedy}; begin another transaction",
        )

    def _over(self, id_: TransactionId) -> None:
        self._joined.pop(id_, None)
        self._slots.ended(id_.transactional_id, _now())

    async def _ask_after_oldest(self, clients: "Clients") -> None:
        """Some may have been ended at other nodes."""
        admin = await clients.admin()
        for name in self._slots.oldest(_ASKED_AFTER):
            with suppress(TransactionalIdNotFoundError):
                found = (await admin.describe_transactions(name))[name]
                if found.open or found.state == EMPTY:
                    continue
            self._slots.ended(name, _now())


def _parsed(call: Call[TransactionParams, Any]) -> TransactionId:
    found = TransactionId.parse(call.parameters.transaction)
    if found is None:
        raise refusal(
            404,
            "unknown-transaction",
            "there is no such transaction",
            field="transaction",
            remedy="POST /v1/transactions begins one, and tells its name",
        )
    return found


def _now() -> Millis:
    return Millis(time.time_ns() // 1_000_000)


def transaction_routes(most: int = _MOST) -> list[Route]:
    """The calls about transactions."""
    transactions = Transactions(most)
    path = "/v1/transactions/{transaction}"
    return [
        Route(
            method="POST",
            path="/v1/transactions",
            summary="Begin a transaction",
            tag="transactions",
            handler=transactions.begin_transaction,
            body=NewTransaction,
            body_optional=True,
            answer=Begun,
            status=201,
            errors=(403, 429, 504),
        ),
        Route(
            method="GET",
            path=path,
            summary="How a transaction stands",
            tag="transactions",
            handler=transactions.describe_transaction,
            parameters=TransactionParams,
            answer=TransactionState,
            errors=(504,),
        ),
        Route(
            method="POST",
            path=f"{path}/messages",
            summary="Add messages, of one topic or several",
            tag="transactions",
            handler=transactions.add_messages,
            parameters=TransactionParams,
            body=NewMessages,
            lines=NewTopicMessage,
            answer=Added,
            errors=_ERRORS,
        ),
        Route(
            method="POST",
            path=f"{path}/offsets",
            summary="Add offsets of a consumer group",
            tag="transactions",
            handler=transactions.add_offsets,
            parameters=TransactionParams,
            body=NewOffsets,
            answer=KeptOffsets,
            errors=_ERRORS,
        ),
        Route(
            method="POST",
            path=f"{path}/commit",
            summary="Commit: all of it counts",
            tag="transactions",
            handler=transactions.commit_transaction,
            parameters=TransactionParams,
            answer=TransactionState,
            errors=_ERRORS,
        ),
        Route(
            method="POST",
            path=f"{path}/abort",
            summary="Abort: nothing of it counts",
            tag="transactions",
            handler=transactions.abort_transaction,
            parameters=TransactionParams,
            answer=TransactionState,
            errors=_ERRORS,
        ),
    ]
