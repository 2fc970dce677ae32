"""Rows of columns become the bytes that the row codec writes; the same in both twins."""

import subprocess
import sys
from array import array
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.records.twins import NAMES, PACKING_TWINS, is_compiled
from tests.support.soak import count
from waystation.client.partitioner import partition_of_key
from waystation.model.errors import CorruptBatchError, InvalidRecordError, InvalidTimestampError
from waystation.records import codec
from waystation.records import packing as preferred
from waystation.records.batch import records_of
from waystation.records.compression import Codec
from waystation.records.header import HEADER_BYTES, check_produced
from waystation.records.packed import PackedBatch

NO_LIMIT = 1 << 40
NOW_MS = 1_700_000_000_000

Message = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None, int | None]
contents = st.none() | st.binary(max_size=40) | st.just(b"long" * 60)
header = st.tuples(st.text(max_size=4), st.none() | st.binary(max_size=4))
messages_of = st.lists(
    st.tuples(
        contents,
        contents,
        st.none() | st.lists(header, max_size=3),
        st.none() | st.integers(0, 1 << 50),
    ),
    min_size=1,
    max_size=40,
)


@pytest.fixture(params=PACKING_TWINS, ids=NAMES)
def packing(request: pytest.FixtureRequest) -> ModuleType:
    twin: ModuleType = request.param
    return twin


# --- columns as Arrow lays them out ---------------------------------------------------------


