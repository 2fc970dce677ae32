"""Lives of schedules by seed: none lost, none twice, none early, none cancelled yet delivered."""

import pytest

from tests.scheduling.life import lived
from tests.support.soak import count
from waystation.scheduling import index, runs


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a few entries are many pages."""
    monkeypatch.setattr(runs, "PAGE_ENTRIES", 3)
    monkeypatch.setattr(runs, "_PAGE_BYTES", 16 + 16 * 3)
    monkeypatch.setattr(index, "_MERGE_RUNS", 2)


@pytest.mark.parametrize("seed", range(count(40, 5_000)))
def test_every_message_comes_once_and_at_its_time(seed: int) -> None:
    lived(seed)
