"""Transactions that several hold at once: numbers that are taken, answers that are lost."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.support.cutting_proxy import CuttingProxy

from waystation import Admin, Consumer
from waystation.client.bootstrap import Address
from waystation.client.delivery import Identity
from waystation.client.joined import JoinedTransaction, TransactionRecord, begin_transaction
from waystation.client.router import Router
from waystation.client.settings import ConnectionSettings
from waystation.client.transport import Transport, connect_tcp
from waystation.model.errors import ErrorCode, InvalidTxnStateError, WaystationError
from waystation.model.ids import TopicPartition
from waystation.model.offsets import Millis

WITHIN_MS = 20_000


@asynccontextmanager
async def routed(bootstrap: str, through: str | None = None) -> AsyncIterator[Router]:
    """A router; ``through`` is where all its connections go instead."""

    async def connect(address: Address) -> Transport:
        if through is not None:
            host, _, port = through.rpartition(":")
            address = Address(host, int(port))
        return await connect_tcp(address)

    router = Router(bootstrap, ConnectionSettings(client_id="joined"), connect=connect)
    await router.start()
    try:
        yield router
    finally:
        await router.close()


@asynccontextmanager
async def begun(bootstrap: str, topic: str) -> AsyncIterator[tuple[TopicPartition, Identity]]:
    async with Admin(bootstrap) as admin, routed(bootstrap) as router:
        await admin.create_topic(topic, partitions=1)
        yield TopicPartition(topic, 0), await begin_transaction(router, topic, 60_000, WITHIN_MS)


def record(value: str) -> TransactionRecord:
    return TransactionRecord(None, value.encode(), (), Millis(1_000))


async def committed(bootstrap: str, where: TopicPartition) -> list[str]:
    async with Admin(bootstrap) as admin:
        end = (await admin.list_offsets({where: -1}))[where].offset
    found = []
    async with Consumer(bootstrap=bootstrap, isolation="read_committed") as consumer:
        await consumer.assign([where])
        consumer.seek(where, 0)
        while consumer.position(where) < end:
            found += [one.value.decode() for one in await consumer.poll(100) if one.value]
    return found


async def test_two_who_add_at_once_have_numbers_of_their_own(bootstrap: str, topic: str) -> None:
    async with begun(bootstrap, topic) as (where, identity), routed(bootstrap) as router:
        both = [JoinedTransaction(router, topic, identity, WITHIN_MS) for _ in range(2)]
        wanted = []
        for number in range(20):
            values = [f"{number}-{name}" for name in "ab"]
            adding = [
                one.add({where: [record(value)]}) for one, value in zip(both, values, strict=True)
            ]
            places = [place[where][0] for place in await asyncio.gather(*adding)]
            assert len(set(places)) == 2
            wanted += values
        await both[0].end(commit=True)

        assert sorted(await committed(bootstrap, where)) == sorted(wanted)


async def test_the_same_from_two_is_there_twice(bootstrap: str, topic: str) -> None:
    async with begun(bootstrap, topic) as (where, identity), routed(bootstrap) as router:
        both = [
            JoinedTransaction(router, topic, identity, WITHIN_MS, is_new=True) for _ in range(2)
        ]
        await asyncio.gather(*(one.add({where: [record("x")]}) for one in both))
        await both[1].end(commit=True)

        assert await committed(bootstrap, where) == ["x", "x"]


@pytest.mark.parametrize("lost", ["request", "answer"])
async def test_what_is_sent_again_is_there_once(bootstrap: str, topic: str, lost: str) -> None:
    async with (
        begun(bootstrap, topic) as (where, identity),
        CuttingProxy(bootstrap) as proxy,
        routed(bootstrap, proxy.endpoint) as router,
    ):
        joined = JoinedTransaction(router, topic, identity, WITHIN_MS)
        await joined.add({where: [record("first")]})
        for number in range(5):
            proxy.lose(lost, at_least_bytes=5_000)
            await joined.add({where: [record(f"{number}" + "x" * 5_000)]})
        assert proxy.lost == 5
        await joined.end(commit=True)

        found = await committed(bootstrap, where)
        assert [value[:5] for value in found] == ["first", *(f"{n}xxxx" for n in range(5))]


@pytest.mark.parametrize("lost", ["request", "answer"])
async def test_who_finds_its_number_taken_looks_by_whom(
    bootstrap: str, topic: str, lost: str
) -> None:
    """One loses a request, or an answer, while the other stores under the same number."""
    async with (
        begun(bootstrap, topic) as (where, identity),
        CuttingProxy(bootstrap) as proxy,
        routed(bootstrap, proxy.endpoint) as unlucky,
        routed(bootstrap) as lucky,
    ):
        one = JoinedTransaction(unlucky, topic, identity, WITHIN_MS)
        other = JoinedTransaction(lucky, topic, identity, WITHIN_MS)
        await one.add({where: [record("first")]})
        for number in range(5):
            proxy.lose(lost, at_least_bytes=5_000)
            await asyncio.gather(
                one.add({where: [record(f"{number}a" + "x" * 5_000)]}),
                other.add({where: [record(f"{number}b" + "x" * 5_000)]}),
            )
        await other.end(commit=True)

        found = [value[:2] for value in await committed(bootstrap, where)]
        assert sorted(found) == sorted(["fi", *(f"{n}{name}" for n in range(5) for name in "ab")])


async def test_many_and_large_records_are_there_in_order(bootstrap: str, topic: str) -> None:
    async with begun(bootstrap, topic) as (where, identity), routed(bootstrap) as router:
        joined = JoinedTransaction(router, topic, identity, WITHIN_MS)
        values = [str(number) * (1 + number % 7 * 20_000) for number in range(50)]
        places = await joined.add({where: [record(value) for value in values]})
        await joined.end(commit=True)

        assert places[where] == list(range(50))
        assert await committed(bootstrap, where) == values


async def test_a_transaction_that_is_over_takes_nothing_more(bootstrap: str, topic: str) -> None:
    async with begun(bootstrap, topic) as (where, identity), routed(bootstrap) as router:
        one, other = (JoinedTransaction(router, topic, identity, WITHIN_MS) for _ in range(2))
        await one.add({where: [record("a")]})
        await other.end(commit=True)
        await one.end(commit=True)

        with pytest.raises(WaystationError) as refused:
            await one.add({where: [record("b")]})
        assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
        with pytest.raises(InvalidTxnStateError):
            await one.end(commit=False)
        assert await committed(bootstrap, where) == ["a"]
