"""How the tasks and the driver of a batch write into a sink, step by step.

A task asks ``admit`` before it writes, starts its producer under the transactional id it is given
(after ``make_way``), writes and prepares, and hands the prepared transaction to ``written``, whose
message goes to the driver.  The driver hands all messages to ``commit``, or to ``abort``.  Nothing
is kept between these calls but in the sink's record and the messages: each may run in a process
of its own, any of them may die at any moment, and any may wake up late.

What is allowed is decided in ``decisions.py``; here is only the order of the questions, which
matters: transactions are looked at before the record is read that says which of them count.

``open_sink`` makes the steps over real brokers (``sink_cluster.py``).
"""

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, Protocol, TypeVar

from waystation.client.transactor import PreparedTransaction
from waystation.model.errors import (
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    ProducerFencedError,
    WaystationError,
)
from waystation.spark import decisions
from waystation.spark.decisions import Next, Verdict
from waystation.spark.ledger import Ledger
from waystation.spark.sink_errors import (
    DecidedRowsMissingError,
    NoSuchSinkError,
    PreparedRowsGoneError,
    SinkError,
    SinkTakenOverError,
    WrittenTooLateError,
)
from waystation.spark.sink_state import Attempt, SinkState, Task, task_of, transactional_id
from waystation.telemetry.logs import get_logger

__all__ = [
    "Admitted",
    "Dropped",
    "OpenTransaction",
    "Resolved",
    "SinkSteps",
    "TaskMessage",
    "Transactions",
    "named",
]

T = TypeVar("T")
Fate = tuple[str, str, str]
"""A task, the transactional id it wrote under, and what became of that."""

_events = get_logger("spark")

COMMITTED, COMMITTING, PREPARED = "committed", "committing", "prepared"

_TURN_S: Final = 0.05
_LAST_TURN_S: Final = 1.0
_CLEANING_S: Final = 1.0
_LOOK_S: Final = 0.1
_AT_ONCE: Final = 32
_NOT_OPEN: Final = (InvalidTxnStateError, ProducerFencedError, InvalidProducerIdMappingError)
"""What is said to who aborts a transaction that has ended."""


class OpenTransaction(NamedTuple):
    """One that has not ended."""

    transaction: PreparedTransaction
    is_prepared: bool


class Transactions(Protocol):
    """What the steps ask of the coordinators of transactions."""

    async def open_of(self, sink: str) -> list[OpenTransaction]:
        """Those of the sink's tasks that have not ended."""

    async def open_under(self, transactional_id: str) -> OpenTransaction | None:
        """The one that has not ended under this id, if there is any."""

    async def outcome(self, transaction: PreparedTransaction) -> str:
        """What became of it, in the words of ``TxnOutcome``."""

    async def end(self, transaction: PreparedTransaction, *, commit: bool) -> None:
        """Commit or abort it; harmless if that has happened, an error if the opposite has."""


class Admitted(NamedTuple):
    """A task may write, in one transaction under this id; the attempt's batch has its number."""

    attempt: Attempt
    task: Task
    transactional_id: str


class Dropped(NamedTuple):
    """The batch is decided already: the task's rows are there, and must not be written again."""

    attempt: Attempt
    task: Task

    def message(self, rows: int) -> "TaskMessage":
        """What the driver is told once all rows were passed over."""
        return TaskMessage(self.attempt, self.task, None, rows)


class TaskMessage(NamedTuple):
    """What the driver learns of a task that had rows; ``prepared`` is none if they were dropped."""

    attempt: Attempt
    task: Task
    prepared: PreparedTransaction | None
    rows: int


class Resolved(NamedTuple):
    """What an operator's word did: transactional ids, and what is gone for good."""

    committed: tuple[str, ...]
    aborted: tuple[str, ...]
    missing: tuple[Fate, ...]


