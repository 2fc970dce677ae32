"""Ids of pushed messages say exactly how far a subscriber has got, and nothing else passes."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.gateway.push_ids import Ids, NotAnIdError, id_of, mark_of, resumed
from waystation.model.ids import TopicId

MARK = mark_of(TopicId(UUID("0252378b-2134-435a-beae-5f5caf9ef4a3")))

positions = st.dictionaries(
    st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1), min_size=1, max_size=20
)


@given(positions)
def test_an_id_says_what_it_was_made_of(said: dict[int, int]) -> None:
    assert resumed(id_of(MARK, said)) == (MARK, said)


@given(positions, st.lists(st.tuples(st.integers(0, 30), st.integers(0, 2**62)), max_size=20))
def test_ids_move_with_each_message(said: dict[int, int], moves: list[tuple[int, int]]) -> None:
    ids, now = Ids(MARK, said), dict(said)
    for partition, offset in moves:
        now[partition] = offset + 1

        assert resumed(ids.past(partition, offset).decode()) == (MARK, now)


@given(st.text())
def test_other_text_is_not_an_id(text: str) -> None:
    try:
        mark, said = resumed(text)
    except NotAnIdError:
        return
    assert id_of(mark, said).count(".") == text.count(".")


@pytest.mark.parametrize(
    "text",
    [
        "",
        MARK,
        f"{MARK}.",
        f"{MARK}.0",
        f"{MARK}.0-",
        f"{MARK}.0-1.0-2",
        f"{MARK}.0-{2**63}",
        f"{MARK}.٣-1",
        f"{MARK}.0-1 ",
        f"x{MARK}.0-1",
        f"{MARK}.0-1" * 2_000,
    ],
)
def test_what_was_cut_or_mistyped_is_refused(text: str) -> None:
    with pytest.raises(NotAnIdError):
        resumed(text)
