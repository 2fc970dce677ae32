"""Profiles side by side: what is run, and the page that shows it."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from benchmarks.profiles.__main__ import PAGE, texts
from benchmarks.profiles.measuring import ProfiledPeer, figures
from benchmarks.profiles.page import FIGURES, figures_text, margins, picture, verdict
from benchmarks.profiles.plan import CLIENTS, MAX, PROFILES, QUICK_RATES, RATES, TYPICAL_RATE, steps
from benchmarks.report.measured_page import medians, replaced
from hypothesis import given
from hypothesis import strategies as st

from waystation.client.settings import ConsumerSettings, ProducerSettings
from waystation.model.settings import PROFILES as WORDS
from waystation.model.settings import Option, options_of
from waystation.model.topics import TopicSettings
from waystation.server.settings import ServerSettings

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "profiles"
QUIET = {"cores": 2, "memory_gb": 8, "file_system": "ext4", "load_before": 0.0}
SVG = "{http://www.w3.org/2000/svg}"


def measured(factor: float = 1.0) -> dict[str, dict[str, float]]:
    """Made-up figures of every step: throughput is slower and carries more."""
    found: dict[str, dict[str, float]] = {}
    for place, profile in enumerate(PROFILES, 1):
        for step in steps(profile):
            one = {"messages_per_s": step.rate or 100_000.0 * place, "broker_us_per_message": 3.0}
            if step.rate is not None:
                times = ("publish_p50_ms", "publish_p99_ms", "end_to_end_p50_ms")
                one |= dict.fromkeys((*times, "end_to_end_p99_ms"), factor * place)
            found[step.name] = one
    return found


def test_every_profile_is_put_through_the_same() -> None:
    assert set(PROFILES) == set(WORDS)
    for quick in (False, True):
        loads = {
            profile: [(one.clients.name, one.rate) for one in steps(profile, quick=quick)]
            for profile in PROFILES
        }
        assert loads["latency"] == loads["balanced"] == loads["throughput"]
    assert len({one.settings for one in steps("latency") if one.clients is CLIENTS[0]}) == 1
    assert TYPICAL_RATE in RATES
    assert TYPICAL_RATE in QUICK_RATES


def test_the_broker_is_started_as_its_users_start_it() -> None:
    command = ProfiledPeer("latency").command(Path("data"), 9, "disk")

    assert command[-2:] == ["--profile", "latency"]
    assert "durability=disk" in command


def test_what_the_client_reports_becomes_figures() -> None:
    times = {"p50": 1.0, "p99": 2.0, "p999": 3.0}
    reported: dict[str, object] = {
        "messages": 1_000,
        "rate_per_s": 100,
        "publish_ms": times,
        "end_to_end_ms": times,
    }

    assert figures(reported, 0.01) == {
        "broker_us_per_message": 10,
        "messages_per_s": 100,
        "publish_p50_ms": 1,
        "publish_p99_ms": 2,
        "end_to_end_p50_ms": 1,
        "end_to_end_p99_ms": 2,
    }
    assert figures({"messages": 1_000, "messages_per_s": 5}, 0.01)["messages_per_s"] == 5


def test_margins_are_of_the_same_clients_in_the_same_run() -> None:
    assert margins(measured()) == (3, 3)
    assert "(3.0 times as long)" in verdict(measured())
    assert "**300,000 msg/s** under throughput, 100,000 under latency" in verdict(measured())


@given(st.floats(0.01, 10_000))
def test_a_picture_has_every_point_and_is_the_same_every_time(factor: float) -> None:
    some = measured(factor)
    root = ET.fromstring(picture(some))
    circles = root.findall(f".//{SVG}circle")

    assert picture(some) == picture(some)
    assert len(circles) == len(CLIENTS) * len(PROFILES) * len(RATES)
    assert all(0 <= float(one.get("cx", "-1")) <= 430 for one in circles)
    assert all(0 <= float(one.get("cy", "-1")) <= 300 for one in circles)
    assert len(root.findall(f".//{SVG}path[@stroke-dasharray]")) == len(CLIENTS) * len(PROFILES)


@pytest.mark.parametrize(
    ("arguments", "load", "says"), [("", 0.0, False), (" --quick", 0.0, True), ("", 3.0, True)]
)
def test_a_short_or_crowded_run_is_called_a_look(arguments: str, load: float, says: bool) -> None:
    text = figures_text(measured(), {**QUIET, "load_before": load}, arguments)

    assert ("a look, not a result" in text) == says


def last_result() -> Path:
    return max(RESULTS.glob("*/results.json"), key=lambda one: one.parent.name)


def test_the_page_says_what_the_last_result_says() -> None:
    """Whoever changes a figure by hand is told to run the command."""
    last = last_result()
    block, drawn = texts(json.loads(last.read_text()))
    page, remedy = PAGE.read_text(), f"run python -m benchmarks.profiles --results {last}"

    assert replaced(page, FIGURES, block) == page, remedy
    assert PAGE.with_suffix(".svg").read_text() == drawn, remedy


def test_in_one_run_latency_is_sooner_and_throughput_carries_more() -> None:
    """A run beside other work shows nothing, and its page says so."""
    result = json.loads(last_result().read_text())
    sooner, more = margins(medians(result["rounds"]))

    assert (sooner > 1 and more > 1) or "a look, not a result" in PAGE.read_text()
    assert set(result["rounds"][0]) >= {f"same/{one}/{MAX}" for one in PROFILES}


def test_the_page_lists_what_profiles_stand_for() -> None:
    groups = {
        "topic": TopicSettings,
        "broker": ServerSettings,
        "our producer": ProducerSettings,
        "our consumer": ConsumerSettings,
    }
    rows = [
        _row(whose, one)
        for whose, settings in groups.items()
        for one in options_of(settings)
        if one.profiles
    ]
    listed = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]

    assert listed == rows


def _row(whose: str, one: Option) -> str:
    name = one.field if whose.startswith("our") else one.name
    values = [one.format(one.profiles.get(word, one.default)) for word in PROFILES]
    return f"| `{name}` | {whose} | {values[1]} | {values[0]} | {values[2]} |"
