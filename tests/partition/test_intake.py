"""What a batch must be before it may enter a log; on the wire in tests/apis/test_produce.py."""

import pytest

from tests.apis.forging import damaged, forged
from tests.apis.kit import batch_of
from waystation.model.errors import (
    CorruptBatchError,
    ErrorCode,
    InvalidRecordError,
    InvalidTimestampError,
    MessageTooLargeError,
)
from waystation.model.offsets import Millis
from waystation.model.topics import TopicSettings
from waystation.partition.intake import Intake, RejectedRecordsError
from waystation.records.codec import COMPILED
from waystation.records.compression import Codec
from waystation.records.header import check

NOW = Millis(1_700_000_000_000)
BATCH = batch_of(b"one", b"two", timestamp=NOW)
TEXT = b"all the same " * 50


def admit(batch: bytes, **settings: object) -> bytes:
    admitted, header = Intake(TopicSettings(**settings)).admit(  # type: ignore[arg-type]
        memoryview(bytearray(batch)), NOW
    )
    assert header == check(admitted)
    return bytes(admitted)


def test_a_good_batch_is_let_in_as_it_is() -> None:
    assert admit(BATCH) == BATCH


@pytest.mark.parametrize(
    ("batch", "error"),
    [
        (b"", InvalidRecordError),
        (BATCH[:60], InvalidRecordError),
        (BATCH[:-1], CorruptBatchError),
        (damaged(BATCH), CorruptBatchError),
        (forged(BATCH, base_offset=1), InvalidRecordError),
        (batch_of(b"x", producer=(1, 0, -1), transactional=True), InvalidRecordError),
    ],
    ids=["nothing", "no header", "no end", "damaged", "offsets of its own", "no sequence"],
)
def test_a_bad_batch_is_not(batch: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        admit(batch)


def test_coordinators_write_in_transactions_without_a_sequence() -> None:
    batch = batch_of(b"x", producer=(1, 0, -1), transactional=True, timestamp=NOW)
    intake = Intake(TopicSettings(), sequenced=False)

    assert intake.admit(memoryview(bytearray(batch)), NOW)[1].is_transactional
    for wrong in (
        batch_of(b"x", producer=(1, 0, -1)),
        batch_of(b"x", producer=(1, -1, -1), transactional=True),
    ):
        with pytest.raises(InvalidRecordError):
            intake.admit(memoryview(bytearray(wrong)), NOW)


@pytest.mark.parametrize("codec", Codec)
def test_records_that_contradict_their_header_are_refused(codec: Codec) -> None:
    """Without the compiled codec that would take too long, and producers are trusted."""
    honest = batch_of(TEXT, TEXT, codec=codec, timestamp=NOW)
    lying = forged(honest, records_count=3, last_offset_delta=2)

    if COMPILED:
        with pytest.raises(InvalidRecordError):
            admit(lying)
    else:
        assert admit(lying) == lying


def test_the_size_counts_as_it_comes_and_as_it_is_stored() -> None:
    small = batch_of(TEXT, TEXT, codec=Codec.GZIP, timestamp=NOW)

    with pytest.raises(MessageTooLargeError):
        admit(BATCH, max_message_bytes=len(BATCH) - 1)
    assert admit(small, max_message_bytes=len(small)) == small
    with pytest.raises(MessageTooLargeError):
        admit(small, max_message_bytes=len(small), compression_type="uncompressed")


def test_timestamps_are_looked_at_one_by_one() -> None:
    times = [NOW, NOW - 5_000, NOW + 5_000, -1]
    batch = batch_of(b"a", b"b", b"c", b"d", timestamp=times)

    assert admit(batch) == batch
    with pytest.raises(RejectedRecordsError) as told:
        admit(batch, message_timestamp_before_max_ms=1_000, message_timestamp_after_max_ms=1_000)
    assert [index for index, _ in told.value.rejected] == [1, 2]
    with pytest.raises(InvalidTimestampError):
        admit(batch, message_timestamp_after_max_ms=1_000)
    with pytest.raises(InvalidTimestampError):
        admit(forged(BATCH, max_timestamp=NOW + 10**10))
    # The broker's clock has the last word, so the client's does not matter.
    admit(batch, message_timestamp_after_max_ms=0, message_timestamp_type="LogAppendTime")


@pytest.mark.parametrize("codec", Codec)
def test_a_compacted_topic_takes_no_record_without_a_key(codec: Codec) -> None:
    keyed = batch_of(TEXT, TEXT, None, codec=codec, timestamp=NOW, keys=[b"a", b"", b"c"])
    keyless = batch_of(TEXT, TEXT, TEXT, codec=codec, timestamp=NOW, keys=[None, b"b", None])

    assert admit(keyed, cleanup_policy=("compact",)) == keyed
    assert admit(keyless) == keyless
    for policy in (("compact",), ("compact", "delete")):
        with pytest.raises(RejectedRecordsError) as told:
            admit(keyless, cleanup_policy=policy)
        assert told.value.code == ErrorCode.INVALID_RECORD
        assert [index for index, _ in told.value.rejected] == [0, 2]
