from contextlib import suppress

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from tests.records.messages import SAMPLE, build
from waystation.model.errors import (
    CorruptBatchError,
    ErrorCode,
    InvalidRecordError,
    InvalidTimestampError,
)
from waystation.model.ids import LeaderEpoch, ProducerEpoch, ProducerId
from waystation.model.offsets import Millis, Offset
from waystation.records.batch import BatchBuilder, records_of
from waystation.records.compression import Codec
from waystation.records.header import (
    HEADER,
    HEADER_BYTES,
    BatchHeader,
    TimestampType,
    batches,
    check,
    check_produced,
    peek,
    stamp,
    stamp_append_time,
)

BATCH = build(SAMPLE)


def altered(batch: bytes = BATCH, **fields: int) -> bytes:
    """The batch with other header fields and a checksum that is right for them."""
    header = peek(batch)._replace(**fields)
    out = bytearray(HEADER.pack(*header) + batch[HEADER_BYTES:])
    crc = fields.get("crc", crc32c(memoryview(out)[21:]))
    return HEADER.pack(*header._replace(crc=crc)) + batch[HEADER_BYTES:]


def test_header_has_61_bytes_and_all_13_fields() -> None:
    header = BatchHeader._make((1, 2, 3, 2, *range(5, 14)))

    assert HEADER_BYTES == 61
    assert peek(HEADER.pack(*header)) == header


def test_header_says_what_follows_from_its_fields() -> None:
    header = peek(altered(base_offset=100, last_offset_delta=5, attributes=0x3C))

    assert header.size_bytes == len(BATCH)
    assert (header.last_offset, header.next_offset) == (105, 106)
    assert header.codec is Codec.ZSTD
    assert header.is_transactional
    assert header.is_control
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert header.timestamp_type == "LogAppendTime"


def test_plain_header_has_no_flags() -> None:
    header = peek(BATCH)

    assert header.codec is Codec.NONE
    assert not header.is_transactional
    assert not header.is_control
    assert header.timestamp_type == "CreateTime"


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_check_accepts_a_whole_batch_anywhere_in_a_buffer(kind: type) -> None:
    buffer = kind(b"before" + BATCH + b"after")

    assert check(buffer, 6) == peek(BATCH)


@given(st.integers(0, len(BATCH) - 1))
def test_check_refuses_a_batch_that_is_cut_off(size: int) -> None:
    with pytest.raises(CorruptBatchError):
        check(BATCH[:size])


@given(st.integers(16, len(BATCH) - 1), st.integers(1, 255))
def test_check_refuses_any_changed_byte_after_the_leader_epoch(at: int, change: int) -> None:
    broken = bytearray(BATCH)
    broken[at] ^= change

    with pytest.raises(CorruptBatchError):
        check(broken)


@pytest.mark.parametrize("length", [-(1 << 31), -1, 0, 48, len(BATCH) - 11, (1 << 31) - 1])
def test_check_refuses_a_length_outside_the_buffer(length: int) -> None:
    with pytest.raises(CorruptBatchError, match="claims"):
        check(altered(batch_length=length))


@pytest.mark.parametrize("magic", [0, 1, 3, 127])
def test_peek_names_the_magic_it_refuses(magic: int) -> None:
    broken = bytearray(BATCH)
    broken[16] = magic

    with pytest.raises(CorruptBatchError, match=f"magic is {magic}"):
        peek(broken)
    with pytest.raises(CorruptBatchError, match=f"magic is {magic}"):
        peek(broken[:40])


@pytest.mark.parametrize("field", ["records_count", "last_offset_delta"])
def test_check_refuses_negative_counts(field: str) -> None:
    with pytest.raises(CorruptBatchError, match="-1"):
        check(altered(**{field: -1}))


def test_check_accepts_what_compaction_leaves() -> None:
    empty = altered(BATCH[:HEADER_BYTES], batch_length=49, records_count=0)

    assert check(empty).records_count == 0
    assert check(altered(records_count=1)).records_count == 1


def test_produced_batch_is_accepted_whatever_its_codec() -> None:
    for codec in Codec:
        header = check_produced(build(SAMPLE, codec))

        assert header.codec is codec
        assert header.records_count == len(SAMPLE)


