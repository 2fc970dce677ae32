from typing import Any

import pytest
from aiokafka.record.control_record import ABORT_MARKER, COMMIT_MARKER, ControlRecord
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch

from tests.records.messages import SAMPLE, build
from waystation.model.errors import CorruptBatchError, InvalidRecordError
from waystation.model.ids import LeaderEpoch, ProducerEpoch, ProducerId
from waystation.model.offsets import Millis, Offset
from waystation.records.batch import assemble, check_contents
from waystation.records.control import MARKER_BYTES, Marker, marker_batch, read_marker
from waystation.records.header import HEADER_BYTES, check, check_produced, peek, stamp

NOW = Millis(1_700_000_000_000)

markers = st.builds(
    Marker,
    st.integers(0, 2**63 - 1).map(ProducerId),
    st.integers(0, 2**15 - 1).map(ProducerEpoch),
    st.integers(-1, 2**31 - 1),
    st.booleans(),
    st.just(False),
)


def marked(committed: bool) -> Marker:
    return Marker(ProducerId(7), ProducerEpoch(3), 5, committed)


def with_record(record: bytes) -> bytes:
    """A control batch with another record than a marker has."""
    return assemble(peek(marker_batch(marked(True), NOW)), record)


@given(markers, st.integers(0, 2**62).map(Millis))
def test_a_marker_comes_back_from_its_batch(marker: Marker, now: Millis) -> None:
    batch = marker_batch(marker, now)
    header = check(batch)
    check_contents(batch, header)

    assert read_marker(batch) == marker
    assert len(batch) == header.size_bytes == MARKER_BYTES
    assert header.is_control
    assert header.is_transactional
    assert header.base_sequence == -1
    assert header.max_timestamp == now


def test_a_marker_has_kafkas_bytes() -> None:
    assert marker_batch(marked(True), NOW).hex() == (
        "0000000000000000" "00000042" "ffffffff" "02" "c60df61d" "0030" "00000000"
        "0000018bcfe56800" "0000018bcfe56800" "0000000000000007" "0003" "ffffffff" "00000001"
        "20" "00" "00" "00" "08" "00000001" "0c" "000000000005" "00"
    )  # fmt: skip


@pytest.mark.parametrize("committed", [True, False])
def test_other_implementations_read_our_markers(committed: bool) -> None:
    batch = marker_batch(marked(committed), NOW)
    theirs: Any = KafkaPythonBatch(bytearray(batch))
    assert theirs.validate_crc()
    (record,) = theirs

    assert theirs.is_control_batch
    assert record.abort is not committed

    aiokafkas: Any = AiokafkaBatch(bytearray(batch))
    (record,) = aiokafkas

    assert ControlRecord.parse(record.key) == (COMMIT_MARKER if committed else ABORT_MARKER)


def test_a_marker_is_found_behind_other_batches_and_after_a_stamp() -> None:
    before = build(SAMPLE)
    data = bytearray(before + marker_batch(marked(False), NOW))
    stamp(data, len(before), Offset(90), LeaderEpoch(4))

    assert read_marker(data, len(before)) == marked(False)
    assert check(data, len(before)).base_offset == 90


def test_what_is_no_marker_is_none() -> None:
    another_type = bytes.fromhex("20000000 08 00000002 0c 000000000005 00")

    assert read_marker(build(SAMPLE)) is None
    assert read_marker(with_record(another_type)) is None
    emptied = peek(marker_batch(marked(True), NOW))._replace(records_count=0)
    assert read_marker(assemble(emptied, b"")) is None


def test_a_marker_that_is_cut_short_is_corrupt() -> None:
    without_value = bytes.fromhex("14000000 08 00000001 01 00")

    with pytest.raises(CorruptBatchError, match="too short"):
        read_marker(with_record(without_value))


def test_clients_may_not_produce_markers() -> None:
    with pytest.raises(InvalidRecordError, match="control"):
        check_produced(marker_batch(marked(True), NOW))


def test_a_marker_of_a_damaged_batch_is_not_made_up() -> None:
    batch = marker_batch(marked(True), NOW)

    with pytest.raises(CorruptBatchError):
        read_marker(batch[: HEADER_BYTES + 3])
