"""Batches that were made elsewhere are numbered, repeated and acknowledged as others are."""

import asyncio
from array import array
from collections.abc import Sequence
from random import Random

import pytest
from tests.client.producing import producer_to, trouble_at
from tests.support.scripted_broker import TOPIC_ID
from tests.support.scripted_log import LogBroker
from tests.support.scripted_transactions import TransactionBroker
from tests.support.soak import count

from waystation.client.errors import (
    BufferFullError,
    ClosedError,
    DeliveryError,
    MessageRefusedError,
    NoSuchPartitionError,
)
from waystation.model.errors import (
    ErrorCode,
    InvalidRequestError,
    InvalidTxnStateError,
    MessageTooLargeError,
    WaystationError,
)
from waystation.records.compression import Codec
from waystation.records.header import peek
from waystation.records.packed import PackedBatch
from waystation.records.packing import ByteRows, Rows


def packed(values: Sequence[bytes]) -> PackedBatch:
    ends = array("i", [0])
    for value in values:
        ends.append(ends[-1] + len(value))
    column = ByteRows(None, memoryview(ends), b"".join(values), 0, len(values))
    batch = PackedBatch(0)
    order = array("i", range(len(values)))
    batch.fill(Rows(len(values), column, now_ms=77), order, 0, len(values), 1 << 30)
    return batch


async def test_a_batch_goes_as_it_is_and_its_first_offset_is_told() -> None:
    broker = LogBroker()
    async with producer_to(broker) as producer:
        await producer.partitions_of("orders")
        first = await producer.submit_batch("orders", 0, packed([b"a", b"b"]))
        second = await producer.submit_batch("orders", 0, packed([b"c"]))

    assert first == ("orders", 0, 0, 77, TOPIC_ID)
    assert second == ("orders", 0, 2, 77, TOPIC_ID)
    assert broker.partitions[0].values == [b"a", b"b", b"c"]
    assert [peek(one).base_sequence for one in broker.partitions[0].batches] == [0, 2]


async def test_batches_and_records_keep_the_order_they_came_in() -> None:
    broker = LogBroker()
    async with producer_to(broker, linger_ms=1_000) as producer:
        await producer.partitions_of("orders")
        for number in range(0, 30, 3):
            producer.submit("orders", b"%d" % number)
            producer.submit_batch("orders", 0, packed([b"%d" % (number + 1)]))
            producer.submit("orders", b"%d" % (number + 2))
        await producer.flush()

    assert broker.partitions[0].values == [b"%d" % number for number in range(30)]


async def test_a_batch_is_compressed_as_the_producer_compresses() -> None:
    broker = LogBroker()
    async with producer_to(broker, compression="lz4") as producer:
        await producer.partitions_of("orders")
        await producer.submit_batch("orders", 0, packed([b"same" * 50] * 50))

    assert peek(broker.partitions[0].batches[0]).codec is Codec.LZ4
    assert broker.partitions[0].values == [b"same" * 50] * 50


@pytest.mark.parametrize("seed", range(count(20, 300)))
async def test_whatever_fails_on_the_way_each_batch_is_there_once_and_in_order(seed: int) -> None:
    chance = Random(seed)
    broker = LogBroker(leaders=(1, 1, 2))
    trouble_at(broker, chance)
    sent: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
    async with producer_to(broker) as producer:
        await producer.partitions_of("orders")
        for number in range(60):
            partition = chance.randrange(3)
            values = [b"%d-%d" % (number, one) for one in range(chance.randint(1, 4))]
            sent[partition] += values
            producer.submit_batch("orders", partition, packed(values))
            if chance.random() < 0.3:
                await asyncio.sleep(0)
        await producer.flush()

    assert [log.values for log in broker.partitions] == list(sent.values())


async def test_a_batch_too_large_for_its_topic_fails_whole_and_those_behind_it_go_on() -> None:
    broker = LogBroker()
    broker.partitions[0].limit_bytes = 400
    async with producer_to(broker) as producer:
        await producer.partitions_of("orders")
        large = producer.submit_batch("orders", 0, packed([b"x" * 100] * 10))
        small = producer.submit_batch("orders", 0, packed([b"fits"]))
        with pytest.raises(DeliveryError, match="10 records were not delivered"):
            await producer.flush()
        with pytest.raises(MessageTooLargeError, match=r"orders-0 .*max.message.bytes"):
            await large

        assert (await small).offset == 0


async def test_what_cannot_be_sent_is_refused_at_once() -> None:
    broker = LogBroker()
    producer = producer_to(broker, max_request_bytes=1_000, buffer_bytes=1_500)
    with pytest.raises(ClosedError):
        producer.submit_batch("orders", 0, packed([b"a"]))
    async with producer:
        with pytest.raises(InvalidRequestError, match=r"orders are not known yet: .*partitions_of"):
            producer.submit_batch("orders", 0, packed([b"a"]))
        await producer.partitions_of("orders")
        with pytest.raises(NoSuchPartitionError, match="0 to 0"):
            producer.submit_batch("orders", 1, packed([b"a"]))
        with pytest.raises(MessageRefusedError, match=r"batch for topic orders takes \d+ bytes"):
            producer.submit_batch("orders", 0, packed([b"a" * 1_000]))
        producer.submit_batch("orders", 0, packed([b"a" * 800]))
        with pytest.raises(BufferFullError):
            producer.submit_batch("orders", 0, packed([b"a" * 800]))
        await producer.flush()


async def test_a_producer_that_is_abandoned_waits_for_nothing() -> None:
    broker = LogBroker(leaders=(-1,))
    producer = await producer_to(broker).start()
    await producer.partitions_of("orders")
    delivered = producer.submit_batch("orders", 0, packed([b"a"]))
    async with asyncio.timeout(5):
        await producer.abandon()

    with pytest.raises(ClosedError):
        await delivered


# --- transactions ---------------------------------------------------------------------------


async def test_a_batch_is_part_of_the_transaction() -> None:
    broker = TransactionBroker()
    async with producer_to(broker, transactional_id="pay") as producer:
        await producer.partitions_of("orders")
        with pytest.raises(InvalidTxnStateError, match="has no open transaction"):
            producer.submit_batch("orders", 0, packed([b"a"]))
        async with producer.transaction():
            producer.submit_batch("orders", 0, packed([b"a", b"b"]))

    assert broker.visible == {0: [b"a", b"b"]}
    assert peek(broker.partitions[0].batches[0]).is_transactional


async def test_a_batch_that_fails_fails_the_transaction() -> None:
    broker = TransactionBroker()
    broker.partitions[0].limit_bytes = 100
    async with producer_to(broker, transactional_id="pay") as producer:
        await producer.partitions_of("orders")
        await producer.transactor.begin()
        producer.submit_batch("orders", 0, packed([b"x" * 100] * 10))
        with pytest.raises(WaystationError, match="may be run again") as caught:
            await producer.prepare()

    assert caught.value.code is ErrorCode.TRANSACTION_ABORTABLE
