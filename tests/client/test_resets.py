"""Where a reset takes a group."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.client.group_descriptions import OffsetMove, PartitionLag
from waystation.client.resets import By, Ends, ResetTo, moment_of, planned
from waystation.model.errors import InvalidRequestError
from waystation.model.ids import TopicPartition
from waystation.model.offsets import Millis, Offset

WHERE = TopicPartition("orders", 0)
ENDS = Ends(Offset(50), Offset(20), Offset(90), since=Offset(70))
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def moved(to: ResetTo, ends: Ends = ENDS) -> OffsetMove:
    return planned(to, {WHERE: ends})[WHERE]


@pytest.mark.parametrize(
    ("to", "offset"),
    [
        ("earliest", 20),
        ("latest", 90),
        ("current", 50),
        (33, 33),
        (3, 20),
        (300, 90),
        (By(10), 60),
        (By(-10), 40),
        (By(-100), 20),
        (By(100), 90),
        (NOON, 70),
        (timedelta(hours=1), 70),
        ({WHERE: 44}, 44),
    ],
    ids=str,
)
def test_every_place_is_within_the_partition(to: ResetTo, offset: int) -> None:
    assert moved(to) == (50, offset)


def test_a_time_after_the_last_message_is_the_end() -> None:
    assert moved(NOON, ENDS._replace(since=None)).after == 90


@pytest.mark.parametrize("to", ["current", By(1)])
def test_who_has_committed_nothing_cannot_be_moved_from_there(to: ResetTo) -> None:
    with pytest.raises(InvalidRequestError, match="orders-0"):
        moved(to, ENDS._replace(committed=None))


def test_moments_are_times_or_durations_before_now() -> None:
    now = Millis(int(NOON.timestamp() * 1_000))

    assert moment_of(NOON, Millis(0)) == now
    assert moment_of(timedelta(minutes=2), now) == now - 120_000
    assert moment_of("earliest", now) is None
    with pytest.raises(InvalidRequestError, match="yesterday"):
        moment_of("yesterday", now)


@given(
    committed=st.none() | st.integers(0, 100),
    ends=st.tuples(st.integers(0, 100), st.integers(0, 100)).map(sorted),
)
def test_what_retention_took_is_not_counted_as_waiting(
    committed: int | None, ends: list[int]
) -> None:
    at = None if committed is None else Offset(committed)
    lag = PartitionLag(at, Offset(ends[0]), Offset(ends[1]), None).messages

    if committed is None:
        assert lag is None
    else:
        assert lag == len(range(max(committed, ends[0]), ends[1]))


def test_a_group_is_as_late_as_its_oldest_message_is_old() -> None:
    lag = PartitionLag(Offset(5), Offset(0), Offset(9), Millis(10_000))

    assert lag.seconds(Millis(12_500)) == 2.5
    assert lag.seconds(Millis(9_000)) == 0.0
    assert lag._replace(oldest_at=None).seconds(Millis(12_500)) == 0.0
    assert lag._replace(committed=None).seconds(Millis(12_500)) is None
