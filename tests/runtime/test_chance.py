"""Chance: the same luck for the same seed, never the same id twice."""

import pytest

from waystation.runtime.chance import Chance, SeededChance, SystemChance


@pytest.mark.parametrize("chance", [SystemChance(), SeededChance(1)])
def test_ids_differ_and_numbers_stay_below_their_limit(chance: Chance) -> None:
    assert len({chance.new_id() for _ in range(100)}) == 100
    assert {chance.below(3) for _ in range(200)} == {0, 1, 2}
    assert chance.new_id().version == 4


def test_the_same_seed_has_the_same_luck() -> None:
    first, second, other = SeededChance(5), SeededChance(5), SeededChance(6)

    assert [first.new_id(), first.below(1 << 60)] == [second.new_id(), second.below(1 << 60)]
    assert first.new_id() != other.new_id()
