"""Fetch sessions: what a consumer was told, and which consumer gives way."""

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.broker.fetch_sessions import (
    FetchSession,
    FetchSessionNotFoundError,
    FetchSessions,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpochError,
)
from waystation.broker.fetching import Found, Wanted
from waystation.model.errors import UnknownTopicError
from waystation.model.offsets import Offset
from waystation.runtime.regions import FileRegion

QUIET_S = 120.0


def wanted(*partitions: int, offset: int = 0) -> list[Wanted]:
    return [Wanted("t", number, Offset(offset), 1_000) for number in partitions]


def found(one: Wanted, mark: int = 0, start: int = 0, nbytes: int = 0) -> Found:
    region = FileRegion(_Nowhere(), 0, nbytes) if nbytes else None
    return Found(one, None, region, Offset(mark), Offset(start))


class _Nowhere:
    def fileno(self) -> None:
        return None

    def pread(self, nbytes: int, position: int) -> bytes:
        return bytes(nbytes)


def sessions(slots: int = 2) -> FetchSessions:
    return FetchSessions(slots, count(1).__next__)


def partitions_of(news: list[Found]) -> list[int]:
    return [one.wanted.partition for one in news]


# --- one session --------------------------------------------------------------------------------


def test_only_news_is_told() -> None:
    session = FetchSession(1, wanted(0, 1), by_id=False)
    zero, one = session.wanted.values()

    assert partitions_of(session.news([found(zero), found(one)])) == [0, 1]
    assert session.news([found(zero), found(one)]) == []
    assert partitions_of(session.news([found(zero, mark=5), found(one)])) == [0]
    assert session.news([found(zero, mark=5), found(one)]) == []
    assert partitions_of(session.news([found(zero, mark=5), found(one, start=1)])) == [1]


def test_bytes_and_errors_are_always_news() -> None:
    session = FetchSession(1, wanted(0), by_id=False)
    (zero,) = session.wanted.values()
    refused = Found(zero, UnknownTopicError("gone"))

    for _ in range(2):
        assert session.news([found(zero, mark=5, nbytes=10)])
        assert session.news([refused])


def test_a_partition_that_had_bytes_goes_to_the_back() -> None:
    session = FetchSession(1, wanted(0, 1, 2), by_id=False)
    zero = next(iter(session.wanted.values()))
    session.news([found(zero, mark=1, nbytes=10)])

    assert [one.partition for one in session.wanted.values()] == [1, 2, 0]


def test_what_was_told_is_remembered_when_the_position_moves() -> None:
    session = FetchSession(1, wanted(0), by_id=False)
    (zero,) = session.wanted.values()
    session.news([found(zero, mark=5)])
    session.update(wanted(0, offset=5), [])
    (moved,) = session.wanted.values()

    assert moved.offset == 5
    assert session.news([found(moved, mark=5)]) == []


def test_partitions_come_and_go() -> None:
    session = FetchSession(1, wanted(0, 1), by_id=False)
    session.update(wanted(2), [("t", 0), ("t", 9)])

    assert [one.partition for one in session.wanted.values()] == [1, 2]


# --- many sessions ------------------------------------------------------------------------------


def test_epochs_count_up() -> None:
    every = sessions()
    opened = every.open(wanted(0), 0.0, by_id=False)
    assert opened is not None

    for epoch in (1, 2, 3):
        assert every.next(opened.id, epoch, 0.0, by_id=False) is opened
    for wrong in (3, 5, 0):
        with pytest.raises(InvalidFetchSessionEpochError):
            every.next(opened.id, wrong, 0.0, by_id=False)
    assert every.next(opened.id, 4, 0.0, by_id=False) is opened


def test_the_epoch_begins_again_after_the_last_number() -> None:
    every = sessions()
    opened = every.open(wanted(0), 0.0, by_id=False)
    assert opened is not None
    opened.epoch = (1 << 31) - 1
    every.next(opened.id, (1 << 31) - 1, 0.0, by_id=False)

    assert opened.epoch == 1


def test_names_and_ids_do_not_mix() -> None:
    every = sessions()
    opened = every.open(wanted(0), 0.0, by_id=True)
    assert opened is not None

    with pytest.raises(FetchSessionTopicIdError):
        every.next(opened.id, 1, 0.0, by_id=False)
    assert every.next(opened.id, 1, 0.0, by_id=True) is opened


def test_a_full_house_lets_nobody_in_unless_somebody_is_quiet() -> None:
    every = sessions(slots=2)
    first, second = (every.open(wanted(0), at, by_id=False) for at in (0.0, 10.0))
    assert first is not None
    assert second is not None
    assert every.open(wanted(0), 100.0, by_id=False) is None
    every.next(first.id, 1, 100.0, by_id=False)

    third = every.open(wanted(0), 10.0 + QUIET_S, by_id=False)
    assert third is not None
    assert len(every) == 2
    with pytest.raises(FetchSessionNotFoundError):
        every.next(second.id, 1, 200.0, by_id=False)
    assert every.next(first.id, 2, 200.0, by_id=False) is first


def test_no_slots_mean_no_sessions() -> None:
    assert sessions(slots=0).open(wanted(0), 0.0, by_id=False) is None


def test_an_id_in_use_is_not_given_again() -> None:
    ids = iter([0, 7, 7, 8])
    every = FetchSessions(2, ids.__next__)
    first, second = (every.open(wanted(0), 0.0, by_id=False) for _ in range(2))

    assert first is not None
    assert second is not None
    assert (first.id, second.id) == (7, 8)


def test_closing_is_harmless_whatever_is_closed() -> None:
    every = sessions()
    opened = every.open(wanted(0), 0.0, by_id=False)
    assert opened is not None
    every.close(opened.id)
    every.close(opened.id)

    assert len(every) == 0


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 200)), max_size=60))
def test_never_more_sessions_than_slots(steps: list[tuple[int, int]]) -> None:
    every, now_s = sessions(slots=3), 0.0
    opened: list[FetchSession] = []
    for action, wait_s in steps:
        now_s += wait_s
        if action == 0 or not opened:
            session = every.open(wanted(0), now_s, by_id=False)
            opened += [session] if session else []
        elif action == 1:
            every.close(opened.pop().id)
        else:
            try:
                every.next(opened[0].id, opened[0].epoch, now_s, by_id=False)
            except FetchSessionNotFoundError:
                opened.pop(0)

        assert len(every) <= 3
