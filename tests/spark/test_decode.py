"""Fetched batches become Arrow batches: every visible row of the span, once, and nothing else."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.spark.logs import ABORT, COMMIT, batch, emptied, fetched, marker
from waystation.client.raw import Fetched
from waystation.model.errors import CorruptBatchError
from waystation.model.offsets import Millis
from waystation.records.batch import BatchBuilder
from waystation.records.compression import Codec
from waystation.records.header import stamp_append_time
from waystation.records.lending import came_back
from waystation.spark.columns import ARROW
from waystation.spark.decode import TARGET_BYTES, SpanDecoder
from waystation.spark.spans import Span

ALL = tuple(ARROW.names)
EVERYTHING = Span("orders", 3, 0, 1 << 40)


def decoded(
    *answers: Fetched,
    span: Span = EVERYTHING,
    columns: tuple[str, ...] = ALL,
    target_bytes: int = TARGET_BYTES,
    target_rows: int = 1 << 16,
    where: str = "",
) -> list[pa.RecordBatch]:
    decoder = SpanDecoder(columns, span, where, target_bytes=target_bytes, target_rows=target_rows)
    found = [one for answer in answers for one in decoder.decode(answer)]
    found += decoder.rest()
    for one in found:
        one.validate(full=True)
        assert one.schema.equals(pa.schema([ARROW.field(name) for name in columns]))
        assert one.num_rows > 0
    return found


def column(batches: list[pa.RecordBatch], name: str) -> list[object]:
    return [value for one in batches for value in one.column(name).to_pylist()]


@pytest.mark.parametrize("codec", list(Codec))
def test_every_codec_and_every_field(codec: Codec) -> None:
    builder = BatchBuilder(codec)
    builder.append(b"key", b"value" * 50, [("h", b"1"), ("h", None)], timestamp=Millis(1_234))
    builder.append(None, None, timestamp=Millis(-1))
    builder.append(b"", b"", [("", b"")], timestamp=Millis(5))
    (one,) = decoded(fetched(builder.build()))

    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    place = {"topic": "orders", "partition": 3, "timestampType": 0}
    assert one.to_pylist() == [
        place
        | {
            "key": b"key",
            "value": b"value" * 50,
            "offset": 0,
            "timestamp": epoch + timedelta(milliseconds=1_234),
            "headers": [{"key": "h", "value": b"1"}, {"key": "h", "value": None}],
        },
        place
        | {
            "key": None,
            "value": None,
            "offset": 1,
            "timestamp": epoch - timedelta(milliseconds=1),
            "headers": None,
        },
        place
        | {
            "key": b"",
            "value": b"",
            "offset": 2,
            "timestamp": epoch + timedelta(milliseconds=5),
            "headers": [{"key": "", "value": b""}],
        },
    ]


@given(
    st.lists(
        st.tuples(st.integers(1, 8), st.sampled_from(list(Codec)), st.integers(0, 3)),
        min_size=1,
        max_size=8,
    ),
    st.integers(0, 70),
    st.integers(0, 70),
    st.sampled_from([1, 500, 1 << 20]),
    st.integers(1, 40),
    st.data(),
)
def test_however_the_log_is_cut_each_row_of_the_span_comes_once(
    shape: list[tuple[int, Codec, int]],
    start: int,
    end: int,
    target_bytes: int,
    target_rows: int,
    data: st.DataObject,
) -> None:
    raws, at, expected = [], 0, []
    for count, codec, gap in shape:
        raws.append(batch(at, [b"%d" % (at + each) for each in range(count)], codec=codec))
        expected += range(at, at + count)
        at += count + gap  # compaction left a gap
    cut = data.draw(st.integers(0, len(raws)))
    answers = [fetched(b"".join(part)) for part in (raws[:cut], raws[cut:])]
    found = decoded(
        *answers,
        span=Span("orders", 3, start, end),
        target_bytes=target_bytes,
        target_rows=target_rows,
    )

    expected = [offset for offset in expected if start <= offset < end]
    assert column(found, "offset") == expected
    assert column(found, "value") == [b"%d" % offset for offset in expected]
    assert all(one.num_rows <= target_rows for one in found)


def test_arrow_batches_are_of_the_size_that_was_aimed_at() -> None:
    raws = [batch(1_000 * n, [b"x" * 1_000] * 1_000) for n in range(10)]
    found = decoded(fetched(b"".join(raws)))

    assert sum(one.num_rows for one in found) == 10_000
    assert all(TARGET_BYTES // 2 < one.nbytes < 2 * TARGET_BYTES for one in found[:-1])


@pytest.mark.parametrize(
    "columns", [("offset",), ("value", "key"), ("headers",), ("timestamp", "topic"), ALL[::-1]]
)
def test_only_the_columns_asked_for_come_in_the_order_asked_for(columns: tuple[str, ...]) -> None:
    (one,) = decoded(fetched(batch(0, [b"a", None])), columns=columns)

    assert tuple(one.schema.names) == columns
    assert one.num_rows == 2


def test_log_append_time_dates_every_record() -> None:
    raw = batch(0, [b"a", b"b"])
    stamp_append_time(raw, 0, Millis(77_000))
    (one,) = decoded(fetched(raw))

    assert one.column("timestampType").to_pylist() == [1, 1]
    assert set(one.column("timestamp").cast(pa.int64()).to_pylist()) == {77_000_000}


def test_aborted_transactions_and_markers_are_not_shown() -> None:
    log = [
        batch(0, [b"plain"]),
        batch(1, [b"aborted"], producer=5),
        batch(2, [b"kept"], producer=6),
        marker(3, 5, ABORT),
        batch(4, [b"second try"], producer=5),
        marker(5, 5, COMMIT),
        marker(6, 6, COMMIT),
        batch(7, [b"last"]),
    ]
    raw = b"".join(log)

    assert column(decoded(fetched(raw, aborted=[(5, 1)])), "offset") == [0, 2, 4, 7]
    assert column(decoded(fetched(raw)), "offset") == [0, 1, 2, 4, 7]  # read_uncommitted


def test_a_transaction_aborted_in_a_later_answer_is_hidden_in_both() -> None:
    first = fetched(batch(0, [b"a"], producer=5), aborted=[(5, 0)])
    second = fetched(
        batch(1, [b"b"], producer=5) + marker(2, 5, ABORT) + batch(3, [b"c"], producer=5),
        aborted=[(5, 0)],
    )

    assert column(decoded(first, second), "offset") == [3]


def test_batches_that_compaction_emptied_are_passed_over() -> None:
    raw = emptied(batch(0, [b"a", b"b"], codec=Codec.ZSTD)) + batch(2, [b"c"])

    assert column(decoded(fetched(raw)), "offset") == [2]


def test_what_comes_before_the_offset_asked_for_is_not_shown() -> None:
    """A batch comes whole, though its first records were deleted meanwhile."""
    assert column(decoded(fetched(batch(0, [b"a"] * 9), at=6)), "offset") == [6, 7, 8]


def test_a_corrupt_batch_names_its_place_and_shows_nothing() -> None:
    raw = batch(4, [b"good"]) + batch(5, [b"bad"])
    raw[-1] ^= 1

    with pytest.raises(CorruptBatchError, match=r"orders-3 at offset 5.*begin at 6"):
        decoded(fetched(raw))


def test_rows_do_not_share_memory_with_the_answer() -> None:
    raw = bytearray(batch(0, [b"value"]))
    answer = fetched(raw)
    (one,) = decoded(answer._replace(records=memoryview(raw)))
    raw[:] = bytes(len(raw))

    assert one.column("value").to_pylist() == [b"value"]


def test_an_answer_that_was_decoded_is_not_held() -> None:
    raw = bytearray(batch(0, [b"value"] * 9))
    decoder = SpanDecoder(ALL, EVERYTHING)
    for answer in (fetched(raw), fetched(raw)):
        view = memoryview(raw)
        list(decoder.decode(answer._replace(records=view)))
        view.release()
        assert came_back([raw])


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_only_rows_that_a_filter_chooses_are_shown(codec: Codec) -> None:
    builder = BatchBuilder(codec)
    for number in range(100):
        builder.append(b"%d" % number, b'{"n": %d}' % number, timestamp=Millis(number))
    batches = decoded(
        fetched(builder.build()), where="value.n >= 97 AND partition = 3 OR key = '5'"
    )

    assert column(batches, "offset") == [5, 97, 98, 99]
    assert decoded(fetched(builder.build()), where="partition = 0") == []


def test_a_filter_believes_no_batch_that_is_damaged() -> None:
    builder = BatchBuilder()
    builder.append(b"k", b"value", timestamp=Millis(1))
    batch = bytearray(builder.build())
    batch[-1] ^= 1

    with pytest.raises(CorruptBatchError, match="partition orders-3 from offset 0 on: batch at"):
        decoded(fetched(bytes(batch)), where="FALSE")
