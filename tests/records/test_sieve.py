"""What compaction leaves of a batch."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.model.errors import CorruptBatchError
from waystation.model.ids import LeaderEpoch, ProducerEpoch, ProducerId
from waystation.model.offsets import NO_TIMESTAMP, Millis, Offset
from waystation.records.batch import BatchBuilder, assemble, records_of
from waystation.records.compression import Codec
from waystation.records.header import (
    DELETE_HORIZON,
    BatchHeader,
    TimestampType,
    check,
    peek,
    stamp,
    stamp_append_time,
)
from waystation.records.keys import KeyMap
from waystation.records.sieve import Places, Sieve, Terms

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
    keys, places = KeyMap(100, bytes(16)), Places()
    for batch in batches:
        header = check(batch)
        count = places.find(batch, header)
        keys.note(places.payload, places.numbers, count, header.base_offset, 0)
    return keys


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
    sieve = Sieve(map_of(batch) if keys is None else keys, terms)
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
    sieve = Sieve(map_of(batch), Terms(END, NOW, DAY_MS, {}))

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

    left = sift(batch)

    assert left is not None
    assert records_of(left) == records_of(batch)
    assert peek(left).delete_horizon == (None if ancient == -(1 << 63) else NOW + DAY_MS)


def test_a_retention_without_end_is_a_horizon_at_the_end_of_time() -> None:
    batch = batch_of((b"a", None))
    sieve = Sieve(map_of(batch), Terms(END, NOW, (1 << 63) - 1, {}))

    left = sieve.sift(batch, peek(batch), must_stay=False)

    assert left is not None
    assert peek(left).delete_horizon == sieve.horizon == (1 << 63) - 1
    assert records_of(left) == records_of(batch)


# --- others ---------------------------------------------------------------------------------


def test_markers_stay() -> None:
    marker = batch_of((b"\0\0\0\0", b"\0\0\0\0\0\0"))
    marker = assemble(peek(marker)._replace(attributes=0x30), marker[61:])
    later = bytearray(marker)
    stamp(later, 0, Offset(500), LeaderEpoch(5))

    assert sift(marker, keys=map_of(bytes(later))) == marker


def test_records_that_contradict_their_header_are_refused() -> None:
    batch = batch_of((b"a", b"1"))
    lying = assemble(peek(batch)._replace(records_count=1 << 30), batch[61:])

    with pytest.raises(CorruptBatchError):
        Places().find(lying, peek(lying))


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
