"""The design documents' estimate, trends, and how long a disk does."""

from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waystation.model.ids import TopicPartition
from waystation.pipelines.capacity_estimate import (
    DAY_MS,
    Bucket,
    Demand,
    Trend,
    boundaries,
    buckets_between,
    days_until_full,
    offsets_json,
    sample_spans,
    storage_bytes,
    trend,
    usage_bytes,
)
from waystation.pipelines.capacity_report import CapacityReport, TopicCapacity
from waystation.pipelines.report import text_table
from waystation.pipelines.topic_log import Extent

KB, TB, PB = 1e3, 1e12, 1e15


# --- the documents' figures -------------------------------------------------------------------


def test_a_billion_messages_of_1_kb_are_1_tb_a_day() -> None:
    assert storage_bytes(1e9, KB, 1, 1) == 1 * TB
    assert round(1e9 / 86_400) == 11_574


def test_a_million_messages_a_second_for_7_days_in_3_copies_are_1_8_pb() -> None:
    per_day = 1e6 * 86_400

    assert storage_bytes(per_day, KB, 7, 1) == pytest.approx(600 * TB, rel=0.01)
    assert storage_bytes(per_day, KB, 7, 3) == pytest.approx(1.8 * PB, rel=0.01)


# --- trends -----------------------------------------------------------------------------------


def days(*messages: int) -> list[Bucket]:
    return [Bucket(at * DAY_MS, (at + 1) * DAY_MS, n) for at, n in enumerate(messages)]


def test_a_steady_log_does_not_grow() -> None:
    assert trend(days(100, 100, 100, 100)) == Trend(100, 100, 0)


def test_growth_is_the_slope_of_the_rates() -> None:
    found = trend(days(100, 110, 120, 130, 140))

    assert found.per_day == 120
    assert found.growth_per_day == pytest.approx(10)
    assert found.now_per_day == pytest.approx(145)
    assert found.growth_percent == pytest.approx(100 * 10 / 120)


