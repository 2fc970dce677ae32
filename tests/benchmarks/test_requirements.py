"""What a row must reach, and what the table says about it."""

from __future__ import annotations

from benchmarks.loads.catalog import SCENARIOS, chosen
from benchmarks.report.ratios import Comparison
from benchmarks.report.requirements import REQUIREMENTS, required
from benchmarks.report.table import render, summary


def comparison(row: str, metric: str, ours: float, theirs: float) -> Comparison:
    return Comparison(row, metric, (ours,), (theirs,), (ours / theirs,))


def all_rows() -> list[str]:
    loads = [load.name for scenario in SCENARIOS for load in scenario.loads]
    memory = [f"memory after {scenario.name}" for scenario in SCENARIOS if scenario.loads]
    begun = [scenario.prefix for scenario in SCENARIOS if not scenario.loads]
    return [*loads, *memory, *(p + row for p in begun for row in ("start", "memory idle"))]


def test_row_names_are_unique() -> None:
    assert len(set(all_rows())) == len(all_rows())


def test_every_requirement_speaks_about_a_row_that_is_measured() -> None:
    idle = [
        requirement
        for requirement in REQUIREMENTS
        if not any(
            requirement.covers(Comparison(row, requirement.metric, (), (), ()))
            for row in all_rows()
        )
    ]

    assert idle == []


def test_throughput_below_the_bound_falls_short_and_is_named() -> None:
    slow = comparison("produce 1KB 1p acks=1", "messages_per_s", 94.0, 100.0)

    assert [requirement.met_by(slow) for requirement in required(slow)] == [False]
    assert "FALLS SHORT" in render([slow])
    assert "falls short: produce 1KB 1p acks=1, msg/s: 0.94, required ratio >= 0.95" in summary(
        [slow]
    )


def test_throughput_at_the_bound_passes() -> None:
    enough = comparison("produce 1KB 1p acks=1", "messages_per_s", 95.0, 100.0)

    assert "pass" in render([enough])
    assert summary([enough]).startswith("1 requirements met, 0 fall short")


def test_a_row_can_owe_a_ratio_and_an_absolute_figure() -> None:
    even = comparison("produce 100B 1p acks=1", "messages_per_s", 900_000, 900_000)

    assert [requirement.met_by(even) for requirement in required(even)] == [True, False]
    assert "ratio >= 0.95, ours >= 1,000,000" in render([even])


def test_what_was_not_measured_is_neither_met_nor_missed() -> None:
    alone = Comparison("latency 6p linger=5ms", "publish_p99_ms", (3.0,), (), ())

    assert [requirement.met_by(alone) for requirement in required(alone)] == [None]
    assert "not measured" in render([alone])


def test_durable_latency_is_bounded_without_a_peer() -> None:
    alone = Comparison("disk latency 6p linger=5ms", "publish_p99_ms", (9.0,), (), ())

    assert [requirement.met_by(alone) for requirement in required(alone)] == [True]


def test_a_cluster_owes_what_the_issue_asks_of_it_and_not_what_a_single_broker_does() -> None:
    owed = {
        (row, requirement.text)
        for row in all_rows()
        if row.startswith("cluster")
        for metric in ("messages_per_s", "publish_p99_ms", "cpu_ms_per_mb", "ready_ms")
        for requirement in required(Comparison(row, metric, (), (), ()))
    }

    assert ("cluster produce 1KB 6p acks=all", "ratio >= 0.8") in owed
    assert ("cluster latency 6p linger=5ms", "ours <= 10") in owed
    assert ("cluster disk latency 6p linger=5ms", "ours <= 25") in owed
    assert {text for _, text in owed} == {"ratio >= 0.8", "ours <= 10", "ours <= 25"}


def test_columns_line_up() -> None:
    rows = [
        comparison("produce 1KB 1p acks=1", "messages_per_s", 1e6, 9e5),
        comparison("start", "ready_ms", 400, 2_000),
    ]
    header, first, second = render(rows).splitlines()

    assert header.index("required") == first.index("ratio >=") == second.index("ours <=")


def test_only_chooses_rows_by_substring_and_scenarios_whole() -> None:
    by_row = chosen(("consume 1KB 1p",), 1.0)
    by_scenario = chosen(("latency",), 1.0)

    assert [[load.name for load in scenario.loads] for scenario in by_row] == [["consume 1KB 1p"]]
    assert {scenario.name for scenario in by_scenario} == {
        *("latency", "disk", "cluster", "cluster-disk")
    }
    assert len(chosen((), 1.0)) == len(SCENARIOS)
    assert chosen(("no such row",), 1.0) == []