def bits_of(present: Sequence[bool], first: int) -> bytearray:
    bits = bytearray((first + len(present) + 7) // 8)
    for row, is_there in enumerate(present, first):
        bits[row >> 3] |= is_there << (row & 7)
    return bits


def byte_rows(twin: ModuleType, column: Sequence[bytes | None], first: int = 0) -> Any:
    """``first`` rows that are not meant stand before the column's own."""
    content = bytearray(b"before")
    ends = array("i", [0] * first + [len(content)])
    for one in column:
        content += one or b""
        ends.append(len(content))
    bits = bits_of([one is not None for one in column], first) if None in column else None
    return twin.ByteRows(bits, memoryview(ends), content, first, len(column))


def number_rows(twin: ModuleType, column: Sequence[int | None], first: int = 0) -> Any:
    numbers = array("q", [-7] * first + [-7 if one is None else one for one in column])
    bits = bits_of([one is not None for one in column], first)
    return twin.NumberRows(bits, memoryview(numbers), first, len(column))


def header_rows(twin: ModuleType, column: Sequence[Any], first: int = 0) -> Any:
    ends = array("i", [0] * (first + 1))
    names: list[bytes | None] = []
    values: list[bytes | None] = []
    for headers in column:
        for name, value in headers or ():
            names.append(None if name is None else name.encode())
            values.append(value)
        ends.append(len(names))
    bits = bits_of([one is not None for one in column], first)
    return twin.HeaderRows(
        bits,
        memoryview(ends),
        byte_rows(twin, names),
        byte_rows(twin, values, 3),
        len(names),
        first,
        len(column),
    )


def rows_of(twin: ModuleType, messages: Sequence[Message], first: int = 0) -> Any:
    keys, values, headers, times = zip(*messages, strict=True)
    return twin.Rows(
        len(messages),
        byte_rows(twin, values, first),
        byte_rows(twin, keys, first),
        number_rows(twin, [None if one is None else one * 1_000 + 999 for one in times], first),
        header_rows(twin, headers, first),
        now_ms=NOW_MS,
    )


def values_only(twin: ModuleType, values: Sequence[bytes | None]) -> Any:
    return twin.Rows(len(values), byte_rows(twin, values), now_ms=NOW_MS)


def in_order(rows: int) -> "array[int]":
    return array("i", range(rows))


def written(messages: Sequence[Message], limit_bytes: int) -> list[bytes]:
    """What the row codec makes of them: the records of each batch."""
    batches: list[codec.RecordWriter] = []
    for key, value, headers, time in messages:
        timestamp = NOW_MS if time is None else time
        writer = batches[-1] if batches else codec.RecordWriter(bytearray(), limit_bytes)
        if not batches or not writer.append(key, value, headers or (), timestamp=timestamp):
            batches.append(codec.RecordWriter(bytearray(), NO_LIMIT))
            assert batches[-1].append(key, value, headers or (), timestamp=timestamp)
            batches[-1].limit_bytes = limit_bytes
    return [bytes(one.out) for one in batches]


# --- promises -------------------------------------------------------------------------------


def test_packing_is_compiled_where_the_codec_is() -> None:
    assert is_compiled(preferred) is codec.COMPILED


@given(messages_of, st.integers(0, 9), st.sampled_from([1, 100, 300, NO_LIMIT]))
def test_batches_hold_what_the_row_codec_writes(
    messages: list[Message], first: int, limit_bytes: int
) -> None:
    for twin in PACKING_TWINS:
        rows, found, at = rows_of(twin, messages, first), [], 0
        while at < len(messages):
            batch = twin.RowWriter(100)
            at = batch.fill(
                rows, in_order(len(messages)), at, len(messages), limit_bytes + HEADER_BYTES
            )
            found.append(bytes(batch.out[HEADER_BYTES : batch.size_bytes]))

        assert found == written(messages, limit_bytes)


@given(messages_of, st.randoms())
def test_a_batch_is_what_was_said_of_the_rows_in_the_order_asked_for(
    messages: list[Message], chance: Any
) -> None:
    order = [chance.randrange(len(messages)) for _ in messages]
    batch = PackedBatch(0)
    at = batch.fill(rows_of(preferred, messages), array("i", order), 0, len(messages), NO_LIMIT)
    header = check_produced(batch.build())
    found = records_of(batch.build())

    assert at == header.records_count == len(messages)
    assert [(one.key, one.value) for one in found] == [messages[row][:2] for row in order]
    times = [messages[row][3] for row in order]
    assert [one.timestamp for one in found] == [NOW_MS if one is None else one for one in times]
    assert header.max_timestamp == max(one.timestamp for one in found)


def test_a_batch_is_filled_by_several_columns_after_one_another(packing: ModuleType) -> None:
    batch = packing.RowWriter(0)
    for text in (b"a", b"b", b"c"):
        batch.fill(values_only(packing, [text * 9_000] * 2), in_order(2), 0, 2, NO_LIMIT)

    assert batch.records_count == 6
    assert codec.record_sizes(batch.out[HEADER_BYTES : batch.size_bytes], 6) == [9_011] * 6


def test_a_row_larger_than_the_batch_may_be_goes_alone(packing: ModuleType) -> None:
    rows = values_only(packing, [b"s", b"x" * 5_000, b"s", b"s"])
    sizes, at = [], 0
    while at < 4:
        batch = packing.RowWriter(0)
        at = batch.fill(rows, in_order(4), at, 4, 1_000)
        sizes.append((batch.records_count, batch.size_bytes > 1_000))

    assert sizes == [(1, False), (1, True), (2, False)]


# --- partitions -----------------------------------------------------------------------------


def lanes(
    twin: ModuleType,
    keys: Sequence[bytes | None] | None,
    counts: Sequence[int],
    *,
    rows: int | None = None,
    partitions: Sequence[int | None] | None = None,
    topics: Sequence[int] | None = None,
) -> tuple[int, list[int]]:
    total = len(keys) if keys is not None else rows or 0
    columns = twin.Rows(
        total, None, None if keys is None else byte_rows(twin, keys, 2), now_ms=NOW_MS
    )
    firsts = [sum(counts[:number]) + number for number in range(len(counts))]
    found = array("i", [-1] * total)
    good = twin.lanes_of(
        columns,
        None if partitions is None else number_rows(twin, partitions),
        None if topics is None else array("i", topics),
        array("i", firsts),
        array("i", counts),
        found,
    )
    return good, list(found)


@given(st.lists(st.binary(max_size=70), min_size=1, max_size=30), st.integers(2, 1_000))
def test_a_key_goes_where_every_kafka_client_sends_it(keys: list[bytes], partitions: int) -> None:
    for twin in PACKING_TWINS:
        good, found = lanes(twin, keys, [partitions])

        assert good == len(keys)
        assert found == [partition_of_key(key, partitions) for key in keys]


def test_rows_without_a_key_have_a_lane_of_their_own(packing: ModuleType) -> None:
    assert lanes(packing, [None, b"", None], [4])[1] == [4, partition_of_key(b"", 4), 4]
    assert lanes(packing, None, [4], rows=2)[1] == [4, 4]


def test_a_single_partition_takes_all_rows_in_their_order(packing: ModuleType) -> None:
    assert lanes(packing, [None, b"key", None], [1])[1] == [0, 0, 0]


def test_the_partition_that_a_row_names_wins(packing: ModuleType) -> None:
    found = lanes(packing, [b"key", b"key", None], [8], partitions=[3, None, 0])

    assert found == (3, [3, partition_of_key(b"key", 8), 0])


@pytest.mark.parametrize("wrong", [-1, 8, 1 << 40, -(1 << 63)])
def test_a_partition_that_is_not_there_is_told_with_its_row(
    packing: ModuleType, wrong: int
) -> None:
    good, _ = lanes(packing, [b"key"] * 4, [8], partitions=[3, None, wrong, 0])

    assert good == 2


def test_each_topic_has_lanes_of_its_own(packing: ModuleType) -> None:
    good, found = lanes(packing, [b"key", None, b"key"], [8, 3], topics=[0, 1, 1])

    assert good == 3
    assert found == [partition_of_key(b"key", 8), 12, 9 + partition_of_key(b"key", 3)]


@given(st.lists(st.integers(0, 6), max_size=60))
def test_rows_are_gathered_lane_by_lane_in_their_order(of: list[int]) -> None:
    for twin in PACKING_TWINS:
        order, starts = array("i", bytes(4 * 60)), array("i", [9] * 8)
        twin.in_lanes(array("i", [*of, 3]), len(of), order, starts)

        for lane in range(7):
            gathered = list(order[starts[lane] : starts[lane + 1]])
            assert gathered == [row for row, one in enumerate(of) if one == lane]


# --- what is refused ------------------------------------------------------------------------


def test_a_time_before_1970_is_refused_with_its_row(packing: ModuleType) -> None:
    times = number_rows(packing, [5_000, -1])
    rows = packing.Rows(2, byte_rows(packing, [b"a", b"b"]), None, times, now_ms=NOW_MS)
    batch = packing.RowWriter(0)

    with pytest.raises(InvalidTimestampError, match="row 1 has a time before 1970"):
        batch.fill(rows, in_order(2), 0, 2, NO_LIMIT)
    assert batch.records_count == 1


def test_a_header_without_a_name_is_refused_with_its_row(packing: ModuleType) -> None:
    headers = header_rows(packing, [[("a", b"")], [(None, b"")]])
    rows = packing.Rows(2, byte_rows(packing, [b"a", b"b"]), None, None, headers, now_ms=NOW_MS)

    with pytest.raises(InvalidRecordError, match="row 1 has a header without a name"):
        packing.RowWriter(0).fill(rows, in_order(2), 0, 2, NO_LIMIT)


@pytest.mark.parametrize("ends", [[0, 4, 6], [3, 2, 5], [-1, 2, 5], [0, -3, 5], [0, 2, 1 << 30]])
def test_ends_that_contradict_the_contents_are_refused(
    packing: ModuleType, ends: list[int]
) -> None:
    column = packing.ByteRows(None, memoryview(array("i", ends)), b"12345", 0, 2)
    for rows in (
        packing.Rows(2, column, now_ms=NOW_MS),
        packing.Rows(2, None, column, now_ms=NOW_MS),
    ):
        with pytest.raises(CorruptBatchError, match=r"row . is not all there"):
            packing.RowWriter(0).fill(rows, in_order(2), 0, 2, NO_LIMIT)
    with pytest.raises(CorruptBatchError, match=r"row . is not all there"):
        packing.lanes_of(
            packing.Rows(2, None, column, now_ms=NOW_MS),
            None,
            None,
            array("i", [0]),
            array("i", [4]),
            array("i", [0, 0]),
        )


def test_lists_that_contradict_their_members_are_refused(packing: ModuleType) -> None:
    names, values = byte_rows(packing, [b"a", b"b"]), byte_rows(packing, [b"1", b"2"])
    for ends in ([0, 3], [2, 1], [-1, 1]):
        headers = packing.HeaderRows(None, memoryview(array("i", ends)), names, values, 2, 0, 1)
        rows = packing.Rows(1, None, None, None, headers, now_ms=NOW_MS)
        with pytest.raises(CorruptBatchError, match="row 0 is not all there"):
            packing.RowWriter(0).fill(rows, in_order(1), 0, 1, NO_LIMIT)


def test_buffers_that_are_too_short_are_refused(packing: ModuleType) -> None:
    ends, numbers = memoryview(array("i", [0, 1])), memoryview(array("q", [1]))
    with pytest.raises(CorruptBatchError, match="2 ends are too few for 2 rows"):
        packing.ByteRows(None, ends, b"1", 1, 1)
    with pytest.raises(CorruptBatchError, match="1 bytes of validity are too few for 9 rows"):
        packing.ByteRows(b"1", ends, b"1", 0, 9)
    with pytest.raises(CorruptBatchError, match="1 numbers are too few for 2 rows"):
        packing.NumberRows(None, numbers, 1, 1)
    names = byte_rows(packing, [b"a"])
    with pytest.raises(CorruptBatchError, match="2 ends are too few for 2 rows"):
        packing.HeaderRows(None, ends, names, names, 1, 0, 2)


def test_an_order_of_other_rows_is_refused(packing: ModuleType) -> None:
    rows = values_only(packing, [b"a", b"b"])
    for order, first, stop in (([0, 2], 0, 2), ([-1], 0, 1), ([0], 0, 2), ([0, 1], -1, 1)):
        with pytest.raises(IndexError):
            packing.RowWriter(0).fill(rows, array("i", order), first, stop, NO_LIMIT)
    with pytest.raises(IndexError):
        packing.in_lanes(array("i", [7]), 1, array("i", [0]), array("i", [0, 0]))
    with pytest.raises(IndexError):
        lanes(packing, [b"a"], [3], topics=[1])


def test_nothing_is_read_or_written_past_a_buffer() -> None:
    """Where memory ends behind each: the process dies otherwise."""
    arguments = ["-m", "tests.records.guarded_packing", str(count(3_000, 100_000))]
    told = subprocess.run([sys.executable, *arguments], check=False, capture_output=True, text=True)

    assert told.returncode == 0, told.stderr
    assert int(told.stdout) > 0


# --- whole batches --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", list(Codec))
def test_a_packed_batch_is_one_that_a_broker_takes(kind: Codec) -> None:
    batch = PackedBatch(0)
    batch.fill(values_only(preferred, [b"value" * 40] * 50), in_order(50), 0, 50, NO_LIMIT)
    batch.codec, batch.is_transactional = kind, True
    batch.producer_id, batch.producer_epoch, batch.base_sequence = 7, 2, 90  # type: ignore[assignment]
    header = check_produced(batch.build())

    assert header.codec is kind
    assert header.is_transactional
    assert header[9:] == (7, 2, 90, 50)
    assert [one.value for one in records_of(batch.build())] == [b"value" * 40] * 50


def test_what_does_not_get_smaller_stays_uncompressed() -> None:
    batch = PackedBatch(0)
    batch.fill(values_only(preferred, [b"x"]), in_order(1), 0, 1, NO_LIMIT)
    batch.codec = Codec.GZIP

    assert check_produced(batch.build()).codec is Codec.NONE


def test_a_batch_may_be_built_again_under_another_number() -> None:
    batch = PackedBatch(0)
    batch.fill(values_only(preferred, [b"x"]), in_order(1), 0, 1, NO_LIMIT)
    batch.build()
    batch.producer_id, batch.producer_epoch, batch.base_sequence = 7, 3, 0  # type: ignore[assignment]

    assert check_produced(batch.build())[9:] == (7, 3, 0, 1)
