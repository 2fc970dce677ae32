"""Messages for later while brokers are killed: none lost, doubled, early, or called back in vain.

Clients send, cancel and re-time at random meanwhile; the checker knows what they were told, and is
itself tried on histories with a mistake in them.
"""

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from tests.support.cluster import ProcessCluster
from tests.support.figures import figure
from tests.support.scheduled_life import Plan, ScheduledLife, Seen, findings
from tests.support.soak import count
from waystation.client.metadata import PartitionView
from waystation.testing.cluster import LocalCluster
from waystation.testing.process import BrokerProcess

KILLS, FAILOVERS = count(2, 30), count(2, 20)
SEEDS = range(count(1, 3))
WHERE = ["in one loop", *["in processes"] * count(0, 1)]

pytestmark = pytest.mark.timeout(1_800)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("disk", ["kept", "forgetful"])
async def test_kill_9_loses_repeats_and_revives_nothing(
    tmp_path: Path, disk: str, seed: int
) -> None:
    """A forgetful disk loses what was not synced, as a power failure does."""
    broker = BrokerProcess(tmp_path / "data", volatile=disk == "forgetful")
    with broker.start():
        life = ScheduledLife(broker.bootstrap, "orders", seed)
        await life.create(replication_factor=1)

        async def havoc() -> None:
            chance = Random(seed)
            for _ in range(KILLS):
                await asyncio.sleep(chance.uniform(0.4, 1.5))
                await asyncio.to_thread(broker.kill)
                await asyncio.to_thread(broker.start)
            await asyncio.sleep(0.5)
            life.stop()

        await asyncio.gather(life.run(), havoc())
    report(life, f"{KILLS} kills, disk {disk}")


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("where", WHERE)
async def test_failover_loses_repeats_and_revives_nothing(
    tmp_path: Path, where: str, seed: int
) -> None:
    if where == "in one loop":
        life = await _in_one_loop(tmp_path, seed)
    else:
        life = await _in_processes(tmp_path, seed)
    report(life, f"{FAILOVERS} failovers {where}")


async def _in_one_loop(folder: Path, seed: int) -> ScheduledLife:
    """Killed is now who keeps the messages, now who leads the topic they are for."""
    async with LocalCluster(folder, 3) as cluster:
        life = ScheduledLife(cluster.bootstrap, "orders", seed)
        await life.create(replication_factor=3)

        async def havoc() -> None:
            for number in range(FAILOVERS):
                await asyncio.sleep(0.7)
                topic = "orders.delay" if number % 2 == 0 else "orders"
                victim = cluster.leader(topic, number // 2 % 2)
                assert victim is not None, str(cluster)
                await cluster.kill(victim)
                await cluster.until(lambda t=topic, v=victim: cluster.leader(t, 0) not in (None, v))  # type: ignore[misc]
                await asyncio.sleep(0.5)
                await cluster.start(victim)
            life.stop()

        await asyncio.gather(life.run(), havoc())
    return life


async def _in_processes(folder: Path, seed: int) -> ScheduledLife:
    """Brokers with etcd: killed, or stopped where they are to go on as if no time had passed."""
    cluster = await asyncio.to_thread(ProcessCluster(folder, 3).__enter__)
    try:
        life = ScheduledLife(cluster.bootstrap, "orders", seed)
        await life.create(replication_factor=3)
        havoc = asyncio.create_task(asyncio.to_thread(_havoc, cluster, Random(seed)))
        havoc.add_done_callback(lambda _: life.stop())
        await asyncio.gather(life.run(settle_s=90), havoc)
    finally:
        await asyncio.to_thread(cluster.__exit__)
    return life


def _havoc(cluster: ProcessCluster, chance: Random) -> None:
    for number in range(FAILOVERS):
        time.sleep(chance.uniform(1, 3))
        victim = chance.choice(cluster.ids)
        if number % 2:
            cluster.pause(victim)
            time.sleep(chance.uniform(1, 6))
            cluster.resume(victim)
        else:
            cluster.kill(victim)
            time.sleep(chance.uniform(0.5, 5))
            cluster.start(victim)
        cluster.until(lambda: all(len(one.in_sync) == 3 for one in _partitions(cluster)), 90)


def _partitions(cluster: ProcessCluster) -> list[PartitionView]:
    return [one for name in ("orders", "orders.delay") for one in cluster.topic(name).partitions]


def report(life: ScheduledLife, what: str) -> None:
    figure(
        f"scheduled messages, {what}: {len(life.plans)} sent, {life.answers} cancelled or "
        f"re-timed, {len(life.seen)} delivered"
    )
    found = life.findings()

    assert not found, found[:10]
    assert life.answers > 5, "nobody changed anything"
    assert len(life.seen) > 50, "hardly anything was delivered"


# --- the checker --------------------------------------------------------------------------------

DUE = 1_000_000
PLANS = [Plan(b"%d" % n, 0, DUE + n * 10, DUE - 5_000) for n in range(5)]
PLANS[3].cancelled = PLANS[3].changed = True
CAME = [Seen(plan.value, 0, n, plan.due + 3, plan.due + 5) for n, plan in enumerate(PLANS)]
FINE = [one for one in CAME if one.value != b"3"]


def test_the_checker_finds_nothing_where_nothing_is_wrong() -> None:
    assert findings(PLANS, FINE) == []


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (FINE[1:], "lost"),
        ([*FINE, replace(FINE[0], offset=9)], "delivered 2 times"),
        (CAME, "cancelled and delivered"),
        ([replace(FINE[0], timestamp=DUE - 1), *FINE[1:]], "early"),
        ([replace(FINE[0], at_ms=DUE - 1), *FINE[1:]], "early"),
        ([replace(FINE[0], offset=8), *FINE[1:]], "came behind"),
        ([*FINE, replace(FINE[0], value=b"x", offset=9)], "from nowhere"),
    ],
)
def test_the_checker_finds_each_kind_of_mistake(seen: list[Seen], said: str) -> None:
    assert any(said in one for one in findings(PLANS, seen))


def test_the_checker_allows_both_where_nobody_knows() -> None:
    unknown = [replace(plan, perhaps_cancelled=True) for plan in PLANS if not plan.cancelled]

    assert findings(unknown, FINE) == []
    assert findings(unknown, FINE[1:]) == []
    assert any("2 times" in one for one in findings(unknown, [*FINE, *FINE]))
