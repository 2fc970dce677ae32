"""All transactional ids of one partition of ``__transaction_state``: the way in.

1. What is answered rests on records that are appended first: a replay knows all of it.
2. What is remembered changes in ``apply`` only; events change no more than who waits, and for
   which markers.
3. Markers are asked for once it is committed how a transaction ends, and again after each load
   until all are written; only then may the next transaction begin.
4. No transaction is under way for longer than its time-out allows, but a prepared one.

What follows from a request is decided in ``producers.py`` and ``endings.py``.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import islice

from waystation.model.errors import TransactionalIdNotFoundError, WaystationError
from waystation.model.ids import NO_PRODUCER, ProducerEpoch, ProducerId, TopicPartition
from waystation.model.machines import Outcome, Reply, Waiter
from waystation.model.offsets import Millis
from waystation.transactions import endings, producers
from waystation.transactions.book import SWEEP_MAX, Book
from waystation.transactions.commands import (
    Add,
    End,
    Init,
    MarkersDue,
    Prepare,
    TransactionDescription,
    TransactionListing,
)
from waystation.transactions.decision import Decision, too_early
from waystation.transactions.draft import Draft
from waystation.transactions.lifecycle import completed, is_ending, is_idle
from waystation.transactions.orders import Orders
from waystation.transactions.records import EPOCH_MAX, Ending, Record, TransactionStored
from waystation.transactions.settings import NO_LIMIT, TransactionSettings
from waystation.transactions.waiting import Decide, Request, Waiting

PREPARED_SHOWN = "Prepared"

# While one waits, others may take over before it, and each uses up two epochs.
_EPOCHS_AHEAD = 8
# How many are ended at once: after a long outage all of them are overdue.
_ABORTS_MAX = 500
_NEXT_SLICE_MS = 100


class Transactions:
    """One coordinator, in one life of it; ``markers`` is told each ``MarkersDue``."""

    __slots__ = (
        "_aborted_at",
        "_book",
        "_markers",
        "_orders",
        "_settings",
        "_sweep_at",
        "_waiting",
    )

    def __init__(
        self,
        settings: Callable[[], TransactionSettings],
        coordinator_epoch: int,
        markers: Waiter,
    ) -> None:
        self._settings, self._markers = settings, markers
        self._book = Book()
        self._orders = Orders(coordinator_epoch)
        self._waiting = Waiting()
        self._aborted_at = Millis(0)
        self._sweep_at: Millis | None = None

    # --- replay -------------------------------------------------------------------------------

    def apply(self, record: Record) -> None:
        """Remember."""
        self._book.apply(record)

    def loaded(self, now: Millis) -> Outcome[Record]:
        """The replay is over: ask for all markers that may not have been written."""
        self._book.loaded(now)
        draft = self._draft()
        for state in self._book.states.values():
            if is_ending(state):
                self._carry_out(draft, state, now)
        interval_ms = self._settings().transaction_remove_expired_transaction_cleanup_interval_ms
        self._sweep_at = Millis(now + interval_ms)
        return draft.outcome()

    # --- time ---------------------------------------------------------------------------------

    def next_deadline(self) -> Millis | None:
        """The earliest moment at which ``tick`` has something to do."""
        if self._sweep_at is None:
            return None  # not loaded yet
        moments = [self._sweep_at, self._next_abort(), self._waiting.next_deadline()]
        return min(moment for moment in moments if moment is not None)

    def tick(self, now: Millis) -> Outcome[Record]:
        """Do what has fallen due."""
        draft = self._draft()
        self._end_overdue(draft, now)
        for request in self._waiting.due(now):
            draft.reply(request.to, too_early(request.transactional_id))
        if self._sweep_at is not None and self._sweep_at <= now:
            self._sweep(draft, now)
        return draft.outcome()

    def abandon(self) -> list[Waiter]:
        """Everyone who waits; the machine is of no use afterwards."""
        return self._waiting.abandon()

    # --- producers ----------------------------------------------------------------------------

    def needs_id(
        self, transactional_id: str, producer_id: ProducerId, epoch: ProducerEpoch
    ) -> bool:
        """Whether ``Init`` or ``End`` of that producer may need a ``fresh`` producer id.

        True a little too early: what is still under way may use up the last epochs.
        """
        state = self._book.states.get(transactional_id)
        if state is None:
            return True
        is_present = producer_id in (NO_PRODUCER, state.producer_id) and epoch <= state.epoch
        return is_present and state.epoch >= EPOCH_MAX - _EPOCHS_AHEAD

    def init(self, now: Millis, command: Init, to: Waiter) -> Outcome[Record]:
        """Answered by ``Initialised``, once what was under way is aborted."""
        longest_ms = self._settings().transaction_max_timeout_ms

        def decide(state: TransactionStored | None, at: Millis) -> Decision:
            return producers.init(state, command, at, longest_ms)

        return self._ask(now, command.transactional_id, decide, to)

    def add(self, now: Millis, command: Add, to: Waiter) -> Outcome[Record]:
        """Answered by ``Added``."""

        def decide(state: TransactionStored | None, at: Millis) -> Decision:
            return producers.add(state, command, at)

        return self._ask(now, command.transactional_id, decide, to)

    def end(self, now: Millis, command: End, to: Waiter) -> Outcome[Record]:
        """Answered by ``Ended``; readers see it once the markers are written."""
        outcome = self._book.outcomes.get(command[:3])

        def decide(state: TransactionStored | None, at: Millis) -> Decision:
            return endings.end(state, outcome, command, at)

        return self._ask(now, command.transactional_id, decide, to)

    # --- two-phase commit ---------------------------------------------------------------------

    def prepare(self, now: Millis, command: Prepare, to: Waiter) -> Outcome[Record]:
        """Answered by ``Prepared``."""
        outcome = self._book.outcomes.get((*command,))

        def decide(state: TransactionStored | None, at: Millis) -> Decision:
            return endings.prepare(state, outcome, command, at)

        return self._ask(now, command.transactional_id, decide, to)

    def outcome(
        self,
        now: Millis,
        transactional_id: str,
        producer_id: ProducerId,
        epoch: ProducerEpoch,
        to: Waiter,
    ) -> Outcome[Record]:
        """Answered by ``TransactionOutcome``."""
        state = self._book.states.get(transactional_id)
        outcome = self._book.outcomes.get((transactional_id, producer_id, epoch))
        answer = endings.look_up(state, outcome, producer_id, epoch)
        return Outcome((), [Reply(to, answer)])

    # --- markers ------------------------------------------------------------------------------

    def markers_written(
        self, now: Millis, due: MarkersDue, partitions: Iterable[TopicPartition]
    ) -> Outcome[Record]:
        """These partitions have their marker; the last of them completes the transaction."""
        draft = self._draft()
        if self._orders.written(due, partitions):
            state = draft.state(due.transactional_id)
            assert state is not None, f"the markers of {due} were written, and nobody knows it"
            assert is_ending(state), f"the markers of {state} were written"
            self._complete(draft, state, now)
        return draft.outcome()

    # --- operators ----------------------------------------------------------------------------

    def describe(self, transactional_id: str) -> TransactionDescription:
        """All there is to know of a transactional id."""
        state = self._book.states.get(transactional_id)
        if state is None:
            raise TransactionalIdNotFoundError(f"there is no transactional id {transactional_id!r}")
        return TransactionDescription(
            state.transactional_id,
            state.producer_id,
            state.epoch,
            _shown(state),
            state.timeout_ms,
            state.started_at,
            state.updated_at,
            state.prepared_at,
            state.partitions,
        )

    def list(
        self,
        now: Millis,
        states: Collection[str] = (),
        producer_ids: Collection[ProducerId] = (),
        longer_than_ms: int = -1,
    ) -> list[TransactionListing]:
        """The transactional ids for which all of that holds; what is empty or -1 always does."""
        return [
            TransactionListing(state.transactional_id, state.producer_id, _shown(state))
            for state in self._book.states.values()
            if (not states or _shown(state) in states)
            and (not producer_ids or state.producer_id in producer_ids)
            and (longer_than_ms < 0 or _lasts(state, now) > longer_than_ms)
        ]

    def owns(self, producer_id: ProducerId, partition: TopicPartition) -> bool:
        """Whether a transaction of that producer is under way, and will end in the partition."""
        state = self._book.of_producer(producer_id)
        return state is not None and not is_idle(state) and partition in state.partitions

    # --- parts --------------------------------------------------------------------------------

    def _draft(self) -> Draft:
        return Draft(self._book.states)

    def _ask(
        self, now: Millis, transactional_id: str, decide: Decide, to: Waiter
    ) -> Outcome[Record]:
        draft = self._draft()
        self._decide(draft, Request(transactional_id, decide, to, now), now)
        return draft.outcome()

    def _decide(self, draft: Draft, request: Request, now: Millis) -> None:
        try:
            decision = request.decide(draft.state(request.transactional_id), now)
            self._follow(draft, decision, now)
            if decision.waits:
                self._waiting.add(request)
                return
            answer = decision.answer
        except WaystationError as error:
            answer = error
        self._waiting.done(request)
        draft.reply(request.to, answer)

    def _follow(self, draft: Draft, decision: Decision, now: Millis) -> None:
        if decision.outcome is not None:
            draft.records.append(decision.outcome)
        if decision.becomes is not None:
            draft.note(decision.becomes)
            if is_ending(decision.becomes):
                self._carry_out(draft, decision.becomes, now)

    def _carry_out(self, draft: Draft, state: TransactionStored, now: Millis) -> None:
        """Have the markers written, if there are any to write."""
        if state.partitions:
            draft.reply(self._markers, self._orders.place(state))
        else:
            self._complete(draft, state, now)

    def _complete(self, draft: Draft, state: TransactionStored, now: Millis) -> None:
        draft.note(completed(state, now))
        for request in self._waiting.take(state.transactional_id):
            self._decide(draft, request, now)

    # --- what falls due -----------------------------------------------------------------------

    def _next_abort(self) -> Millis | None:
        """When a transaction has to be ended; some are gathered, to be ended together."""
        moments = [self._book.timeouts.earliest(), self._first_limit()]
        known = [moment for moment in moments if moment is not None]
        if not known:
            return None
        interval_ms = self._settings().transaction_abort_timed_out_transaction_cleanup_interval_ms
        return max(min(known), Millis(self._aborted_at + interval_ms))

    def _first_limit(self) -> Millis | None:
        """When the transaction that was prepared first has waited for as long as it may."""
        limit_ms = self._settings().transaction_prepared_max_ms
        if limit_ms == NO_LIMIT:
            return None
        since = next(iter(self._book.prepared.values()), None)
        return None if since is None else Millis(since + limit_ms)

    def _end_overdue(self, draft: Draft, now: Millis) -> None:
        next_abort = self._next_abort()
        if next_abort is None or next_abort > now:
            return
        timed_out = self._book.timeouts.due(now, _ABORTS_MAX)
        for transactional_id in timed_out:
            self._give_up(draft, transactional_id, Ending.ABORTED, now)
        beyond = self._beyond_limit(now)
        for transactional_id in beyond:
            self._give_up(draft, transactional_id, Ending.ABORTED_BY_LIMIT, now)
        if max(len(timed_out), len(beyond)) < _ABORTS_MAX:
            self._aborted_at = now  # otherwise the rest follows at once

    def _beyond_limit(self, now: Millis) -> Sequence[str]:
        """Some of the prepared transactions that have waited for as long as they may."""
        limit_ms = self._settings().transaction_prepared_max_ms
        if limit_ms == NO_LIMIT:
            return []
        prepared = islice(self._book.prepared.items(), _ABORTS_MAX)
        return [name for name, since in prepared if since + limit_ms <= now]

    def _give_up(self, draft: Draft, transactional_id: str, ending: Ending, now: Millis) -> None:
        state = draft.state(transactional_id)
        assert state is not None, f"{transactional_id!r} is overdue and unknown"
        self._follow(draft, endings.give_up(state, ending, now), now)

    def _sweep(self, draft: Draft, now: Millis) -> None:
        settings = self._settings()
        forgotten = self._book.expired(
            Millis(now - settings.transactional_id_expiration_ms),
            Millis(now - settings.transaction_outcome_retention_ms),
        )
        draft.records.extend(forgotten)
        is_all = len(forgotten) < SWEEP_MAX
        interval_ms = settings.transaction_remove_expired_transaction_cleanup_interval_ms
        self._sweep_at = Millis(now + (interval_ms if is_all else _NEXT_SLICE_MS))


def _shown(state: TransactionStored) -> str:
    return PREPARED_SHOWN if state.is_prepared else state.state.shown


def _lasts(state: TransactionStored, now: Millis) -> int:
    """For how long the transaction has been under way; -1 if none is."""
    return -1 if is_idle(state) else now - state.started_at
