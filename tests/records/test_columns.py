"""Columns hold what the row codec decodes, in Arrow's layout; the same in both twins."""

from array import array
from collections.abc import Sequence
from copy import deepcopy
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.records.twins import COLUMNS_TWINS, NAMES, is_compiled
from waystation.model.errors import CorruptBatchError
from waystation.model.ids import LeaderEpoch
from waystation.model.offsets import Millis, Offset
from waystation.records import codec
from waystation.records import columns as preferred
from waystation.records.batch import BatchBuilder
from waystation.records.compression import Codec
from waystation.records.header import stamp, stamp_append_time
from waystation.records.lending import Lender, came_back
from waystation.records.record import Row

ALL = ("key", "value", "offset", "timestamp", "timestampType", "headers")
NO_LIMIT = 1 << 40
BASE = 100
FOREVER = 1 << 60

Message = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]
contents = st.none() | st.binary(max_size=40) | st.just(b"long" * 60)
messages_of = st.lists(
    st.tuples(
        contents,
        contents,
        st.lists(st.tuples(st.text(max_size=4), st.none() | st.binary(max_size=4)), max_size=3),
        st.integers(-1, 1 << 45),
    ),
    min_size=1,
    max_size=40,
)


@pytest.fixture(params=COLUMNS_TWINS, ids=NAMES)
def columns(request: pytest.FixtureRequest) -> ModuleType:
    twin: ModuleType = request.param
    return twin


def encoded(messages: Sequence[Message]) -> tuple[bytes, int]:
    """The payload of one batch, and its base timestamp."""
    writer = codec.RecordWriter(bytearray(), NO_LIMIT)
    for key, value, headers, timestamp in messages:
        writer.append(key, value, headers, timestamp=timestamp)
    return bytes(writer.out), writer.base_timestamp


def begun(
    twin: ModuleType,
    messages: Sequence[Message],
    *,
    wanted: Sequence[str] = ALL,
    target_bytes: int = NO_LIMIT,
    target_rows: int = NO_LIMIT,
    start: int = 0,
    end: int = FOREVER,
    append_time: int | None = None,
) -> Any:
    payload, base_timestamp = encoded(messages)
    filled = twin.RecordColumns(wanted, target_bytes=target_bytes, target_rows=target_rows)
    last = len(messages) - 1
    filled.begin(payload, last + 1, BASE, last, base_timestamp, append_time, start, end)
    return filled


def drained(columns: Any) -> list[Any]:
    """Everything the columns give of the batch they were begun with."""
    taken = []
    while not columns.fill():
        taken.append(deepcopy(columns.take()))
    if columns.rows:
        taken.append(columns.take())
    return taken


def has(bits: bytearray, row: int) -> bool:
    return bool(bits[row >> 3] & 1 << (row & 7))


def members(column: Any, count: int) -> list[bytes | None]:
    """A column of bytes, read the way Arrow defines it."""
    found = [
        bytes(column.content[column.ends[row] : column.ends[row + 1]])
        if has(column.bits, row)
        else None
        for row in range(count)
    ]
    assert column.nulls == found.count(None)
    assert column.ends[0] == 0
    assert column.ends[count] == column.content_bytes <= len(column.content)
    return found


def lists(column: Any, rows: int) -> list[tuple[tuple[str, bytes | None], ...]]:
    count = len(column.names.ends) - 1
    names, values = members(column.names, count), members(column.values, count)
    pairs = [((name or b"").decode(), value) for name, value in zip(names, values, strict=True)]
    found = [tuple(pairs[column.ends[row] : column.ends[row + 1]]) for row in range(rows)]
    assert [has(column.bits, row) for row in range(rows)] == [bool(one) for one in found]
    assert column.nulls == found.count(())
    return found


