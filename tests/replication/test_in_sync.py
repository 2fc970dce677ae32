"""The in-sync set while a change of it is on its way."""

from hypothesis import given
from hypothesis import strategies as st

from waystation.model.ids import NodeId
from waystation.replication.in_sync import InSync

sets = st.lists(st.integers(1, 5).map(NodeId), min_size=1, unique=True).map(tuple)


def test_a_set_at_rest_counts_its_members() -> None:
    in_sync = InSync((NodeId(1), NodeId(2)))

    assert in_sync.counted == (1, 2)
    assert in_sync.size == 2


@given(sets, sets)
def test_an_unanswered_change_counts_the_union_and_trusts_the_smaller(
    written: tuple[NodeId, ...], proposed: tuple[NodeId, ...]
) -> None:
    in_sync = InSync(written).proposing(proposed)

    assert sorted(in_sync.counted) == sorted({*written, *proposed})
    assert in_sync.size == min(len(written), len(proposed))


@given(sets, sets, st.booleans())
def test_the_answer_settles_the_set(
    written: tuple[NodeId, ...], proposed: tuple[NodeId, ...], won: bool
) -> None:
    answer = proposed if won else written

    assert InSync(written).proposing(proposed).settled(answer) == InSync(answer)
