"""The order of runs: pair by pair, scenario by scenario, ours and theirs in turn.

Within a pair the two brokers run the same scenario one right after the other, each on a fresh
directory, never at the same time; who goes first alternates, so that neither always gets the
warmer machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from benchmarks.loads import datasync
from benchmarks.loads.catalog import Scenario
from benchmarks.loads.librdkafka import LoadError
from benchmarks.loads.session import Session
from benchmarks.peers.broker import Peer, RunningBroker, running
from benchmarks.peers.cluster import running_cluster
from benchmarks.peers.clusters import cluster_of
from benchmarks.peers.handshake import NotReadyError
from benchmarks.report.results import Result


def steps_in(scenarios: Sequence[Scenario], peers: Sequence[Peer], pairs: int) -> int:
    """How many steps ``run_pair`` will announce in all."""
    per_life = (max(1, len(s.loads) + (s.warmup is not None)) for s in scenarios)
    return sum(per_life) * len(peers) * pairs


def run_pair(
    number: int,
    scenarios: Sequence[Scenario],
    peers: Sequence[Peer],
    directory: Path,
    result: Result,
    announce: Callable[[str], None],
) -> None:
    """One pair of every scenario; its figures appear in ``result`` as they come."""
    figures: dict[str, dict[str, dict[str, float]]] = {peer.name: {} for peer in peers}
    result.pairs.append(figures)
    for place, scenario in enumerate(scenarios):
        ordered = peers if (number + place) % 2 == 0 else list(reversed(peers))
        for peer in ordered:
            life = f"pair {number + 1}, {peer.name}, {scenario.name}"
            _run_life(peer, scenario, directory, figures, result, _prefixed(announce, life))


def _run_life(
    peer: Peer,
    scenario: Scenario,
    directory: Path,
    figures: dict[str, dict[str, dict[str, float]]],
    result: Result,
    step: Callable[[str], None],
) -> None:
    """One broker life.  A failed load ends the life, is noted, and the other peer still runs."""
    rows = figures[peer.name]
    if scenario.durability == "disk":
        rows.update(datasync.probe(directory, scenario.brokers))
    try:
        with _started(peer, scenario, directory / peer.name) as broker:
            session = Session(broker, step)
            try:
                session.run(scenario)
            finally:
                rows.update(session.rows)
                result.notes.update(session.notes)
    except (LoadError, NotReadyError) as error:
        result.notes[f"{peer.name}, {scenario.name}"] = f"FAILED: {error}"
        print(f"{peer.name}, {scenario.name} FAILED: {error}", flush=True)


def _started(
    peer: Peer, scenario: Scenario, directory: Path
) -> AbstractContextManager[RunningBroker]:
    if scenario.brokers == 1:
        return running(peer, directory, scenario.durability)
    cluster = cluster_of(peer.name, scenario.brokers)
    return running_cluster(cluster, directory, scenario.durability)


def _prefixed(announce: Callable[[str], None], prefix: str) -> Callable[[str], None]:
    return lambda text: announce(f"{prefix}: {text}")
