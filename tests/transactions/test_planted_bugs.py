"""The simulated lives catch what they are for: each bug planted here makes one of them fail."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from tests.transactions import desk
from tests.transactions.life import Life
from tests.transactions.partitions import Partition
from waystation.broker.transaction_records import read_rows
from waystation.model.ids import ProducerEpoch, TopicPartition
from waystation.model.machines import Outcome, Reply
from waystation.model.offsets import Millis
from waystation.records.record import Row
from waystation.transactions import book, endings, lifecycle, producers
from waystation.transactions.commands import Add, End, Ended, Init, MarkersDue
from waystation.transactions.decision import Decision
from waystation.transactions.machine import Transactions
from waystation.transactions.orders import Orders
from waystation.transactions.records import (
    EPOCH_MAX,
    OutcomeStored,
    Record,
    TransactionStored,
    TxnState,
)

SEEDS = 60
Patch = pytest.MonkeyPatch
Plant = Callable[[Patch], None]


# --- who may write ------------------------------------------------------------------------------


def lets_writes_of_any_epoch_join(patch: Patch) -> None:
    """What KIP-890 is against: a write that comes late joins the next transaction."""
    patch.setattr(producers, "check_producer", lambda *_: None)


def takes_over_without_aborting(patch: Patch) -> None:
    honest = producers.init

    def init(state: TransactionStored | None, command: Init, now: Millis, most: int) -> Decision:
        if state is not None and state.state is TxnState.ONGOING and not state.is_prepared:
            state = state._replace(state=TxnState.EMPTY, partitions=())
        return honest(state, command, now, most)

    patch.setattr(producers, "init", init)


def forgets_that_somebody_took_over(patch: Patch) -> None:
    honest = lifecycle.bumped

    def bumped(state: TransactionStored, timeout_ms: int, now: Millis, **_: bool) -> object:
        return honest(state, timeout_ms, now, by_itself=True)

    patch.setattr(producers, "bumped", bumped)


def begins_before_the_last_one_has_ended(patch: Patch) -> None:
    honest = producers.add

    def add(state: TransactionStored | None, command: Add, now: Millis) -> Decision:
        return honest(None if state is None else lifecycle.settled(state), command, now)

    patch.setattr(producers, "add", add)


def tells_the_last_epoch_too(patch: Patch) -> None:
    patch.setattr(lifecycle, "_EXHAUSTED", EPOCH_MAX)


# --- how they end -------------------------------------------------------------------------------


def tells_every_repeat_yes(patch: Patch) -> None:
    honest = endings.end

    def end(state: Any, outcome: OutcomeStored | None, command: End, now: Millis) -> Decision:
        if state is not None and endings._ended_just_now(state, command):
            return Decision(Ended(*lifecycle.settled(state)[1:3]))
        return honest(state, outcome, command, now)

    patch.setattr(endings, "end", end)


def does_not_bump_after_a_time_out(patch: Patch) -> None:
    honest = lifecycle.decided

    def give_up(state: TransactionStored, _: object, now: Millis) -> Decision:
        return Decision(None, honest(state, False, now, bumps=False))

    patch.setattr(endings, "give_up", give_up)


def does_not_bump_at_all(patch: Patch) -> None:
    honest = lifecycle.decided

    def decided(*arguments: Any, **more: Any) -> TransactionStored:
        return honest(*arguments, **{**more, "bumps": False})

    patch.setattr(endings, "decided", decided)


def is_complete_after_the_first_marker(patch: Patch) -> None:
    honest = Orders.written

    def written(orders: Orders, due: MarkersDue, _: Iterable[TopicPartition]) -> bool:
        return honest(orders, due, due.partitions)

    patch.setattr(Orders, "written", written)


def takes_markers_of_the_transaction_before(patch: Patch) -> None:
    honest = Orders.written

    def written(orders: Orders, due: MarkersDue, partitions: Iterable[TopicPartition]) -> bool:
        known = orders._orders.get(due.transactional_id)
        if known is not None and known[0][:3] == due[:3]:
            due = known[0]
        return honest(orders, due, partitions)

    patch.setattr(Orders, "written", written)


def asks_for_no_markers_after_a_crash(patch: Patch) -> None:
    honest = Transactions.loaded

    def loaded(one: Transactions, now: Millis) -> Outcome[Record]:
        honest(one, now)
        return Outcome()

    patch.setattr(Transactions, "loaded", loaded)


def asks_for_markers_before_the_commit(patch: Patch) -> None:
    honest = desk.Desk.submit

    def submit(one: desk.Desk, decide: Callable[[Millis], Outcome[Record]]) -> None:
        orders: list[Reply] = []

        def hasty(now: Millis) -> Outcome[Record]:
            outcome = decide(now)
            orders.extend(reply for reply in outcome.replies if reply.to == one._ordered)
            rest = [reply for reply in outcome.replies if reply.to != one._ordered]
            return Outcome(outcome.records, rest)

        honest(one, hasty)
        for to, due in orders:
            to(due)

    patch.setattr(desk.Desk, "submit", submit)


def never_looks_at_the_clock(patch: Patch) -> None:
    patch.setattr(Transactions, "next_deadline", lambda _: None)


# --- prepared ones ------------------------------------------------------------------------------


def lets_prepared_ones_time_out(patch: Patch) -> None:
    honest = book.Book._store

    def store(one: book.Book, record: TransactionStored) -> None:
        honest(one, record)
        if record.is_prepared:
            at = Millis(record.started_at + record.timeout_ms)
            one.timeouts.set(record.transactional_id, at)

    patch.setattr(book.Book, "_store", store)


def lets_others_take_over_from_prepared_ones(patch: Patch) -> None:
    patch.setattr(TransactionStored, "is_prepared", property(lambda _: False))


def forgets_how_prepared_ones_ended(patch: Patch) -> None:
    honest = book.Book.apply

    def apply(one: book.Book, record: Record) -> None:
        if not isinstance(record, OutcomeStored):
            honest(one, record)

    patch.setattr(book.Book, "apply", apply)


def gives_the_epoch_of_a_prepared_one_away(patch: Patch) -> None:
    honest = endings._decide

    def decide(state: TransactionStored, command: End, now: Millis) -> Decision:
        decision = honest(state, command, now)
        if command.bumps or decision.becomes is None:
            return decision
        epoch = ProducerEpoch(decision.becomes.epoch - state.is_prepared)
        return decision._replace(becomes=decision.becomes._replace(epoch=epoch))

    patch.setattr(endings, "_decide", decide)


def lets_a_late_marker_end_the_next_transaction(patch: Patch) -> None:
    """What KIP-1228 is against."""
    patch.setattr(Partition, "_is_late", lambda *_: False)


def takes_classic_markers_for_newer_ones(patch: Patch) -> None:
    honest = Orders.place

    def place(orders: Orders, state: TransactionStored) -> MarkersDue:
        due = honest(orders, state)._replace(bumped=True)
        orders._orders[state.transactional_id] = due, dict.fromkeys(state.partitions)
        return due

    patch.setattr(Orders, "place", place)


# --- what is written down -----------------------------------------------------------------------


def reads_no_field_of_our_own(patch: Patch) -> None:
    def read(rows: Sequence[Row]) -> list[Record]:
        return [
            one._replace(prepared_at=Millis(-1)) if isinstance(one, TransactionStored) else one
            for one in read_rows(rows)
        ]

    patch.setattr(desk, "read_rows", read)


def loses_the_last_record(patch: Patch) -> None:
    patch.setattr(desk, "read_rows", lambda rows: read_rows(rows)[:-1])


BUGS: tuple[tuple[Plant, int], ...] = (
    (lets_writes_of_any_epoch_join, 0),
    (takes_over_without_aborting, 0),
    (forgets_that_somebody_took_over, 0),
    (begins_before_the_last_one_has_ended, 0),
    (tells_the_last_epoch_too, 1),
    (tells_every_repeat_yes, 1),
    (does_not_bump_after_a_time_out, 5),
    (does_not_bump_at_all, 0),
    (is_complete_after_the_first_marker, 0),
    (takes_markers_of_the_transaction_before, 2),
    (asks_for_no_markers_after_a_crash, 0),
    (asks_for_markers_before_the_commit, 22),
    (never_looks_at_the_clock, 0),
    (lets_prepared_ones_time_out, 1),
    (lets_others_take_over_from_prepared_ones, 1),
    (forgets_how_prepared_ones_ended, 3),
    (gives_the_epoch_of_a_prepared_one_away, 27),
    (lets_a_late_marker_end_the_next_transaction, 43),
    (takes_classic_markers_for_newer_ones, 0),
    (reads_no_field_of_our_own, 7),
    (loses_the_last_record, 0),
)
"""What is planted, and the seed at which it was met first."""


@pytest.mark.parametrize(("plant", "first"), BUGS, ids=[bug[0].__name__ for bug in BUGS])
def test_a_planted_bug_is_caught(plant: Plant, first: int, monkeypatch: Patch) -> None:
    plant(monkeypatch)

    assert first_failure(first) is not None


def first_failure(first: int) -> int | None:
    """The first seed whose life fails."""
    for seed in range(first, first + SEEDS):
        try:
            Life(seed).run()
        except Exception:
            return seed
    return None
