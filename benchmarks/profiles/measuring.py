"""One broker's life under a profile: every step on a topic of its own, after a warm-up.

The broker syncs before it answers (``durability=disk``), under every profile alike.  Messages go to
the partitions in turn, as keys would spread them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from benchmarks.loads import librdkafka
from benchmarks.loads.catalog import Kind, Load
from benchmarks.peers.broker import RunningBroker, running
from benchmarks.peers.waystation import WaystationPeer
from benchmarks.profiles.plan import PARTITIONS, SAME, SIZE_BYTES, Step

Figures = dict[str, float]
_WARMUP_COUNT = 200_000


class ProfiledPeer(WaystationPeer):
    """``waystation serve --profile``, everything else default."""

    def __init__(self, profile: str) -> None:
        self._profile = profile

    def command(self, directory: Path, port: int, durability: str) -> list[str]:
        """The broker in the foreground."""
        return [*super().command(directory, port, durability), "--profile", self._profile]


class Amounts:
    """How long timed steps take, and how many messages the others have."""

    def __init__(self, seconds: float, warmup_s: float, count: int) -> None:
        self.seconds, self.warmup_s, self.count = seconds, warmup_s, count


def life(
    profile: str,
    steps: list[Step],
    amounts: Amounts,
    directory: Path,
    told: Callable[[str], None],
) -> dict[str, Figures]:
    """The figures of all steps, by their names."""
    with running(ProfiledPeer(profile), directory, "disk") as broker:
        told(f"{profile}: warm-up")
        count = min(_WARMUP_COUNT, amounts.count)
        _run(broker, Step(SAME, profile, None), Amounts(1.0, 0.0, count), "warm-up")
        measured = {}
        for step in steps:
            told(step.name)
            measured[step.name] = _run(broker, step, amounts, step.topic)
        return measured


def _run(broker: RunningBroker, step: Step, amounts: Amounts, topic: str) -> Figures:
    librdkafka.create_topic(broker.bootstrap, topic, PARTITIONS)
    os.sync()
    before_s = broker.cpu_seconds()
    reported = librdkafka.run(_load(step, amounts), broker.bootstrap, topic)
    return figures(reported, broker.cpu_seconds() - before_s)


def _load(step: Step, amounts: Amounts) -> Load:
    kind = Kind.TAIL if step.rate is None else Kind.LATENCY
    return Load(
        step.name,
        kind,
        SIZE_BYTES,
        PARTITIONS,
        "all",
        amounts.count,
        rate_per_s=step.rate or 0,
        seconds=amounts.seconds,
        warmup_seconds=amounts.warmup_s,
        settings=step.settings,
    )


def figures(reported: dict[str, object], broker_s: float) -> Figures:
    """What ``rdload`` said of a step, and what each message cost the broker."""
    messages = _number(reported["messages"])
    found = {"broker_us_per_message": broker_s * 1e6 / messages}
    if "messages_per_s" in reported:
        return {**found, "messages_per_s": _number(reported["messages_per_s"])}
    found["messages_per_s"] = _number(reported["rate_per_s"])
    for kind in ("publish", "end_to_end"):
        times = reported[f"{kind}_ms"]
        assert isinstance(times, dict), f"{times!r} are no times"
        found |= {f"{kind}_{share}_ms": _number(times[share]) for share in ("p50", "p99")}
    return found


def _number(value: object) -> float:
    assert isinstance(value, int | float), f"{value!r} is no figure"
    return float(value)
