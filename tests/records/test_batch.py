from random import Random
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.records.messages import SAMPLE, Message, as_records, build, messages
from tests.records.mutations import mutants
from tests.records.twins import TWINS
from tests.support.soak import count
from waystation.model.errors import (
    CorruptBatchError,
    InvalidRecordError,
    MessageTooLargeError,
    WaystationError,
)
from waystation.model.ids import LeaderEpoch, ProducerEpoch, ProducerId
from waystation.model.offsets import Millis, Offset
from waystation.records import batch as batch_module
from waystation.records.batch import (
    BatchBuilder,
    Record,
    check_contents,
    recompress,
    record_sizes,
    records_of,
    rows_of,
)
from waystation.records.compression import Codec
from waystation.records.header import (
    HEADER_BYTES,
    check,
    check_produced,
    peek,
    stamp,
    stamp_append_time,
)

NOW = Millis(1_700_000_000_000)


@pytest.mark.parametrize("codec", Codec)
def test_sample_comes_back_from_every_codec(either: ModuleType, codec: Codec) -> None:
    batch = build(SAMPLE, codec)

    assert check_produced(batch).codec is codec
    assert records_of(batch) == as_records(SAMPLE)


@given(messages, st.sampled_from(Codec))
def test_a_built_batch_may_be_produced_and_reads_back(
    messages: list[Message], codec: Codec
) -> None:
    batch = build(messages, codec)
    header = check_produced(batch)
    check_contents(batch, header)

    assert records_of(batch) == as_records(messages)
    assert header.base_timestamp == messages[0].timestamp
    assert header.max_timestamp == max(message.timestamp for message in messages)


def test_records_are_named_tuples_and_rows_are_their_fields() -> None:
    batch = build(SAMPLE)

    assert [type(record) for record in records_of(batch)] == [Record] * len(SAMPLE)
    assert records_of(batch)[0].value == b"value"
    assert rows_of(batch) == records_of(batch)


def test_records_carry_the_offsets_that_the_leader_stamped() -> None:
    buffer = bytearray(b"before" + build(SAMPLE) + b"after")
    stamp(buffer, 6, Offset(1000), LeaderEpoch(3))

    assert records_of(buffer, 6) == as_records(SAMPLE, base_offset=1000)


def test_a_builder_refuses_what_does_not_fit_and_keeps_the_rest() -> None:
    builder = BatchBuilder(limit_bytes=300)
    while builder.append(b"key", b"v" * 50, timestamp=NOW):
        assert builder.size_bytes <= 300

    batch = builder.build()
    assert builder.records_count == 3
    assert builder.size_bytes == len(batch)
    assert len(records_of(batch)) == 3


def test_an_empty_builder_says_that_one_message_is_too_large() -> None:
    builder = BatchBuilder(limit_bytes=100)

    assert not builder.append(None, b"v" * 100, timestamp=NOW)
    assert builder.records_count == 0
    assert builder.size_bytes == HEADER_BYTES
    assert builder.append(None, b"small", timestamp=NOW)
    assert records_of(builder.build()) == as_records([Message(None, b"small", (), NOW)])


@pytest.mark.parametrize("codec", Codec)
def test_a_batch_is_never_larger_than_the_builder_said(codec: Codec) -> None:
    builder = BatchBuilder(codec)
    noise = [Message(None, Random(1).randbytes(500))]
    batch = build(noise, builder=builder)

    assert len(batch) <= builder.size_bytes
    assert peek(batch).codec is Codec.NONE
    assert records_of(batch) == as_records(noise)


def test_producer_fields_may_be_set_until_the_batch_is_built() -> None:
    builder = BatchBuilder()
    builder.append(b"k", b"v", timestamp=NOW)
    builder.producer_id, builder.producer_epoch = ProducerId(9), ProducerEpoch(2)
    builder.base_sequence = 40
    header = check_produced(builder.build())

    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 2, 40)