def test_a_last_day_that_is_not_over_is_not_a_fall() -> None:
    whole = days(100, 100, 100, 100)
    half = Bucket(4 * DAY_MS, 4 * DAY_MS + DAY_MS // 2, 50)

    assert trend([*whole, half]).growth_per_day == pytest.approx(0, abs=1e-9)


def test_a_log_of_hours_says_nothing_about_growth() -> None:
    hours = [Bucket(at * 3_600_000, (at + 1) * 3_600_000, at) for at in range(47)]

    assert trend(hours).growth_per_day is None
    assert trend(hours).per_day == pytest.approx(sum(range(47)) * 24 / 47)


def test_an_empty_log_has_no_trend() -> None:
    assert trend([]) == Trend(0, 0, None)


@settings(deadline=None)
@given(st.integers(0, 2**40), st.integers(0, 400 * DAY_MS))
def test_boundaries_cover_the_log_in_bearable_number(oldest_ms: int, span_ms: int) -> None:
    newest_ms = oldest_ms + span_ms
    edges = boundaries(oldest_ms, newest_ms)

    assert edges[0] == oldest_ms
    assert edges[-1] == newest_ms + 1
    assert edges == sorted(set(edges))
    assert len(edges) <= 63


def test_offsets_at_boundaries_make_buckets() -> None:
    assert list(buckets_between([0, 10, 20], [5, 7, 7])) == [Bucket(0, 10, 2), Bucket(10, 20, 0)]


# --- the disk ---------------------------------------------------------------------------------


def demand(**changes: float) -> Demand:
    given = {
        "used_bytes": 0.0,
        "used_over_days": 0.0,
        "bytes_per_day": 10.0,
        "growth_bytes_per_day": 0.0,
        "retention_days": 7.0,
    }
    return Demand(**{**given, **changes})


def test_a_steady_log_takes_what_it_brings_in_as_long_as_it_is_kept() -> None:
    assert [usage_bytes(demand(), day) for day in (0, 1, 7, 100)] == [0, 10, 70, 70]


def test_a_log_as_old_as_it_is_kept_stays_as_large_as_it_is() -> None:
    full = demand(used_bytes=70, used_over_days=7)

    assert [usage_bytes(full, day) for day in (0, 3, 7, 30)] == pytest.approx([70, 70, 70, 70])


def test_a_shorter_retention_deletes_at_once() -> None:
    assert usage_bytes(demand(used_bytes=100, used_over_days=10, retention_days=1), 0) == 10


def test_the_day_on_which_the_disk_is_full() -> None:
    assert days_until_full(demand(), 35) == pytest.approx(3.5, abs=0.25)
    assert days_until_full(demand(), 70) is None
    assert days_until_full(demand(growth_bytes_per_day=1), 70) is not None
    assert days_until_full(demand(used_bytes=50, used_over_days=7), 40) == 0


def test_a_log_that_shrinks_ends_at_nothing() -> None:
    shrinking = demand(growth_bytes_per_day=-1)

    assert usage_bytes(shrinking, 1_000) == pytest.approx(0)


@settings(deadline=None)
@given(
    st.floats(0, 1e15),
    st.floats(0, 100),
    st.floats(0, 1e13),
    st.floats(-1e11, 1e11),
    st.floats(0.1, 90),
)
def test_usage_is_never_negative(
    used: float, over: float, rate: float, growth: float, kept: float
) -> None:
    asked = Demand(used, over, rate, growth, kept)

    assert all(
        usage_bytes(asked, day) >= -1e-6 * (used + rate + 1) * 1e4 for day in range(0, 200, 7)
    )


# --- samples ----------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.integers(0, 10**12), st.integers(0, 10**12), st.integers(1, 10_000), st.integers(1, 5))
def test_samples_are_small_and_lie_in_the_log(
    start: int, count: int, records: int, pieces: int
) -> None:
    whole = Extent(start, start + count)
    spans = sample_spans(whole, records, pieces)

    assert len(spans) == pieces
    assert sum(end - begin for begin, end in spans) <= max(records, pieces)
    assert all(whole.start <= begin <= end <= whole.end for begin, end in spans)
    for (_, end), (begin, _) in pairwise(spans):
        assert begin >= end, "a record would count twice"


def test_a_small_log_is_sampled_whole() -> None:
    assert sample_spans(Extent(3, 10), 100) == [Extent(3, 10), Extent(10, 10), Extent(10, 10)]


def test_offsets_as_the_source_wants_them() -> None:
    text = offsets_json({TopicPartition("b", 1): 7, TopicPartition("b", 0): 5})

    assert text == '{"b": {"0": 5, "1": 7}}'


# --- the report -------------------------------------------------------------------------------


def topic(name: str, *messages: int, stored_bytes: int) -> TopicCapacity:
    buckets = tuple(days(*messages))
    return TopicCapacity(
        topic=name,
        partitions=1,
        messages=sum(messages),
        oldest_ms=0,
        newest_ms=len(messages) * DAY_MS,
        record_bytes=1_000.0,
        record_max_bytes=2_000,
        sampled=10,
        stored_bytes=stored_bytes,
        copies=1,
        retention_ms=None,
        trend=trend(buckets),
        buckets=buckets,
    )


def report(disk_bytes: int | None = None) -> CapacityReport:
    topics = (topic("orders", 10, 10, 10, stored_bytes=3_000), topic("none", stored_bytes=0))
    return CapacityReport(datetime(2026, 1, 1, tzinfo=UTC), topics, 7, 3, disk_bytes)


def test_storage_is_by_what_a_message_takes_on_disk() -> None:
    found = report()

    assert found.messages_per_day == 10
    assert found.bytes_per_day == 1_000
    assert found.storage_bytes == 10 * 100 * 7 * 3


def test_the_disk_is_judged_in_all_copies() -> None:
    assert report(disk_bytes=21_000).days_left is None
    assert "it will do" in report(disk_bytes=21_000).disk_sentence()
    assert report(disk_bytes=15_000).days_left == pytest.approx(2, abs=0.25)
    assert "not known" in report().disk_sentence()


def test_a_short_log_is_said_to_be_short() -> None:
    short = replace(topic("t", 1, stored_bytes=1), newest_ms=1_500)
    told = CapacityReport(datetime(2026, 1, 1, tzinfo=UTC), (short,), 7, 3, None)

    assert told.span_sentence() == (
        "the log reaches back 1.5 s: figures per day assume that it goes on like that"
    )
    assert report().span_sentence() == "the log reaches back 3.0 d"


def test_the_report_is_a_table_a_document_and_a_page() -> None:
    found = report(disk_bytes=15_000)

    assert "orders" in text_table(found.table())
    assert found.as_dict()["topics"][0]["storage_bytes"] == 21_000
    assert found.html().count("<svg") == 2
