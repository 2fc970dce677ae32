"""Stretches without a match, remembered."""

from hypothesis import given
from hypothesis import strategies as st

from waystation.filters.gaps import Gaps
from waystation.filters.narrowing import Stretch
from waystation.model.offsets import Offset


def stretch(start: int, end: int) -> Stretch:
    return Stretch(Offset(start), Offset(end))


offsets = st.integers(0, 60)
steps = st.lists(
    st.tuples(st.sampled_from(["note", "note", "note", "cut", "forget"]), offsets, offsets),
    max_size=30,
)


def follow(gaps: Gaps, known: set[int], step: tuple[str, int, int]) -> set[int]:
    """Do the same to ``gaps`` and to a plain set of offsets."""
    word, first, second = step
    match word:
        case "note":
            gaps.note(stretch(first, second))
            return known | set(range(first, second))
        case "cut":
            gaps.cut(Offset(first))
            return {one for one in known if one < first}
        case _:
            gaps.forget_before(Offset(first))
            return {one for one in known if one >= first}


@given(steps)
def test_with_room_they_are_a_set_of_offsets(steps: list[tuple[str, int, int]]) -> None:
    gaps, known = Gaps(), set[int]()
    for step in steps:
        known = follow(gaps, known, step)

        assert {one for start, end in gaps.stretches for one in range(start, end)} == known
        for offset in range(62):
            behind = gaps.behind(Offset(offset))
            assert set(range(offset, behind)) <= known
            assert behind not in known
            later = [one for one in known if one > offset and one - 1 not in known]
            assert gaps.ahead(Offset(offset)) == min(later, default=None)


@given(steps, st.integers(1, 4))
def test_without_room_they_never_claim_what_nobody_noted(
    steps: list[tuple[str, int, int]], limit: int
) -> None:
    gaps, known = Gaps(limit), set[int]()
    for step in steps:
        known = follow(gaps, known, step)

        assert len(gaps) <= limit
        assert {one for start, end in gaps.stretches for one in range(start, end)} <= known
        bounds = [one for pair in gaps.stretches for one in pair]
        assert bounds == sorted(set(bounds)), "stretches overlap or touch"


def test_of_too_many_the_shortest_is_forgotten() -> None:
    gaps = Gaps(limit=2)
    for one in (stretch(0, 10), stretch(20, 22), stretch(30, 40)):
        gaps.note(one)

    assert gaps.stretches == [stretch(0, 10), stretch(30, 40)]


def test_a_long_stretch_noted_piece_by_piece_is_one() -> None:
    gaps = Gaps(limit=2)
    for start in range(0, 1_000_000, 1_000):
        gaps.note(stretch(start, start + 1_000))

    assert gaps.stretches == [stretch(0, 1_000_000)]
    assert gaps.behind(Offset(5)) == 1_000_000
