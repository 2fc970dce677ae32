"""What the driver decides, against a real broker and without Spark."""

import asyncio
import json
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
from pyspark.sql.types import StructType

from tests.spark.topics import ask, create, delete, fill, trim
from waystation.client.consumer import Consumer
from waystation.model.errors import UnknownTopicError, WaystationError
from waystation.spark.brokers import Brokers
from waystation.spark.columns import COLUMNS, WITH_HEADERS
from waystation.spark.errors import BadOptionError, DataLossError
from waystation.spark.source import SpanPartition, TopicReader, TopicSource, TopicStreamReader
from waystation.spark.spans import Span
from waystation.testing.process import BrokerProcess

ALL = ReadAllAvailable()
Streams = Callable[..., TopicStreamReader]


@pytest.fixture(autouse=True)
def _tracebacks_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that fails hides tracebacks in its process, which here is ours."""
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")


@pytest.fixture
def streams() -> Iterator[list[TopicStreamReader]]:
    opened: list[TopicStreamReader] = []
    yield opened
    for one in opened:
        one.stop()


def source(bootstrap: str, topic: str, **more: str) -> TopicSource:
    # A test that waits for what does not come should not wait for long.
    patience = {"kafka.max.block.ms": "2000"}
    options = {"bootstrap.servers": bootstrap, "subscribe": topic, **patience, **more}
    return TopicSource({name.lower(): text for name, text in options.items() if text})


def batch(bootstrap: str, topic: str, **more: str) -> TopicReader:
    return source(bootstrap, topic, **more).reader(COLUMNS)


def spans(found: list[InputPartition]) -> list[Span]:
    assert all(isinstance(one, SpanPartition) for one in found)
    return [one.span for one in found if isinstance(one, SpanPartition)]


@pytest.fixture
def stream(bootstrap: str, topic: str, streams: list[TopicStreamReader]) -> Streams:
    """Makes streams that begin at the earliest offset."""

    def make(**more: str) -> TopicStreamReader:
        options = {"startingOffsets": "earliest", **more}
        reader = source(bootstrap, topic, **options).streamReader(COLUMNS)
        streams.append(reader)
        return reader

    return make


# --- batches ------------------------------------------------------------------------------------


def test_a_batch_is_everything_there_is(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, 3)
    fill(bootstrap, topic, {0: 5, 2: 7})

    found = batch(bootstrap, topic).partitions()

    assert spans(found) == [Span(topic, 0, 0, 5), Span(topic, 2, 0, 7)]


def test_what_a_task_needs_travels_with_it(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    fill(bootstrap, topic, {0: 5})
    reader = source(bootstrap, topic, isolationLevel="read_uncommitted").reader(
        StructType([COLUMNS["value"], COLUMNS["offset"]])
    )

    (found,) = pickle.loads(pickle.dumps(reader.partitions()))

    assert found.plan.columns == ("value", "offset")
    assert found.plan.isolation == "read_uncommitted"
    assert found.plan.bootstrap == bootstrap
    assert found.plan.client["max.block.ms"] == "2000"


def test_offsets_bound_a_batch(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, 2)
    fill(bootstrap, topic, {0: 10, 1: 10})

    found = batch(
        bootstrap,
        topic,
        startingOffsets=json.dumps({topic: {"0": 3, "1": -2}}),
        endingOffsets=json.dumps({topic: {"0": 8, "1": -1}}),
    ).partitions()

    assert spans(found) == [Span(topic, 0, 3, 8), Span(topic, 1, 0, 10)]


def test_times_bound_a_batch(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    fill(bootstrap, topic, {0: 10}, timestamp=1_700_000_000_000)

    found = batch(
        bootstrap, topic, startingTimestamp="1700000000002", endingTimestamp="1700000000007"
    ).partitions()

    assert spans(found) == [Span(topic, 0, 2, 7)]


def test_a_time_that_no_record_has_reached_is_an_error_or_the_end(
    bootstrap: str, topic: str
) -> None:
    create(bootstrap, topic)
    fill(bootstrap, topic, {0: 10}, timestamp=1_700_000_000_000)
    late = "1800000000000"

    with pytest.raises(BadOptionError, match="startingTimestamp"):
        batch(bootstrap, topic, startingTimestamp=late).partitions()
    found = batch(
        bootstrap,
        topic,
        startingTimestamp=late,
        startingOffsetsByTimestampStrategy="latest",
    ).partitions()

    assert found == []
    assert spans(batch(bootstrap, topic, endingTimestamp=late).partitions()) == [
        Span(topic, 0, 0, 10)
    ]


def test_large_partitions_are_cut(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, 2)
    fill(bootstrap, topic, {0: 90, 1: 10})

    found = spans(batch(bootstrap, topic, minPartitions="10").partitions())

    assert len(found) == 10
    assert sum(span.end - span.start for span in found) == 100


def test_partitions_and_patterns_choose_what_is_read(bootstrap: str, topic: str) -> None:
    create(bootstrap, f"{topic}-a", 2)
    create(bootstrap, f"{topic}-b", 1)
    create(bootstrap, f"x{topic}-a", 1)
    for name in (f"{topic}-a", f"{topic}-b", f"x{topic}-a"):
        fill(bootstrap, name, {0: 2})

    matched = batch(bootstrap, "", subscribePattern=f"{topic}-.").partitions()
    assigned = batch(bootstrap, "", assign=json.dumps({f"{topic}-a": [0]})).partitions()

    assert {span.topic for span in spans(matched)} == {f"{topic}-a", f"{topic}-b"}
    assert spans(assigned) == [Span(f"{topic}-a", 0, 0, 2)]


def test_offsets_out_of_range_are_lost_data(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    fill(bootstrap, topic, {0: 10})
    trim(bootstrap, topic, 4)
    wanted = {
        "startingOffsets": json.dumps({topic: {"0": 1}}),
        "endingOffsets": json.dumps({topic: {"0": 50}}),
    }

    with pytest.raises(DataLossError, match=f"{topic}-0: startingOffsets is 1, but it holds"):
        batch(bootstrap, topic, **wanted).partitions()
    found = batch(bootstrap, topic, failOnDataLoss="false", **wanted).partitions()

    assert spans(found) == [Span(topic, 0, 4, 10)]


def test_an_end_before_the_beginning_is_refused(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    fill(bootstrap, topic, {0: 10})

    with pytest.raises(BadOptionError, match="would end at 2, before startingOffsets"):
        batch(
            bootstrap,
            topic,
            startingOffsets=json.dumps({topic: {"0": 5}}),
            endingOffsets=json.dumps({topic: {"0": 2}}),
        ).partitions()


def test_a_topic_that_does_not_exist_is_named(bootstrap: str, topic: str) -> None:
    with pytest.raises(UnknownTopicError, match=f"subscribe: topic {topic} does not exist"):
        batch(bootstrap, topic).partitions()


def test_a_partition_that_does_not_exist_is_named(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, 2)

    with pytest.raises(BadOptionError, match=f"assign: topic {topic} has no partition 2"):
        batch(bootstrap, "", assign=json.dumps({topic: [2]})).partitions()


def test_a_broker_that_is_not_there_is_told_at_once(topic: str) -> None:
    with pytest.raises(BadOptionError, match=r"bootstrap\.servers: no broker answers"):
        batch("127.0.0.1:1", topic).partitions()


# --- columns ------------------------------------------------------------------------------------


def test_headers_are_a_column_by_option(bootstrap: str, topic: str) -> None:
    assert source(bootstrap, topic).schema() == COLUMNS
    assert source(bootstrap, topic, includeHeaders="true").schema() == WITH_HEADERS


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (StructType().add("valeu", "binary"), "unknown column valeu in the schema"),
        (StructType().add("value", "string"), "column value of the schema is string, must be"),
        (StructType().add("offset", "long", nullable=False), "bigint not null, must be bigint"),
        (StructType().add("offset", "long").add("offset", "long"), "stands twice"),
        (StructType(), "no column"),
    ],
)
def test_columns_that_a_topic_does_not_have_are_refused(schema: StructType, said: str) -> None:
    with pytest.raises(BadOptionError) as refused:
        source("localhost:9092", "t").reader(schema)

    assert said.split(" in the")[0] in str(refused.value)


# --- streams ------------------------------------------------------------------------------------


def test_a_stream_begins_at_the_end_unless_told(
    bootstrap: str, topic: str, streams: list[TopicStreamReader]
) -> None:
    create(bootstrap, topic)
    fill(bootstrap, topic, {0: 5})
    reader = source(bootstrap, topic).streamReader(COLUMNS)
    streams.append(reader)

    assert reader.initialOffset() == {topic: {"0": 5}}


def test_a_stream_reads_on(bootstrap: str, topic: str, stream: Streams) -> None:
    create(bootstrap, topic, 2)
    fill(bootstrap, topic, {0: 5})
    reader = stream()
    start = reader.initialOffset()

    assert start == {topic: {"0": 0, "1": 0}}
    first = reader.latestOffset(start, ALL)
    assert first == {topic: {"0": 5, "1": 0}}
    assert spans(reader.partitions(start, first)) == [Span(topic, 0, 0, 5)]
    assert reader.latestOffset(first, ALL) == first
    assert reader.partitions(first, first) == []

    fill(bootstrap, topic, {0: 1, 1: 2})
    then = reader.latestOffset(first, ALL)

    assert spans(reader.partitions(first, then)) == [Span(topic, 0, 5, 6), Span(topic, 1, 0, 2)]
    assert reader.reportLatestOffset() == then


def test_limits_hold_for_each_batch(bootstrap: str, topic: str, stream: Streams) -> None:
    create(bootstrap, topic, 2)
    fill(bootstrap, topic, {0: 30, 1: 10})
    reader = stream(maxOffsetsPerTrigger="8")
    at = reader.initialOffset()
    limit: ReadLimit = reader.getDefaultReadLimit()

    sizes = []
    while (then := reader.latestOffset(at, limit)) != at:
        sizes.append(sum(then[topic].values()) - sum(at[topic].values()))
        at = then

    assert limit == ReadMaxRows(8)
    assert sizes == [8] * 5
    assert reader.latestOffset({topic: {"0": 0, "1": 0}}, ALL) == {topic: {"0": 30, "1": 10}}


def test_bytes_are_limited_by_what_is_stored(bootstrap: str, topic: str, stream: Streams) -> None:
    create(bootstrap, topic)
    fill(bootstrap, topic, {0: 1_000})
    stored_bytes = ask(bootstrap, lambda admin: admin.describe_log_dirs())[0].partitions[topic, 0]
    reader = stream(maxBytesPerTrigger=str(stored_bytes // 4))

    then = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())

    assert then[topic]["0"] == pytest.approx(250, abs=5)


def test_too_little_is_waited_for(bootstrap: str, topic: str, stream: Streams) -> None:
    create(bootstrap, topic)
    fill(bootstrap, topic, {0: 10})
    reader = stream(minOffsetsPerTrigger="5", maxTriggerDelay="1h")
    limit = reader.getDefaultReadLimit()
    first = reader.latestOffset(reader.initialOffset(), limit)

    fill(bootstrap, topic, {0: 4})
    assert reader.latestOffset(first, limit) == first
    fill(bootstrap, topic, {0: 1})

    assert reader.latestOffset(first, limit) == {topic: {"0": 15}}


def test_available_now_ends_where_it_was_told(bootstrap: str, topic: str, stream: Streams) -> None:
    create(bootstrap, topic)
    fill(bootstrap, topic, {0: 10})
    reader = stream(maxOffsetsPerTrigger="6", minOffsetsPerTrigger="6")
    reader.prepareForTriggerAvailableNow()
    fill(bootstrap, topic, {0: 10})
    ask(bootstrap, lambda admin: admin.create_partitions(topic, 2))
    limit = reader.getDefaultReadLimit()

    first = reader.latestOffset({topic: {"0": 0}}, limit)
    then = reader.latestOffset(first, limit)

    assert (first, then) == ({topic: {"0": 6}}, {topic: {"0": 10}})
    assert reader.latestOffset(then, limit) == then


def test_new_partitions_are_picked_up_from_their_beginning(
    bootstrap: str, topic: str, stream: Streams
) -> None:
    create(bootstrap, topic)
    reader = stream()
    start = reader.initialOffset()
    ask(bootstrap, lambda admin: admin.create_partitions(topic, 2))
    fill(bootstrap, topic, {1: 3})

    then = reader.latestOffset(start, ALL)

    assert then == {topic: {"0": 0, "1": 3}}
    assert spans(reader.partitions(start, then)) == [Span(topic, 1, 0, 3)]


def test_new_topics_that_match_are_picked_up(bootstrap: str, topic: str, stream: Streams) -> None:
    reader = stream(subscribe="", subscribePattern=f"{topic}.*")

    start = reader.initialOffset()
    assert reader.latestOffset(start, ALL) == start == {}
    create(bootstrap, f"{topic}-new")
    fill(bootstrap, f"{topic}-new", {0: 3})
    then = reader.latestOffset(start, ALL)

    assert spans(reader.partitions(start, then)) == [Span(f"{topic}-new", 0, 0, 3)]


def test_what_retention_took_before_it_was_read_is_lost_data(
    bootstrap: str, topic: str, stream: Streams
) -> None:
    create(bootstrap, topic)
    fill(bootstrap, topic, {0: 10})
    trim(bootstrap, topic, 7)
    start = {topic: {"0": 4}}

    with pytest.raises(DataLossError, match=f"{topic}-0: offsets 4 to 6 .* failOnDataLoss"):
        stream().latestOffset(start, ALL)
    with pytest.raises(DataLossError, match="offsets 4 to 6"):
        stream().partitions(start, {topic: {"0": 10}})
    loose = stream(failOnDataLoss="false")
    then = loose.latestOffset(start, ALL)

    assert spans(loose.partitions(start, then)) == [Span(topic, 0, 7, 10)]


def test_a_topic_that_was_deleted_is_lost_data(bootstrap: str, topic: str, stream: Streams) -> None:
    create(bootstrap, topic)
    create(bootstrap, f"{topic}-too")
    fill(bootstrap, topic, {0: 3})
    names = f"{topic},{topic}-too"
    strict, loose = stream(subscribe=names), stream(subscribe=names, failOnDataLoss="false")
    start = strict.latestOffset(strict.initialOffset(), ALL)
    delete(bootstrap, topic)

    with pytest.raises(DataLossError, match=f"{topic}-0: it no longer exists"):
        strict.latestOffset(start, ALL)
    then = loose.latestOffset(start, ALL)
    assert then == loose.latestOffset(then, ALL) == {f"{topic}-too": {"0": 0}}
    assert loose.partitions({topic: {"0": 0}}, start) == []


def test_a_topic_that_was_made_anew_is_lost_data(
    bootstrap: str, topic: str, stream: Streams
) -> None:
    """Even if it holds as many offsets again, so that none seems to be missing."""
    create(bootstrap, topic)
    fill(bootstrap, topic, {0: 3})
    strict, loose = stream(), stream(failOnDataLoss="false")
    start = strict.latestOffset(strict.initialOffset(), ALL)
    loose.latestOffset(loose.initialOffset(), ALL)
    delete(bootstrap, topic)
    create(bootstrap, topic)
    fill(bootstrap, topic, {0: 5})

    with pytest.raises(DataLossError, match=f"topic {topic}: it was deleted and made anew"):
        strict.latestOffset(start, ALL)
    then = loose.latestOffset(start, ALL)

    assert spans(loose.partitions(start, then)) == [Span(topic, 0, 0, 5)]
    assert loose.latestOffset(then, ALL) == then


def test_a_checkpoint_of_another_topic_of_that_name_is_noticed(
    bootstrap: str, topic: str, stream: Streams
) -> None:
    create(bootstrap, topic)
    fill(bootstrap, topic, {0: 3})

    with pytest.raises(DataLossError, match="read up to offset 50, but ends at 3 now"):
        stream().latestOffset({topic: {"0": 50}}, ALL)


def test_a_broker_that_restarts_costs_time_only(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data").start() as broker:
        create(broker.bootstrap, "t")
        fill(broker.bootstrap, "t", {0: 3})
        patient = source(broker.bootstrap, "t", **{"kafka.max.block.ms": "20000"})
        hasty = source(broker.bootstrap, "t", **{"kafka.max.block.ms": "300"})
        reader, other = patient.streamReader(COLUMNS), hasty.streamReader(COLUMNS)
        start = {"t": {"0": 0}}
        assert reader.latestOffset(start, ALL) == other.latestOffset(start, ALL) == {"t": {"0": 3}}
        broker.kill()

        with pytest.raises(WaystationError, match=f"no broker answers .{broker.bootstrap}"):
            other.latestOffset(start, ALL)
        with pytest.raises(BadOptionError, match=r"bootstrap\.servers: no broker answers"):
            hasty.streamReader(COLUMNS).latestOffset(start, ALL)
        broker.start()
        assert reader.latestOffset(start, ALL) == {"t": {"0": 3}}
        reader.stop()
        other.stop()


def test_a_topic_that_goes_between_two_questions_is_noticed_soon(
    bootstrap: str, topic: str, stream: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(bootstrap, topic)
    reader = stream(**{"kafka.max.block.ms": "60000"})
    start = reader.initialOffset()
    asked = Brokers.held

    def held(self: Brokers, *told: Any) -> Any:
        monkeypatch.setattr(Brokers, "held", asked)
        delete(bootstrap, topic)
        return asked(self, *told)

    monkeypatch.setattr(Brokers, "held", held)
    with pytest.raises(DataLossError, match="it no longer exists"):
        reader.latestOffset(start, ALL)


def test_a_deleted_topic_does_not_keep_available_now_from_ending(
    bootstrap: str, topic: str, stream: Streams
) -> None:
    create(bootstrap, f"{topic}-too")
    fill(bootstrap, f"{topic}-too", {0: 3})
    reader = stream(subscribe=f"{topic},{topic}-too", failOnDataLoss="false")
    reader.prepareForTriggerAvailableNow()

    then = reader.latestOffset({topic: {"0": 5}}, ALL)

    assert then == reader.latestOffset(then, ALL) == {f"{topic}-too": {"0": 3}}


def test_a_stream_tells_what_is_wrong_when_it_is_first_asked(topic: str) -> None:
    """While Spark makes a reader, it loses what is raised."""
    reader = source("localhost:9092", topic, endingOffsets="latest").streamReader(COLUMNS)

    with pytest.raises(BadOptionError, match="endingOffsets is for batch reads"):
        reader.getDefaultReadLimit()


# --- progress -----------------------------------------------------------------------------------


def test_progress_is_a_groups_offsets(bootstrap: str, topic: str, stream: Streams) -> None:
    create(bootstrap, topic)
    fill(bootstrap, topic, {0: 5})
    reader = stream(groupId=f"{topic}-group")
    start = reader.initialOffset()

    first = reader.latestOffset(start, ALL)
    assert _committed(bootstrap, topic) == 0
    reader.latestOffset(first, ALL)
    assert _committed(bootstrap, topic) == 5
    fill(bootstrap, topic, {0: 2})
    then = reader.latestOffset(first, ALL)
    reader.commit(then)

    assert _committed(bootstrap, topic) == 7


def test_a_group_with_members_is_refused(bootstrap: str, topic: str, stream: Streams) -> None:
    create(bootstrap, topic)
    reader = stream(groupId=f"{topic}-group")

    async def with_a_member() -> None:
        async with Consumer(f"{topic}-group", [topic], bootstrap=bootstrap) as consumer:
            while not consumer.assignment:
                await consumer.poll(100)
            with pytest.raises(BadOptionError, match=f"groupId: group {topic}-group has members"):
                await asyncio.to_thread(reader.latestOffset, {topic: {"0": 0}}, ALL)

    asyncio.run(with_a_member())


def _committed(bootstrap: str, topic: str) -> int:
    found = ask(bootstrap, lambda admin: admin.group_offsets(f"{topic}-group"))
    return {str(where): one.offset for where, one in found.items()}[f"{topic}-0"]
