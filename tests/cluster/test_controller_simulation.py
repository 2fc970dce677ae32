"""Brokers that decide at once, on old news, over a store that loses, delays and repeats."""

import pytest
from tests.cluster.control_life import Life
from tests.support.soak import count

STEPS = 400


@pytest.mark.parametrize("block", range(10))
def test_whatever_happens_the_named_invariants_hold(block: int) -> None:
    each = count(10, 200)
    for seed in range(block * each, (block + 1) * each):
        try:
            Life(seed).run(STEPS)
        except AssertionError as broken:
            raise AssertionError(f"seed {seed}: {broken}") from broken