def rows_of(filled: Any) -> list[Row]:
    rows = filled.rows
    return list(
        zip(
            filled.offsets[:rows],
            [time // 1_000 for time in filled.times[:rows]],
            members(filled.keys, rows),
            members(filled.values, rows),
            lists(filled.headers, rows),
            strict=True,
        )
    )


def test_columns_are_compiled_where_the_codec_is() -> None:
    assert is_compiled(preferred) is codec.COMPILED


@given(
    messages_of,
    st.integers(BASE - 5, BASE + 45),
    st.integers(BASE - 5, BASE + 45),
    st.sampled_from([1, 100, 1_000, NO_LIMIT]),
    st.sampled_from([1, 3, NO_LIMIT]),
    st.none() | st.integers(-1, 1 << 45),
)
def test_columns_hold_what_the_row_codec_decodes(
    messages: list[Message],
    start: int,
    end: int,
    target_bytes: int,
    target_rows: int,
    append_time: int | None,
) -> None:
    payload, base_timestamp = encoded(messages)
    count = len(messages)
    rows = codec.decode_records(payload, count, BASE, count - 1, base_timestamp, append_time)
    expected = [row for row in rows if start <= row[0] < end]
    for twin in COLUMNS_TWINS:
        columns = begun(
            twin,
            messages,
            target_bytes=target_bytes,
            target_rows=target_rows,
            start=start,
            end=end,
            append_time=append_time,
        )
        taken = drained(columns)

        assert [row for filled in taken for row in rows_of(filled)] == expected
        assert all(filled.rows <= target_rows for filled in taken)
        kinds = [kind for filled in taken for kind in filled.kinds[: filled.rows]]
        assert kinds == [0 if append_time is None else 1] * len(expected)


def test_rows_of_many_batches_share_columns(columns: ModuleType) -> None:
    filled = columns.RecordColumns(ALL, target_bytes=NO_LIMIT, target_rows=NO_LIMIT)
    expected: list[Row] = []
    for number in range(20):
        messages: list[Message] = [
            (b"k%d" % each if each % 3 else None, b"v" * each, [("h", b"1")] * (each % 2), 5)
            for each in range(number + 1)
        ]
        payload, base_timestamp = encoded(messages)
        place = (payload, number + 1, number * 100, number, base_timestamp, None)
        expected += codec.decode_records(*place)
        filled.begin(*place, 0, FOREVER)
        assert filled.fill()

    assert rows_of(filled.take()) == expected
    assert filled.rows == 0
    assert filled.take().rows == 0


def test_columns_are_full_at_their_size_and_take_one_record_of_any(columns: ModuleType) -> None:
    messages: list[Message] = [(None, b"x" * 5_000, [], 1)] * 3
    filled = begun(columns, messages, target_bytes=1_000)

    assert not filled.full
    assert [one.rows for one in drained(filled)] == [1, 1, 1]

    filled = begun(columns, messages, target_bytes=12_000)
    assert not filled.fill()
    assert filled.rows == 2


def test_what_is_not_wanted_is_not_copied(columns: ModuleType) -> None:
    messages: list[Message] = [(b"key", b"value" * 9, [("h", b"1")], 1)] * 5
    filled = begun(columns, messages, wanted=("key",))
    assert filled.fill()
    taken = filled.take()

    assert members(taken.keys, 5) == [b"key"] * 5
    assert taken.values is None
    assert taken.headers is None
    assert not taken.offsets
    assert not taken.times
    assert not taken.kinds


def test_pruned_columns_hold_more_rows(columns: ModuleType) -> None:
    messages: list[Message] = [(b"k", b"x" * 1_000, [], 1)] * 20
    narrow = begun(columns, messages, wanted=("offset",), target_bytes=2_000)
    wide = begun(columns, messages, target_bytes=2_000)

    assert narrow.fill()
    assert not wide.fill()


def test_names_that_are_no_text_are_mended(columns: ModuleType) -> None:
    payload, base = encoded([(b"k", b"v", [("name", b"\xff\xfe")], 1)])
    broken = payload.replace(b"name", b"n\xff\xe2\x82")
    filled = columns.RecordColumns(("headers",), target_bytes=NO_LIMIT, target_rows=NO_LIMIT)
    filled.begin(broken, 1, BASE, 0, base, None, 0, FOREVER)
    filled.fill()

    assert lists(filled.take().headers, 1) == [(("n\ufffd\ufffd", b"\xff\xfe"),)]


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        (-1, -1_000),
        (0, 0),
        (1 << 62, 9_223_372_036_854_775_000),
        (-(1 << 62), -9_223_372_036_854_775_000),
    ],
)
@pytest.mark.parametrize("appended", [False, True])
def test_times_are_microseconds_as_far_as_there_are_any(
    columns: ModuleType, timestamp: int, expected: int, appended: bool
) -> None:
    payload, _ = encoded([(b"k", b"v", [], 7)])
    filled = columns.RecordColumns(("timestamp",), target_bytes=NO_LIMIT, target_rows=NO_LIMIT)
    base, append_time = (0, timestamp) if appended else (timestamp, None)
    filled.begin(payload, 1, BASE, 0, base, append_time, 0, FOREVER)
    filled.fill()

    assert filled.take().times[0] == expected


