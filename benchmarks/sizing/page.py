"""The blocks of the sizing page that are not written by hand: what was measured, what follows.

A block stands between ``<!-- NAME: ... -->`` and ``<!-- end of NAME -->``; everything between is
replaced, everything else stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from benchmarks.peers.machine import busy
from benchmarks.report.table import number
from benchmarks.sizing.plan import (
    LARGEST_PARTITION_GB,
    PARTITION_USE,
    REPLICAS,
    THROTTLE_MB_PER_S,
    Costs,
    Goal,
    Machine,
    Plan,
    plan,
)
from benchmarks.sizing.steps import STEPS

FIGURES, PLAN = "figures", "plan"
COMMAND = "python -m benchmarks.sizing"
Measured = Mapping[str, Mapping[str, float]]  # a step's name -> its medians

MACHINES = (
    Machine("16 cores, 128 GB, 12 hard disks of 16 TB, 10 Gb/s", 16, 128, 12, 16.0, 100.0, 10.0),
    Machine("16 cores, 128 GB, 8 NVMe disks of 15 TB, 25 Gb/s", 16, 128, 8, 15.0, 1_000.0, 25.0),
)
_WRITTEN = "produce, 16 KB batches"
_READ = "consume, 1 consumers"
_ONE_PARTITION = "produce, 1 partitions"
_COLUMNS = {
    "messages_per_s": "msg/s",
    "mb_per_s": "MB/s",
    "broker_cpu_ms_per_mb": "brokers' CPU ms/MB",
    "client_cpu_ms_per_mb": "clients' CPU ms/MB",
    "machine_busy": "cores busy",
}


def figures_text(measured: Measured, facts: Mapping[str, object], arguments: str) -> str:
    """A table for every dimension, with the command that gives it again."""
    lines = [f"Measured on {_machine(facts)}, with `{COMMAND}{arguments}`.", ""]
    if "--quick" in arguments or busy(facts):
        lines += ["**A short run, or one beside other work: a look, not a result.**", ""]
    for dimension in dict.fromkeys(step.dimension for step in STEPS):
        steps = [s for s in STEPS if s.dimension == dimension and s.name in measured]
        if steps:
            title = steps[0].words
            lines += [f"### {title[0].upper()}{title[1:]}: `{COMMAND} --only {dimension}`", ""]
            rows = [(f"{s.kind}, {s.value}", measured[s.name]) for s in steps]
            lines += [*_table(title, rows), ""]
    return "\n".join(lines)


def costs_of(measured: Measured) -> Costs | None:
    """What the plan rests on; nothing if a step that it needs was not measured."""
    if any(name not in measured for name in (_WRITTEN, _READ, _ONE_PARTITION)):
        return None
    return Costs(
        measured[_WRITTEN]["broker_cpu_ms_per_mb"],
        measured[_READ]["broker_cpu_ms_per_mb"],
        measured[_ONE_PARTITION]["mb_per_s"],
    )


def plan_text(measured: Measured, goal: Goal | None = None) -> str:
    """What the goal takes, machine by machine."""
    goal, costs = goal or Goal(), costs_of(measured)
    if costs is None:
        return "The steps that this rests on were not measured."
    plans = [(machine, plan(goal, costs, machine)) for machine in MACHINES]
    head = ["", *(machine.name for machine in MACHINES)]
    rows = [[title, *(cell(machine, one) for machine, one in plans)] for title, cell in _ROWS]
    return "\n".join([*_basis(goal, costs), "", *_markdown(head, rows)])


def _basis(goal: Goal, costs: Costs) -> list[str]:
    return [
        f"- {goal.messages_per_s:,.0f} messages of {goal.message_bytes:,} bytes a second are "
        f"{goal.mb_per_s:,.0f} MB/s; {REPLICAS} replicas for {goal.days:g} days are "
        f"{goal.stored_tb / 1_000:.2f} PB.",
        f"- CPU of all brokers for each MB: {number(costs.write)} ms to write it to {REPLICAS} "
        f"replicas in batches of 16 KB (*{_WRITTEN}*), {number(costs.read)} ms for each reader "
        f"(*{_READ}*). With {goal.readers} readers {number(costs.per_mb(goal))} ms, times "
        f"{goal.mb_per_s:,.0f} MB/s = {costs.cores(goal):.1f} cores that never rest.",
        f"- The network carries {goal.into_brokers:,.0f} MB/s into brokers and "
        f"{goal.out_of_brokers:,.0f} MB/s out of them; their disks take "
        f"{goal.into_brokers:,.0f} MB/s.",
        f"- One partition took {number(costs.partition_mb_per_s)} MB/s (*{_ONE_PARTITION}*); "
        f"planned is {PARTITION_USE:.0%} of it, and at most {LARGEST_PARTITION_GB:g} GB.",
    ]


Cell = Callable[[Machine, Plan], str]
_ROWS: tuple[tuple[str, Cell], ...] = (
    ("machines by CPU, half used", lambda _, one: str(one.needed.cores)),
    ("machines by disk space, 80 % full", lambda _, one: str(one.needed.space)),
    ("machines by disk speed, half used", lambda _, one: str(one.needed.disk_speed)),
    ("machines by network, half used", lambda _, one: str(one.needed.network)),
    ("**machines**, one of which may fail", lambda _, one: f"**{one.machines}**"),
    ("**brokers**: `--processes` on each", lambda _, one: _brokers(one)),
    ("**cores**, all of them", lambda machine, one: f"{one.machines * machine.cores:,}"),
    ("**disks**, all of them", lambda machine, one: f"{one.machines * machine.disks:,}"),
    ("**network** of each, in and out", lambda _, one: _network(one)),
    ("**partitions**, leaders and followers", lambda _, one: _partitions(one)),
    ("a partition's size", lambda _, one: f"{number(one.partition_gb)} GB"),
    ("readers served from memory", lambda _, one: f"up to {one.cached_s / 60:.0f} min behind"),
    ("a lost machine's data copied anew", lambda _, one: _refill(one)),
)


def _brokers(one: Plan) -> str:
    return f"{one.machines * one.processes}: {one.processes}"


def _partitions(one: Plan) -> str:
    return f"{one.partitions:,}; {one.replicas_each:.0f} on each broker"


def _network(one: Plan) -> str:
    inwards, outwards = (each * 8 / 1_000 for each in (one.in_mb_per_s, one.out_mb_per_s))
    return f"{inwards:.1f}, {outwards:.1f} Gb/s"


def _refill(one: Plan) -> str:
    return f"in {one.refill_h:.0f} h, {THROTTLE_MB_PER_S:g} MB/s each"


def _machine(facts: Mapping[str, object]) -> str:
    return (
        f"one machine with {facts['cores']} cores, {facts['memory_gb']} GB and "
        f"{facts['file_system']}, on which brokers, etcd and clients all run"
    )


def _table(title: str, rows: Sequence[tuple[str, Mapping[str, float]]]) -> list[str]:
    cells = [[name, *(_cell(metric, one.get(metric)) for metric in _COLUMNS)] for name, one in rows]
    return _markdown([title, *_COLUMNS.values()], cells)


def _cell(metric: str, value: float | None) -> str:
    if metric == "machine_busy" and value is not None:
        return f"{value:.0%}"
    return number(value)


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    rule = ["---", *("---:" for _ in head[1:])]
    return [f"| {' | '.join(row)} |" for row in (head, rule, *rows)]
