"""Waits double up to the longest, and no two clients wait alike."""

from random import Random

from waystation.client.backoff import Backoff


def test_waits_double_up_to_the_longest_within_a_fifth() -> None:
    backoff = Backoff(100, 1_000, Random(7))
    for failures, about_s in ((1, 0.1), (2, 0.2), (3, 0.4), (4, 0.8), (5, 1.0), (5_000, 1.0)):
        assert about_s * 0.8 <= backoff.delay_s(failures) <= about_s * 1.2


def test_waits_differ() -> None:
    backoff = Backoff(100, 1_000, Random(7))

    assert len({backoff.delay_s(1) for _ in range(20)}) == 20
