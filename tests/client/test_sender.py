"""A whole producer against a scripted broker that fails as brokers and networks do."""

import asyncio
import os
from random import Random

import pytest
from tests.client.producing import FAST, producer_to, trouble_at
from tests.support.scripted_broker import TOPIC_ID
from tests.support.scripted_log import LogBroker

from waystation.client.errors import (
    BrokerError,
    BufferFullError,
    ClosedError,
    DeliveryError,
    NoSuchPartitionError,
)
from waystation.client.producer import Producer
from waystation.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from waystation.model.errors import (
    ErrorCode,
    MessageTooLargeError,
    RequestTimedOutError,
    UnknownTopicError,
    WaystationError,
)
from waystation.records.header import peek
from waystation.runtime.clock import SystemClock
from waystation.wire.message import Message
from waystation.wire.versions import ApiKey, Versions

SEEDS = 300 if os.environ.get("WAYSTATION_SOAK") else 30


def said(code: ErrorCode, message: str | None = None) -> ProduceResponse:
    """One partition's answer."""
    answer = PartitionProduceResponse(index=0, error_code=code, error_message=message)
    return ProduceResponse(
        responses=[
            TopicProduceResponse(name="orders", topic_id=TOPIC_ID, partition_responses=[answer])
        ]
    )


def fail_first(broker: LogBroker, *outcomes: ErrorCode) -> None:
    """Answer the first produce requests with errors and append nothing of them."""
    left = list(outcomes)

    def produce(request: Message) -> Message:
        return said(left.pop(0)) if left else broker.produce(request)

    broker.handlers[ApiKey.PRODUCE] = produce


def fill(producer: Producer) -> None:
    while True:
        producer.submit("orders", b"x" * 100)


async def test_send_tells_where_the_record_went() -> None:
    broker = LogBroker()
    async with producer_to(broker) as producer:
        await producer.send("orders", "first")
        second = await producer.send("orders", b"second", timestamp=77)

    assert second == ("orders", 0, 1, 77, TOPIC_ID)
    assert broker.partitions[0].values == [b"first", b"second"]


async def test_records_of_one_turn_of_the_loop_share_a_batch() -> None:
    broker = LogBroker()
    async with producer_to(broker) as producer:
        await asyncio.gather(*(producer.send("orders", b"%d" % n) for n in range(100)))

    assert len(broker.partitions[0].batches) == 1
    assert broker.partitions[0].values == [b"%d" % n for n in range(100)]


@pytest.mark.parametrize("version", [3, 7, 9, 12, 13])
async def test_every_version_of_the_request_works(version: int) -> None:
    broker = LogBroker()
    broker.versions[ApiKey.PRODUCE] = Versions(0, version)
    async with producer_to(broker) as producer:
        told = await producer.send("orders", b"v")

    assert told.offset == 0
    assert broker.asked[-1][2] == version


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    ],
)
async def test_a_passing_failure_is_retried(code: ErrorCode) -> None:
    broker = LogBroker()
    fail_first(broker, code, code)
    async with producer_to(broker) as producer:
        told = await producer.send("orders", b"v")

    assert told.offset == 0
    assert broker.partitions[0].values == [b"v"]


