"""What compaction leaves of a batch."""

from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.model.errors import CorruptBatchError
from waystation.model.ids import LeaderEpoch, ProducerEpoch, ProducerId
from waystation.model.offsets import NO_TIMESTAMP, Millis, Offset
from waystation.records.batch import BatchBuilder, assemble, records_of
from waystation.records.compression import Codec
from waystation.records.control import Marker, marker_batch, read_marker
from waystation.records.endings import Aborted, Endings
from waystation.records.header import (
    DELETE_HORIZON,
    BatchHeader,
    Buffer,
    TimestampType,
    check,
    peek,
    stamp,
    stamp_append_time,
)
from waystation.records.keys import KeyMap
from waystation.records.sieve import KeyNotes, Sieve, Terms

NOW = Millis(1_700_000_000_000)
DAY_MS = 86_400_000
BASE = Offset(100)
END = Offset(1 << 40)

Row = tuple[bytes | None, bytes | None]


def batch_of(*rows: Row, codec: Codec = Codec.NONE, times: tuple[int, ...] = ()) -> bytes:
    builder = BatchBuilder(codec, ProducerId(7), ProducerEpoch(3), 40)
    for number, (key, value) in enumerate(rows):
        timestamp = times[number] if times else NOW - 10 * number
        builder.append(key, value, [("h", b"v")], timestamp=timestamp)
    batch = bytearray(builder.build())
    stamp(batch, 0, BASE, LeaderEpoch(5))
    return bytes(batch)


def map_of(*batches: bytes) -> KeyMap:
    keys = KeyMap(100, bytes(16))
    notes = KeyNotes(keys, Offset(0))
    for batch in batches:
        assert notes.take(memoryview(batch)) == len(batch)
    assert notes.full_at is None
    return keys


def no_one(*_: object) -> None:
    raise AssertionError("kept")


def sift(
    batch: bytes,
    *,
    keys: KeyMap | None = None,
    upto: int = END,
    now: int = NOW,
    must_stay: bool = False,
    last_of: dict[ProducerId, Offset] | None = None,
) -> bytes | None:
    terms = Terms(Offset(upto), Millis(now), DAY_MS, last_of or {})
    sieve = Sieve(map_of(batch) if keys is None else keys, terms, no_one)
    left = sieve.sift(batch, peek(batch), must_stay=must_stay)
    if left is not None:
        check(left)
    return None if left is None else bytes(left)


def kept_fields(header: BatchHeader) -> tuple[object, ...]:
    return (
        header.base_offset,
        header.last_offset,
        header.partition_leader_epoch,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.codec,
        header.timestamp_type,
    )


@pytest.mark.parametrize("codec", Codec)
def test_the_last_record_of_each_key_stays_as_it_was(codec: Codec) -> None:
    batch = batch_of((b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"c", b"4" * 200), codec=codec)

    left = sift(batch)

    assert left is not None
    assert records_of(left) == records_of(batch)[1:]
    assert kept_fields(peek(left)) == kept_fields(peek(batch))
    assert peek(left).max_timestamp == NOW - 10


def test_a_batch_of_which_nothing_goes_is_itself() -> None:
    batch = batch_of((b"a", b"1"), (b"b", b"2"))
    view = memoryview(batch)
    sieve = Sieve(map_of(batch), Terms(END, NOW, DAY_MS, {}), no_one)

    assert sieve.sift(view, peek(view), must_stay=False) is view


def test_what_the_map_does_not_reach_stays() -> None:
    batch = batch_of((b"a", b"1"), (b"a", b"2"), (b"a", b"3"))

    left = sift(batch, upto=BASE + 2)

    assert left is not None
    assert [one.value for one in records_of(left)] == [b"3"]
    keys = map_of(batch_of((b"a", b"1"), (b"a", b"2")))
    left = sift(batch, keys=keys, upto=BASE + 2)
    assert left is not None
    assert [one.value for one in records_of(left)] == [b"2", b"3"]


def test_records_without_a_key_go() -> None:
    left = sift(batch_of((None, b"1"), (b"a", b"2")))

    assert left is not None
    assert [one.key for one in records_of(left)] == [b"a"]


