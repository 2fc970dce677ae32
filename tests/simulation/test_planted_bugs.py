"""The simulated lives catch what they are for: each bug planted here makes one of them fail."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from tests.simulation.groups import (
    CLASSIC,
    SERVER_SIDE,
    TRANSACTIONAL,
    TRANSACTIONAL_SERVER_SIDE,
    Life,
)
from tests.simulation.members import Member
from tests.simulation.shelf import Shelf
from waystation.broker.group_records import GroupRecordReader
from waystation.groups import membership
from waystation.groups.classic import ClassicGroup
from waystation.groups.commits import Commits
from waystation.groups.consumer import ConsumerGroup
from waystation.groups.machine import Groups
from waystation.groups.pending import Pending
from waystation.groups.reconciliation import reconcile
from waystation.groups.records import OffsetForgotten, PendingOffset, Record
from waystation.model.errors import WaystationError
from waystation.model.machines import InTransaction, Outcome, Reply
from waystation.model.offsets import Millis
from waystation.records.control import Marker
from waystation.records.record import Row
from waystation.runtime.host import Host

SEEDS = 60
Patch = pytest.MonkeyPatch
Plant = Callable[[Patch], None]


# --- in the host --------------------------------------------------------------------------------


def answers_before_the_commit(patch: Patch) -> None:
    def queue(host: Host[Record], replies: Sequence[Reply]) -> None:
        for to, answer in replies:
            to(answer)

    patch.setattr(Host, "_queue", queue)


def answers_reads_from_what_is_not_committed(patch: Patch) -> None:
    honest = Host.submit

    def submit(host: Host[Record], decide: Callable[[Millis], Outcome[Record]], to: object) -> None:
        def hasty(now: Millis) -> Outcome[Record]:
            outcome = decide(now)
            if outcome.records or host.ended:
                return outcome
            for waiter, answer in outcome.replies:
                waiter(answer)
            return Outcome()

        honest(host, hasty, to)  # type: ignore[arg-type]

    patch.setattr(Host, "submit", lambda host, decide, to=None: submit(host, decide, to))


def forgets_who_waits_inside(patch: Patch) -> None:
    patch.setattr(Groups, "abandon", lambda _: [])


def goes_on_after_a_failed_append(patch: Patch) -> None:
    def remember(host: Host[Record], records: Sequence[Record]) -> None:
        with contextlib.suppress(WaystationError):
            host._end = host._log.append(records)
        for record in records:
            host.machine.apply(record)

    patch.setattr(Host, "_remember", remember)


def never_looks_at_the_clock(patch: Patch) -> None:
    patch.setattr(Host, "_arm", lambda _: None)


# --- in what is written down --------------------------------------------------------------------


def reads_no_tombstones(patch: Patch) -> None:
    honest = GroupRecordReader.read_rows

    def read_rows(reader: GroupRecordReader, rows: Sequence[Row]) -> list[Record]:
        return honest(reader, [row for row in rows if row[3] is not None])

    patch.setattr(GroupRecordReader, "read_rows", read_rows)


def loads_without_the_newest_batch(patch: Patch) -> None:
    honest = Shelf.new_epoch

    def new_epoch(shelf: Shelf) -> int:
        epoch = honest(shelf)
        if shelf.batches and shelf.batches[-1]:
            shelf.batches[-1] = b""
        return epoch

    patch.setattr(Shelf, "new_epoch", new_epoch)


# --- in classic groups --------------------------------------------------------------------------


def starts_no_sessions_after_a_replay(patch: Patch) -> None:
    patch.setattr(Groups, "loaded", lambda *_: Outcome())


def takes_commits_of_any_generation(patch: Patch) -> None:
    patch.setattr(ClassicGroup, "check_commit", lambda *_: None)


def keeps_its_generation(patch: Patch) -> None:
    honest = ClassicGroup._begin_generation

    def begin(group: ClassicGroup, *arguments: object) -> None:
        honest(group, *arguments)  # type: ignore[arg-type]
        group.generation = 1

    patch.setattr(ClassicGroup, "_begin_generation", begin)


# --- in groups of the server-side protocol ------------------------------------------------------


def gives_away_what_another_still_holds(patch: Patch) -> None:
    def careless(current, target, epoch, owned, is_free):  # type: ignore[no-untyped-def]
        return reconcile(current, target, epoch, owned, lambda _: True)

    patch.setattr(membership, "reconcile", careless)


def takes_commits_of_any_epoch(patch: Patch) -> None:
    patch.setattr(ConsumerGroup, "check_commit", lambda *_: None)


# --- in transactions ----------------------------------------------------------------------------


def counts_pending_offsets_at_once(patch: Patch) -> None:
    honest = Commits.apply

    def apply(commits: Commits, record: OffsetForgotten | PendingOffset | Marker) -> None:
        honest(commits, record)
        if isinstance(record, InTransaction):
            commits.keep(record.record)

    patch.setattr(Commits, "apply", apply)


def takes_an_abort_for_a_commit(patch: Patch) -> None:
    honest = Pending.end
    patch.setattr(Pending, "end", lambda self, who, *, committed: honest(self, who, committed=True))


def reads_back(patch: Patch, wanted: Callable[[Record], bool]) -> None:
    """Lose some of what a coordinator that loads is given."""

    def records(shelf: Shelf, read: Any) -> Iterator[list[Record]]:
        for some in honest(shelf, read):
            yield [record for record in some if wanted(record)]

    honest = Shelf.records
    patch.setattr(Shelf, "records", records)


def loses_markers_by_a_replay(patch: Patch) -> None:
    reads_back(patch, lambda record: not isinstance(record, Marker))


def loses_open_transactions_by_a_replay(patch: Patch) -> None:
    patch.setattr(Groups, "loaded", forgetful(Groups.loaded))


def forgetful(honest: Callable[[Groups, Millis], Outcome[Record]]) -> Any:
    def loaded(groups: Groups, now: Millis) -> Outcome[Record]:
        pending = groups._commits.pending
        for producer_id in list(pending._transactions):
            pending.end(producer_id, committed=False)
        return honest(groups, now)

    return loaded


def tells_offsets_that_are_not_stable(patch: Patch) -> None:
    patch.setattr(Commits, "_if_stable", lambda _, group_id, one: one)


def takes_transactions_of_any_generation(patch: Patch) -> None:
    patch.setattr(Commits, "_check_member", lambda *_: None)


def never_asks_what_the_log_knows_of_producers(patch: Patch) -> None:
    patch.setattr(Commits, "_check_producer", lambda *_: None)


BUGS: tuple[tuple[Plant, type[Member], int], ...] = (
    (answers_before_the_commit, CLASSIC, 6),
    (answers_reads_from_what_is_not_committed, CLASSIC, 17),
    (forgets_who_waits_inside, CLASSIC, 6),
    (goes_on_after_a_failed_append, CLASSIC, 1),
    (never_looks_at_the_clock, CLASSIC, 0),
    (reads_no_tombstones, SERVER_SIDE, 0),
    (loads_without_the_newest_batch, CLASSIC, 0),
    (starts_no_sessions_after_a_replay, CLASSIC, 0),
    (takes_commits_of_any_generation, CLASSIC, 0),
    (keeps_its_generation, CLASSIC, 0),
    (gives_away_what_another_still_holds, SERVER_SIDE, 0),
    (takes_commits_of_any_epoch, SERVER_SIDE, 3),
    (counts_pending_offsets_at_once, TRANSACTIONAL, 0),
    (takes_an_abort_for_a_commit, TRANSACTIONAL, 0),
    (loses_markers_by_a_replay, TRANSACTIONAL, 0),
    (loses_open_transactions_by_a_replay, TRANSACTIONAL, 1),
    (tells_offsets_that_are_not_stable, TRANSACTIONAL, 20),
    (takes_transactions_of_any_generation, TRANSACTIONAL, 0),
    (never_asks_what_the_log_knows_of_producers, TRANSACTIONAL_SERVER_SIDE, 0),
)
"""What is planted, who meets it, and the seed at which it was met first."""


@pytest.mark.parametrize(("plant", "kind", "first"), BUGS, ids=[bug[0].__name__ for bug in BUGS])
def test_a_planted_bug_is_caught(
    plant: Plant, kind: type[Member], first: int, monkeypatch: Patch
) -> None:
    plant(monkeypatch)

    assert first_failure(kind, first) is not None


def first_failure(kind: type[Member], first: int) -> int | None:
    """The first seed whose life fails."""
    for seed in range(first, first + SEEDS):
        try:
            Life(seed, [kind]).run()
        except Exception:
            return seed
    return None
