"""Messages for later while brokers are killed: none lost, doubled, early, or called back in vain.

Clients send, cancel and re-time at random meanwhile; the checker knows what they were told, and is
itself tried on histories with a mistake in them.
"""

import asyncio
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from tests.support.figures import figure
from tests.support.scheduled_life import Plan, ScheduledLife, Seen, findings
from tests.support.soak import count
from waystation.testing.cluster import LocalCluster
from waystation.testing.process import BrokerProcess

KILLS, FAILOVERS = count(2, 30), count(2, 20)
SEEDS = range(count(1, 3))

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
async def test_failover_loses_repeats_and_revives_nothing(tmp_path: Path, seed: int) -> None:
    """Now who keeps the messages, now who leads the topic they are for."""
    async with LocalCluster(tmp_path, 3) as cluster:
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
    report(life, f"{FAILOVERS} failovers")


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