# --- batches without records ----------------------------------------------------------------


def test_a_batch_without_records_goes() -> None:
    batch = batch_of((b"a", b"1"))
    later = bytearray(batch)
    stamp(later, 0, Offset(500), LeaderEpoch(5))

    assert sift(batch, keys=map_of(bytes(later))) is None


@pytest.mark.parametrize("why", [{"must_stay": True}, {"last_of": {7: BASE}}])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_one_that_is_needed_stays_as_a_header(why: dict[str, object], codec: Codec) -> None:
    batch = batch_of((b"a", b"1" * 500), codec=codec)
    later = bytearray(batch)
    stamp(later, 0, Offset(500), LeaderEpoch(5))

    left = sift(batch, keys=map_of(bytes(later)), **why)  # type: ignore[arg-type]

    assert left is not None
    assert len(left) == 61
    header, before = peek(left), peek(batch)
    assert records_of(left) == []
    assert kept_fields(header)[:6] == kept_fields(before)[:6]
    assert (header.codec, header.records_count) == (Codec.NONE, 0)
    assert (header.base_timestamp, header.max_timestamp) == (NO_TIMESTAMP, NOW)
    assert header.newest_timestamp == NO_TIMESTAMP
    assert sift(left, keys=map_of(), **why) == left  # type: ignore[arg-type]
    assert sift(left, keys=map_of()) is None


# --- tombstones -----------------------------------------------------------------------------


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_tombstone_stays_until_its_horizon(codec: Codec) -> None:
    batch = batch_of((b"a", b"1"), (b"b", None), (b"b", None), codec=codec)

    dated = sift(batch)

    assert dated is not None
    assert peek(dated).attributes & DELETE_HORIZON
    assert peek(dated).delete_horizon == peek(dated).base_timestamp == NOW + DAY_MS
    assert records_of(dated) == [records_of(batch)[0], records_of(batch)[2]]
    assert kept_fields(peek(dated)) == kept_fields(peek(batch))
    assert sift(dated, now=NOW + DAY_MS - 1) == dated

    left = sift(dated, now=NOW + DAY_MS)

    assert left is not None
    assert records_of(left) == records_of(batch)[:1]
    assert peek(left).delete_horizon == NOW + DAY_MS


def test_a_tombstone_is_not_dated_before_all_it_deletes_is_known() -> None:
    batch = batch_of((b"a", None), (b"b", b"2"))

    assert sift(batch, keys=map_of(batch_of((b"a", None))), upto=BASE + 1) == batch


def test_the_broker_s_time_of_records_is_kept() -> None:
    batch = bytearray(batch_of((b"a", b"1"), (b"b", None), (b"a", b"3")))
    stamp_append_time(batch, 0, Millis(NOW + 55))

    left = sift(bytes(batch))

    assert left is not None
    assert peek(left).timestamp_type is TimestampType.LOG_APPEND_TIME
    assert [one.timestamp for one in records_of(left)] == [NOW + 55] * 2


@pytest.mark.parametrize("ancient", [-(1 << 63), -(1 << 62)])
def test_a_tombstone_of_no_time_that_can_be_told_stays_undated(ancient: int) -> None:
    honest = peek(batch_of((b"a", None), times=(0,)))
    batch = assemble(
        honest._replace(base_timestamp=Millis(ancient), max_timestamp=Millis(ancient)),
        batch_of((b"a", None), times=(0,))[61:],
    )

    sieve = Sieve(map_of(batch), Terms(END, NOW, DAY_MS, {}), no_one)
    left = sieve.sift(batch, peek(batch), must_stay=False)

    assert left is not None
    assert records_of(left) == records_of(batch)
    horizon = None if ancient == -(1 << 63) else NOW + DAY_MS
    assert peek(left).delete_horizon == sieve.horizon == horizon
    assert (left is batch) == (horizon is None), "it would be written anew with every pass"


