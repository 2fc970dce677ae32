"""A span is read once and whole, through gaps, new leaders and dead brokers, or fails clearly."""

import pickle
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from tests.spark.logs import ABORT, batch, emptied, marker
from tests.support.scripted_broker import ScriptedBroker
from waystation import Admin, Producer, TopicPartition
from waystation.client.raw import TopicRecreatedError
from waystation.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from waystation.messages.list_offsets import (
    EARLIEST,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from waystation.model.errors import (
    ErrorCode,
    RequestTimedOutError,
    UnknownTopicError,
    WaystationError,
)
from waystation.records.header import peek
from waystation.runtime.loops import run
from waystation.spark import reading
from waystation.spark.columns import ARROW
from waystation.spark.decode import SpanDecoder
from waystation.spark.errors import DataLossError
from waystation.spark.reading import ReadPlan, SpanWalk, read_span
from waystation.spark.spans import Span
from waystation.testing.process import BrokerProcess
from waystation.wire.message import Message
from waystation.wire.versions import ApiKey

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
# Within retention: older records would be gone before they are read, on a slow day.
FIRST_MS = time.time_ns() // 1_000_000 - 600_000
IMPATIENT = {"request.timeout.ms": "500", "max.block.ms": "500", "retry.backoff.ms": "10"}


def plan_for(bootstrap: str, **changes: Any) -> ReadPlan:
    plan = ReadPlan(bootstrap, COLUMNS, "read_committed", True, {})
    return plan._replace(**changes)


def produce(bootstrap: str, topic: str, values: list[bytes], **options: Any) -> None:
    async def work() -> None:
        async with Producer(bootstrap, **options) as producer:
            for number, value in enumerate(values):
                producer.submit(topic, value, key=b"%d" % number, partition=0, timestamp=FIRST_MS)
                if number % 1_000 == 999:
                    await producer.drain()

    run(work())


def create(bootstrap: str, topic: str, **configs: str) -> None:
    async def work() -> None:
        async with Admin(bootstrap) as admin:
            await admin.create_topic(topic, 1, configs=configs)

    run(work())


def column(batches: list[pa.RecordBatch], name: str) -> list[Any]:
    return [value for one in batches for value in one.column(name).to_pylist()]


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@pytest.fixture
def small_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many answers to few records: everything happens in the middle."""
    monkeypatch.setattr(reading, "FETCH_BYTES", 4_000)
    monkeypatch.setattr(reading, "_LEAST_FETCH_BYTES", 1_000)
    real = SpanDecoder

    def eager(columns: tuple[str, ...], span: Span, where: str) -> SpanDecoder:
        return real(columns, span, where, target_rows=20)

    monkeypatch.setattr(reading, "SpanDecoder", eager)


@pytest.fixture(autouse=True)
def little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_BEHIND_PATIENCE_S", 0.2)


# --- a real broker ----------------------------------------------------------------------------


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.usefixtures("small_answers")
def test_a_span_is_read_whole_whatever_the_codec(
    bootstrap: str, topic: str, compression: str
) -> None:
    values = [b"value-%d" % number * 3 for number in range(500)]
    create(bootstrap, topic)
    produce(bootstrap, topic, values, compression=compression, batch_bytes=2_000)
    for start, end in ((0, 500), (0, 1), (17, 333), (499, 500)):
        found = list(read_span(plan_for(bootstrap), Span(topic, 0, start, end)))

        assert column(found, "offset") == list(range(start, end))
        assert column(found, "value") == values[start:end]
        assert column(found, "key") == [b"%d" % number for number in range(start, end)]
        assert set(column(found, "topic")) == {topic}
        assert set(column(found, "partition")) == {0}
        assert set(column(found, "timestampType")) == {0}


def test_columns_are_pruned_and_ordered_as_asked(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, **{"message.timestamp.type": "LogAppendTime"})
    produce(bootstrap, topic, [b"a", b"b"])
    columns = ("timestampType", "offset", "headers")
    (one,) = read_span(plan_for(bootstrap, columns=columns), Span(topic, 0, 0, 2))

    assert one.schema.equals(pa.schema([ARROW.field(name) for name in columns]))
    assert one.to_pydict() == {"timestampType": [1, 1], "offset": [0, 1], "headers": [None, None]}


def test_an_empty_span_asks_nobody() -> None:
    assert list(read_span(plan_for("nobody.invalid:1"), Span("t", 0, 5, 5))) == []


def test_a_plan_travels() -> None:
    plan = plan_for("host:1", client={"client.id": "me"})

    assert pickle.loads(pickle.dumps(plan)) == plan


def test_deleted_records_are_a_loss_or_passed_over(bootstrap: str, topic: str) -> None:
    async def delete() -> None:
        async with Admin(bootstrap) as admin:
            await admin.delete_records({TopicPartition(topic, 0): 30})

    create(bootstrap, topic)
    produce(bootstrap, topic, [b"v"] * 100)
    run(delete())
    span = Span(topic, 0, 10, 100)

    with pytest.raises(DataLossError, match=rf"{topic}-0: offsets 10 to 29 are gone.*30.*failOnD"):
        list(read_span(plan_for(bootstrap), span))
    lenient = plan_for(bootstrap, fail_on_data_loss=False)
    assert column(list(read_span(lenient, span)), "offset") == list(range(30, 100))
    assert list(read_span(lenient, Span(topic, 0, 10, 20))) == []


def test_an_end_behind_the_log_is_a_loss_or_passed_over(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    produce(bootstrap, topic, [b"v"] * 10)
    for span in (Span(topic, 0, 5, 20), Span(topic, 0, 15, 20)):
        with pytest.raises(DataLossError, match=r"offsets 10 to 19 are gone: the log ends at 10"):
            list(read_span(plan_for(bootstrap), span))
        lenient = plan_for(bootstrap, fail_on_data_loss=False)
        found = column(list(read_span(lenient, span)), "offset")
        assert found == list(range(span.start, 10))


def test_a_topic_that_does_not_exist_is_named(bootstrap: str, topic: str) -> None:
    with pytest.raises(UnknownTopicError, match=topic):
        list(read_span(plan_for(bootstrap, client=IMPATIENT), Span(topic, 0, 0, 5)))


@pytest.mark.usefixtures("small_answers")
@pytest.mark.parametrize("again", [False, True], ids=["deleted", "recreated"])
def test_a_topic_deleted_while_it_is_read_is_an_error(
    bootstrap: str, topic: str, again: bool
) -> None:
    async def delete() -> None:
        async with Admin(bootstrap) as admin:
            await admin.delete_topic(topic)
            if again:
                await admin.create_topic(topic, 1)

    create(bootstrap, topic)
    produce(bootstrap, topic, [b"x" * 100] * 400, batch_bytes=1_000)
    rows = read_span(plan_for(bootstrap, client=IMPATIENT), Span(topic, 0, 0, 400))
    assert next(rows).num_rows == 20
    run(delete())

    with pytest.raises(TopicRecreatedError if again else UnknownTopicError, match=topic):
        list(rows)


@pytest.mark.usefixtures("small_answers")
def test_a_broker_that_dies_and_returns_costs_no_row(tmp_path: Path, topic: str) -> None:
    values = [b"%d" % number * 50 for number in range(600)]
    with BrokerProcess(tmp_path / "data").start() as broker:
        create(broker.bootstrap, topic)
        produce(broker.bootstrap, topic, values, batch_bytes=1_000)
        rows = read_span(plan_for(broker.bootstrap), Span(topic, 0, 0, 600))
        found = [next(rows)]
        broker.kill()
        broker.start()
        found += rows

    assert column(found, "offset") == list(range(600))
    assert column(found, "value") == values


@pytest.mark.usefixtures("small_answers")
def test_a_sink_slower_than_every_time_out_gets_all_rows(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    produce(bootstrap, topic, [b"x" * 100] * 200, batch_bytes=1_000)
    client = {**IMPATIENT, "request.timeout.ms": "100"}
    rows = read_span(plan_for(bootstrap, client=client), Span(topic, 0, 0, 200))
    found = [next(rows)]
    time.sleep(0.8)  # the answer that was asked for ahead is overdue by now
    found += rows

    assert column(found, "offset") == list(range(200))


@pytest.mark.usefixtures("small_answers")
def test_a_broker_that_stays_away_is_an_error(tmp_path: Path, topic: str) -> None:
    with BrokerProcess(tmp_path / "data").start() as broker:
        create(broker.bootstrap, topic)
        produce(broker.bootstrap, topic, [b"x" * 100] * 400, batch_bytes=1_000)
        plan = plan_for(broker.bootstrap, client=IMPATIENT)
        rows = read_span(plan, Span(topic, 0, 0, 400))
        next(rows)
        broker.kill()

        with pytest.raises(WaystationError, match=broker.bootstrap):
            list(rows)
        with pytest.raises(WaystationError, match=broker.bootstrap):
            list(read_span(plan, Span(topic, 0, 0, 400)))


def test_a_reader_that_is_left_early_leaves_nothing_open(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    produce(bootstrap, topic, [b"v"] * 50)
    before = open_files()
    rows = read_span(plan_for(bootstrap), Span(topic, 0, 0, 50))
    next(rows)
    rows.close()

    assert open_files() == before


# --- a scripted broker ------------------------------------------------------------------------


class LogServer(ScriptedBroker):
    """Serves batches of one partition as a log that is told what its marks are."""

    def __init__(self, log: list[bytearray], *, end: int) -> None:
        super().__init__("orders")
        self.log, self.end, self.stable = log, end, end
        self.aborted: list[tuple[int, int]] = []
        self.batches_per_answer = 1
        self.errors: Iterator[ErrorCode] = iter(())
        self.throttled: Iterator[int] = iter(())
        self.handlers[ApiKey.FETCH] = self.fetch
        self.handlers[ApiKey.LIST_OFFSETS] = self.list_offsets

    def fetch(self, request: Message) -> Message:
        assert isinstance(request, FetchRequest)
        wanted = request.topics[0].partitions[0].fetch_offset
        error = next(self.errors, ErrorCode.NONE)
        data = PartitionData(
            partition_index=0,
            high_watermark=self.end,
            last_stable_offset=self.stable,
            log_start_offset=0,
            aborted_transactions=[
                AbortedTransaction(producer_id=producer, first_offset=first)
                for producer, first in self.aborted
            ],
        )
        visible = [raw for raw in self.log if wanted < peek(raw).next_offset <= max(self.stable, 0)]
        data.records = memoryview(b"".join(visible[: self.batches_per_answer]))
        data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE if wanted > self.end else error
        topic = FetchableTopicResponse(
            topic="orders", topic_id=request.topics[0].topic_id, partitions=[data]
        )
        throttle_ms = next(self.throttled, 0)
        if throttle_ms:
            data.records = memoryview(b"")
        return FetchResponse(responses=[topic], throttle_time_ms=throttle_ms)

    def list_offsets(self, request: Message) -> Message:
        assert isinstance(request, ListOffsetsRequest)
        first = request.topics[0].partitions[0].timestamp == EARLIEST
        told = ListOffsetsPartitionResponse(partition_index=0, offset=0 if first else self.end)
        return ListOffsetsResponse(
            topics=[ListOffsetsTopicResponse(name="orders", partitions=[told])]
        )


async def walked(broker: LogServer, start: int, end: int, **changes: Any) -> list[int]:
    """The offsets that reading the span shows."""
    plan, span = plan_for(broker.bootstrap, **changes), Span("orders", 0, start, end)
    walk, decoder = SpanWalk(plan, span, connect=broker.connect), SpanDecoder(("offset",), span)
    found = []
    try:
        await walk.begin()
        while (fetched := await walk.next()) is not None:
            found += decoder.decode(fetched)
        found += decoder.rest()
    finally:
        await walk.close()
    return column(found, "offset")


async def test_gaps_are_passed_over_also_at_the_end_of_the_span() -> None:
    log = [batch(0, [b"a"]), batch(5, [b"b"]), emptied(batch(6, [b"c"] * 4)), batch(20, [b"d"])]
    broker = LogServer(log, end=21)

    assert await walked(broker, 0, 21) == [0, 5, 20]
    assert await walked(broker, 1, 9) == [5]
    assert await walked(broker, 11, 20) == []


async def test_an_end_where_nothing_is_left_ends_the_read() -> None:
    assert await walked(LogServer([batch(0, [b"a"])], end=9), 0, 9) == [0]


async def test_a_broker_that_throttles_is_no_end_of_the_log() -> None:
    broker = LogServer([batch(0, [b"a"]), batch(1, [b"b"])], end=2)
    broker.throttled = iter([90, 90, 90, 90, 0, 90])  # longer than the patience with gaps

    assert await walked(broker, 0, 2) == [0, 1]


async def test_transactions_that_were_aborted_are_not_shown() -> None:
    log = [batch(0, [b"a"], producer=7), batch(1, [b"b"]), marker(2, 7, ABORT)]
    broker = LogServer(log, end=3)
    broker.aborted = [(7, 0)]

    assert await walked(broker, 0, 3) == [1]


async def test_an_open_transaction_is_waited_for_and_then_named() -> None:
    broker = LogServer([batch(0, [b"a"]), batch(1, [b"b"])], end=2)
    broker.stable = 1
    client = IMPATIENT

    with pytest.raises(RequestTimedOutError, match=r"orders-0.*offset 1 .*isolationLevel"):
        await walked(broker, 0, 2, client=client)
    broker.stable = 2
    assert await walked(broker, 0, 2, client=client) == [0, 1]


async def test_the_next_answer_is_asked_for_before_this_one_is_looked_at() -> None:
    broker = LogServer([batch(n, [b"a"]) for n in range(3)], end=3)
    plan, span = plan_for(broker.bootstrap), Span("orders", 0, 0, 3)
    walk = SpanWalk(plan, span, connect=broker.connect)
    await walk.begin()
    for asked in (2, 3, 3):
        await walk.next()
        assert len(broker.requests(ApiKey.FETCH)) == asked
    await walk.close()


async def test_a_new_leader_costs_no_row() -> None:
    log = [batch(n * 3, [b"a"] * 3) for n in range(4)]
    broker = LogServer(log, end=12)
    moved = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH]
    broker.errors = iter([ErrorCode.NONE, *moved, ErrorCode.NONE, ErrorCode.OFFSET_NOT_AVAILABLE])

    assert await walked(broker, 1, 12) == list(range(1, 12))


async def test_a_leader_that_knows_less_at_first_is_given_time() -> None:
    log = [batch(0, [b"a"]), batch(1, [b"b"])]
    broker = LogServer(log, end=1)
    broker.stable = 1

    def learn(request: Message) -> Message:
        answer = broker.fetch(request)
        if len(broker.requests(ApiKey.FETCH)) > 3:
            broker.end = broker.stable = 2
        return answer

    broker.handlers[ApiKey.FETCH] = learn
    assert await walked(broker, 0, 2) == [0, 1]


async def test_a_topic_of_another_identity_is_refused() -> None:
    broker = LogServer([batch(n, [b"a"]) for n in range(3)], end=3)
    plan, span = plan_for(broker.bootstrap), Span("orders", 0, 0, 3)
    walk = SpanWalk(plan, span, connect=broker.connect)
    await walk.begin()
    await walk.next()
    described = broker.described

    def anew(name: str) -> Any:
        told = described(name)
        told.topic_id = UUID(int=43)
        return told

    broker.described = anew  # type: ignore[method-assign]  # what a broker knows changes
    broker.errors = iter([ErrorCode.UNKNOWN_TOPIC_ID] * 9)
    await walk.next()  # was asked for before
    with pytest.raises(TopicRecreatedError, match="orders"):
        await walk.next()
    await walk.close()
