"""Ranges say of each offset what a plain dictionary would."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from waystation.model.offsets import Offset
from waystation.sharing.ranges import Ranges

STEPS = st.lists(
    st.tuples(
        st.sampled_from(("extend", "paint", "forget")),
        st.integers(0, 40),
        st.integers(1, 15),
        st.sampled_from("abc"),
    ),
    max_size=30,
)


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_ranges_are_a_dictionary_in_few_words(steps: list[tuple[str, int, int, str]]) -> None:
    ranges: Ranges[str] = Ranges(Offset(0))
    model: dict[int, str] = {}
    start = end = 0
    for what, at, length, colour in steps:
        match what:
            case "extend":
                model |= dict.fromkeys(range(end, end + length), colour)
                end += length
                ranges.extend(Offset(end), colour)
            case "paint":
                first, until = start + at, min(start + at + length, end)
                if first < until:
                    ranges.paint(Offset(first), Offset(until), colour)
                    model |= dict.fromkeys(range(first, until), colour)
            case _:
                start = start + at
                end = max(start, end)
                ranges.forget(Offset(start))
                model = {offset: one for offset, one in model.items() if offset >= start}

        assert (ranges.start, ranges.end) == (start if model else end, end)
        assert {offset: ranges.at(Offset(offset)) for offset in model} == model
        spans = ranges.spans(Offset(0), Offset(10_000))
        assert spans == list(ranges.runs_from(ranges.start))
        assert {o: c for first, until, c in spans for o in range(first, until)} == model
        assert all(one[2] != two[2] for one, two in itertools.pairwise(spans))
        cut = ranges.spans(Offset(start + 3), Offset(start + 9))
        inside = {o: c for o, c in model.items() if start + 3 <= o < start + 9}
        assert {o: c for first, until, c in cut for o in range(first, until)} == inside
