"""A chain of stages over three brokers, any of which dies: each input has its effect once.

Coordinators of groups and of transactions, and leaders of what these write to, are on different
brokers here; with each death some of them move, in the midst of transactions.
"""

import random
import time
from pathlib import Path

import pytest

from tests.chaos.test_transactions import by_chance, during
from tests.support.cluster import ProcessCluster
from tests.support.figures import figure
from tests.support.soak import SOAKING, count
from waystation.testing.chain import Chain

pytestmark = [pytest.mark.alone, pytest.mark.timeout(1_800)]

CHAIN_S = count(6, 240)
FOREIGN = {2: "tests.support.librdkafka_stage"}


def test_a_chain_over_three_brokers_transforms_each_input_exactly_once(tmp_path: Path) -> None:
    chance = by_chance()
    folder = tmp_path / "histories"
    folder.mkdir()
    disk = "volatile" if SOAKING else "real"
    with (
        ProcessCluster(tmp_path / "cluster", 3, disk=disk) as cluster,
        Chain(cluster.bootstrap, folder, chance, instances=count(1, 2), modules=FOREIGN) as chain,
    ):
        time.sleep(1)  # for everybody to begin
        die = Deaths(cluster, chain, chance)
        kill, freeze = chain.kill_somebody, chain.freeze_somebody
        during(CHAIN_S, chance, [die, die, kill, freeze])
        die.end()
        outcome = chain.finish()
    figure(f"chain: {outcome.inputs} inputs, deaths {dict(outcome.deaths)}, {outcome.verdict[1:]}")
    outcome.demand()


class Deaths:
    """Kills a broker each time, and lets the last one live again: two of three always run."""

    def __init__(self, cluster: ProcessCluster, chain: Chain, chance: random.Random) -> None:
        self._cluster, self._chain, self._chance = cluster, chain, chance
        self._dead: int | None = None

    def __call__(self) -> None:
        self.end()
        self._dead = self._chance.choice([1, 2, 3])
        self._chain.note(f"broker {self._dead} dies")
        self._chain.deaths["broker"] += 1
        self._cluster.kill(self._dead)

    def end(self) -> None:
        """Let all live."""
        if self._dead is not None:
            self._cluster.start(self._dead)
            self._dead = None
