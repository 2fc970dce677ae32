"""What the page of profiles shows of a result: two tables, one picture, the verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.peers.machine import busy
from benchmarks.profiles.plan import CLIENTS, MAX, PROFILES, SAME, TYPICAL_RATE, Clients
from benchmarks.report.curves import Curve, Panel, draw
from benchmarks.report.table import number

FIGURES = "figures"
COMMAND = "python -m benchmarks.profiles"
Measured = Mapping[str, Mapping[str, float]]  # a step's name -> its medians

_COLOURS = {"latency": "#2a7f62", "balanced": "#7f8c8d", "throughput": "#c0392b"}
_TIMES = {
    "publish_p50_ms": "publish p50 ms",
    "publish_p99_ms": "publish p99 ms",
    "end_to_end_p99_ms": "end to end p99 ms",
    "broker_us_per_message": "broker CPU µs/msg",
}


def figures_text(measured: Measured, facts: Mapping[str, object], arguments: str) -> str:
    """What was measured on what, and a table for each kind of clients."""
    lines = [
        f"Measured on one machine with {facts['cores']} cores, {facts['memory_gb']} GB and "
        f"{facts['file_system']}, on which broker and clients both run, "
        f"with `{COMMAND}{arguments}`.",
        "",
    ]
    if "--quick" in arguments or busy(facts):
        lines += ["**A short run, or one beside other work: a look, not a result.**", ""]
    lines += [verdict(measured), ""]
    for clients in CLIENTS:
        lines += [
            f"### {clients.title}",
            "",
            *_settings(clients),
            "",
            *_table(measured, clients),
            "",
        ]
    return "\n".join(lines)


def verdict(measured: Measured) -> str:
    """What the two profiles gain over each other, the clients being the same."""
    fast, full = (_of(measured, profile) for profile in ("latency", "throughput"))
    at = f"at {TYPICAL_RATE:,} msg/s"
    return (
        f"With the same clients, {at}: p99 to publish **{fast['publish_p99_ms']:.1f} ms** under "
        f"latency, {full['publish_p99_ms']:.1f} ms under throughput "
        f"({full['publish_p99_ms'] / fast['publish_p99_ms']:.1f} times as long). As fast as it "
        f"goes: **{full['max']:,.0f} msg/s** under throughput, {fast['max']:,.0f} under latency "
        f"({full['max'] / fast['max']:.1f} times as many)."
    )


def margins(measured: Measured) -> tuple[float, float]:
    """How many times shorter latency's p99 is, and how many times more throughput carries."""
    fast, full = (_of(measured, profile) for profile in ("latency", "throughput"))
    return full["publish_p99_ms"] / fast["publish_p99_ms"], full["max"] / fast["max"]


def picture(measured: Measured) -> str:
    """p99 end to end over the offered rate, a dashed line where a profile ends."""
    panels = [
        Panel(clients.title, [_curve(measured, clients, one) for one in PROFILES])
        for clients in CLIENTS
    ]
    note = "Dashed: as many messages a second as client and broker manage under the profile."
    return draw(panels, "messages a second", "p99 end to end, ms", note)


def _of(measured: Measured, profile: str) -> dict[str, float]:
    typical = measured[f"{SAME.name}/{profile}/{TYPICAL_RATE}"]
    return {**typical, "max": measured[f"{SAME.name}/{profile}/{MAX}"]["messages_per_s"]}


def _curve(measured: Measured, clients: Clients, profile: str) -> Curve:
    timed = _timed(measured, clients, profile)
    points = [(one["messages_per_s"], one["end_to_end_p99_ms"]) for _, one in timed]
    limit = measured[f"{clients.name}/{profile}/{MAX}"]["messages_per_s"]
    return Curve(profile, _COLOURS[profile], points, limit)


def _timed(
    measured: Measured, clients: Clients, profile: str
) -> list[tuple[int, Mapping[str, float]]]:
    """The steps with a rate, the slowest first."""
    prefix = f"{clients.name}/{profile}/"
    names = [name for name in measured if name.startswith(prefix) and not name.endswith(MAX)]
    rated = [(int(name.removeprefix(prefix)), measured[name]) for name in names]
    return sorted(rated, key=lambda one: one[0])


def _settings(clients: Clients) -> list[str]:
    if len(set(clients.settings.values())) == 1:
        return [f"librdkafka with {_words(clients.settings[PROFILES[0]])}, under every profile."]
    return [
        f"- {profile}: librdkafka with {_words(settings)}."
        for profile, settings in clients.settings.items()
    ]


def _words(settings: Sequence[str]) -> str:
    named = [f"`{one.split('.', 1)[1]}`" for one in settings]
    return " and ".join(named) + ", everything else default" if named else "its defaults"


def _table(measured: Measured, clients: Clients) -> list[str]:
    head = ["msg/s", "profile", *_TIMES.values()]
    rows = []
    for place, (rate, _) in enumerate(_timed(measured, clients, PROFILES[0])):
        for profile in PROFILES:
            one = _timed(measured, clients, profile)[place][1]
            rows.append([f"{rate:,}", profile, *(number(one[metric]) for metric in _TIMES)])
    for profile in PROFILES:
        one = measured[f"{clients.name}/{profile}/{MAX}"]
        most = f"**{one['messages_per_s']:,.0f}**, the most"
        rows.append([most, profile, "", "", "", number(one["broker_us_per_message"])])
    rule = ["---:", "---", *("---:" for _ in _TIMES)]
    return [f"| {' | '.join(row)} |" for row in (head, rule, *rows)]
