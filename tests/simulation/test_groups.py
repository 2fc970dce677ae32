"""Groups over a lossy network, with crashes, failing logs and leaders that change.

Checked after every event: no partition has two owners in one generation or epoch, none is
assigned to a member while another still holds it, offsets that a member was told never go back,
and nobody is answered twice.  Where members commit in transactions: offsets of those that are
committed count, of others never, and what committed ones have read has no gaps and no overlaps.
Checked at the end of each life: every group has recovered without help, every request was answered
or its connection told, and nothing hangs on a transaction that has ended.

A failure prints its seed; the seed becomes a line of ``regressions.txt``.
"""

from pathlib import Path

import pytest

from tests.simulation.groups import (
    CLASSIC,
    SERVER_SIDE,
    TRANSACTIONAL,
    TRANSACTIONAL_SERVER_SIDE,
    Life,
)
from tests.support.soak import count

REGRESSIONS = Path(__file__).with_name("regressions.txt")


def remembered(kind: str) -> list[int]:
    """The seeds that once found something."""
    lines = (line.split("#")[0].split() for line in REGRESSIONS.read_text().splitlines())
    return [int(words[1]) for words in lines if words and words[0] == kind]


@pytest.mark.parametrize("seed", [*range(count(10, 300)), *remembered("classic")])
def test_classic_groups_survive(seed: int) -> None:
    Life(seed, [CLASSIC]).run()


@pytest.mark.parametrize("seed", [*range(count(10, 300)), *remembered("server-side")])
def test_server_side_groups_survive(seed: int) -> None:
    Life(seed, [SERVER_SIDE]).run()


@pytest.mark.parametrize("seed", [*range(count(4, 100)), *remembered("both")])
def test_groups_of_both_kinds_survive_side_by_side(seed: int) -> None:
    Life(seed, [CLASSIC, SERVER_SIDE]).run()


@pytest.mark.parametrize("seed", [*range(count(6, 200)), *remembered("together")])
def test_members_of_both_protocols_survive_in_one_group(seed: int) -> None:
    """The group changes its kind back and forth, as members come and go."""
    Life(seed, [CLASSIC, SERVER_SIDE], together=True).run()


@pytest.mark.parametrize("seed", [*range(count(8, 300)), *remembered("transactional")])
def test_classic_groups_survive_in_transactions(seed: int) -> None:
    Life(seed, [TRANSACTIONAL]).run()


@pytest.mark.parametrize("seed", [*range(count(8, 300)), *remembered("transactional-server-side")])
def test_server_side_groups_survive_in_transactions(seed: int) -> None:
    Life(seed, [TRANSACTIONAL_SERVER_SIDE]).run()


@pytest.mark.parametrize("seed", [*range(count(6, 200)), *remembered("transactional-together")])
def test_members_of_both_protocols_survive_in_transactions_in_one_group(seed: int) -> None:
    Life(seed, [TRANSACTIONAL, TRANSACTIONAL_SERVER_SIDE], together=True).run()


def test_the_same_seed_is_the_same_life() -> None:
    def lived(seed: int) -> tuple[int, int, dict[object, int]]:
        life = Life(seed, [CLASSIC])
        life.run()
        return life.world.schedule.steps, life.cluster.witness.answers, life.cluster.witness.shown

    assert lived(1) == lived(1)
