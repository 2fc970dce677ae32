"""Rows of any Arrow layout become batches of their partitions, in order, of bounded size."""

from collections import defaultdict
from collections.abc import Sequence
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from waystation.client.errors import MessageRefusedError, NoSuchPartitionError
from waystation.client.partitioner import partition_of_key
from waystation.model.errors import InvalidRecordError, InvalidTimestampError
from waystation.records.batch import Record, records_of
from waystation.records.header import check_produced
from waystation.runtime.clock import ManualClock
from waystation.spark.columns import ARROW
from waystation.spark.encode import Encoder, Packed, TopicFacts
from waystation.spark.errors import BadOptionError

HEADERS = ARROW.field("headers").type
PARTITIONS = 4
MAX_BYTES = 1_048_588


def facts(name: str) -> TopicFacts:
    """A topic that has as many partitions as its name ends with, if it does."""
    partitions = int(name.rpartition("-")[2]) if name[-1].isdigit() else PARTITIONS
    return TopicFacts(name, partitions, range(partitions), MAX_BYTES)


def encoder(topic: str = "orders", **options: Any) -> Encoder:
    return Encoder(facts, topic=topic, clock=ManualClock(), chance=Random(3), **options)


def frame(**columns: pa.Array) -> pa.RecordBatch:
    return pa.record_batch(columns)


def encoded(rows: Sequence[pa.RecordBatch], **options: Any) -> list[Packed]:
    made = encoder(**options)
    found = [packed for batch in rows for packed in made.add(batch)]
    found += made.flush()
    assert made.rows == sum(batch.num_rows for batch in rows)
    assert not list(made.flush())
    return found


def logs(packed: Sequence[Packed]) -> dict[tuple[str, int], list[Record]]:
    found = defaultdict(list)
    for topic, partition, batch in packed:
        check_produced(batch.build())
        found[topic, partition] += records_of(batch.build())
    return dict(found)


def everything(packed: Sequence[Packed]) -> list[Record]:
    return [record for log in logs(packed).values() for record in log]


def test_rows_of_a_key_are_in_its_partition_in_their_order() -> None:
    keys = [b"key-%d" % (number % 11) for number in range(1_000)]
    values = [b"%d" % number for number in range(1_000)]
    rows = frame(key=pa.array(keys, pa.binary()), value=pa.array(values, pa.binary()))
    found = logs(encoded([rows.slice(0, 300), rows.slice(300)], batch_bytes=500))

    for (topic, partition), log in found.items():
        mine = [
            (key, value)
            for key, value in zip(keys, values, strict=True)
            if partition_of_key(key, PARTITIONS) == partition
        ]
        assert topic == "orders"
        assert [(one.key, one.value) for one in log] == mine


def test_rows_without_a_key_are_spread_batch_by_batch() -> None:
    rows = frame(value=pa.array([b"x" * 100] * 1_000))
    found = encoded([rows], batch_bytes=2_000)

    assert {packed.batch.records_count for packed in found[:-1]} == {17}
    assert all(packed.batch.size_bytes <= 2_000 for packed in found)
    turns = [packed.partition for packed in found]
    assert turns == [(turns[0] + number) % PARTITIONS for number in range(len(found))]


def test_rows_without_a_key_avoid_partitions_without_a_leader() -> None:
    def led(name: str) -> TopicFacts:
        return TopicFacts(name, 4, (1, 3), MAX_BYTES)

    made = Encoder(led, topic="orders", batch_bytes=100)
    found = list(made.add(frame(value=pa.array([b"x" * 100] * 50))))

    assert {packed.partition for packed in found} == {1, 3}


def test_a_single_partition_keeps_the_order_of_all_rows() -> None:
    keys = [None if number % 3 else b"%d" % number for number in range(500)]
    rows = frame(
        key=pa.array(keys, pa.binary()), value=pa.array([str(number) for number in range(500)])
    )
    found = logs(encoded([rows], topic="orders-1", batch_bytes=300))

    assert [one.value for one in found["orders-1", 0]] == [b"%d" % n for n in range(500)]


def test_the_partition_that_a_row_names_wins_and_is_checked() -> None:
    values = pa.array(["a", "b", "c"])
    keys = pa.array(["key"] * 3)
    rows = frame(value=values, key=keys, partition=pa.array([3, 0, None], pa.int32()))
    found = logs(encoded([rows]))

    assert [one.value for one in found["orders", 3]][:1] == [b"a"]
    assert [one.value for one in found["orders", 0]][:1] == [b"b"]
    assert b"c" in [one.value for one in found["orders", partition_of_key(b"key", PARTITIONS)]]

    wrong = frame(value=values, partition=pa.array([3, None, 4], pa.int32()))
    with pytest.raises(NoSuchPartitionError, match=r"orders has no partition 4: .* 0 to 3"):
        encoded([wrong])


def test_each_row_goes_to_the_topic_it_names() -> None:
    topics = ["orders-2", "refunds-3", "orders-2", "other-1"] * 50
    rows = frame(
        topic=pa.array(topics),
        key=pa.array([str(number) for number in range(200)]),
        value=pa.array([f"{topic}/{number}" for number, topic in enumerate(topics)]),
    )
    found = logs(encoded([rows.slice(0, 1), rows.slice(1, 120), rows.slice(121)], topic=""))

    assert sum(map(len, found.values())) == 200
    for (topic, partition), log in found.items():
        count = int(topic[-1])
        assert all((one.value or b"").startswith(topic.encode()) for one in log)
        assert all(partition_of_key(one.key or b"", count) == partition for one in log)


