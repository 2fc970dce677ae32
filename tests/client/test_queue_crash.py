"""A broker is killed while its queue is consumed: nothing acknowledged comes back, nothing is lost.

The broker loses whatever it had not synced, as in a power failure.
"""

import asyncio
from pathlib import Path

import pytest
from tests.support.queue_work import Ledger, drain, work
from tests.support.soak import count

from waystation import Admin, Queue
from waystation.testing.process import BrokerProcess

NAME = "orders"
LOCK_MS = 2_000


async def kill_now_and_then(broker: BrokerProcess, ledger: Ledger, times: int) -> None:
    for kill in range(times):
        enough = ledger.sent * (kill + 1) // (times + 1)
        while len(ledger.settled) < enough:
            await asyncio.sleep(0.005)
        broker.kill()
        ledger.kills += 1
        await asyncio.to_thread(broker.start)


@pytest.mark.timeout(180)
async def test_kill_minus_nine_loses_nothing_and_brings_nothing_back(tmp_path: Path) -> None:
    ledger = Ledger(count(400, 20_000))
    with BrokerProcess(tmp_path / "data", volatile=True).start() as broker:
        async with Admin(broker.bootstrap) as admin:
            await admin.create_queue(NAME, 2, lock_ms=LOCK_MS, max_deliveries=100)
        async with Queue(NAME, broker.bootstrap) as sender:
            await asyncio.gather(*(sender.send(str(one)) for one in range(ledger.sent)))
        workers = [work(NAME, broker.bootstrap, ledger, prefetch=one) for one in (0, 0, 50)]

        async with asyncio.timeout(150):
            await asyncio.gather(kill_now_and_then(broker, ledger, count(2, 10)), *workers)
            await drain(NAME, broker.bootstrap, ledger, LOCK_MS + 500)

    assert ledger.kills == count(2, 10)