def test_lengths_written_with_needless_bytes_are_understood(columns: ModuleType) -> None:
    """No encoder writes 1 as two bytes, but every decoder takes it."""
    body = (
        bytes([0, 0, 0]) + b"\x82\x00k" + b"\x86\x80\x00val" + b"\x82\x00" + b"\x82\x00h\x82\x00v"
    )
    payload = bytes([len(body) * 2]) + body
    filled = columns.RecordColumns(ALL, target_bytes=NO_LIMIT, target_rows=NO_LIMIT)
    filled.begin(payload, 1, BASE, 0, 5, None, 0, FOREVER)
    filled.fill()

    expected = codec.decode_records(payload, 1, BASE, 0, 5, None)
    assert rows_of(filled.take()) == expected == [(BASE, 5, b"k", b"val", (("h", b"v"),))]


@pytest.mark.parametrize("count", [-1, 4, 6, 1 << 31, 1 << 60])
def test_a_batch_that_lies_about_its_records_leaves_the_columns_alone(
    columns: ModuleType, count: int
) -> None:
    payload, base = encoded([(b"k", b"v" * 100, [], 1)] * 5)
    filled = columns.RecordColumns(ALL, target_bytes=NO_LIMIT, target_rows=NO_LIMIT)

    with pytest.raises(CorruptBatchError):
        filled.begin(payload, count, BASE, 4, base, None, 0, FOREVER)
    assert filled.fill()
    assert filled.take().rows == 0


@given(messages_of, st.data())
def test_twins_refuse_alike(messages: list[Message], data: st.DataObject) -> None:
    payload, base = encoded(messages)
    broken = bytearray(payload)
    broken[data.draw(st.integers(0, len(broken) - 1))] = data.draw(st.integers(0, 255))
    count = len(messages)
    try:
        expected: list[Row] | None = codec.decode_records(
            bytes(broken), count, BASE, count - 1, base, None
        )
    except CorruptBatchError:
        expected = None
    for twin in COLUMNS_TWINS:
        filled = twin.RecordColumns(ALL, target_bytes=NO_LIMIT, target_rows=NO_LIMIT)
        if expected is None:
            with pytest.raises(CorruptBatchError):
                filled.begin(broken, count, BASE, count - 1, base, None, 0, FOREVER)
        else:
            filled.begin(broken, count, BASE, count - 1, base, None, 0, FOREVER)
            filled.fill()
            clamped = [
                (row[0], max(min(row[1], 9_223_372_036_854_775), -9_223_372_036_854_775), *row[2:])
                for row in expected
            ]
            assert rows_of(filled.take()) == clamped


def built(
    base: int, messages: Sequence[Message], *, codec: Codec = Codec.NONE, append_time: int = -1
) -> bytes:
    """A batch at offset ``base``; an ``append_time`` is the broker's."""
    builder = BatchBuilder(codec)
    for key, value, headers, timestamp in messages:
        builder.append(key, value, headers, timestamp=timestamp)
    raw = bytearray(builder.build())
    stamp(raw, 0, Offset(base), LeaderEpoch(0))
    if append_time >= 0:
        stamp_append_time(raw, 0, Millis(append_time))
    return bytes(raw)


@given(
    st.lists(st.tuples(messages_of, st.integers(-1, 9), st.integers(0, 2)), max_size=5),
    st.integers(0, 120),
    st.integers(0, 120),
    st.sampled_from([1, 7, NO_LIMIT]),
)
def test_plain_batches_come_together(
    shape: list[tuple[list[Message], int, int]], start: int, end: int, target_rows: int
) -> None:
    window, base, expected, kinds = b"before", 0, [], []
    for messages, append_time, gap in shape:
        window += built(base, messages, append_time=append_time)
        payload, base_timestamp = encoded(messages)
        last = len(messages) - 1
        dated = append_time if append_time >= 0 else None
        rows = codec.decode_records(payload, last + 1, base, last, base_timestamp, dated)
        expected += [row for row in rows if start <= row[0] < end]
        kinds += [0 if dated is None else 1 for row in rows if start <= row[0] < end]
        base += len(messages) + gap
    stop = len(window)
    window += built(base, [(b"other", b"value" * 99, [], 1)], codec=Codec.GZIP)
    for twin in COLUMNS_TWINS:
        filled = twin.RecordColumns(ALL, target_bytes=NO_LIMIT, target_rows=target_rows)

        assert filled.begin_plain(memoryview(window), 6, start, end) == (stop if shape else 6)
        taken = drained(filled)
        assert [row for one in taken for row in rows_of(one)] == expected
        assert [kind for one in taken for kind in one.kinds[: one.rows]] == kinds
        assert filled.begin_plain(memoryview(window), stop, start, end) == stop
        assert filled.fill()
        assert filled.rows == 0


