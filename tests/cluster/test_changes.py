"""Decisions packed into transactions: within limits, in order, and whole where it matters."""

from hypothesis import given
from hypothesis import strategies as st

from waystation.cluster.changes import BYTES_MAX, OPERATIONS_MAX, Changes, in_batches

sizes = st.tuples(
    st.integers(0, 250), st.integers(0, 3), st.integers(0, 3), st.integers(0, 250), st.booleans()
)


def decision(number: int, before: int, puts: int, deletes: int, after: int) -> Changes:
    """Keys tell their decision and place; every put is compared."""
    names = {
        part: [f"{number}/{part}/{n}" for n in range(count)]
        for part, count in [("b", before), ("p", puts), ("d", deletes), ("a", after)]
    }
    return Changes(
        compares={**dict.fromkeys(names["b"] + names["p"], 0), "guard": 7},
        before=dict.fromkeys(names["b"], b"b"),
        puts=dict.fromkeys(names["p"], b"p"),
        deletes=names["d"],
        after=names["a"],
    )


@given(st.lists(sizes, max_size=6))
def test_batches_keep_limits_order_and_the_middle_whole(
    sizes: list[tuple[int, int, int, int, bool]],
) -> None:
    decisions = [decision(n, *size[:4]) for n, size in enumerate(sizes)]
    batches = list(in_batches(decisions))

    written: list[str] = []
    for batch in batches:
        assert len(batch.compares) <= OPERATIONS_MAX
        assert len(batch.puts) + len(batch.deletes) <= OPERATIONS_MAX
        assert set(batch.puts) <= set(batch.compares), "a put without its compare"
        if batch.puts:
            assert batch.compares["guard"] == 7
        written += [*batch.puts, *batch.deletes]
    assert len(written) == len(set(written))
    for number, changes in enumerate(decisions):
        middle = {*changes.puts, *changes.deletes}
        holding = [b for b in batches if middle & {*b.puts, *b.deletes}]
        assert len(holding) <= 1, "the middle was split"
        mine = [key for key in written if key.startswith(f"{number}/")]
        assert sorted(mine) == sorted([*changes.before, *middle, *changes.after])
        order = [key.split("/")[1] for key in mine]
        if middle and len(holding[0].puts) + len(holding[0].deletes) < len(written):
            firsts = [at for at, part in enumerate(order) if part in "pd"]
            assert "a" not in order[: min(firsts)]
    if batches:
        assert batches[-1].completes == len(decisions)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=12))
def test_a_decision_counts_as_complete_only_with_its_last_part(sizes: list[int]) -> None:
    decisions = [decision(n, size * 5, 1, 0, 0) for n, size in enumerate(sizes)]
    done: set[str] = set()
    for batch in in_batches(decisions):
        done |= {*batch.puts}

        for changes in decisions[: batch.completes]:
            assert {*changes.before, *changes.puts} <= done


def test_small_decisions_share_a_transaction() -> None:
    batches = list(in_batches(decision(n, 1, 1, 0, 0) for n in range(100)))

    assert len(batches) == 3


def test_large_values_get_transactions_of_their_own() -> None:
    value = bytes(BYTES_MAX // 2 - 10)
    batches = list(in_batches(Changes(puts={f"k{n}": value}) for n in range(4)))

    assert [len(batch.puts) for batch in batches] == [2, 2]


def test_no_decisions_are_no_transactions() -> None:
    assert list(in_batches([])) == []
    assert list(in_batches([Changes(), Changes()])) == []


def test_a_guard_is_one_more_compare() -> None:
    changes = Changes(compares={"a": 1}, puts={"a": b""}).guarded({"controller": 9})

    assert changes.compares == {"a": 1, "controller": 9}
