"""The check of groups' histories finds what it looks for: each planted bug is one it must see."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.group_history import (
    Assigned,
    Committed,
    Committing,
    Event,
    GivenUp,
    Journal,
    Processed,
    Row,
    complaints,
    journal_of,
    line_of,
)

LOG = {p: [Row(n, f"key-{p}-{n % 3}", n // 3) for n in range(30)] for p in range(2)}

Journals = list[Journal]


def read(at_ns: int, generation: int, partition: int, start: int, end: int) -> Processed:
    return Processed(at_ns, generation, partition, tuple(LOG[partition][start:end]))


def honest() -> Journals:
    """One member reads both partitions; another takes one over, and then the first is killed.

    The last commit of the first is not acknowledged, so that the second may begin on either side
    of it.
    """
    first: list[Event] = [
        Assigned(10, 1, (0, 1)),
        read(11, 1, 0, 0, 10),
        read(12, 1, 1, 0, 10),
        Committing(13, {0: 10, 1: 10}),
        Committed(14, {0: 10, 1: 10}),
        read(15, 1, 1, 10, 15),
        Committing(16, {1: 15}),
        Committed(17, {1: 15}),
        GivenUp(18, (0, 1)),
        Assigned(20, 2, (0,)),
        read(21, 2, 0, 10, 20),
        Committing(22, {0: 20}),
        read(23, 2, 0, 20, 25),
    ]
    second: list[Event] = [
        Assigned(20, 2, (1,)),
        read(22, 2, 1, 15, 30),
        Committing(23, {1: 30}),
        Committed(24, {1: 30}),
        GivenUp(30, (1,)),
        Assigned(31, 3, (0, 1)),
        read(32, 3, 0, 20, 30),
        Committing(33, {0: 30}),
        Committed(34, {0: 30}),
    ]
    return [Journal("first", first), Journal("second", second)]


def replaced(journals: Journals, member: int, at: int, *events: Event) -> Journals:
    """The history with one step of a member replaced by others."""
    changed = list(journals)
    name, steps = journals[member]
    changed[member] = Journal(name, [*steps[:at], *events, *steps[at + 1 :]])
    return changed


def without_last(journals: Journals) -> Journals:
    """Somebody committed to the end what he never processed."""
    return replaced(journals, 1, 6, read(32, 3, 0, 20, 28))


PLANTED: dict[str, tuple[Callable[[Journals], Journals], str]] = {
    "a record is left out": (without_last, "were never processed"),
    "more is committed than was processed": (without_last, "having got to 28"),
    "a record is skipped in passing": (
        lambda known: replaced(known, 0, 2, read(12, 1, 1, 0, 4), read(12, 1, 1, 5, 10)),
        "4 was next",
    ),
    "a record is repeated in passing": (
        lambda known: replaced(known, 0, 2, read(12, 1, 1, 0, 6), read(12, 1, 1, 5, 10)),
        "6 was next",
    ),
    "two are swapped": (
        lambda known: replaced(
            known, 0, 2, Processed(12, 1, 1, (LOG[1][3], *LOG[1][1:3], LOG[1][0], *LOG[1][4:10]))
        ),
        "came after",
    ),
    "a position goes back behind a commit": (
        lambda known: replaced(known, 1, 1, read(22, 2, 1, 10, 30)),
        "begins 1 at 10; 15 was committed before",
    ),
    "a commit is forgotten altogether": (
        lambda known: replaced(known, 1, 1, read(22, 2, 1, 0, 30)),
        "begins 1 at 0; 15 was committed before",
    ),
    "a position is made up": (
        lambda known: replaced(known, 1, 1, read(22, 2, 1, 16, 30)),
        "begins 1 at 16, which nobody had committed",
    ),
    "a position is known before it is committed": (
        lambda known: replaced(known, 1, 6, read(22, 3, 0, 20, 30)),
        "begins 0 at 20, which nobody had committed",
    ),
    "two own a partition in a generation": (
        lambda known: replaced(known, 1, 0, Assigned(20, 2, (0, 1))),
        "0 belongs to first and to second in generation 2",
    ),
    "two read a partition in a generation": (
        lambda known: replaced(known, 1, 6, read(32, 2, 0, 20, 30)),
        "0 belongs to first and to second in generation 2",
    ),
    "a partition is read that was given up": (
        lambda known: replaced(known, 1, 5, Assigned(31, 3, (1,))),
        "without owning it",
    ),
    "a partition is committed that was given up": (
        lambda known: replaced(known, 0, 8, GivenUp(18, (0, 1)), Committing(19, {1: 15})),
        "having got to None",
    ),
    "a record is another": (
        lambda known: replaced(
            known, 0, 12, Processed(23, 2, 0, (LOG[0][20]._replace(number=7), *LOG[0][21:25]))
        ),
        "holds no",
    ),
}


def test_an_honest_history_passes() -> None:
    assert complaints(LOG, honest()) == []


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(bug: str) -> None:
    plant, said = PLANTED[bug]

    found = complaints(LOG, plant(honest()))

    assert any(said in one for one in found), found


def test_a_journal_survives_the_disk_and_a_torn_end(tmp_path: Path) -> None:
    path = tmp_path / "first.jsonl"
    (journal, _) = honest()
    path.write_bytes(b"".join(map(line_of, journal.events)) + b'["Proce')

    assert journal_of(path) == journal