def test_a_retention_without_end_is_a_horizon_at_the_end_of_time() -> None:
    batch = batch_of((b"a", None))
    sieve = Sieve(map_of(batch), Terms(END, NOW, (1 << 63) - 1, {}), no_one)

    left = sieve.sift(batch, peek(batch), must_stay=False)

    assert left is not None
    assert peek(left).delete_horizon == sieve.horizon == (1 << 63) - 1
    assert records_of(left) == records_of(batch)


# --- transactions ---------------------------------------------------------------------------


class Span(NamedTuple):
    """An aborted transaction."""

    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset


def written(*rows: Row, at: int, producer: int = 7) -> bytes:
    builder = BatchBuilder(
        producer_id=ProducerId(producer),
        producer_epoch=ProducerEpoch(3),
        base_sequence=40,
        is_transactional=True,
    )
    for key, value in rows:
        builder.append(key, value, timestamp=NOW)
    batch = bytearray(builder.build())
    stamp(batch, 0, Offset(at), LeaderEpoch(5))
    return bytes(batch)


def marker(*, at: int, producer: int = 7, commit: bool = True) -> bytes:
    batch = marker_batch(Marker(ProducerId(producer), ProducerEpoch(3), 1, commit), NOW)
    stamp(batch, 0, Offset(at), LeaderEpoch(5))
    return bytes(batch)


class Pass:
    """One pass over whole batches."""

    def __init__(
        self,
        *batches: bytes,
        aborted: Sequence[Span] = (),
        now: int = NOW,
        must_stay: bool = False,
        last_of: dict[ProducerId, Offset] | None = None,
    ) -> None:
        self.left: list[bytes] = []
        window = b"".join(batches)
        keys = KeyMap(100, bytes(16))
        spans = Aborted(aborted)
        KeyNotes(keys, Offset(0), spans).take(memoryview(window))
        terms = Terms(END, Millis(now), DAY_MS, last_of or {})
        self.sieve = Sieve(keys, terms, self._keep, Endings(spans))
        taken = self.sieve.take(memoryview(window), len(window) if must_stay else -1)
        assert taken == len(window)

    def _keep(self, content: Buffer, *_: object) -> None:
        check(bytes(content))
        self.left.append(bytes(content))

    @property
    def offsets(self) -> list[int]:
        return [peek(one).base_offset for one in self.left]


ABORTED = Span(ProducerId(7), Offset(1), Offset(3))


def test_an_aborted_record_goes_and_nothing_gives_way_to_it() -> None:
    first = written((b"k", b"committed"), at=0, producer=8)
    taken_back = written((b"k", b"taken back"), at=1)
    ends = (marker(at=2, producer=8), marker(at=3, commit=False))

    done = Pass(first, taken_back, *ends, aborted=[ABORTED])

    assert done.left == [first, *ends]
    assert done.sieve.needed_markers == {2, 3}
    assert done.sieve.horizon is None


def test_others_of_the_same_producer_count() -> None:
    before, after = written((b"a", b"1"), at=0), written((b"b", b"2"), at=4)
    plain = batch_of((b"c", b"3"))
    batches = (before, written((b"a", b"2"), at=1), marker(at=3, commit=False), after, plain)

    done = Pass(*batches, aborted=[ABORTED])

    assert done.offsets == [0, 3, 4, BASE]


def test_the_last_batch_of_a_producer_stays_as_a_header_and_its_marker_with_it() -> None:
    batches = written((b"k", b"v"), at=1), marker(at=3, commit=False)

    done = Pass(*batches, aborted=[ABORTED], last_of={ProducerId(7): Offset(1)})
    again = Pass(*done.left, aborted=[ABORTED], last_of={ProducerId(7): Offset(1)})

    assert [peek(one).records_count for one in done.left] == [0, 1]
    assert again.left == done.left


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_without_its_transaction_is_dated_and_then_goes(commit: bool) -> None:
    alone = marker(at=9, commit=commit)

    dated = Pass(alone)
    (left,) = dated.left
    waiting = Pass(left, now=NOW + DAY_MS - 1)
    gone = Pass(left, now=NOW + DAY_MS)

    assert peek(left).delete_horizon == dated.sieve.horizon == NOW + DAY_MS
    assert read_marker(left) == read_marker(alone)
    assert records_of(left)[0].timestamp == peek(left).max_timestamp == NOW
    assert (waiting.left, waiting.sieve.horizon) == ([left], NOW + DAY_MS)
    assert not waiting.sieve.changed
    assert gone.left == []
    assert not dated.sieve.needed_markers


