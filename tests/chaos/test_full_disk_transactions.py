"""A disk that fills up during transactions: each is whole or gone, and all go on with more room."""

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from tests.chaos.test_full_disk import FAULTY, MB, OPTIONS
from tests.support.soak import SOAKING
from waystation import Admin, Consumer, Producer
from waystation.client.options import ConsumerOptions, ProducerOptions
from waystation.model.errors import TransactionAbortableError, WaystationError
from waystation.testing.process import BrokerProcess

pytestmark = pytest.mark.alone

ROOM_BYTES = 5 * MB
TOPICS = ("ledger", "other")
PADDING = bytes(50_000)
RECORDS = 4
"""In each topic, of each transaction."""
ATTEMPTS_WHILE_FULL = 2
SOON_S = 20.0
FAST: ProducerOptions = {"transactional_id": "till", "delivery_timeout_ms": 1_000}
FEW = {"transaction.state.log.num.partitions": "2", "offsets.topic.num.partitions": "2"}


class Ledger:
    """What a producer was told of its transactions, by their numbers."""

    def __init__(self) -> None:
        self.committed: set[int] = set()
        self.aborted: set[int] = set()
        self.doubtful: set[int] = set()

    @property
    def begun(self) -> int:
        return len(self.committed) + len(self.aborted) + len(self.doubtful)

    async def write(
        self, producer: Producer, before_the_end: Callable[[], object] = lambda: None
    ) -> bool:
        """One more transaction; whether it was committed."""
        number = self.begun
        try:
            async with producer.transaction() as transaction:
                for one in range(RECORDS):
                    value = b"%d %d " % (number, one) + PADDING
                    for topic in TOPICS:
                        transaction.submit(topic, value)
                await producer.flush()
                before_the_end()
        except TransactionAbortableError:
            self.aborted.add(number)
        except WaystationError:
            self.doubtful.add(number)
        else:
            self.committed.add(number)
        return number in self.committed


@pytest.fixture
def quota(tmp_path: Path) -> Path:
    """How many bytes the broker's directory may hold."""
    quota = tmp_path / "data.quota"
    quota.write_text(str(ROOM_BYTES))
    return quota


@pytest.fixture
async def broker(tmp_path: Path, quota: Path) -> AsyncIterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data", options=OPTIONS | FEW, module=FAULTY) as broker:
        async with Admin(broker.bootstrap) as admin:
            for topic in TOPICS:
                await admin.create_topic(topic, 1)
        yield broker


@pytest.mark.parametrize("dies", [False, True] if SOAKING else [False])
async def test_a_full_disk_tears_no_transaction(
    broker: BrokerProcess, quota: Path, dies: bool
) -> None:
    ledger = Ledger()
    async with Producer(broker.bootstrap, **FAST) as producer:
        while await ledger.write(producer):
            assert ledger.begun < 100, "the disk does not fill"
        for _ in range(ATTEMPTS_WHILE_FULL):
            await ledger.write(producer)
        if dies:
            broker.kill()
            broker.start()
        assert await told(broker.bootstrap, ledger) >= ledger.committed
        assert len(ledger.committed) > 3, "the disk was full from the start"

        quota.write_text(str(4 * ROOM_BYTES))
        await soon(lambda: ledger.write(producer))
    await check_all(broker.bootstrap, ledger)


@pytest.mark.parametrize("dies", [False, True] if SOAKING else [True])
async def test_an_end_that_cannot_be_written_down_is_in_doubt_and_whole(
    broker: BrokerProcess, quota: Path, dies: bool
) -> None:
    ledger = Ledger()
    async with Producer(broker.bootstrap, **FAST) as producer:
        assert await ledger.write(producer)
        await ledger.write(producer, before_the_end=lambda: quota.write_text("0"))
    if dies:
        broker.kill()
        broker.start()
    assert await told(broker.bootstrap, ledger) == ledger.committed
    assert ledger.doubtful == {1}, "its producer was told more than anybody can know"

    quota.write_text(str(ROOM_BYTES))
    await check_all(broker.bootstrap, ledger)


async def test_an_end_waits_for_room_as_long_as_it_may(broker: BrokerProcess, quota: Path) -> None:
    ledger = Ledger()

    def shortly() -> None:
        quota.write_text("0")
        asyncio.get_running_loop().call_later(0.5, quota.write_text, str(ROOM_BYTES))

    async with Producer(broker.bootstrap, transactional_id="till") as producer:
        assert await ledger.write(producer, before_the_end=shortly)
        assert await ledger.write(producer)
    assert await told(broker.bootstrap, ledger) == {0, 1}


async def check_all(bootstrap: str, ledger: Ledger) -> None:
    """Another producer goes on, and everything is as it was told."""
    async with Producer(bootstrap, transactional_id="till") as successor:
        assert await ledger.write(successor)
    found = await told(bootstrap, ledger)
    async with Admin(bootstrap) as admin:
        states = {one.state for one in await admin.list_transactions()}

    assert ledger.begun > len(ledger.committed), "nothing was refused"
    assert found >= ledger.committed
    assert not found & ledger.aborted
    assert states <= {"CompleteCommit", "CompleteAbort", "Empty"}


async def told(bootstrap: str, ledger: Ledger) -> set[int]:
    """The transactions that readers of committed messages see; each must be whole."""
    options: ConsumerOptions = {"isolation": "read_committed", "auto_offset_reset": "earliest"}
    async with Consumer(topics=TOPICS, bootstrap=bootstrap, **options) as consumer:
        seen: dict[int, list[tuple[str, int]]] = defaultdict(list)
        ends = await consumer.end_offsets()
        while any(consumer.position(one) < end for one, end in ends.items()):
            for one in await consumer.poll(timeout_ms=100):
                assert one.value is not None
                number, record = map(int, one.value.split(b" ", 2)[:2])
                seen[number].append((one.topic, record))
    whole = sorted((topic, record) for topic in TOPICS for record in range(RECORDS))
    torn = {number: places for number, places in seen.items() if sorted(places) != whole}
    assert not torn, f"torn: {torn}; told {ledger.committed}, {ledger.aborted}, {ledger.doubtful}"
    return set(seen)


async def soon(attempt: Callable[[], Awaitable[bool]]) -> None:
    deadline = time.monotonic() + SOON_S
    while not await attempt():
        assert time.monotonic() < deadline, "there is room, and nothing can be written"
        await asyncio.sleep(0.1)