def test_the_option_topic_wins_over_the_column() -> None:
    rows = frame(topic=pa.array(["refunds", None]), value=pa.array(["a", "b"]))

    assert {packed.topic for packed in encoded([rows])} == {"orders"}


def test_rows_that_go_nowhere_are_refused() -> None:
    with pytest.raises(BadOptionError, match="column topic is null in a row"):
        encoded([frame(topic=pa.array(["a", None]), value=pa.array(["a", "b"]))], topic="")
    with pytest.raises(BadOptionError, match="nobody says where the rows go"):
        encoded([frame(value=pa.array(["a"]))], topic="")


@pytest.mark.parametrize(
    "kind",
    [pa.binary(), pa.string(), pa.large_binary(), pa.large_string(), pa.binary_view()],
    ids=str,
)
def test_bytes_and_text_may_be_laid_out_in_any_way(kind: pa.DataType) -> None:
    texts = ["", "ä", None, "long" * 30, "z"] * 4
    column = pa.array([None if one is None else one.encode() for one in texts]).cast(kind)
    rows = frame(key=column, value=column)
    found = everything(encoded([rows.slice(3, 14), rows.slice(17, 1)], topic="orders-1"))
    expected = [None if one is None else one.encode() for one in [*texts[3:17], texts[17]]]

    assert [one.key for one in found] == [one.value for one in found] == expected


def test_headers_and_times_are_kept() -> None:
    headers: list[Any] = [[("a", b"1"), ("ä", None), ("a", b"")], [], None, [("b", b"2")]] * 3
    times = [1_700_000_000_000_999, None, 0, 1_699_000_000_000_000] * 3
    rows = frame(
        value=pa.array(["v"] * 12),
        headers=pa.array(headers, HEADERS),
        timestamp=pa.array(times, pa.timestamp("us", tz="UTC")),
    )
    found = everything(encoded([rows.slice(2, 7)], topic="orders-1"))

    assert [one.headers for one in found] == [tuple(one or ()) for one in headers[2:9]]
    now = ManualClock().now()
    expected = [now if one is None else one // 1_000 for one in times[2:9]]
    assert [one.timestamp for one in found] == expected


def test_times_of_other_units_and_zones_are_understood() -> None:
    moment = pa.array([1_700_000_000_123], pa.timestamp("ms", tz="Europe/Berlin"))
    (found,) = everything(encoded([frame(value=pa.array(["v"]), timestamp=moment)]))

    assert found.timestamp == 1_700_000_000_123


def test_what_cannot_be_a_record_is_refused() -> None:
    values = pa.array(["a", "b"])
    early = pa.array([0, -1], pa.timestamp("us", tz="UTC"))
    with pytest.raises(InvalidTimestampError, match="row 1 has a time before 1970"):
        encoded([frame(value=values, timestamp=early)])
    for nameless in ([[("a", b"")], [(None, b"")]], [[("a", b"")], [None]]):
        with pytest.raises(InvalidRecordError, match="row 1 has a header without a name"):
            encoded([frame(value=values, headers=pa.array(nameless, HEADERS))])


def test_a_record_larger_than_a_batch_goes_alone_if_the_topic_takes_it() -> None:
    sizes = [10, 5_000, 10, MAX_BYTES - 200, 10]
    rows = frame(value=pa.array([b"x" * size for size in sizes]))
    found = encoded([rows], topic="orders-1", batch_bytes=1_000)

    assert [len(one.value or b"") for one in everything(found)] == sizes
    assert [packed.batch.records_count for packed in found] == [1] * 5


def test_a_record_that_the_topic_does_not_take_is_refused_with_the_remedy() -> None:
    rows = frame(value=pa.array([b"x" * MAX_BYTES]))
    with pytest.raises(
        MessageRefusedError, match=r"topic orders takes \d+ bytes .* takes 1048588: .*max.message"
    ):
        encoded([rows])

    assert len(encoded([rows], compressed=True)) == 1  # it may shrink: the broker decides
    with pytest.raises(MessageRefusedError, match=r"kafka\.max\.request\.size"):
        encoded([rows], compressed=True, most_bytes=1 << 20)


def test_a_batch_is_no_larger_than_its_topic_takes() -> None:
    def small(name: str) -> TopicFacts:
        return TopicFacts(name, 1, (0,), 700)

    made = Encoder(small, topic="orders")
    found = [*made.add(frame(value=pa.array([b"x" * 100] * 40))), *made.flush()]

    assert all(packed.batch.size_bytes <= 700 for packed in found)
    assert len(found) == 8


def test_many_partitions_take_bounded_memory() -> None:
    chance = Random(5)
    made = encoder("orders-500", open_bytes=2_000_000)
    found, held = [], []
    for _ in range(40):
        keys = [chance.randbytes(4) for _ in range(500)]
        batch = frame(key=pa.array(keys), value=pa.array([b"x" * 100] * 500))
        found += made.add(batch)
        held.append(sum(lane.held_bytes() for lane in made._lanes))
    found += made.flush()

    assert 100_000 < max(held) <= 2_000_000
    assert sum(packed.batch.records_count for packed in found) == 20_000
    assert len(found) < 4_000


def test_no_rows_ask_nothing_and_give_nothing() -> None:
    def unasked(name: str) -> TopicFacts:
        raise AssertionError(f"asked about {name}")

    made = Encoder(unasked, topic="orders")

    assert not list(made.add(frame(value=pa.array([], pa.binary()))))
    assert not list(made.flush())


def test_a_value_that_is_null_is_a_tombstone() -> None:
    rows = frame(key=pa.array(["k"]), value=pa.array([None], pa.binary()))
    (found,) = everything(encoded([rows]))

    assert (found.key, found.value) == (b"k", None)
