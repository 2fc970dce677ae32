"""Transactions through the deaths of writers, stages and the broker: each has its effect once.

What clients may see is written down in ``waystation/testing/checker.py``; that the checker finds
what it looks for is proven in ``tests/testing/test_checker.py``.
"""

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.figures import figure
from tests.support.soak import SOAKING, count
from waystation.testing.chain import Chain
from waystation.testing.process import BrokerProcess

pytestmark = [pytest.mark.alone, pytest.mark.timeout(1_800)]

BROKER_OPTIONS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "segment.bytes": str(1 << 20),
}
CHAIN_S = count(5, 240)
KINDS = ["page-cache-survives", "power-fails"] if SOAKING else ["power-fails"]
FOREIGN = {2: "tests.support.librdkafka_stage"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_chain_of_stages_transforms_each_input_exactly_once(tmp_path: Path, kind: str) -> None:
    chance = by_chance()
    data, folder = tmp_path / "data", tmp_path / "histories"
    folder.mkdir()
    volatile = kind == "power-fails"
    with (
        BrokerProcess(data, options=BROKER_OPTIONS, volatile=volatile) as broker,
        Chain(broker.bootstrap, folder, chance, instances=count(1, 2), modules=FOREIGN) as chain,
    ):

        def die() -> None:
            chain.note("the broker dies")
            chain.deaths["broker"] += 1
            broker.kill()
            broker.start()

        time.sleep(1)  # for everybody to begin
        kill, freeze = chain.kill_somebody, chain.freeze_somebody
        during(CHAIN_S, chance, [die, kill, kill, freeze])
        outcome = chain.finish()
        assert broker.stop() == 0
    figure(f"chain: {outcome.inputs} inputs, deaths {dict(outcome.deaths)}, {outcome.verdict[1:]}")
    outcome.demand()


def by_chance() -> random.Random:
    """Luck that can be had again."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201, pytest shows it when the test fails
    return random.Random(seed)


def during(duration_s: float, chance: random.Random, blows: list[Callable[[], None]]) -> None:
    """Let one thing after the other happen, at moments that nobody expects."""
    deadline = time.monotonic() + duration_s
    while time.monotonic() < deadline:
        time.sleep(chance.uniform(0.2, 1.5))
        chance.choice(blows)()
