"""Read, process, write against a strict, unreliable coordinator, by seed."""

import asyncio
from contextlib import suppress
from random import Random

import pytest
from tests.client.exact_copying import (
    MESSAGES,
    SOURCE,
    CrashError,
    block,
    consumer_of,
    copies,
    filled,
    producer_to,
)
from tests.support.scripted_transactions import TransactionBroker
from tests.support.soak import count

from waystation.client.consumer import Consumer
from waystation.client.errors import ConnectionLostError
from waystation.client.exactly_once import ExactReading, ReadProcessWrite
from waystation.client.standing import Standing
from waystation.model.errors import (
    ErrorCode,
    WaystationError,
)
from waystation.wire.message import Message
from waystation.wire.versions import ApiKey

SEEDS = count(25, 500)


@pytest.fixture(params=[1, 2], ids=["classic", "implicit"])
def broker(request: pytest.FixtureRequest) -> TransactionBroker:
    """Messages to read, in a cluster that has the older or the newer way of transactions."""
    return filled(TransactionBroker(leaders=(1, 1), version=request.param))


_LOSABLE = (
    ApiKey.PRODUCE,
    ApiKey.END_TXN,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.OFFSET_FETCH,
    ApiKey.FETCH,
)


def unreliable(broker: TransactionBroker, chance: Random) -> None:
    """Requests and answers of every kind are lost, members refused, records refused."""
    refusals = {
        ApiKey.PRODUCE: ErrorCode.TRANSACTION_ABORTABLE,
        ApiKey.TXN_OFFSET_COMMIT: ErrorCode.UNKNOWN_MEMBER_ID,
        ApiKey.END_TXN: ErrorCode.NOT_COORDINATOR,
    }

    def wrap(api: ApiKey) -> None:
        handler = broker.handlers[api]
        gone = 0.5 if api is ApiKey.END_TXN else 0.0

        def troubled(request: Message) -> object:
            if chance.random() < gone:
                raise ConnectionLostError("for a while")
            match chance.randrange(12):
                case 0:
                    raise ConnectionLostError("before it happened")
                case 1:
                    handler(request)
                    raise ConnectionLostError("after it happened")
                case 2 if api in refusals:
                    broker.refuse(api, refusals[api])
            return handler(request)

        broker.handlers[api] = troubled  # type: ignore[assignment]

    for api in _LOSABLE:
        wrap(api)


async def copy_through_trouble(broker: TransactionBroker, chance: Random) -> None:
    """Copy everything, though the application crashes, gives up half-way, or is replaced."""
    unreliable(broker, chance)

    async def work(transaction: ReadProcessWrite) -> None:
        async for message in transaction:
            transaction.submit("orders", b"copy of %s" % (message.value or b""), partition=1)
            what = chance.random()
            if what < 0.02:
                raise CrashError
            if what < 0.05:
                await transaction.abort()
                return
            if what < 0.1:
                break

    async def with_one_producer(consumer: Consumer) -> None:
        patience_ms = chance.choice((10, 5_000))
        async with producer_to(broker, delivery_timeout_ms=patience_ms) as producer:
            while broker.committed != {0: MESSAGES}:
                with suppress(CrashError):
                    await block(consumer, producer, work, lasting_ms=5)

    async def with_one_consumer() -> None:
        async with consumer_of(broker) as consumer:
            await consumer.assign([SOURCE])
            while broker.committed != {0: MESSAGES} and chance.random() < 0.8:
                with suppress(WaystationError):
                    await with_one_producer(consumer)

    async with asyncio.timeout(10):
        while broker.committed != {0: MESSAGES}:
            with suppress(WaystationError):
                await with_one_consumer()


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_each_message_has_its_effect_once_through_any_trouble(
    broker: TransactionBroker, seed: int
) -> None:
    await copy_through_trouble(broker, Random(seed))

    assert broker.visible[1] == copies(0, MESSAGES)


def forget_to_go_back(self: ExactReading) -> None:
    self._done()


def go_back_without_asking(self: ExactReading) -> None:
    self.take_back()


def keep_what_was_not_taken(_: ExactReading, __: object) -> None:
    return


def overlook_failures(_: Standing, __: WaystationError, ___: float) -> bool:
    return False


@pytest.mark.parametrize(
    ("where", "what", "planted"),
    [
        (ExactReading, "take_back", forget_to_go_back),
        (ExactReading, "doubt", go_back_without_asking),
        (ExactReading, "give_back", keep_what_was_not_taken),
        (Standing, "failed", overlook_failures),
    ],
    ids=lambda one: getattr(one, "__name__", str(one)),
)
async def test_a_planted_bug_is_found(
    monkeypatch: pytest.MonkeyPatch, where: type, what: str, planted: object
) -> None:
    """Each in one of the first seeds: a copy is lost or doubled, or it never ends."""
    monkeypatch.setattr(where, what, planted)
    for seed in range(100):
        broker = filled(TransactionBroker(leaders=(1, 1), version=seed % 2 + 1))
        try:
            async with asyncio.timeout(1):
                await copy_through_trouble(broker, Random(seed))
        except TimeoutError:
            return
        if broker.visible[1] != copies(0, MESSAGES):
            return
    pytest.fail("not found")
