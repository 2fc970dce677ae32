"""Whole clusters of real nodes and clients live through storms, and keep every promise."""

from collections.abc import Sequence

import pytest

from tests.simulation.cluster_run import Tally, remembered, run
from tests.support.soak import SOAKING, count

SEEDS = count(12, 2_000)
_PIECES = count(2, 20)


def assert_good(tally: Tally, seeds: Sequence[int]) -> None:
    assert not tally.failed, tally.said[-20_000:]
    assert tally.good == len(seeds)


@pytest.mark.parametrize("piece", range(_PIECES))
def test_nothing_acknowledged_is_lost_whatever_happens(piece: int) -> None:
    seeds = range(SEEDS)[piece::_PIECES]
    tally = run(seeds)

    assert_good(tally, seeds)
    assert tally.elections > 0
    assert tally.acknowledged > 20 * len(seeds), "hardly anything was written"
    if SOAKING:
        print(  # noqa: T201, for the report
            f"figure: {len(seeds)} simulated clusters, {tally.events} events, "
            f"{tally.elections} elections, {tally.acknowledged} messages acknowledged"
        )


def test_what_failed_once_fails_no_more() -> None:
    seeds = remembered()

    assert_good(run(seeds), seeds)


def test_a_seed_decides_everything() -> None:
    one, other = (run([SEEDS + 1]).said.rpartition(";")[0] for _ in range(2))

    assert one == other
