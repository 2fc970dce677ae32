"""kill -9 under senders and finders: what was acknowledged is found, also by a torn index."""

import asyncio
import random
from pathlib import Path

import pytest

from tests.support.soak import count
from waystation import Admin, Producer
from waystation.testing.process import BrokerProcess

pytestmark = [pytest.mark.alone, pytest.mark.timeout(600)]

ROUNDS = count(2, 40)
PER_ROUND = 1_500
USERS = 60


async def send(bootstrap: str, first: int, acknowledged: dict[int, int]) -> None:
    """Until the broker dies; what it acknowledged is noted with its offset."""

    async def one(producer: Producer, number: int) -> None:
        sent = await producer.send("inbox", b"%d" % number, key=f"user-{number % USERS}")
        acknowledged[number] = sent.offset

    async with Producer(bootstrap, linger_ms=1, delivery_timeout_ms=60_000) as producer:
        numbers = range(first, first + PER_ROUND)
        await asyncio.gather(*(one(producer, number) for number in numbers))


def test_what_was_acknowledged_is_found_after_kill_9(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data", volatile=True).start()
    asyncio.run(_rounds(broker, tmp_path / "data"))

    assert broker.stop() == 0


async def _rounds(broker: BrokerProcess, folder: Path) -> None:
    chance, acknowledged = random.Random(7), dict[int, int]()
    async with Admin(broker.bootstrap) as admin:
        options = {"index.keys": "true", "segment.bytes": "20000"}
        await admin.create_topic("inbox", 1, configs=options)
        for turn in range(ROUNDS):
            sending = asyncio.ensure_future(send(broker.bootstrap, turn * PER_ROUND, acknowledged))
            await asyncio.sleep(0.6)
            broker.kill()
            for path in folder.rglob("*.keyindex"):
                if chance.random() < 0.3:
                    content = path.read_bytes()
                    path.write_bytes(content[: chance.randrange(len(content) + 1)])
            broker.start()
            await sending

            finder = admin.finder("inbox")
            for user in chance.sample(range(USERS), 10):
                found = {
                    int(one.value or b""): one.offset async for one in finder.find(f"user-{user}")
                }
                wanted = {n: at for n, at in acknowledged.items() if n % USERS == user}
                assert found == wanted
