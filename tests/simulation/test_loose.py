"""What writers with ``acks`` 0 and 1 were promised is really looked at."""

import pytest

from tests.simulation.cluster_life import ClusterLife, More
from tests.simulation.cluster_loose import Loose
from waystation.testing.world import InvariantBrokenError


def told(*values: tuple[int, str]) -> Loose:
    """What was acknowledged in partition 0, in epoch 3."""
    loose = Loose(1)
    loose.epoch_of = lambda *_: 3
    for offset, value in values:
        loose.sent.add(value)
        loose._noted(0, offset, value)
    return loose


def test_what_was_written_in_the_last_epoch_must_be_there() -> None:
    loose = told((0, "a"), (1, "b"))
    loose._check_told(0, 3, {0: "a", 1: "b"})
    with pytest.raises(InvariantBrokenError, match="a leader's word stands"):
        loose._check_told(0, 3, {0: "a"})
    with pytest.raises(InvariantBrokenError, match="a leader's word stands"):
        loose._check_told(0, 3, {0: "a", 1: "other"})


def test_an_election_may_cost_it() -> None:
    told((0, "a"))._check_told(0, 4, {})


def test_nothing_comes_from_nowhere_and_what_nobody_repeats_comes_once() -> None:
    loose = told((0, "a"))
    loose._unasked.add("a")
    loose._check_found(0, {5: "a"})
    with pytest.raises(InvariantBrokenError, match="nothing comes from nowhere"):
        loose._check_found(0, {0: "b"})
    with pytest.raises(InvariantBrokenError, match="at most once"):
        loose._check_found(0, {0: "a", 1: "a"})


def test_each_of_it_has_its_day_and_most_worlds_stay_as_they_were() -> None:
    worlds = [More.of(seed) for seed in range(30)]

    assert sum(one == More() for one in worlds) >= 20
    assert all(any(getattr(one, name) for one in worlds) for name in More._fields)
    assert ClusterLife(4).more == More.of(4)
