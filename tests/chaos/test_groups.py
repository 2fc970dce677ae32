"""Members come, go, die and freeze while producers write: all is processed, in order, by owners.

What a group may do is written down in ``tests/support/group_history.py``, and that the check finds
what it looks for is proven in ``test_group_history.py``.
"""

import random
from pathlib import Path

import pytest

from tests.support.group_churn import BROKER_OPTIONS, churn, prove
from tests.support.soak import count
from waystation.testing.process import BrokerProcess

pytestmark = [pytest.mark.alone, pytest.mark.timeout(1_800)]

DURATION_S = count(4, 300)
MOST = count(3, 5)


def test_groups_process_everything_whatever_happens_to_their_members(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201, pytest shows it when the test fails
    chance = random.Random(seed)
    with BrokerProcess(tmp_path / "data", options=BROKER_OPTIONS) as broker:
        prove(broker, tmp_path, chance, MOST, lambda groups: churn(groups, chance, DURATION_S))