async def test_a_timer_that_is_early_does_not_lose_a_retry() -> None:
    """As those of a loop are whose process stood still."""

    class SlowClock(SystemClock):
        def monotonic(self) -> float:
            return super().monotonic() / 2

    broker = LogBroker()
    fail_first(broker, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    options = FAST | {"retry_backoff_ms": 20, "retry_backoff_max_ms": 20}
    async with Producer(
        broker.bootstrap, connect=broker.connect, clock=SlowClock(), chance=Random(7), **options
    ) as producer:
        async with asyncio.timeout(5):
            told = await producer.send("orders", b"x")

    assert told.offset == 0


async def test_a_new_leader_is_followed() -> None:
    broker = LogBroker(leaders=(1,))
    async with producer_to(broker) as producer:
        await producer.send("orders", b"one")
        broker.leaders, broker.epoch = [2], 1
        await producer.send("orders", b"two")

    assert broker.partitions[0].values == [b"one", b"two"]
    assert [node for node, api, *_ in broker.asked if api is ApiKey.PRODUCE][-1] == 2


async def test_a_partition_without_leader_is_waited_for() -> None:
    broker = LogBroker(leaders=(-1,))
    async with producer_to(broker) as producer:
        delivered = producer.submit("orders", b"v")
        while len(broker.requests(ApiKey.METADATA)) < 5:
            await asyncio.sleep(0)
        broker.leaders, broker.epoch = [1], 1

        assert (await delivered).offset == 0


async def test_a_definite_refusal_is_told_in_the_brokers_words() -> None:
    broker = LogBroker()
    broker.handlers[ApiKey.PRODUCE] = lambda _: said(ErrorCode.INVALID_RECORD, "no key")
    async with producer_to(broker) as producer:
        with pytest.raises(WaystationError, match="partition orders-0: no key"):
            await producer.send("orders", b"v")


async def test_records_go_on_after_one_was_refused() -> None:
    broker = LogBroker()
    async with producer_to(broker) as producer:
        await producer.send("orders", b"one")
        fail_first(broker, ErrorCode.INVALID_RECORD)
        with pytest.raises(WaystationError):
            await producer.send("orders", b"bad")
        assert (await producer.send("orders", b"two")).offset == 1

    assert broker.partitions[0].values == [b"one", b"two"]
    assert peek(broker.partitions[0].batches[1]).producer_epoch == 1


async def test_a_batch_too_large_for_the_topic_is_halved_until_it_fits() -> None:
    broker = LogBroker()
    broker.partitions[0].limit_bytes = 400
    async with producer_to(broker) as producer:
        futures = [producer.submit("orders", b"%030d" % n) for n in range(100)]
        await producer.flush()

    assert broker.partitions[0].values == [b"%030d" % n for n in range(100)]
    assert [future.result().offset for future in futures] == list(range(100))


async def test_a_single_record_too_large_for_the_topic_is_an_error() -> None:
    broker = LogBroker()
    broker.partitions[0].limit_bytes = 400
    async with producer_to(broker) as producer:
        with pytest.raises(
            MessageTooLargeError, match=r"orders-0 .*max.message.bytes.* 5\d\d bytes"
        ):
            await producer.send("orders", b"x" * 500)
        assert (await producer.send("orders", b"fits")).offset == 0


async def test_data_that_the_broker_lost_is_told_and_the_producer_goes_on() -> None:
    broker = LogBroker()
    async with producer_to(broker) as producer:
        await producer.send("orders", b"one")
        await producer.send("orders", b"two")
        (remembered,) = broker.partitions[0].producers.values()
        remembered.recent.pop()
        with pytest.raises(BrokerError, match="lost data") as caught:
            await producer.send("orders", b"three")
        await producer.send("orders", b"four")

    assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert broker.partitions[0].values == [b"one", b"two", b"four"]


async def test_time_runs_out_for_a_broker_that_never_recovers() -> None:
    broker = LogBroker()
    broker.handlers[ApiKey.PRODUCE] = lambda _: said(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    async with producer_to(broker, delivery_timeout_ms=30) as producer:
        with pytest.raises(WaystationError) as caught:
            await producer.send("orders", b"v")

    assert caught.value.code in (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
    )


async def test_time_runs_out_for_a_batch_that_never_leaves() -> None:
    broker = LogBroker(leaders=(-1,))
    async with producer_to(broker, delivery_timeout_ms=30) as producer:
        with pytest.raises(RequestTimedOutError, match="30 ms"):
            await producer.send("orders", b"v")


async def test_a_topic_that_does_not_exist_is_an_error_that_names_it() -> None:
    broker = LogBroker()
    async with producer_to(broker) as producer:
        with pytest.raises(UnknownTopicError, match="topic refunds does not exist"):
            await producer.send("refunds", b"v")
        assert (await producer.send("orders", b"v")).offset == 0


async def test_a_partition_that_does_not_exist_is_an_error_that_names_those_that_do() -> None:
    broker = LogBroker(leaders=(1, 1))
    async with producer_to(broker) as producer:
        with pytest.raises(NoSuchPartitionError, match="0 to 1"):
            await producer.send("orders", b"v", partition=5)


async def test_acks_zero_sends_and_asks_nothing_back() -> None:
    broker = LogBroker()
    async with producer_to(broker, acks=0) as producer:
        told = await producer.send("orders", b"v")

    assert told.offset == -1
    assert broker.partitions[0].values == [b"v"]


async def test_without_numbers_one_batch_is_under_way_at_a_time() -> None:
    broker = LogBroker()
    held: list[asyncio.Future[Message]] = []

    def hold(request: Message) -> asyncio.Future[Message]:
        held.append(asyncio.get_running_loop().create_future())
        return held[-1]

    broker.handlers[ApiKey.PRODUCE] = hold
    async with producer_to(broker, acks=1, batch_bytes=200) as producer:
        for _ in range(10):
            producer.submit("orders", b"x" * 100)
        while not held:
            await asyncio.sleep(0)
        for _ in range(10):
            await asyncio.sleep(0)

        assert len(held) == 1

        broker.handlers[ApiKey.PRODUCE] = broker.produce
        held[0].set_result(said(ErrorCode.NONE))
        await producer.flush()


async def test_five_batches_are_under_way_at_most() -> None:
    broker = LogBroker()
    held: list[tuple[asyncio.Future[Message], Message]] = []
    async with producer_to(broker, batch_bytes=200) as producer:
        await producer.send("orders", b"first")

        def hold(request: Message) -> asyncio.Future[Message]:
            held.append((asyncio.get_running_loop().create_future(), broker.produce(request)))
            return held[-1][0]

        broker.handlers[ApiKey.PRODUCE] = hold
        for _ in range(20):
            producer.submit("orders", b"x" * 100)
        for _ in range(20):
            await asyncio.sleep(0)

        assert len(held) == 5

        broker.handlers[ApiKey.PRODUCE] = broker.produce
        for future, answer in held:
            future.set_result(answer)
        await producer.flush()

    assert len(broker.partitions[0].values) == 21


async def test_one_request_carries_batches_of_many_partitions() -> None:
    broker = LogBroker(leaders=(1, 1, 2, 2))
    async with producer_to(broker) as producer:
        for partition in range(4):
            producer.submit("orders", b"v", partition=partition)
        await producer.flush()
    sent = broker.requests(ApiKey.PRODUCE)

    assert len(sent) == 2
    for request in sent:
        assert isinstance(request, ProduceRequest)
        assert len(request.topic_data[0].partition_data) == 2


async def test_flush_reports_what_was_submitted_and_lost() -> None:
    broker = LogBroker()
    broker.handlers[ApiKey.PRODUCE] = lambda _: said(ErrorCode.INVALID_RECORD)
    async with producer_to(broker) as producer:
        for _ in range(3):
            producer.submit("orders", b"v")
        with pytest.raises(DeliveryError, match="3 records were not delivered") as caught:
            await producer.flush()
        await producer.flush()

    assert caught.value.code is ErrorCode.INVALID_RECORD


async def test_leaving_the_block_reports_what_was_lost() -> None:
    broker = LogBroker()
    broker.handlers[ApiKey.PRODUCE] = lambda _: said(ErrorCode.INVALID_RECORD)
    with pytest.raises(DeliveryError):
        async with producer_to(broker) as producer:
            producer.submit("orders", b"v")


async def test_a_failure_that_send_raised_is_not_reported_again() -> None:
    broker = LogBroker()
    broker.handlers[ApiKey.PRODUCE] = lambda _: said(ErrorCode.INVALID_RECORD)
    async with producer_to(broker) as producer:
        with pytest.raises(WaystationError):
            await producer.send("orders", b"v")


async def test_a_full_buffer_holds_send_and_refuses_submit() -> None:
    broker = LogBroker()
    async with producer_to(broker, buffer_bytes=2_000, linger_ms=1_000) as producer:
        with pytest.raises(BufferFullError):
            fill(producer)
        sending = asyncio.ensure_future(producer.send("orders", b"patient"))
        await asyncio.sleep(0)

        assert not sending.done()

        await producer.flush()
        await asyncio.sleep(0)
        await producer.flush()

        assert (await sending).offset >= 0


async def test_cancelling_a_send_does_not_disturb_the_others() -> None:
    broker = LogBroker()
    async with producer_to(broker, linger_ms=5) as producer:
        first = asyncio.ensure_future(producer.send("orders", b"cancelled"))
        second = asyncio.ensure_future(producer.send("orders", b"kept"))
        await asyncio.sleep(0)
        first.cancel()

        assert (await second).offset == 1

    assert broker.partitions[0].values == [b"cancelled", b"kept"]


async def test_a_closed_producer_says_so() -> None:
    broker = LogBroker()
    producer = producer_to(broker)
    with pytest.raises(ClosedError):
        producer.submit("orders", b"v")
    async with producer:
        pass
    with pytest.raises(ClosedError):
        producer.submit("orders", b"v")


async def test_values_that_could_change_later_are_refused() -> None:
    broker = LogBroker()
    async with producer_to(broker) as producer:
        with pytest.raises(TypeError, match="bytearray"):
            producer.submit("orders", bytearray(b"v"))  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_records_are_written_once_and_in_order_through_any_trouble(seed: int) -> None:
    """Requests and answers lost, leaders moved, errors that may or may not have appended."""
    broker, chance = LogBroker(leaders=(1, 1)), Random(seed)
    trouble_at(broker, chance)
    async with producer_to(broker, batch_bytes=120) as producer:
        for number in range(200):
            producer.submit("orders", b"%d" % number, partition=number % 2)
            if chance.random() < 0.3:
                await asyncio.sleep(0)
        await producer.flush()

    for partition in (0, 1):
        expected = [b"%d" % number for number in range(200) if number % 2 == partition]
        assert broker.partitions[partition].values == expected
