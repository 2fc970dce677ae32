"""Rates from the sizes of files, and what is said about them."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.catch_up.__main__ import render
from benchmarks.catch_up.away import Copied, Round
from benchmarks.catch_up.growth import Growth, Sample, fastest_rate, log_bytes, mean_rate
from hypothesis import given
from hypothesis import strategies as st

MB = 1_000_000


def grown(*megabytes: int) -> list[Sample]:
    """One look a second."""
    return [Sample(float(at), mb * MB) for at, mb in enumerate(megabytes)]


def test_waiting_before_and_after_does_not_count() -> None:
    assert mean_rate(grown(7, 7, 7, 57, 107, 107, 107)) == 50 * MB


def test_a_pause_in_between_counts() -> None:
    assert mean_rate(grown(0, 100, 100, 100, 200)) == 50 * MB


@pytest.mark.parametrize("samples", [grown(), grown(5), grown(5, 5, 5)])
def test_what_does_not_grow_has_no_rate(samples: list[Sample]) -> None:
    assert mean_rate(samples) == 0


def test_a_burst_shows_in_the_fastest_window_only() -> None:
    samples = grown(0, 50, 100, 250, 300, 350)

    assert mean_rate(samples) == 70 * MB
    assert fastest_rate(samples, 2.0) == 100 * MB
    assert fastest_rate(samples, 10.0) == 0


@given(st.lists(st.integers(0, 100), min_size=3), st.integers(1, 5))
def test_no_window_is_slower_than_the_fastest(steps: list[int], window: int) -> None:
    totals = [sum(steps[:n]) for n in range(len(steps) + 1)]
    samples = grown(*totals)
    spans = [
        (samples[b].nbytes - samples[a].nbytes) / (b - a)
        for a in range(len(samples))
        for b in range(a + window, min(a + window + 1, len(samples)))
    ]

    assert fastest_rate(samples, window) == pytest.approx(max(spans, default=0.0))


def test_only_logs_of_the_topic_on_that_node_count(tmp_path: Path) -> None:
    for name, nbytes in {
        "broker-3/backlog-0/0.log": 100,
        "broker-3/backlog-1/0.log": 10,
        "broker-3/backlog-1/0.index": 1_000,
        "broker-3/other-0/0.log": 1_000,
        "broker-1/backlog-0/0.log": 1_000,
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(bytes(nbytes))

    with Growth(tmp_path, 3, "backlog") as growth:
        (tmp_path / "broker-3/backlog-0/0.log").write_bytes(bytes(200))

    assert log_bytes(tmp_path, 3, "backlog") == 210
    assert [growth.samples[0].nbytes, growth.samples[-1].nbytes] == [110, 210]


@pytest.mark.parametrize(
    ("during_ms", "copied_mb", "moved_mb", "short"),
    [(10.0, 50, 50, 0), (12.2, 50, 50, 1), (11.9, 53, 50, 1), (11.9, 39, 60, 2)],
)
def test_every_promise_is_judged(
    during_ms: float, copied_mb: int, moved_mb: int, short: int
) -> None:
    copied = Copied(3 * 10**9, copied_mb * MB, copied_mb * MB)
    rounds = [Round(9.0, during_ms, 11.0, copied)]

    text = render(rounds, copied, Copied(10**10, moved_mb * MB, 0), 50 * MB)

    assert text.count("FALLS SHORT") == short
    assert "moving 10.0 GB" in text
