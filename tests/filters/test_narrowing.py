"""What a view serves of its source."""

from types import ModuleType

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.soak import count
from waystation.filters.gaps import Gaps
from waystation.filters.narrowing import Narrowed, Narrowing, Stretch, empty_batch
from waystation.filters.selecting import Filter
from waystation.model.errors import CorruptBatchError
from waystation.model.ids import LeaderEpoch, ProducerEpoch, ProducerId
from waystation.model.offsets import Millis, Offset
from waystation.records.batch import BatchBuilder, Record, assemble, records_of
from waystation.records.compression import Codec
from waystation.records.control import Marker, marker_batch
from waystation.records.header import BatchHeader, batches, check, peek, stamp, stamp_append_time

YES = b"yes"
EPOCH = LeaderEpoch(5)


def placed(batch: bytes | bytearray, base: int, epoch: int = EPOCH) -> bytes:
    batch = bytearray(batch)
    stamp(batch, 0, Offset(base), LeaderEpoch(epoch))
    return bytes(batch)


def batch_of(
    keys: str,
    base: int = 0,
    codec: Codec = Codec.NONE,
    *,
    producer: int = 7,
    transactional: bool = False,
    appended: int | None = None,
) -> bytes:
    """A record for each letter; y is one that matches."""
    builder = BatchBuilder(
        codec, ProducerId(producer), ProducerEpoch(3), 40, is_transactional=transactional
    )
    for number, letter in enumerate(keys):
        key = YES if letter == "y" else b"no"
        value = None if number % 3 == 2 else b"v%d" % number
        builder.append(key, value, [("h", b"%d" % number)], timestamp=1_000 - number)
    batch = bytearray(builder.build())
    if appended is not None:
        stamp_append_time(batch, 0, Millis(appended))
    return placed(batch, base)


def marker(base: int, *, committed: bool, producer: int = 7) -> bytes:
    what = Marker(ProducerId(producer), ProducerEpoch(3), 1, committed)
    return placed(marker_batch(what, Millis(5)), base)


def narrowed(*source: bytes) -> Narrowed:
    return Narrowing(Filter("key = 'yes'"), 0).take(b"".join(source))


def shown(data: bytes) -> list[Record]:
    return [
        record
        for at, header in batches(data)
        if not header.is_control
        for record in records_of(data, at)
    ]


def kept_fields(header: BatchHeader) -> tuple[object, ...]:
    return (
        header.base_offset,
        header.last_offset_delta,
        header.partition_leader_epoch,
        header.attributes,
        header.base_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
    )


# --- one batch ------------------------------------------------------------------------------


@pytest.mark.usefixtures("picking")
@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize("appended", [None, 77])
def test_a_batch_keeps_its_fields_and_loses_records(
    codec: Codec, transactional: bool, appended: int | None
) -> None:
    batch = batch_of("nynny", 10, codec, transactional=transactional, appended=appended)

    left = narrowed(batch).data

    header = check(left)
    assert header.size_bytes == len(left)
    assert kept_fields(header) == kept_fields(peek(batch))
    assert records_of(left) == [one for one in records_of(batch) if one.key == YES]
    assert header.records_count == 2
    assert header.max_timestamp == (999 if appended is None else appended)


@pytest.mark.usefixtures("picking")
def test_a_batch_that_loses_nothing_stays_byte_for_byte() -> None:
    batch = batch_of("yyy", 10, Codec.GZIP)

    assert narrowed(batch).parts == [batch]


@pytest.mark.usefixtures("picking")
@pytest.mark.parametrize("transactional", [False, True])
def test_a_batch_that_loses_all_becomes_one_without_records(transactional: bool) -> None:
    left = narrowed(batch_of("nnn", 10, transactional=transactional))

    header = check(left.data)
    assert (header.base_offset, header.last_offset, header.records_count) == (10, 12, 0)
    assert header.partition_leader_epoch == EPOCH
    assert header.producer_id == -1
    assert left.end == 13
    assert left.stretches == [Stretch(Offset(10), Offset(13))]


def test_between_matches_nothing_is_left() -> None:
    first, last = batch_of("y", 10), batch_of("y", 40)

    left = narrowed(first, batch_of("nn", 11), batch_of("nnn", 13, Codec.LZ4), last)

    assert left.data == first + last
    assert left.stretches == [Stretch(Offset(11), Offset(40))]
    assert (left.records, left.matches) == (7, 2)


def test_what_compaction_took_out_before_it_belongs_to_a_stretch() -> None:
    left = narrowed(batch_of("y", 10), batch_of("nn", 20), batch_of("y", 30))

    assert left.stretches == [Stretch(Offset(11), Offset(30))]


def test_behind_the_last_match_one_empty_batch_ends_where_the_source_does() -> None:
    left = narrowed(batch_of("y", 10), batch_of("nn", 11), batch_of("nnn", 13))

    last = [header for _, header in batches(left.data)][-1]
    assert (last.records_count, last.base_offset, last.next_offset) == (0, 11, 16)


def test_an_empty_batch_of_the_source_is_passed() -> None:
    header = peek(batch_of("nn", 10))
    emptied = assemble(header._replace(records_count=0), b"")

    left = narrowed(emptied, batch_of("y", 12))

    assert left.data == batch_of("y", 12)


