"""Figures of windows that can be added up in any order."""

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waystation.pipelines.metrics_windows import (
    Asked,
    Figures,
    Windows,
    age_buckets,
    percentile_ms,
    shown_key,
    summarised,
    upper_ms,
)

SEEN_MS = 1_700_000_000_000
WINDOW_MS = 60_000
ASKED = Asked(WINDOW_MS, SEEN_MS, {}, capacity=100)

Record = tuple[str, int | None, int, bytes | None]
"""Topic, time, bytes, key."""

records = st.lists(
    st.tuples(
        st.sampled_from(["a", "b"]),
        st.none() | st.integers(SEEN_MS - 10 * WINDOW_MS, SEEN_MS + WINDOW_MS),
        st.integers(0, 5_000),
        st.none() | st.sampled_from([b"", b"k1", b"k2", b"\xff"]),
    )
)


def batch(rows: list[Record]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            pa.array([row[3] for row in rows], pa.binary()),
            pa.array([row[2] for row in rows], pa.int64()),
            pa.array([row[0] for row in rows], pa.string()),
            pa.array(
                [None if row[1] is None else row[1] * 1_000 for row in rows],
                pa.timestamp("us", tz="UTC"),
            ),
        ],
        names=["key", "bytes", "topic", "timestamp"],
    )


def counted(rows: list[Record], asked: Asked = ASKED) -> Windows:
    windows = Windows()
    for where, figures in summarised([batch(rows)], asked):
        windows.add(where, figures, asked.capacity)
    return windows


@settings(deadline=None)  # the first example imports
@given(records)
def test_every_record_counts_once_in_its_own_window(rows: list[Record]) -> None:
    windows = counted(rows)

    expected: Counter[tuple[int, str]] = Counter()
    sizes: Counter[tuple[int, str]] = Counter()
    for topic, time_ms, size, _ in rows:
        when = SEEN_MS if time_ms is None else time_ms
        expected[when - when % WINDOW_MS, topic] += 1
        sizes[when - when % WINDOW_MS, topic] += size
    assert {where: one.messages for where, one in windows.items()} == expected
    assert {where: one.payload_bytes for where, one in windows.items()} == {
        where: sizes[where] for where in expected
    }
    assert all(sum(one.ages.values()) == one.messages for one in windows.values())


@settings(deadline=None, max_examples=40)
@given(st.lists(records, max_size=5), st.randoms())
def test_batches_add_up_to_the_whole_in_any_order(
    parts: list[list[Record]], chance: object
) -> None:
    whole = counted([row for part in parts for row in part])
    chance.shuffle(parts)  # type: ignore[attr-defined]  # a Random
    added = Windows()
    for part in parts:
        for where, figures in counted(part).items():
            added.add(where, figures, ASKED.capacity)

    assert added == whole


def test_late_is_what_is_older_than_the_watermark() -> None:
    asked = ASKED._replace(late_before_ms={"a": SEEN_MS - 1_000})
    rows: list[Record] = [
        ("a", SEEN_MS - 1_001, 1, None),
        ("a", SEEN_MS - 1_000, 1, None),
        ("b", SEEN_MS - 9_999, 1, None),
    ]

    late = {topic: one.late for (_, topic), one in counted(rows, asked).items()}
    assert late == {"a": 1, "b": 0}


def test_a_record_without_a_time_is_counted_when_it_was_seen() -> None:
    ((where, figures),) = counted([("a", None, 1, None)]).items()

    assert where == (SEEN_MS - SEEN_MS % WINDOW_MS, "a")
    assert figures.age_max_ms == 0


def test_a_record_from_the_future_has_no_age() -> None:
    ((_, figures),) = counted([("a", SEEN_MS + 5_000, 1, None)]).items()

    assert (figures.age_max_ms, figures.age_ms(0.99)) == (0, 0)


# --- ages -------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.lists(st.integers(0, 10**10), min_size=1))
def test_a_percentile_is_at_most_a_bucket_too_high(ages: list[int]) -> None:
    figures = Figures(messages=len(ages), age_max_ms=max(ages))
    figures.ages = dict(Counter(age_buckets(pa.array(ages).to_numpy()).tolist()))
    ages.sort()

    for share in (0.5, 0.99):
        exact = ages[min(int(share * len(ages)), len(ages) - 1)]
        below = ages[max(int(share * len(ages)) - 1, 0)]
        assert below <= figures.age_ms(share) <= exact * 1.1 + 1


def test_buckets_end_where_the_next_begins() -> None:
    ages = pa.array(range(100_000)).to_numpy()

    assert all(age <= upper_ms(bucket) for age, bucket in zip(ages, age_buckets(ages), strict=True))
    assert percentile_ms({}, 0.5) == 0


# --- keys -------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 30)), max_size=8), st.integers(1, 12))
def test_counts_of_keys_are_never_too_high_and_hardly_too_low(
    parts: list[list[int]], capacity: int
) -> None:
    total = Figures()
    for part in parts:
        keys = dict(Counter(map(str, part)))
        total.add(Figures(messages=len(part), keys=keys), capacity)
    exact = Counter(str(key) for part in parts for key in part)

    assert len(total.keys) <= capacity
    for key, count in exact.items():
        kept = total.keys.get(key, 0)
        assert count - total.messages / (capacity + 1) <= kept <= count


def test_few_keys_are_counted_exactly_and_listed_by_frequency() -> None:
    rows: list[Record] = [("a", SEEN_MS, 1, key) for key in (b"x", b"y", b"y", None, b"z", b"z")]
    ((_, figures),) = counted(rows).items()

    assert figures.top_keys() == [("y", 2), ("z", 2), ("x", 1)]


@pytest.mark.parametrize(
    ("key", "shown"), [(b"", ""), ("ü".encode(), "ü"), (b"\xff\x00", "0xff00")]
)
def test_keys_are_shown_as_text_where_they_are_text(key: bytes, shown: str) -> None:
    assert shown_key(key) == shown


def test_long_keys_are_cut_and_stay_apart() -> None:
    one, other = shown_key(b"k" * 500 + b"1"), shown_key(b"k" * 500 + b"2")

    assert len(one) < 120
    assert one != other