def test_a_message_of_wrong_type_does_not_spoil_the_batch() -> None:
    builder = BatchBuilder()
    builder.append(b"k", b"v", timestamp=NOW)

    with pytest.raises(TypeError):
        builder.append("text", b"v", timestamp=NOW)  # type: ignore[arg-type]  # what is tested
    assert records_of(builder.build()) == as_records([Message(b"k", b"v", (), NOW)])


def test_record_sizes_add_up_to_the_uncompressed_batch() -> None:
    builder = BatchBuilder(Codec.ZSTD)
    batch = build(SAMPLE, builder=builder)

    assert len(record_sizes(batch)) == len(SAMPLE)
    assert HEADER_BYTES + sum(record_sizes(batch)) == builder.size_bytes


@pytest.mark.parametrize("target", Codec)
@pytest.mark.parametrize("source", Codec)
def test_recompression_keeps_every_field_and_record(source: Codec, target: Codec) -> None:
    builder = BatchBuilder(source, ProducerId(7), ProducerEpoch(1), 5, is_transactional=True)
    batch = bytearray(build(SAMPLE, builder=builder))
    stamp(batch, 0, Offset(500), LeaderEpoch(4))
    stamp_append_time(batch, 0, NOW)
    before = check(batch)

    again = recompress(batch, target)
    after = check(again)

    assert after.codec is target
    assert records_of(again) == records_of(batch)
    changed = {"batch_length": 0, "crc": 0, "attributes": 0}
    assert after._replace(**changed) == before._replace(**changed)
    assert after.attributes & ~7 == before.attributes & ~7
    if source is target:
        assert again == batch


def test_reading_keeps_to_its_limit() -> None:
    batch = build([Message(None, bytes(1 << 19))], Codec.GZIP)
    for read in (records_of, rows_of, record_sizes):
        with pytest.raises(MessageTooLargeError):
            read(batch, limit_bytes=1 << 18)
    with pytest.raises(MessageTooLargeError):
        recompress(batch, Codec.NONE, limit_bytes=1 << 18)
    with pytest.raises(MessageTooLargeError):
        check_contents(batch, peek(batch), limit_bytes=1 << 18)


@pytest.mark.parametrize("codec", Codec)
def test_contents_that_contradict_the_header_are_refused(either: ModuleType, codec: Codec) -> None:
    batch = build(SAMPLE, codec)
    header = peek(batch)

    check_contents(batch, header)
    for lie in (
        header._replace(records_count=header.records_count - 1),
        header._replace(records_count=header.records_count + 1),
        header._replace(last_offset_delta=header.last_offset_delta - 1),
        header._replace(base_timestamp=Millis((1 << 63) - 1)),
    ):
        with pytest.raises(CorruptBatchError):
            check_contents(batch, lie)


def test_a_batch_of_markers_or_of_nothing_can_be_read() -> None:
    empty = bytearray(build(SAMPLE)[:HEADER_BYTES])
    empty[8:12] = (HEADER_BYTES - 12).to_bytes(4, "big")
    empty[57:61] = bytes(4)

    assert records_of(empty) == []


def test_a_codec_that_does_not_exist_is_named() -> None:
    batch = bytearray(build(SAMPLE))
    batch[22] |= 6

    with pytest.raises(InvalidRecordError, match="codec 6"):
        records_of(batch)


def test_twins_agree_on_every_damaged_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Headers, codecs and records damaged alike, and no checksum looked at."""
    seeds = [build(SAMPLE[:5] * 3, codec) for codec in Codec]
    outcomes = {True: 0, False: 0}
    for damaged in mutants(seeds, count(20_000, 500_000), seed=3):
        found = []
        for twin in TWINS:
            monkeypatch.setattr(batch_module, "record_codec", twin)
            found.append(_outcome(damaged))

        assert found.count(found[0]) == len(found), f"{damaged.hex()}: {found}"
        outcomes[isinstance(found[0], list)] += 1

    assert min(outcomes.values()) > 100, "the damage is all of one kind"


def _outcome(batch: bytes) -> list[Record] | str:
    try:
        return records_of(batch, limit_bytes=1 << 20)
    except WaystationError as error:
        return f"{type(error)}: {error}"
