"""What follows from measured costs, and the page that shows it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.report.measured_page import medians, replaced
from benchmarks.sizing.__main__ import PAGE, texts
from benchmarks.sizing.measuring import figures
from benchmarks.sizing.page import FIGURES, MACHINES, PLAN, costs_of, plan_text
from benchmarks.sizing.plan import LARGEST_PARTITION_GB, Costs, Goal, plan
from benchmarks.sizing.steps import STEPS
from hypothesis import given
from hypothesis import strategies as st

COSTS = Costs(write=12.0, read=0.5, partition_mb_per_s=100.0)
RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "sizing"


def test_the_documents_example_is_a_gigabyte_a_second_and_nearly_two_petabytes() -> None:
    goal = Goal()

    assert goal.mb_per_s == 1_024
    assert goal.stored_tb == pytest.approx(1_858, abs=1)
    assert goal.into_brokers == 3_072
    assert goal.out_of_brokers == 4_096


def test_cores_are_what_each_megabyte_costs() -> None:
    assert COSTS.cores(Goal()) == pytest.approx(1_024 * (12 + 2 * 0.5) / 1_000)


@pytest.mark.parametrize("machine", MACHINES)
@given(
    rate=st.floats(1_000, 1e8),
    days=st.floats(0.1, 60),
    readers=st.integers(0, 20),
    write=st.floats(0.1, 100),
)
def test_a_plan_keeps_within_every_limit_with_one_machine_gone(
    machine, rate: float, days: float, readers: int, write: float
) -> None:  # type: ignore[no-untyped-def]
    goal = Goal(rate, 1_024, days, readers)
    costs = replace(COSTS, write=write)
    found = plan(goal, costs, machine)
    left = found.machines - 1

    assert left >= 3
    assert costs.cores(goal) <= left * machine.cores * machine.use * 1.0001
    assert goal.stored_tb <= left * machine.disks * machine.disk_tb * machine.fill * 1.0001
    links = left * machine.network_gb_per_s * 125 * machine.use
    assert max(goal.into_brokers, goal.out_of_brokers) <= links * 1.0001
    assert found.partitions % (found.machines * found.processes) == 0
    assert found.partition_gb <= LARGEST_PARTITION_GB * 1.0001


def test_clients_of_a_step_count_together() -> None:
    one: dict[str, object] = {
        "messages": 1_000,
        "bytes": 1_000_000,
        "seconds": 2.0,
        "client_cpu_s": 0.5,
    }
    spent = {"broker_s": 0.1, "store_s": 0.02, "busy_ticks": 150.0, "all_ticks": 200.0}

    assert figures([one, {**one, "seconds": 4.0}], spent) == {
        "messages_per_s": 500,
        "mb_per_s": 0.5,
        "broker_cpu_ms_per_mb": 50,
        "store_cpu_ms_per_mb": 10,
        "client_cpu_ms_per_mb": 500,
        "machine_busy": 0.75,
    }


def test_steps_have_names_of_their_own_and_grow_in_one_dimension() -> None:
    assert len({step.name for step in STEPS}) == len(STEPS)
    assert {"producers", "consumers", "brokers", "partitions"} <= {s.dimension for s in STEPS}
    for dimension in {step.dimension for step in STEPS}:
        for kind in ("produce", "consume"):
            some = [s for s in STEPS if (s.dimension, s.kind) == (dimension, kind)]
            same = {replace(step, **{dimension: 1}) for step in some}

            assert len(same) <= 1
            assert [step.value for step in some] == sorted({step.value for step in some})


def test_medians_are_taken_step_by_step() -> None:
    rounds = [{"a": {"x": 1.0}}, {"a": {"x": 9.0}, "b": {"x": 5.0}}, {"a": {"x": 2.0}}]

    assert medians(rounds) == {"a": {"x": 2.0}, "b": {"x": 5.0}}


def test_a_block_is_replaced_and_nothing_else() -> None:
    page = "before\n<!-- plan: by hand? no -->\nold\n<!-- end of plan -->\nafter\n"

    once = replaced(page, PLAN, "new \\1")

    assert once == (
        "before\n<!-- plan: by hand? no -->\n\nnew \\1\n\n<!-- end of plan -->\nafter\n"
    )
    assert replaced(once, PLAN, "new \\1") == once
    with pytest.raises(ValueError, match="no block figures"):
        replaced(page, FIGURES, "")


def test_without_the_steps_it_rests_on_there_is_no_plan() -> None:
    assert costs_of({}) is None
    assert "not measured" in plan_text({})


def test_the_page_says_what_the_last_result_says() -> None:
    """Whoever changes a rule or a figure by hand is told to run the command."""
    last = max(RESULTS.glob("*/results.json"), key=lambda one: one.parent.name)
    figures_of, plan_of = texts(json.loads(last.read_text()))
    page = PAGE.read_text()

    assert replaced(replaced(page, FIGURES, figures_of), PLAN, plan_of) == page, (
        f"run python -m benchmarks.sizing --results {last}"
    )
