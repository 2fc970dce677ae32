"""Clusters of real processes through every fault there is: what clients were promised, holds.

Writers, stages and readers of several client libraries use three brokers and their store, each
link between them through a relay of ours.  By chance, everything that ``tests/support/havoc.py``
knows happens to them.  ``waystation/testing/checker.py`` decides: no acknowledged record is lost,
none of an idempotent producer is there twice, no order is broken, nothing aborted is read, and a
chain of stages transforms each input exactly once.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.cluster import Disk, ProcessCluster, Store
from tests.support.figures import figure
from tests.support.havoc import Havoc, by_chance
from tests.support.soak import SOAKING, count
from waystation.runtime.loops import run
from waystation.testing.chain import Chain
from waystation.testing.checker import Verdict, check
from waystation.testing.history import Diary, HistoryFile, read_histories
from waystation.testing.programs import Program
from waystation.testing.readers import read_to_end

pytestmark = [pytest.mark.alone, pytest.mark.timeout(3_600)]

CHAOS_S = int(os.environ.get("WAYSTATION_CHAOS_S") or count(15, 600))
PATIENCE_S = 90.0
PARTITIONS = 3
TOPIC = "foreign"
ROLES = ("confluent-write", "aiokafka-write", "confluent-read", "aiokafka-read")
FOREIGN = {2: "tests.support.librdkafka_stage"}
OPTIONS = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.min.isr": "2",
    "replica.lag.time.max.ms": "2000",
}
KINDS: list[tuple[Store, Disk]] = (
    [("etcd", "volatile"), ("etcd", "faulty"), ("zookeeper", "volatile")]
    if SOAKING
    else [("etcd", "volatile")]
)


@pytest.mark.parametrize(("store", "disk"), KINDS)
def test_a_cluster_keeps_its_promises_whatever_happens(
    tmp_path: Path, store: Store, disk: Disk
) -> None:
    chance = by_chance()
    stages = tmp_path / "stages"
    stages.mkdir()
    with (
        ProcessCluster(
            tmp_path / "cluster", 3, store=store, options=OPTIONS, relayed=True, disk=disk
        ) as cluster,
        Chain(cluster.bootstrap, stages, chance, messages_per_s=60, modules=FOREIGN) as chain,
        foreigners(cluster, tmp_path / "foreign") as others,
    ):
        await_work(stages)
        blows = {"stage dies": chain.kill_somebody, "stage freezes": chain.freeze_somebody}
        havoc = Havoc(cluster, chance, chain.note, others=blows)
        havoc.during(CHAOS_S)
        havoc.heal()
        outcome = chain.finish()
        verdict = judged(cluster, others, tmp_path / "foreign")
        complaints = havoc.complaints()
    strikes = dict(havoc.strikes.most_common())
    figure(
        f"cluster on {store}, {disk} disks, {CHAOS_S} s of {strikes}: {outcome.inputs} inputs, "
        f"deaths {dict(outcome.deaths)}, {outcome.verdict[1:]}; foreign {verdict[1:]}"
    )
    outcome.demand()
    assert not verdict.findings, "\n".join(map(str, verdict.findings[:20]))
    assert verdict.complete, "somebody did not read to the end"
    assert not complaints, "\n".join(complaints[:10])


def await_work(stages: Path) -> None:
    """Until what the writers wrote has gone through the whole chain."""
    deadline = time.monotonic() + PATIENCE_S
    while not any('"ack"' in one.read_text() for one in stages.glob("s3*.jsonl")):
        assert time.monotonic() < deadline, "nobody begins"
        time.sleep(0.1)


@contextmanager
def foreigners(cluster: ProcessCluster, folder: Path) -> Iterator[list[Program]]:
    """Writers and readers by librdkafka and aiokafka."""
    folder.mkdir()
    cluster.ask(lambda admin: admin.create_topic(TOPIC, PARTITIONS))
    programs = [
        Program(
            folder,
            role,
            cluster.bootstrap,
            ("-m", "tests.support.foreign_clients", role, TOPIC, "20"),
        )
        for role in ROLES
    ]
    try:
        for program in programs:
            program.start()
        yield programs
    finally:
        for program in programs:
            program.kill()


def judged(cluster: ProcessCluster, programs: list[Program], folder: Path) -> Verdict:
    """What the others saw, once they have ended and everything was read."""
    for program in programs:
        assert program.is_alive
        program.finish()
    with HistoryFile(folder / "last.jsonl") as file:
        last = Diary("last", file.write)
        run(read_to_end(cluster.bootstrap, [TOPIC], last, PATIENCE_S))
    return check(read_histories(sorted(folder.glob("*.jsonl"))))
