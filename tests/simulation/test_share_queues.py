"""Queues over a lossy network, with consumers that die and leaders that change.

What is checked is in ``share_witness.py``.  A failure prints its seed.
"""

import pytest

from tests.simulation.share_life import Life
from tests.support.soak import count


@pytest.mark.parametrize("seed", range(count(8, 1_000)))
def test_every_message_is_acknowledged_once(seed: int) -> None:
    Life(seed).run()


@pytest.mark.parametrize("seed", range(count(8, 1_000)))
def test_order_per_key_holds_with_any_number_of_consumers(seed: int) -> None:
    Life(seed, by_key=True).run()


@pytest.mark.parametrize("seed", range(count(4, 500)))
def test_priorities_lose_nothing(seed: int) -> None:
    Life(seed, priorities=True, by_key=seed % 2 == 0).run()


@pytest.mark.parametrize("seed", range(count(12, 1_000)))
def test_messages_in_the_place_of_lost_ones_are_delivered(seed: int) -> None:
    Life(seed, by_key=seed % 2 == 0, loses=True).run()


def test_lives_are_eventful() -> None:
    """Otherwise they would prove nothing."""
    lives = [Life(seed, by_key=seed % 2 == 0).run() for seed in range(4)]

    assert sum(life.witness.redeliveries for life in lives) > 60
    assert sum(life.leader.epoch for life in lives) > 8
    assert sum(life.coordinator.term for life in lives) > 8
    assert all(len(life.witness.accepted) > 50 for life in lives)
    assert sum(Life(seed, loses=True).run().lost for seed in range(4)) > 20


def test_the_same_seed_is_the_same_life() -> None:
    first, second = Life(3).run(), Life(3).run()

    assert (first.now, first.witness.accepted) == (second.now, second.witness.accepted)
