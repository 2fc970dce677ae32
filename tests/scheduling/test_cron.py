"""Recurring times, and what becomes of them when clocks change."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.model.offsets import Millis
from waystation.scheduling.cron import Cron


def millis(text: str) -> Millis:
    return Millis(round(datetime.fromisoformat(text).timestamp() * 1_000))


def times(cron: Cron, after: str, count: int) -> list[str]:
    """The next ones, in UTC."""
    found, moment = [], millis(after)
    for _ in range(count):
        following = cron.next_after(moment)
        assert following is not None
        found.append(datetime.fromtimestamp(following / 1_000, UTC).strftime("%Y-%m-%dT%H:%M"))
        moment = following
    return found


@pytest.mark.parametrize(
    ("text", "after", "following"),
    [
        ("*/15 * * * *", "2027-01-15T08:07Z", ["2027-01-15T08:15", "2027-01-15T08:30"]),
        ("0 3 * * *", "2027-01-15T03:00Z", ["2027-01-16T03:00", "2027-01-17T03:00"]),
        ("0 9 * * mon-fri", "2027-01-15T10:00Z", ["2027-01-18T09:00", "2027-01-19T09:00"]),
        ("30 6 1,15 * *", "2027-01-15T07:00Z", ["2027-02-01T06:30", "2027-02-15T06:30"]),
        ("0 0 29 2 *", "2027-01-15T00:00Z", ["2028-02-29T00:00", "2032-02-29T00:00"]),
        ("0 0 13 * fri", "2027-01-15T08:00Z", ["2027-01-22T00:00", "2027-01-29T00:00"]),
        ("0 0 * * 7", "2027-01-15T08:00Z", ["2027-01-17T00:00", "2027-01-24T00:00"]),
        ("5/20 1 * * *", "2027-01-15T00:00Z", ["2027-01-15T01:05", "2027-01-15T01:25"]),
        ("@monthly", "2027-01-15T00:00Z", ["2027-02-01T00:00", "2027-03-01T00:00"]),
    ],
)
def test_the_fields_mean_what_cron_means(text: str, after: str, following: list[str]) -> None:
    assert times(Cron(text), after, 2) == following


def test_a_job_of_one_hour_keeps_it_in_summer_and_winter() -> None:
    daily = Cron("0 3 * * *", "Europe/Berlin")

    assert times(daily, "2027-03-26T12:00Z", 3) == [
        "2027-03-27T02:00",
        "2027-03-28T01:00",
        "2027-03-29T01:00",
    ]


def test_what_clocks_skip_comes_as_if_they_had_not_been_changed() -> None:
    """On 2027-03-28 in Berlin there is no 02:30: clocks go from 02:00 to 03:00 at 01:00 UTC."""
    daily = Cron("30 2 * * *", "Europe/Berlin")

    assert times(daily, "2027-03-27T12:00Z", 2) == ["2027-03-28T01:30", "2027-03-29T00:30"]


def test_what_comes_twice_counts_the_first_time() -> None:
    """On 2027-10-31 in Berlin 02:30 comes at 00:30 UTC and again at 01:30 UTC."""
    daily = Cron("30 2 * * *", "Europe/Berlin")

    assert times(daily, "2027-10-30T12:00Z", 2) == ["2027-10-31T00:30", "2027-11-01T01:30"]


def test_a_job_of_every_hour_follows_real_time() -> None:
    half_past = Cron("30 * * * *", "Europe/Berlin")

    assert times(half_past, "2027-03-28T00:00Z", 3) == [
        "2027-03-28T00:30",
        "2027-03-28T01:30",
        "2027-03-28T02:30",
    ]
    assert times(half_past, "2027-10-31T00:00Z", 3) == [
        "2027-10-31T00:30",
        "2027-10-31T01:30",
        "2027-10-31T02:30",
    ]


def test_a_day_that_a_country_left_out_is_made_up_for() -> None:
    """Samoa had no 2011-12-30; what was meant for it came a day later by the wall clock."""
    daily = Cron("0 12 30 12 *", "Pacific/Apia")

    assert times(daily, "2011-12-01T00:00Z", 1) == ["2011-12-30T22:00"]


@given(
    st.sampled_from(["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC"]),
    st.sampled_from(["*/7 * * * *", "30 2 * * *", "0 */5 * * sun", "15 1,2,3 28-31 * *"]),
    st.integers(0, 4_102_444_800_000),
)
def test_the_next_time_is_later_and_nothing_lies_between(zone: str, text: str, at: int) -> None:
    cron = Cron(text, zone)
    following = cron.next_after(Millis(at))

    assert following is not None
    assert following > at
    assert cron.next_after(Millis(following - 1)) == following
    assert cron.next_after(Millis((at + following) // 2)) == following


def test_a_calendar_that_ends_has_no_next_time() -> None:
    assert Cron("* * * * *").next_after(Millis(253_402_300_799_999)) is None
    assert Cron("* * * * *").next_after(Millis(1 << 62)) is None