@pytest.mark.parametrize(
    ("fields", "fact"),
    [
        ({"records_count": 0, "last_offset_delta": 0}, "0 records"),
        ({"records_count": 5}, "5 records"),
        ({"last_offset_delta": 9}, "delta 9"),
        ({"attributes": 0x20}, "control"),
        ({"attributes": 0x05}, "codec 5"),
        ({"attributes": 0x07}, "codec 7"),
        ({"producer_id": 7, "producer_epoch": 0}, "sequence -1"),
        ({"producer_id": 7, "base_sequence": 0}, "epoch -1"),
        ({"attributes": 0x10}, "producer id -1"),
    ],
)
def test_produced_batch_that_contradicts_itself_is_refused(
    fields: dict[str, int], fact: str
) -> None:
    with pytest.raises(InvalidRecordError, match=fact) as raised:
        check_produced(altered(**fields))

    assert raised.value.code is ErrorCode.INVALID_RECORD


def test_produced_batch_may_not_claim_the_brokers_clock() -> None:
    with pytest.raises(InvalidTimestampError) as raised:
        check_produced(altered(attributes=0x08))

    assert raised.value.code is ErrorCode.INVALID_TIMESTAMP


def test_produced_batch_comes_alone() -> None:
    with pytest.raises(InvalidRecordError, match="one batch per partition"):
        check_produced(BATCH + BATCH)


@pytest.mark.parametrize("magic", [0, 1])
def test_old_message_formats_are_refused_as_kafka_4_does(magic: int) -> None:
    message = bytearray(34)
    message[16] = magic

    with pytest.raises(InvalidRecordError, match=f"message format {magic}") as raised:
        check_produced(message)

    assert raised.value.code is ErrorCode.INVALID_RECORD


def test_idempotent_and_transactional_batches_are_accepted() -> None:
    builder = BatchBuilder(
        producer_id=ProducerId(7),
        producer_epoch=ProducerEpoch(3),
        base_sequence=11,
        is_transactional=True,
    )
    header = check_produced(build(SAMPLE, builder=builder))

    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, 11)


@given(st.integers(0, (1 << 63) - 1), st.integers(0, (1 << 31) - 1))
def test_stamp_changes_two_fields_and_keeps_the_checksum(offset: int, epoch: int) -> None:
    buffer = bytearray(b"before" + BATCH + b"after")
    stamp(memoryview(buffer), 6, Offset(offset), LeaderEpoch(epoch))

    expected = peek(BATCH)._replace(base_offset=offset, partition_leader_epoch=epoch)
    assert check(buffer, 6) == expected
    assert buffer[:6] + buffer[6 + len(BATCH) :] == b"beforeafter"


def test_append_time_is_the_time_of_every_record() -> None:
    buffer = bytearray(BATCH)
    stamp_append_time(buffer, 0, Millis(1_800_000_000_000))
    header = check(buffer)

    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert header.max_timestamp == 1_800_000_000_000
    assert header.base_timestamp == peek(BATCH).base_timestamp
    assert {record.timestamp for record in records_of(buffer)} == {1_800_000_000_000}


def test_batches_walks_whole_batches_and_stops_before_a_cut_one() -> None:
    small = build([SAMPLE[0]])
    for cut in (0, 1, 60, 61, len(small) - 1):
        walked = list(batches(small + BATCH + small + small[:cut]))

        assert walked == [
            (0, peek(small)),
            (len(small), peek(BATCH)),
            (len(small) + len(BATCH), peek(small)),
        ]


@pytest.mark.parametrize("length", [-12, 0, 48])
def test_batches_does_not_stand_still_on_a_length_that_lies(length: int) -> None:
    with pytest.raises(CorruptBatchError, match="claims"):
        list(batches(altered(batch_length=length)))


@given(st.binary(max_size=200))
def test_garbage_is_refused_and_nothing_worse(garbage: bytes) -> None:
    with suppress(CorruptBatchError):
        peek(garbage)
    with pytest.raises(CorruptBatchError):
        check(garbage)
    with pytest.raises((CorruptBatchError, InvalidRecordError)):
        check_produced(garbage)
