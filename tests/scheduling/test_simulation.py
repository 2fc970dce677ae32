"""Lives of schedules by seed: none lost, none twice, none early, none cancelled yet delivered."""

from collections import Counter
from pathlib import Path

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


def remembered() -> list[int]:
    """The seeds that once found something."""
    lines = Path(__file__).with_name("regressions.txt").read_text().splitlines()
    return [int(line.split()[0]) for line in lines if not line.startswith("#")]


@pytest.mark.parametrize("seed", [*range(count(30, 5_000)), *remembered()])
def test_every_message_comes_once_and_at_its_time(seed: int) -> None:
    lived(seed)


def test_the_same_seed_is_the_same_life() -> None:
    assert lived(3).seen == lived(3).seen


def test_much_happens_in_these_lives() -> None:
    """Otherwise the test above says little."""
    seen: Counter[str] = Counter()
    for seed in range(10):
        seen += lived(seed).seen

    happened = {"crashes", "elections", "cleaned", "Cancelled", "Retimed", "committed", "aborted"}
    answers = {"Send UNCLEAR", "Send NOT_NOW", "Send REFUSED", "Look DONE", "Look ABSENT"}
    assert happened | answers | {"Fence DONE", "Withdrawn", "Settled"} <= seen.keys()