def test_a_dated_marker_stays_if_its_transaction_is_there_after_all() -> None:
    (dated,) = Pass(marker(at=9)).left

    assert Pass(written((b"k", b"v"), at=8), dated, now=NOW + 9 * DAY_MS).offsets == [8, 9]


def test_a_marker_at_a_segments_end_leaves_its_header() -> None:
    (dated,) = Pass(marker(at=9)).left
    (left,) = Pass(dated, now=NOW + DAY_MS, must_stay=True).left

    assert peek(left).records_count == 0
    assert peek(left).next_offset == 10
    assert read_marker(left) is None
    assert Pass(left, now=NOW + DAY_MS, must_stay=True).left == [left]
    assert Pass(left, now=NOW + DAY_MS).left == []


def test_endings_can_be_gone_through_again() -> None:
    endings = Endings()
    endings.took_back(peek(written((b"k", b"v"), at=1)))
    end = peek(marker(at=2))

    assert endings.copy().needs(end)
    assert endings.copy().needs(end)
    assert endings.needs(end)
    assert not endings.needs(end)


def test_control_batches_of_other_kinds_stay() -> None:
    another = batch_of((b"\0\0\0\5", b"\0\0\0\0\0\0"))
    another = assemble(peek(another)._replace(attributes=0x20), another[61:])

    assert sift(another) == another


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=30))
def test_a_batch_is_aborted_if_a_span_of_its_producer_holds_it(
    steps: list[tuple[int, int]],
) -> None:
    """Step 0 aborts, 1 commits, others write."""
    spans, opened, expected = [], dict[int, int](), dict[int, bool]()
    batches: dict[int, tuple[int, int]] = {}
    for offset, (producer, what) in enumerate(steps):
        if what > 1:
            begun = opened.setdefault(producer, offset)
            batches[offset] = (producer, begun)
        elif producer in opened:
            begun = opened.pop(producer)
            if what == 0:
                spans.append(Span(ProducerId(producer), Offset(begun), Offset(offset)))
            expected.update({at: what == 0 for at in batches if batches[at] == (producer, begun)})
    aborted = Aborted(spans[::-1])

    for at, (producer, _) in batches.items():
        found = aborted.holds(peek(written((b"k", b"v"), at=at, producer=producer)))
        assert found == expected.get(at, False)


# --- others ---------------------------------------------------------------------------------


def test_records_that_contradict_their_header_are_refused() -> None:
    batch = batch_of((b"a", b"1"))
    lying = assemble(peek(batch)._replace(records_count=1 << 30), batch[61:])

    with pytest.raises(CorruptBatchError):
        map_of(lying)
    with pytest.raises(CorruptBatchError):
        sift(lying, keys=map_of())


rows = st.lists(
    st.tuples(st.sampled_from([b"a", b"b", b"c"]), st.none() | st.binary(max_size=3)),
    min_size=1,
    max_size=12,
)


@given(rows, st.sampled_from([Codec.NONE, Codec.GZIP]), st.integers(0, 13))
def test_sifting_again_changes_nothing(
    rows: list[tuple[bytes, bytes | None]], codec: Codec, upto: int
) -> None:
    batch = batch_of(*rows, codec=codec)
    keys = map_of(batch)
    once = sift(batch, keys=keys, upto=BASE + upto)

    assert once is None or sift(once, keys=keys, upto=BASE + upto) == once


# --- windows --------------------------------------------------------------------------------

kinds = st.sampled_from(
    ["plain", "plain", "plain", "lz4", "marker", "empty", "dated", "append time"]
)
stretches = st.lists(st.tuples(kinds, rows, st.sampled_from([-1, 7, 8])), min_size=1, max_size=12)


