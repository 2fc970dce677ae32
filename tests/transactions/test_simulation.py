"""Transactions with lost, late, repeated and reordered requests, and crashes between any steps.

Several instances of several producers, in both flows, share transactional ids, time out, die,
prepare and are ended from elsewhere; what must never happen is listed in ``witness.py``.  In the
end everything comes to rest by itself.

A failure prints its seed; the seed becomes a line below.
"""

import pytest

from tests.support.soak import count
from tests.transactions.life import Life

REGRESSIONS: list[int] = []


@pytest.mark.parametrize("seed", [*range(count(200, 20_000)), *REGRESSIONS])
def test_transactions_survive(seed: int) -> None:
    Life(seed).run()


def test_lives_are_full_of_transactions() -> None:
    """A simulation in which nothing happens proves nothing."""
    lives = [Life(seed) for seed in range(20)]
    for life in lives:
        life.run()
    told = [life.witness.told for life in lives]

    assert sum(sum(one.values()) for one in told) > 200, "too few are committed"
    assert sum(not ended for one in told for ended in one.values()) > 50, "too few are aborted"
    assert sum(len(life.witness.outcomes) for life in lives) > 40, "too few are prepared"
    assert sum(life.desk.epoch for life in lives) > 40, "too few crashes"


def test_the_same_seed_is_the_same_life() -> None:
    def lived(seed: int) -> tuple[object, ...]:
        life = Life(seed)
        life.run()
        return life.desk.now, life.transactions, life.witness.told

    assert lived(7) == lived(7)
