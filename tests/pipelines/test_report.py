"""Pages that stand alone, plots inside them, tables and sizes for people."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from waystation.pipelines.plots import bars, lines
from waystation.pipelines.report import (
    Section,
    Table,
    page,
    report_path,
    shown_bytes,
    shown_count,
    shown_duration,
    text_table,
    write_page,
)

START = datetime(2026, 1, 1, tzinfo=UTC)
TIMES = [START + timedelta(minutes=minute) for minute in range(5)]


def test_a_page_needs_nothing_beside_it() -> None:
    plot = lines("rate", {"orders": (TIMES, [1, 2, 3, 2, 1])})
    document = page("Title", "note", [("messages", "7")], [Section("Part", "", [plot])])

    fetched = re.findall(
        r'(?:src|href)\s*=\s*"(?!#)[^"]*"|url\((?!#)[^)]*\)|<script|<link', document
    )
    assert fetched == []
    assert "<svg" in document
    assert "orders" in document


def test_what_comes_from_records_is_escaped() -> None:
    nasty = '<script>alert("x")</script>'
    section = Section(nasty, nasty, tables=[Table((nasty,), [(nasty,)])])

    assert "<script" not in page(nasty, nasty, [(nasty, nasty)], [section])


def test_a_page_reloads_itself_only_while_a_job_runs() -> None:
    assert 'http-equiv="refresh" content="15"' in page("t", "", [], [], refresh_s=15)
    assert "refresh" not in page("t", "", [], [])


def test_numbers_stand_to_the_right() -> None:
    table = Table(("TOPIC", "SIZE"), [("orders", "1.5 MB"), ("x", "12 B")])

    assert text_table(table).splitlines() == ["TOPIC     SIZE", "orders  1.5 MB", "x         12 B"]
    assert '<td class="number">1.5 MB</td>' in page("t", "", [], [Section("s", tables=[table])])


def test_a_page_is_replaced_as_a_whole(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "report.html"
    write_page(target, "old")
    write_page(target, "new")

    assert target.read_text() == "new"
    assert [one.name for one in target.parent.iterdir()] == ["report.html"]


def test_a_report_lies_beside_its_table() -> None:
    assert report_path("/lake/metrics/") == Path("/lake/metrics-report.html")
    assert report_path("file:///lake/metrics") == Path("/lake/metrics-report.html")
    assert report_path("s3://bucket/lake/metrics") == Path("metrics-report.html")


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0 B"), (999, "999 B"), (1_000, "1.0 KB"), (999_960, "1.0 MB"), (1.8e15, "1.8 PB")],
)
def test_sizes_for_people(count: float, shown: str) -> None:
    assert shown_bytes(count) == shown


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0"), (0.25, "0.2"), (11_574, "11.6 k"), (9_999, "9,999"), (1e9, "1.0 billion")],
)
def test_counts_for_people(count: float, shown: str) -> None:
    assert shown_count(count) == shown


def test_durations_for_people() -> None:
    assert [shown_duration(ms) for ms in (12, 1_500, 90_000, 172_800_000)] == [
        "12 ms",
        "1.5 s",
        "1.5 min",
        "2.0 d",
    ]


def test_plots_are_drawings_with_text_in_them() -> None:
    drawn = [
        lines("rate", {"orders": (TIMES, [1, 2, 3, 2, 1])}, limit=4),
        bars("per day", {"a": [1, 2], "b": [3, 4]}, ["mon", "tue"]),
        lines("nothing", {}),
        bars("nothing at all", {}, []),
        lines("one", {"orders": (TIMES[:1], [1])}),
    ]

    for plot in drawn:
        assert ET.fromstring(plot).tag.endswith("svg")
    assert "orders" in drawn[0]
    assert "tue" in drawn[1]


def test_plots_of_one_page_do_not_share_ids() -> None:
    series = {"orders": (TIMES, [1, 2, 3, 2, 1])}
    first, second = (
        set(re.findall(r'id="(p[0-9a-f]+)"', lines(title, series))) for title in ("one", "two")
    )

    assert first
    assert not first & second


def test_the_same_figures_give_the_same_plot() -> None:
    series = {"orders": (TIMES, [1, 2, 3, 2, 1])}

    assert lines("rate", series) == lines("rate", series)