def stretch_of(parts: list[tuple[str, list[tuple[bytes, bytes | None]], int]]) -> list[bytes]:
    """Batches one behind the other, of all kinds that a log may hold."""
    batches, offset = [], 0
    for kind, rows, producer in parts:
        builder = BatchBuilder(
            Codec.LZ4 if kind == "lz4" else Codec.NONE, ProducerId(producer), ProducerEpoch(0), 0
        )
        for key, value in rows:
            builder.append(key, value, timestamp=NOW - len(rows))
        batch = bytearray(builder.build())
        header = peek(batch)
        if kind == "marker":
            batch = bytearray(assemble(header._replace(attributes=0x30), batch[61:]))
        elif kind == "empty":
            batch = bytearray(assemble(header._replace(records_count=0), b""))
        elif kind == "dated":
            dated = header._replace(attributes=DELETE_HORIZON, base_timestamp=Millis(NOW - 5))
            batch = bytearray(assemble(dated, batch[61:]))
        elif kind == "append time":
            stamp_append_time(batch, 0, NOW)
        stamp(batch, 0, Offset(offset), LeaderEpoch(0))
        offset += len(rows)
        batches.append(bytes(batch))
    return batches


@given(stretches, st.integers(0, 150), st.integers(0, 200), st.booleans(), st.integers(0, 100))
def test_many_batches_are_sifted_as_each_by_itself(
    parts: list[tuple[str, list[tuple[bytes, bytes | None]], int]],
    upto: int,
    missing: int,
    ends: bool,
    known: int,
) -> None:
    batches = stretch_of(parts)
    last_of = {ProducerId(7): Offset(known), ProducerId(8): Offset(-1)}
    terms = Terms(Offset(upto), NOW, DAY_MS, last_of)
    keys = map_of(*batches)
    alone, expected = Sieve(keys, terms, no_one), []
    whole = b"".join(batches)
    window = whole[: len(whole) - missing]
    inside = [
        one for n, one in enumerate(batches) if len(b"".join(batches[: n + 1])) <= len(window)
    ]
    for number, batch in enumerate(inside):
        must_stay = ends and number == len(inside) - 1
        left = alone.sift(batch, peek(batch), must_stay=must_stay)
        if left is not None:
            newest = peek(left).newest_timestamp
            expected.append((bytes(left), batch, peek(batch).last_offset, newest))
    found: list[tuple[bytes, bytes, int, int]] = []
    sieve = Sieve(
        keys, terms, lambda left, batch, *rest: found.append((bytes(left), bytes(batch), *rest))
    )
    used = len(b"".join(inside))

    assert sieve.take(memoryview(window), used if ends else -1) == used
    assert found == expected
    assert sieve.changed is ([left for left, *_ in found] != inside)
    assert sieve.horizon == alone.horizon


@given(stretches, st.integers(4, 12))
def test_many_batches_are_noted_as_each_by_itself(
    parts: list[tuple[str, list[tuple[bytes, bytes | None]], int]], slots: int
) -> None:
    batches = stretch_of(parts)
    together = KeyNotes(KeyMap(slots, bytes(16)), Offset(3))
    together.take(memoryview(b"".join(batches)))
    by_itself = KeyNotes(KeyMap(slots, bytes(16)), Offset(3))
    for batch in batches:
        by_itself.take(memoryview(batch))

    assert together.full_at == by_itself.full_at
    assert together._keys.count == by_itself._keys.count


@pytest.mark.parametrize("at", [12, 30, 100, -3])
def test_nothing_that_does_not_match_its_checksum_is_believed(at: int) -> None:
    batches = [batch_of((b"a", b"1" * 50), (b"b", b"2")), batch_of((b"c", b"3"))]
    damaged = bytearray(b"".join(batches))
    damaged[at] ^= 1
    keys = map_of()

    if at == 12:  # the leader epoch is outside the checksum
        assert KeyNotes(keys, Offset(0)).take(memoryview(damaged)) == len(damaged)
        return
    with pytest.raises(CorruptBatchError):
        KeyNotes(keys, Offset(0)).take(memoryview(damaged))
    with pytest.raises(CorruptBatchError):
        Sieve(keys, Terms(END, NOW, DAY_MS, {}), lambda *_: None).take(memoryview(damaged), -1)