class SinkSteps:
    """The steps of tasks and drivers; one process may take them for many sinks."""

    def __init__(self, ledger: Ledger, transactions: Transactions) -> None:
        self._ledger, self._transactions = ledger, transactions

    async def state(self, sink: str) -> SinkState | None:
        """The sink's record; ``None`` if nothing was ever written into it."""
        return await self._ledger.read(sink)

    # --- tasks ----------------------------------------------------------------------------------

    async def admit(self, attempt: Attempt, task: Task) -> Admitted | Dropped:
        """Whether a task that has rows may write them; raises a ``SinkError`` if nobody may."""
        verdict = await self._verdict(attempt)
        if verdict.next in (Next.CLAIM, Next.CLEAN):
            verdict = await self._wait_for_turn(attempt, task, verdict)
        while verdict.next in (Next.CLAIM, Next.CLEAN):
            if verdict.next is Next.CLAIM:
                state = await self._ledger.change(
                    attempt.sink, lambda state: decisions.claimed(state, attempt)
                )
            else:
                state = await self._clean(attempt)
            verdict = decisions.next_step(state, attempt)
        numbered = attempt._replace(batch=verdict.batch)
        if verdict.next is Next.DROP:
            return Dropped(numbered, task)
        return _admitted(numbered, task)

    async def make_way(self, admitted: Admitted) -> Admitted:
        """Give the task a transactional id under which nothing is open.

        To be called before the producer is started, and again if that is told
        ``ConcurrentTransactionsError``.  What was found is left to whoever cleans up.
        """
        attempt, task = admitted.attempt, admitted.task
        while await self._transactions.open_under(admitted.transactional_id) is not None:
            task = task._replace(spare=task.spare + 1)
            admitted = _admitted(attempt, task)
        return admitted

    async def written(
        self, admitted: Admitted, prepared: PreparedTransaction, rows: int
    ) -> TaskMessage:
        """What the driver is to be told of a task that has prepared its rows.

        If they come too late to count they are taken back, and ``WrittenTooLateError`` is raised.
        """
        attempt, task = admitted.attempt, admitted.task
        state = await self._ledger.read(attempt.sink)
        if decisions.came_too_late(state, attempt, prepared):
            with suppress(WaystationError):  # then whoever cleans up next does it
                await self._take_back([prepared])
            raise WrittenTooLateError(attempt.sink, attempt.batch, named(task))
        return TaskMessage(attempt, task, prepared, rows)

    # --- the driver -----------------------------------------------------------------------------

    async def commit(self, messages: Iterable[TaskMessage | None]) -> None:
        """Make the batch visible; harmless to repeat.  Tasks without rows have no message."""
        told = _of_one_attempt(messages)
        if not told:
            return
        attempt = told[0].attempt
        transactions = tuple(one.prepared for one in told if one.prepared is not None)
        rows = sum(one.rows for one in told)
        if not transactions:
            await self._finish(attempt.sink, await self._ledger.read(attempt.sink))
            await self._check_replay(attempt, rows)
            return
        if not decisions.has_decided(await self._ledger.read(attempt.sink), attempt):
            await self._check_prepared(told)
        state = await self._ledger.change(
            attempt.sink, lambda state: decisions.decided(state, attempt, transactions, rows)
        )
        await self._finish(attempt.sink, state)
        await self._sweep(attempt)

    async def abort(self, messages: Iterable[TaskMessage | None]) -> None:
        """Take back what tasks prepared, unless it is decided, or becomes so meanwhile."""
        told = _of_one_attempt(messages)
        prepared = [one.prepared for one in told if one.prepared is not None]
        if not prepared:
            return
        attempt = told[0].attempt
        state = await self._ledger.change(
            attempt.sink, lambda state: decisions.given_up(state, attempt)
        )
        await self._take_back(
            [one for one in prepared if decisions.may_take_back(state, attempt, one)]
        )

    # --- operators ------------------------------------------------------------------------------

    async def resolve(self, sink: str, run: str, *, accept_missing: bool) -> "Resolved":
        """End everything of a sink that is open, in the name of an operator.

        What is decided is committed, the rest is aborted; whatever run has the sink is shut out.
        Decided rows that are gone are an error, unless that is accepted.
        """
        state = await self._ledger.change(
            sink, lambda state: decisions.taken_by_operator(state, run)
        )
        if state is None:
            raise NoSuchSinkError(sink)
        missing: tuple[Fate, ...] = ()
        if not state.ended:
            missing = await self._commit_all(sink, state.decided)
            if missing and not accept_missing:
                raise DecidedRowsMissingError(sink, state.batch, missing)
        seen = [one.transaction for one in await self._transactions.open_of(sink)]
        left = decisions.leftovers_of_operator(await self._ledger.read(sink), run, seen)
        await self._take_back(left)
        await self._ledger.change(sink, lambda state: decisions.resolved(state, run))
        gone = {one[1] for one in missing}
        ended = () if state.ended else state.decided
        return Resolved(
            tuple(one.transactional_id for one in ended if one.transactional_id not in gone),
            tuple(one.transactional_id for one in left),
            missing,
        )

    async def forget(self, sink: str) -> None:
        """Remove the record of a sink; whoever uses its name then is a new one."""
        await self._ledger.change(sink, lambda _: None)

    # --- behind the scenes ----------------------------------------------------------------------

    async def _verdict(self, attempt: Attempt) -> Verdict:
        return decisions.next_step(await self._ledger.read(attempt.sink), attempt)

    async def _wait_for_turn(self, attempt: Attempt, task: Task, verdict: Verdict) -> Verdict:
        """Let one task after the other try: each that does shuts out the one before it.

        Mostly the first one has claimed and cleaned before anybody else's turn comes.  Who finds
        it at work waits longer: it helps only if that one has died.
        """
        waited_s, turn_s = 0.0, min(task.partition * _TURN_S, _LAST_TURN_S)
        while verdict.next in (Next.CLAIM, Next.CLEAN):
            left_s = turn_s - waited_s + (_CLEANING_S if verdict.next is Next.CLEAN else 0.0)
            if left_s <= 0.0:
                break
            await asyncio.sleep(min(left_s, _LOOK_S))
            waited_s += min(left_s, _LOOK_S)
            verdict = await self._verdict(attempt)
        return verdict

    async def _clean(self, attempt: Attempt) -> SinkState | None:
        """End what former runs have left; the state in which that is noted."""
        sink = attempt.sink
        before = await self._ledger.read(sink)
        ended: tuple[PreparedTransaction, ...] = ()
        if before is not None and not before.ended:
            ended = before.decided
            if missing := await self._commit_all(sink, ended):
                raise DecidedRowsMissingError(sink, before.batch, missing)
        seen = [one.transaction for one in await self._transactions.open_of(sink)]
        state = await self._ledger.read(sink)
        if decisions.next_step(state, attempt).next is not Next.CLEAN:
            return state  # another task has done it
        await self._take_back(decisions.leftovers_of_others(state, attempt, seen))
        return await self._ledger.change(
            sink, lambda state: decisions.cleaned(state, attempt, ended)
        )

    async def _check_prepared(self, told: Sequence[TaskMessage]) -> None:
        """If one cannot be committed any more, before anything is decided, take all back."""
        attempt = told[0].attempt
        transactions = [one.prepared for one in told if one.prepared is not None]
        states = await _all(self._transactions.outcome(one) for one in transactions)
        gone = tuple(
            _fate(attempt.sink, one, state)
            for one, state in zip(transactions, states, strict=True)
            if state not in (PREPARED, COMMITTING, COMMITTED)
        )
        if gone:
            await self._refuse_if_taken_over(attempt)
            await self.abort(told)
            raise PreparedRowsGoneError(attempt.sink, attempt.batch, gone)

    async def _refuse_if_taken_over(self, attempt: Attempt) -> None:
        """Say so, if that is why something is gone: who took the sink over has cleaned up."""
        state = await self._ledger.read(attempt.sink)
        if state is None or state.run != attempt.run:
            raise SinkTakenOverError(attempt.sink, attempt.run, state.run if state else "")

    async def _finish(self, sink: str, state: SinkState | None) -> None:
        """Commit what is decided, and note it."""
        if state is None or state.ended:
            return
        if missing := await self._commit_all(sink, state.decided):
            raise DecidedRowsMissingError(sink, state.batch, missing)
        batch, ended = state.batch, state.decided
        await self._ledger.change(sink, lambda now: decisions.finished(now, batch, ended))

    async def _check_replay(self, attempt: Attempt, rows: int) -> None:
        state = await self._ledger.read(attempt.sink)
        if state is not None:
            decisions.check_replay(state, attempt, rows)

    async def _sweep(self, attempt: Attempt) -> None:
        """Abort what attempts have left that the batch did without.

        The batch is visible by now, so that whatever goes wrong here is left to the next one.
        """
        try:
            seen = [one.transaction for one in await self._transactions.open_of(attempt.sink)]
            if seen:
                state = await self._ledger.read(attempt.sink)
                await self._take_back(decisions.leftovers_of_batch(state, attempt, seen))
        except WaystationError as error:
            _events.warning("sink.unswept", sink=attempt.sink, error=str(error))

    async def _commit_all(
        self, sink: str, transactions: Sequence[PreparedTransaction]
    ) -> tuple[Fate, ...]:
        """Commit each; those that cannot be committed any more, with what became of them."""
        fates = await _all(self._commit(sink, one) for one in transactions)
        return tuple(one for one in fates if one is not None)

    async def _commit(self, sink: str, transaction: PreparedTransaction) -> Fate | None:
        try:
            await self._transactions.end(transaction, commit=True)
        except WaystationError:
            state = await self._transactions.outcome(transaction)
            if state in (PREPARED, COMMITTING):
                raise
            if state != COMMITTED:
                return _fate(sink, transaction, state)
        return None

    async def _take_back(self, transactions: Sequence[PreparedTransaction]) -> None:
        await _all(self._abort(one) for one in transactions)

    async def _abort(self, transaction: PreparedTransaction) -> None:
        with suppress(*_NOT_OPEN):
            await self._transactions.end(transaction, commit=False)