def test_a_plain_batch_that_is_corrupt_is_left_to_be_looked_at(columns: ModuleType) -> None:
    window = bytearray(built(0, [(b"k", b"v", [], 1)]) * 2)
    middle = len(window) // 2
    window[-1] ^= 1
    filled = columns.RecordColumns(ALL, target_bytes=NO_LIMIT, target_rows=NO_LIMIT)

    assert filled.begin_plain(window, 0, 0, FOREVER) == middle
    assert filled.begin_plain(window, middle, 0, FOREVER) == middle
    assert filled.begin_plain(window, len(window) - 3, 0, FOREVER) == len(window) - 3


def test_a_view_into_a_larger_buffer_is_read_in_place(columns: ModuleType) -> None:
    payload, base = encoded([(b"key", b"value", [], 1)] * 3)
    around = memoryview(bytearray(b"before" + payload + b"after"))[6 : 6 + len(payload)]
    filled = columns.RecordColumns(("value",), target_bytes=NO_LIMIT, target_rows=NO_LIMIT)
    filled.begin(around, 3, BASE, 2, base, None, 0, FOREVER)
    filled.fill()

    assert members(filled.take().values, 3) == [b"value"] * 3


def test_buffers_are_filled_again_once_nobody_looks_at_them(columns: ModuleType) -> None:
    filled = begun(columns, [(b"first", None, [], 1)])
    filled.fill()
    first = filled.take()
    views = [memoryview(buffer) for buffer in first.lent]
    before = [bytes(view) for view in views]
    others = []
    for number in range(9):
        payload, base = encoded([(b"other", b"%d" % number, [("h", b"2")], 1)])
        filled.begin(payload, 1, number, 0, base, None, 0, FOREVER)
        filled.fill()
        taken = filled.take()
        assert rows_of(taken) == [(number, 1, b"other", b"%d" % number, (("h", b"2"),))]
        others.append(taken)

    assert [bytes(view) for view in views] == before
    assert rows_of(first) == [(BASE, 1, b"first", None, ())]
    distinct = {id(one.values.content) for one in others}
    assert 1 < len(distinct) < len(others), "buffers that nobody looked at were not used again"


@pytest.mark.parametrize("buffer", [bytearray(b"ab"), array("q", [1, 2])])
def test_memory_comes_back_with_its_last_view(buffer: Any) -> None:
    before = bytes(buffer)
    part = memoryview(buffer)[1:]

    assert not came_back([bytearray(), buffer])

    part.release()
    assert came_back([bytearray(), buffer])
    assert bytes(buffer) == before


def test_a_lender_gives_the_same_memory_to_one_after_the_other() -> None:
    lend = Lender(100)
    first = lend(60)
    second = lend(100)
    first[:] = b"a" * 60
    second[:] = b"b" * 100
    memory = id(first.obj)

    assert bytes(first) == b"a" * 60
    del first
    third = lend(80)
    assert id(third.obj) == memory
    assert len(third) == 80
    assert len(lend(101)) == 101
    assert bytes(second) == b"b" * 100


def test_a_lender_keeps_no_more_than_a_few() -> None:
    lend = Lender(10)
    kept = [lend(10) for _ in range(10)]

    assert len({id(one.obj) for one in kept}) == 10
    assert len(lend._lent) == 3


def test_columns_that_let_go_hold_no_payload(columns: ModuleType) -> None:
    payload, base = encoded([(b"key", b"value", [], 1)] * 3)
    raw = bytearray(payload)
    filled = columns.RecordColumns(ALL, target_bytes=NO_LIMIT, target_rows=2)
    filled.begin(memoryview(raw), 3, BASE, 2, base, None, 0, FOREVER)
    filled.fill()

    assert not came_back([raw])

    filled.let_go()
    assert came_back([raw])
    assert filled.take().rows == 2
    assert filled.fill()
    assert filled.rows == 0
