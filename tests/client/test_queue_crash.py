"""A broker is killed while its queue is consumed: nothing acknowledged comes back, nothing is lost.

The broker loses whatever it had not synced, as in a power failure.
"""

import asyncio
from pathlib import Path

import pytest
from tests.support.soak import count

from waystation import Admin, NotHeldError, Queue
from waystation.client.queue_errors import SettlementUnknownError
from waystation.model.errors import WaystationError
from waystation.testing.process import BrokerProcess

NAME = "orders"
LOCK_MS = 2_000


class Ledger:
    """What was sent, what came, and what the broker has said is settled."""

    def __init__(self, sent: int) -> None:
        self.sent = sent
        self.settled: set[bytes] = set()
        self.unknown: set[bytes] = set()
        """Settled, or to come again: the answer was lost with the broker."""
        self.came_back: list[bytes] = []
        self.deliveries = 0
        self.kills = 0

    def note(self, value: bytes) -> None:
        self.deliveries += 1
        self.unknown.discard(value)
        if value in self.settled:
            self.came_back.append(value)

    @property
    def is_done(self) -> bool:
        return len(self.settled | self.unknown) == self.sent


async def work(bootstrap: str, ledger: Ledger, *, prefetch: int) -> None:
    """Receive and acknowledge, whatever happens to the broker, until everything is settled."""
    async with Queue(
        NAME, bootstrap, prefetch_messages=prefetch, retry_backoff_max_ms=200
    ) as queue:
        while not ledger.is_done:
            try:
                messages = await queue.receive(7, 300)
            except WaystationError:
                continue
            values = {message.value or b"" for message in messages}
            for value in values:
                ledger.note(value)
            try:
                await queue.ack(messages)
            except NotHeldError as error:
                refused = {(where.partition, offset) for where, offset, _ in error.refused}
                ledger.settled |= {
                    one.value or b""
                    for one in messages
                    if (one.partition, one.offset) not in refused
                }
            except SettlementUnknownError:
                ledger.unknown |= values
            else:
                ledger.settled |= values


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
        workers = [work(broker.bootstrap, ledger, prefetch=one) for one in (0, 0, 50)]

        async with asyncio.timeout(150):
            await asyncio.gather(kill_now_and_then(broker, ledger, count(2, 10)), *workers)
            async with Queue(NAME, broker.bootstrap) as last:
                await last.join()
                while left := await last.receive(100, LOCK_MS + 500):
                    assert {one.value for one in left} <= ledger.unknown
                    await last.ack(left)

    assert ledger.came_back == []
    assert ledger.deliveries >= ledger.sent
    assert ledger.kills == count(2, 10)