def _admitted(attempt: Attempt, task: Task) -> Admitted:
    assert attempt.batch is not None, "a batch that is written has a number"
    return Admitted(attempt, task, transactional_id(attempt.sink, attempt.batch, task))


def _of_one_attempt(messages: Iterable[TaskMessage | None]) -> list[TaskMessage]:
    """The messages of tasks that had rows; Spark has none of those that failed."""
    told = [one for one in messages if one is not None]
    attempts = {one.attempt for one in told}
    if len(attempts) > 1:
        raise SinkError(told[0].attempt.sink, f"messages of several attempts: {sorted(attempts)}")
    return told


def _fate(sink: str, transaction: PreparedTransaction, state: str) -> Fate:
    task = task_of(sink, transaction.transactional_id)
    return ("?" if task is None else named(task), transaction.transactional_id, state)


def named(task: Task) -> str:
    """A task as people read it: which partition, which attempt at it."""
    return f"{task.partition} (attempt {task.attempt})"


async def _all(steps: Iterable[Awaitable[T]]) -> list[T]:
    """Do all of it, some at once; the first error is raised once all have ended."""
    limit = asyncio.Semaphore(_AT_ONCE)

    async def one(step: Awaitable[T]) -> T:
        async with limit:
            return await step

    results = await asyncio.gather(*map(one, steps), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]