def test_a_stretch_may_be_longer_than_a_batch_can_be() -> None:
    header = check(empty_batch(Offset(5), Offset(5 + (1 << 40)), EPOCH))

    assert header.next_offset == 5 + (1 << 40)
    assert header.last_offset_delta == (1 << 31) - 1


def test_half_a_batch_at_the_end_is_left_for_the_next_window() -> None:
    first, second = batch_of("y", 0), batch_of("yy", 1)

    left = narrowed(first, second[:-1])

    assert left.taken_bytes == len(first)
    assert left.data == first
    assert left.end == 1


def test_an_empty_window_is_nothing() -> None:
    left = narrowed()

    assert (left.data, left.taken_bytes, left.end) == (b"", 0, None)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_no_batch_is_believed_that_does_not_match_its_checksum(codec: Codec) -> None:
    batch = bytearray(batch_of("yyn", 0, codec))
    batch[-2] ^= 1

    with pytest.raises(CorruptBatchError):
        narrowed(bytes(batch))


# --- transactions ---------------------------------------------------------------------------


def test_the_marker_of_an_aborted_transaction_stays() -> None:
    marks = marker(13, committed=False)

    left = narrowed(batch_of("nyn", 10, transactional=True), marks, batch_of("nn", 14))

    assert marks in left.parts
    assert left.stretches == [Stretch(Offset(14), Offset(16))]


def test_the_marker_of_a_committed_transaction_goes() -> None:
    left = narrowed(
        batch_of("nyn", 10, transactional=True), marker(13, committed=True), batch_of("nn", 14)
    )

    assert not any(header.is_control for _, header in batches(left.data))
    assert left.stretches == [Stretch(Offset(13), Offset(16))]


def test_control_batches_of_other_kinds_stay() -> None:
    builder = BatchBuilder(Codec.NONE, ProducerId(7), ProducerEpoch(3), 40)
    builder.append(b"\x00\x00\x00\x07", b"what a later version means", timestamp=5)
    plain = placed(builder.build(), 10)
    other = assemble(peek(plain)._replace(attributes=0x20), memoryview(plain)[61:])

    assert narrowed(other).parts == [other]


# --- logs -----------------------------------------------------------------------------------

_batches = st.lists(
    st.tuples(
        st.text("ynn", min_size=1, max_size=6),
        st.sampled_from([Codec.NONE, Codec.NONE, Codec.NONE, Codec.LZ4]),
        st.booleans(),
        st.integers(0, 3),
        st.sampled_from(["", "", "", "commit", "abort"]),
    ),
    max_size=12,
)


def log_of(parts: list[tuple[str, Codec, bool, int, str]]) -> bytes:
    """Batches with gaps between them, some in transactions, some ended by markers."""
    out, offset = b"", 0
    for keys, codec, transactional, gap, ending in parts:
        out += batch_of(keys, offset + gap, codec, transactional=transactional)
        offset += gap + len(keys)
        if ending:
            out += marker(offset, committed=ending == "commit")
            offset += 1
    return out


@settings(max_examples=count(80, 10_000), deadline=None, suppress_health_check=list(HealthCheck))
@given(_batches, st.lists(st.integers(61, 400), max_size=4))
def test_a_view_is_its_source_without_what_does_not_match(
    parts: list[tuple[str, Codec, bool, int, str]], windows: list[int]
) -> None:
    """However the source is cut into windows."""
    source = log_of(parts)
    narrowing, gaps = Narrowing(Filter("key = 'yes'"), 0), Gaps()
    view, at = b"", 0
    for size_bytes in [*windows, len(source)]:
        left = narrowing.take(source[at : at + size_bytes])
        whole = source[at : at + left.taken_bytes]
        ends = [header.next_offset for _, header in batches(whole)]
        at += left.taken_bytes
        view += left.data
        for one in left.stretches:
            gaps.note(one)

        assert left.end == (ends[-1] if ends else None)
        if ends:
            assert [header.next_offset for _, header in batches(left.data)][-1] == ends[-1]

    assert at == len(source)
    matching = [one for one in shown(source) if one.key == YES]
    assert shown(view) == matching
    headers = [check(view, position) for position, _ in batches(view)]
    assert [one.base_offset for one in headers] == sorted(one.base_offset for one in headers)
    aborts = [
        one.offset
        for position, header in batches(source)
        if header.is_control
        for one in records_of(source, position)
        if one.key == b"\x00\x00\x00\x00"
    ]
    assert [one.base_offset for one in headers if one.is_control] == aborts
    for offset in (*(one.offset for one in matching), *aborts):
        assert gaps.behind(offset) == offset, "what matters lies in a stretch without a match"


@settings(max_examples=count(20, 2_000), deadline=None, suppress_health_check=list(HealthCheck))
@given(_batches)
def test_what_was_narrowed_stays_as_it_is(parts: list[tuple[str, Codec, bool, int, str]]) -> None:
    once = narrowed(log_of(parts)).data

    assert shown(narrowed(once).data) == shown(once)


def test_more_records_than_are_located_at_once(picking: ModuleType) -> None:
    letters = ("n" * 99 + "y") * 60
    source = b"".join(
        batch_of(letters[start : start + 50], start) for start in range(0, len(letters), 50)
    )

    left = narrowed(source)

    assert left.matches == 60
    assert [one.offset for one in shown(left.data)] == list(range(99, 6_000, 100))
