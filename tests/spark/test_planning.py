"""What is read next: everything once, nothing beyond, nobody starves."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.model.ids import TopicPartition
from waystation.spark.errors import BadOptionError
from waystation.spark.planning import (
    EARLIEST,
    LATEST,
    NO_LIMITS,
    Held,
    Limits,
    Position,
    ends_within,
    is_enough,
    limited,
    resolved,
    resumed,
    spans_between,
    without_losses,
)
from waystation.spark.spans import Span

A, B, C = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)

partitions = st.builds(TopicPartition, st.sampled_from("tuv"), st.integers(0, 4))
sizes = st.dictionaries(partitions, st.integers(0, 10_000), min_size=1)
held = st.dictionaries(
    partitions,
    st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(0, 10)).map(
        lambda parts: Held(parts[0], parts[0] + parts[1], parts[0] + parts[1] + parts[2])
    ),
)
limits = st.builds(
    Limits, max_offsets=st.integers(0, 500), max_bytes=st.one_of(st.just(0), st.integers(1, 10**6))
)


# --- going on -----------------------------------------------------------------------------------


def test_a_partition_goes_on_where_it_was() -> None:
    assert resumed({A: 5}, {A: Held(0, 9, 9)}) == ({A: 5}, [])


def test_a_new_partition_begins_with_its_first_offset() -> None:
    assert resumed({A: 5}, {A: Held(0, 9, 9), B: Held(0, 3, 3)}) == ({A: 5, B: 0}, [])


def test_a_new_partition_that_was_trimmed_before_it_was_seen_has_lost_records() -> None:
    first, lost = resumed({A: 5}, {A: Held(0, 9, 9), B: Held(2, 3, 3)})

    assert first == {A: 5, B: 2}
    assert [loss[:2] for loss in lost] == [("t", 1)]


def test_a_topic_that_is_new_to_the_stream_begins_where_it_begins() -> None:
    assert resumed({A: 5}, {A: Held(0, 9, 9), C: Held(7, 8, 8)}) == ({A: 5, C: 7}, [])


def test_what_was_deleted_before_it_was_read_is_lost() -> None:
    first, lost = resumed({A: 5}, {A: Held(8, 9, 9)})

    assert first == {A: 8}
    assert "offsets 5 to 7" in lost[0].why


def test_a_log_that_ends_before_what_was_read_is_another_one() -> None:
    first, lost = resumed({A: 50}, {A: Held(0, 9, 9)})

    assert first == {A: 0}
    assert "made anew" in lost[0].why


def test_an_open_transaction_is_no_loss() -> None:
    """Read without isolation up to 8, then with it: 5 to 9 are of an open transaction."""
    first, lost = resumed({A: 8}, {A: Held(0, 5, 9)})

    assert (first, lost) == ({A: 8}, [])
    assert ends_within(first, {A: Held(0, 5, 9)}) == {A: 8}


def test_a_partition_that_is_gone_is_lost() -> None:
    first, lost = resumed({A: 5, C: 3}, {A: Held(0, 9, 9)})

    assert first == {A: 5}
    assert lost == [("u", 0, "it no longer exists")]


@given(held, held)
def test_a_stream_that_keeps_up_loses_nothing(
    before: dict[TopicPartition, Held], grown: dict[TopicPartition, Held]
) -> None:
    """Logs only grow at their end: every offset is planned once, whatever partitions come."""
    start = {where: has.end for where, has in before.items()}
    after = {
        where: Held(has.start, has.end + grown.get(where, has).end, has.log_end + 100)
        for where, has in before.items()
    }
    after |= {
        where: Held(0, has.end, has.end) for where, has in grown.items() if where not in after
    }

    first, lost = resumed(start, after)

    assert lost == []
    assert {where: first[where] for where in start} == start
    assert all(first[where] == 0 for where in after if where not in start)


@given(held, held, st.dictionaries(partitions, st.integers(0, 100)))
def test_a_plan_never_leaves_what_is_held(
    now: dict[TopicPartition, Held],
    target: dict[TopicPartition, Held],
    start: dict[TopicPartition, int],
) -> None:
    now = {where: has for where, has in now.items() if where in target}
    first, _ = resumed(start, now)
    ends = ends_within(first, now, {where: has.end for where, has in target.items()})

    for where, has in now.items():
        assert has.start <= first[where] <= ends[where] <= has.log_end
        if first[where] < ends[where]:
            assert ends[where] <= has.end
            assert ends[where] <= target[where].end


steps = st.lists(
    st.tuples(
        st.dictionaries(partitions, st.integers(0, 40)),
        st.integers(0, 30),
        st.integers(0, 8),
        st.booleans(),
    ),
    max_size=12,
)


@given(steps)
def test_a_stream_plans_every_offset_once_and_in_order(
    steps: list[tuple[dict[TopicPartition, int], int, int, bool]],
) -> None:
    """Topics grow, partitions come, batches are limited, cut and planned a second time."""
    logs: dict[TopicPartition, int] = {}
    at: dict[TopicPartition, int] = {}
    planned: dict[TopicPartition, list[int]] = {}
    for grown, most, pieces, again in [*steps, ({}, 0, 0, False)]:
        for where, count in grown.items():
            logs[where] = logs.get(where, 0) + count
        now = {where: Held(0, end, end) for where, end in logs.items()}
        first, lost = resumed(at, now)
        end = limited(first, ends_within(first, now), Limits(max_offsets=most), {})

        # After a crash Spark plans the same batch again, when logs have grown further.
        later = {where: Held(0, has.end + 7, has.end + 7) for where, has in now.items()}
        replayed, lost_then = resumed(at, later if again else now)

        assert lost == lost_then == []
        assert replayed == first
        for topic, partition, begin, upto in spans_between(replayed, end, pieces):
            planned.setdefault(TopicPartition(topic, partition), []).extend(range(begin, upto))
        at = end

    assert planned == {where: list(range(end)) for where, end in logs.items() if end}


# --- limits -------------------------------------------------------------------------------------


@given(sizes, limits, st.floats(0.5, 2_000))
def test_limits_are_kept_and_nobody_starves(
    behind: dict[TopicPartition, int], limit: Limits, each_bytes: float
) -> None:
    start = dict.fromkeys(behind, 7)
    end = {where: 7 + size for where, size in behind.items()}

    planned = limited(start, end, limit, dict.fromkeys(behind, each_bytes))

    taken = {where: planned[where] - 7 for where in behind}
    waiting = sum(size > 0 for size in behind.values())
    assert all((taken[where] > 0) == (size > 0) for where, size in behind.items())
    assert all(taken[where] <= size for where, size in behind.items())
    if limit.max_offsets:
        assert sum(taken.values()) <= max(limit.max_offsets, waiting)
    if limit.max_bytes:
        assert sum(taken.values()) * each_bytes <= limit.max_bytes + waiting * each_bytes


@given(sizes, st.integers(1, 20_000))
def test_a_limit_is_used_up(behind: dict[TopicPartition, int], most: int) -> None:
    start = dict.fromkeys(behind, 0)
    waiting = sum(size > 0 for size in behind.values())

    planned = limited(start, behind, Limits(max_offsets=most), {})

    assert sum(planned.values()) == min(max(most, waiting), sum(behind.values()))


@given(st.dictionaries(partitions, st.integers(0, 30)), st.integers(1, 50))
def test_limited_batches_come_to_an_end(behind: dict[TopicPartition, int], most: int) -> None:
    at = dict.fromkeys(behind, 0)
    for _ in range(sum(behind.values()) + 1):
        at = limited(at, behind, Limits(max_offsets=most), {})

    assert at == behind


def test_who_is_further_behind_gets_more() -> None:
    planned = limited({A: 0, B: 0}, {A: 900, B: 100}, Limits(max_offsets=100), {})

    assert planned[A] == pytest.approx(90, abs=1)
    assert planned[A] + planned[B] == 100


def test_large_records_count_for_more() -> None:
    planned = limited({A: 0, B: 0}, {A: 100, B: 100}, Limits(max_bytes=5_500), {A: 100.0, B: 10.0})

    assert planned == {A: 50, B: 50}


def test_without_limits_everything_is_planned() -> None:
    assert limited({A: 3, B: 4}, {A: 9, B: 4}, NO_LIMITS, {}) == {A: 9, B: 4}


def test_too_little_waits_but_not_for_ever() -> None:
    limit = Limits(min_offsets=10, max_delay_ms=1_000)

    assert not is_enough({A: 0}, {A: 9}, limit, 999)
    assert is_enough({A: 0}, {A: 10}, limit, 0)
    assert is_enough({A: 0}, {A: 9}, limit, 1_000)


# --- pieces -------------------------------------------------------------------------------------


def _covered(spans: list[Span]) -> dict[TopicPartition, list[tuple[int, int]]]:
    found: dict[TopicPartition, list[tuple[int, int]]] = {}
    for span in spans:
        found.setdefault(TopicPartition(span.topic, span.partition), []).append(span[2:])
    return found


@given(sizes, st.integers(0, 60))
def test_pieces_cover_everything_once(behind: dict[TopicPartition, int], at_least: int) -> None:
    start = {where: where.partition * 3 for where in behind}
    end = {where: start[where] + size for where, size in behind.items()}

    spans = spans_between(start, end, at_least)

    covered = _covered(spans)
    assert covered.keys() == {where for where, size in behind.items() if size}
    for where, pieces in covered.items():
        assert (pieces[0][0], pieces[-1][1]) == (start[where], end[where])
        assert all(left[1] == right[0] for left, right in pairwise(pieces))
        assert all(first < last for first, last in pieces)
    assert len(spans) >= min(at_least, sum(behind.values()))


@given(sizes)
def test_each_partition_is_one_piece_by_default(behind: dict[TopicPartition, int]) -> None:
    spans = spans_between(dict.fromkeys(behind, 0), behind)

    assert len(spans) == sum(size > 0 for size in behind.values())


def test_an_end_before_the_start_is_nothing_to_read() -> None:
    assert spans_between({A: 5, B: 0}, {A: 3, B: 2}) == [Span("t", 1, 0, 2)]


# --- beginning ----------------------------------------------------------------------------------


def test_edges_are_where_the_partition_begins_and_ends() -> None:
    has = {A: Held(3, 8, 9), B: Held(0, 5, 5)}

    assert resolved(Position("o", EARLIEST, {}), has, {}) == {A: 3, B: 0}
    assert resolved(Position("o", LATEST, {}), has, {}) == {A: 8, B: 5}
    assert resolved(Position("o", None, {A: LATEST, B: 2}), has, {}) == {A: 8, B: 2}


def test_every_partition_must_be_named() -> None:
    position = Position("startingOffsets", None, {A: 5})

    with pytest.raises(BadOptionError, match="startingOffsets leaves out t-1"):
        resolved(position, {A: Held(0, 9, 9), B: Held(0, 9, 9)}, {})


def test_partitions_that_are_not_read_must_not_be_named() -> None:
    position = Position("startingOffsets", None, {A: 5, C: 1})

    with pytest.raises(BadOptionError, match="names u-0, which is not read"):
        resolved(position, {A: Held(0, 9, 9)}, {})


def test_a_time_is_the_first_offset_since() -> None:
    has = {A: Held(0, 9, 9), B: Held(0, 9, 9)}
    position = Position("startingTimestamp", 1_000, {}, by_time=True)

    assert resolved(position, has, {A: 4, B: None}) == {A: 4, B: 9}
    with pytest.raises(BadOptionError, match="t-1 has no record that young"):
        resolved(position, has, {A: 4, B: None}, late_is_an_error=True)


def test_chosen_offsets_that_are_not_there_are_moved_and_reported() -> None:
    has = {A: Held(3, 9, 9), B: Held(0, 9, 9)}

    found, lost = without_losses({A: 1, B: 20}, has, "startingOffsets")

    assert found == {A: 3, B: 9}
    assert [loss[:2] for loss in lost] == [("t", 0), ("t", 1)]
    assert "startingOffsets is 1, but it holds [3, 9)" in lost[0].why
