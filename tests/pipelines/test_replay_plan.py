"""What a replay sends: every offset once, in ascending chunks of bearable size."""

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.model.ids import TopicPartition
from waystation.pipelines.failures import JobError
from waystation.pipelines.progress import Interrupts
from waystation.pipelines.replay_pace import Pace
from waystation.pipelines.replay_plan import (
    Chunk,
    Extent,
    first_chunk,
    next_chunk,
    refuse_other,
)
from waystation.pipelines.replay_range import Bounds, clipped, parse_bounds

ZERO, ONE = TopicPartition("orders", 0), TopicPartition("orders", 1)
places = st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 5))
extents = st.dictionaries(
    places, st.tuples(st.integers(0, 10**12), st.integers(0, 500)), max_size=8
).map(
    lambda found: Extent(
        {where: first for where, (first, _) in found.items()},
        {where: first + size for where, (first, size) in found.items()},
    )
)


def chunks_of(whole: Extent, sizes: list[int]) -> list[Chunk]:
    """All chunks, as a replay finds them that is started again and again with other sizes."""
    found: list[Chunk] = []
    chunk = first_chunk(whole, sizes[0])
    while chunk is not None:
        written = json.loads(json.dumps(chunk.as_json()))
        found.append(Chunk.of_json(written))
        assert found[-1] == chunk
        chunk = next_chunk(whole, found[-1], sizes[len(found) % len(sizes)], messages=1)
    return found


@given(extents, st.lists(st.integers(1, 300), min_size=1, max_size=4))
def test_every_offset_is_in_one_chunk_and_chunks_ascend(whole: Extent, sizes: list[int]) -> None:
    at = dict(whole.first)

    for number, chunk in enumerate(chunks_of(whole, sizes)):
        assert (chunk.number, chunk.sent) == (number, number)
        assert chunk.extent.first == {where: at[where] for where in chunk.extent.first}
        assert 1 <= chunk.extent.offsets() <= max(sizes[number % len(sizes)], len(whole.first))
        at.update(chunk.extent.last)

    assert at == whole.last


def test_partitions_end_together() -> None:
    whole = Extent({ZERO: 0, ONE: 1_000}, {ZERO: 900, ONE: 1_100})

    found = chunks_of(whole, [100])

    assert len(found) == 10
    assert all(set(chunk.extent.first) == {ZERO, ONE} for chunk in found)


def test_a_replay_of_other_words_is_refused_by_the_word() -> None:
    pinned = {"lake": "/lake", "topics": [], "where": "a > 1"}

    refuse_other("/c", pinned, {"lake": "/lake", "topics": [], "where": "a > 1"})
    with pytest.raises(JobError, match=r"/c belongs to .* --where 'a > 1', not left away"):
        refuse_other("/c", pinned, {"lake": "/lake", "topics": [], "where": None})
    with pytest.raises(JobError, match="--topics left away, not orders,refunds"):
        refuse_other("/c", pinned, {"topics": ["orders", "refunds"]})


# --- from where to where ----------------------------------------------------------------------


def test_a_bound_is_a_day_a_time_an_offset_or_offsets() -> None:
    day_ms = int(datetime(2026, 11, 15, tzinfo=UTC).timestamp() * 1_000)

    assert parse_bounds("2026-11-15", None).since_ms == day_ms
    assert parse_bounds(None, "2026-11-15T13:30:00+01:00").until_ms == day_ms + 45_000_000
    assert parse_bounds("2026-11-15T00:00:00.5", None).since_ms == day_ms + 500
    by_number = parse_bounds("20", '{"orders": {"0": 30, "1": 40}}')
    assert (by_number.since_ms, by_number.until_ms) == (None, None)
    assert parse_bounds(None, "") == Bounds()


@pytest.mark.parametrize(
    ("since", "until", "named"),
    [
        ("yesterday", None, "--from is 'yesterday': give a day"),
        (None, "2026-13-01", "--until is '2026-13-01': give a day"),
        (None, '{"orders": 3}', "--until"),
        ('{"orders": {"0": -1}}', None, "--from"),
        ("2026-11-15", "2026-11-15", "exchange them"),
    ],
)
def test_a_bound_that_is_none_is_refused_by_its_option(
    since: str | None, until: str | None, named: str
) -> None:
    with pytest.raises(JobError, match=named):
        parse_bounds(since, until)


def test_offsets_clip_what_there_is() -> None:
    held = Extent({ZERO: 10, ONE: 0}, {ZERO: 50, ONE: 15})

    assert clipped(held, Bounds()) == held
    assert clipped(held, parse_bounds("20", "40")) == Extent({ZERO: 20}, {ZERO: 40})
    each = parse_bounds('{"orders": {"0": 0, "1": 5}}', None)
    assert clipped(held, each) == Extent({ZERO: 10, ONE: 5}, {ZERO: 50, ONE: 15})
    assert clipped(held, parse_bounds("2026-11-15", None)) == held, "times are found elsewhere"
    with pytest.raises(JobError, match="--from leaves out orders-1"):
        clipped(held, parse_bounds('{"orders": {"0": 0}}', None))


# --- when to stop -----------------------------------------------------------------------------


def test_the_second_interrupt_ends_what_runs() -> None:
    asked = Interrupts(raising=True)

    asked.note()
    assert (asked.is_set(), asked.is_urgent()) == (True, False)
    with pytest.raises(KeyboardInterrupt):
        asked.note()


# --- how fast ---------------------------------------------------------------------------------


def test_a_rate_makes_chunks_small_and_lets_them_wait() -> None:
    pace = Pace(rate=100, began_s=10.0)

    assert pace.most(200_000) == 500
    assert pace.most(20) == 20
    assert pace.wait_s(sent=500, now_s=12.0) == 3.0
    assert pace.wait_s(sent=500, now_s=16.0) == 0.0
    assert Pace(0.01, 0.0).most(10) == 1


def test_without_a_rate_nobody_waits() -> None:
    pace = Pace(rate=0, began_s=10.0)

    assert pace.most(200_000) == 200_000
    assert pace.wait_s(sent=10**9, now_s=10.0) == 0.0
