import shutil
import subprocess
import sys
from array import array
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.records.messages import SAMPLE, Message, messages
from tests.records.mutations import mutants
from tests.records.twins import PURE, TWINS, is_compiled
from tests.support.soak import count
from waystation.model.errors import CorruptBatchError, InvalidTimestampError, WaystationError
from waystation.records import codec as preferred
from waystation.records.record import Row

NO_LIMIT = 1 << 40
ROOT = Path(__file__).parents[2]
SMALL = [message for message in SAMPLE if len(message.value or b"") < 100]


def encode(codec: ModuleType, messages: list[Message]) -> bytes:
    writer = codec.RecordWriter(bytearray(), NO_LIMIT)
    for key, value, headers, timestamp in messages:
        assert writer.append(key, value, headers, timestamp=timestamp)
    return bytes(writer.out)


def records_at(*deltas: int, timestamp_delta: int = 0) -> bytes:
    """Records as no writer makes them: with these offset deltas and this time."""
    out = bytearray()
    for delta in deltas:
        PURE._append_record(out, NO_LIMIT, delta, timestamp_delta, None, None, ())
    return bytes(out)


def decode(codec: ModuleType, payload: bytes, count: int, base_timestamp: int = 0) -> list[Row]:
    codec.check_records(payload, count, count - 1, base_timestamp)
    rows: list[Row] = codec.decode_records(payload, count, 0, count - 1, base_timestamp, None)
    return rows


def refused(codec: ModuleType, payload: bytes, count: int = 1, last: int | None = None) -> bool:
    """True if the walk and the decoder both refuse; they must never differ."""
    last = count - 1 if last is None else last
    outcomes = []
    for step in (
        lambda: codec.check_records(payload, count, last, 0),
        lambda: codec.decode_records(payload, count, 0, last, 0, None),
    ):
        try:
            step()
            outcomes.append(False)
        except CorruptBatchError:
            outcomes.append(True)
    assert outcomes[0] is outcomes[1], f"check and decode differ about {payload.hex()}"
    return outcomes[0]


def test_a_machine_with_a_compiler_has_the_compiled_twin() -> None:
    """It is optional where it cannot be built, and must not vanish unnoticed where it can."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")

    assert is_compiled(preferred) or not compiler, "build it: pip install -e ."
    assert len(TWINS) == 1 + is_compiled(preferred)


def test_the_compiled_twin_has_the_types_of_its_declarations() -> None:
    """Without codec.pxd it would compile too, and be as slow as Python."""
    for twin in TWINS:
        assert hasattr(twin, "_varlong") is not is_compiled(twin)
        assert twin.COMPILED is is_compiled(twin)


def test_a_record_has_the_bytes_that_kafka_documents(codec: ModuleType) -> None:
    writer = codec.RecordWriter(bytearray(b"before"), NO_LIMIT)
    writer.append(None, None, timestamp=1000)
    writer.append(b"key", None, [("h", b"\x00"), ("n", None)], timestamp=999)

    first, second = "0c 00 00 00 01 01 00", "20 00 01 02 06 6b6579 01 04 02 68 02 00 02 6e 01"
    assert bytes(writer.out) == b"before" + bytes.fromhex(first + second)


def test_sample_comes_back(codec: ModuleType) -> None:
    rows = decode(codec, encode(codec, SAMPLE), len(SAMPLE), SAMPLE[0].timestamp)

    assert rows == [(i, m.timestamp, m.key, m.value, m.headers) for i, m in enumerate(SAMPLE)]


@given(messages)
def test_what_one_twin_encodes_every_twin_reads_back(messages: list[Message]) -> None:
    payloads = {encode(twin, messages) for twin in TWINS}
    expected = [(i, m.timestamp, m.key, m.value, m.headers) for i, m in enumerate(messages)]

    assert len(payloads) == 1
    for twin in TWINS:
        payload = payloads.copy().pop()
        assert decode(twin, payload, len(messages), messages[0].timestamp) == expected
        assert sum(twin.record_sizes(payload, len(messages))) == len(payload)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_bytes_can_be_read_and_written(codec: ModuleType, kind: type) -> None:
    writer = codec.RecordWriter(bytearray(), NO_LIMIT)
    writer.append(kind(b"key"), kind(b"value"), [("h", kind(b"v"))], timestamp=0)

    assert decode(codec, kind(bytes(writer.out)), 1) == [(0, 0, b"key", b"value", (("h", b"v"),))]


def test_decoded_bytes_are_owned_not_borrowed(codec: ModuleType) -> None:
    payload = bytearray(encode(codec, [Message(b"key", b"value", (("h", b"v"),))]))
    rows = decode(codec, memoryview(payload), 1)
    payload[:] = bytes(len(payload))

    assert rows[0][2:] == (b"key", b"value", (("h", b"v"),))


def test_append_time_replaces_every_timestamp(codec: ModuleType) -> None:
    payload = encode(codec, SAMPLE)

    rows = codec.decode_records(payload, len(SAMPLE), 40, len(SAMPLE) - 1, 0, 77)

    assert [row[:2] for row in rows] == [(40 + i, 77) for i in range(len(SAMPLE))]


def test_offsets_may_have_gaps_up_to_the_last(codec: ModuleType) -> None:
    payload = records_at(0, 3, 4, 9)

    rows = codec.decode_records(payload, 4, 100, 12, 0, None)
    codec.check_records(payload, 4, 12, 0)

    assert [row[0] for row in rows] == [100, 103, 104, 109]
    assert refused(codec, payload, 4, last=8)


@pytest.mark.parametrize("deltas", [(0, 0), (1, 0), (-1, 0), (0, 2)])
def test_offsets_that_do_not_rise_within_the_batch_are_refused(
    codec: ModuleType, deltas: tuple[int, ...]
) -> None:
    assert refused(codec, records_at(*deltas), 2)


def test_header_names_that_are_not_utf_8_are_replaced(codec: ModuleType) -> None:
    payload = bytes.fromhex("14 00 00 00 01 01 02 02 ff 02 00")

    assert decode(codec, payload, 1)[0][4] == (("\ufffd", b"\x00"),)


@pytest.mark.parametrize("base", [-(1 << 63), -1, 0, 1, (1 << 63) - 1])
@pytest.mark.parametrize("delta", [-(1 << 63), -(1 << 31), -64, 63, 1 << 31, (1 << 63) - 1])
def test_timestamps_reach_over_64_bits_and_no_further(
    codec: ModuleType, base: int, delta: int
) -> None:
    payload = records_at(0, timestamp_delta=delta)

    if -(1 << 63) <= base + delta < 1 << 63:
        assert decode(codec, payload, 1, base)[0][1] == base + delta
    else:
        with pytest.raises(CorruptBatchError):
            codec.check_records(payload, 1, 0, base)
        with pytest.raises(CorruptBatchError):
            codec.decode_records(payload, 1, 0, 0, base, None)


def test_offsets_reach_to_the_last_and_no_further(codec: ModuleType) -> None:
    payload = encode(codec, [SAMPLE[0], SAMPLE[0]])
    last = (1 << 63) - 1

    assert codec.decode_records(payload, 2, last - 1, 1, 0, None)[1][0] == last
    with pytest.raises(CorruptBatchError, match="no offset"):
        codec.decode_records(payload, 2, last, 1, 0, None)


@pytest.mark.parametrize(
    ("what", "record"),
    [
        ("well-formed", "0c 00 00 00 01 01 00"),
        ("varints longer than needed", "1a 00 80 00 80 80 80 80 00 81 00 81 00 00"),
    ],
)
def test_unusual_records_are_read(codec: ModuleType, what: str, record: str) -> None:
    assert decode(codec, bytes.fromhex(record), 1) == [(0, 0, None, None, ())], what


@pytest.mark.parametrize(
    ("what", "record"),
    [
        ("empty", ""),
        ("shorter than any record", "0a 00 00 00 01 01"),
        ("length of a null", "01 00 00 00 01 01 00"),
        ("negative length", "03 00 00 00 01 01 00"),
        ("length past the payload", "0e 00 00 00 01 01 00"),
        ("length before the record's end", "0c 00 00 00 01 01 00 00"),
        ("length of six bytes", "8c 80 80 80 80 00 00 00 00 01 01 00"),
        ("length past 32 bits", "ff ff ff ff 1f 00 00 00 01 01 00"),
        ("timestamp of eleven bytes", "20 00 80 80 80 80 80 80 80 80 80 80 00 00 01 01 00"),
        ("timestamp past 64 bits", "1e 00 80 80 80 80 80 80 80 80 80 02 00 01 01 00"),
        ("timestamp that never ends", "0c 00 80 80 80 80 80"),
        ("offset past 32 bits", "14 00 00 ff ff ff ff 1f 01 01 00"),
        ("key past the record", "0c 00 00 00 08 01 00"),
        ("key length below null", "0c 00 00 00 03 01 00"),
        ("value past the record", "0c 00 00 00 01 04 00"),
        ("value length below null", "0c 00 00 00 01 03 00"),
        ("bytes after the headers", "0e 00 00 00 01 01 00 00"),
        ("negative header count", "0c 00 00 00 01 01 01"),
        ("header that is not there", "0c 00 00 00 01 01 02"),
        ("two billion headers", "14 00 00 00 01 01 fe ff ff ff 0f"),
        ("header without a name", "10 00 00 00 01 01 02 01 01"),
        ("header value past the record", "10 00 00 00 01 01 02 00 02"),
        ("header value below null", "10 00 00 00 01 01 02 00 03"),
    ],
)
def test_malformed_records_are_refused(codec: ModuleType, what: str, record: str) -> None:
    assert refused(codec, bytes.fromhex(record)), what


@pytest.mark.parametrize("claimed", [-1, -(1 << 31), 3, 1000, (1 << 31) - 1])
def test_a_count_that_lies_is_refused_before_anything_is_allocated(
    codec: ModuleType, claimed: int
) -> None:
    payload = encode(codec, [SAMPLE[0], SAMPLE[1]])

    assert refused(codec, payload, claimed, last=(1 << 31) - 1)
    with pytest.raises(CorruptBatchError):
        codec.record_sizes(payload, claimed)


def test_bytes_after_the_last_record_are_refused(codec: ModuleType) -> None:
    payload = encode(codec, [SAMPLE[0], SAMPLE[1]])

    assert refused(codec, payload, 1)
    assert refused(codec, payload + b"\0", 2)
    with pytest.raises(CorruptBatchError, match="1 bytes follow"):
        codec.record_sizes(payload + b"\0", 2)


def test_a_payload_cut_anywhere_is_refused_though_memory_goes_on(codec: ModuleType) -> None:
    """The bytes that would complete it are right behind the view."""
    payload = encode(codec, SMALL)
    for size in range(len(payload)):
        assert refused(codec, memoryview(payload)[:size], len(SMALL))


def test_not_one_byte_is_read_past_the_payload() -> None:
    """Proved by the machine: the next byte is in a page whose touch ends the process."""
    damaged = count(20_000, 1_000_000)
    command = [sys.executable, "-m", "tests.records.guarded", str(damaged)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)

    assert (done.returncode, done.stdout) == (0, f"{damaged}\n"), done.stderr


def test_twins_agree_on_every_damaged_payload() -> None:
    seeds = [encode(TWINS[0], SMALL), encode(TWINS[0], SMALL[:1]), encode(TWINS[0], SMALL[3:])]
    outcomes = {True: 0, False: 0}
    for payload in mutants(seeds, count(20_000, 1_000_000), seed=2):
        for records in (1, 2, len(SMALL)):
            found = [_outcome(twin, payload, records) for twin in TWINS]

            assert found.count(found[0]) == len(found), f"{payload.hex()}: {found}"
            outcomes[isinstance(found[0], list)] += 1

    assert min(outcomes.values()) > 100, "the damage is all of one kind"


def _outcome(codec: ModuleType, payload: bytes, records: int) -> list[Row] | str:
    try:
        rows: list[Row] = codec.decode_records(payload, records, 0, records - 1, 0, None)
    except WaystationError as error:
        with pytest.raises(type(error)):
            codec.check_records(payload, records, records - 1, 0)
        return f"{type(error)}: {error}"
    codec.check_records(payload, records, records - 1, 0)
    return rows


def test_a_record_that_does_not_fit_leaves_no_trace(codec: ModuleType) -> None:
    message = Message(b"k", b"v" * 70, (("h", b"v"),), timestamp=5)
    size = len(encode(codec, [message]))
    writer = codec.RecordWriter(bytearray(b"before"), size + 5)

    assert not writer.append(*message[:3], timestamp=5)
    assert (writer.out, writer.records_count, writer.max_timestamp) == (b"before", 0, -1)
    writer.limit_bytes += 1
    assert writer.append(*message[:3], timestamp=5)
    assert (len(writer.out), writer.records_count, writer.max_timestamp) == (size + 6, 1, 5)


@pytest.mark.parametrize("timestamp", [-2, -(1 << 63), (1 << 63) - 1, 1 << 63, -(1 << 80)])
def test_a_time_that_is_none_is_refused(codec: ModuleType, timestamp: int) -> None:
    writer = codec.RecordWriter(bytearray(), NO_LIMIT)

    with pytest.raises(InvalidTimestampError, match=str(timestamp)):
        writer.append(b"k", b"v", timestamp=timestamp)
    assert (writer.out, writer.records_count) == (b"", 0)


@pytest.mark.parametrize(
    ("key", "value", "headers"),
    [
        ("text", None, ()),
        (None, "text", ()),
        (5, None, ()),
        (None, None, [(b"bytes", b"")]),
        (None, None, [("name", "text")]),
        (None, None, [("a", b"", b"")]),
        (None, memoryview(b"four" * 2).cast("I"), ()),
    ],
)
def test_wrong_types_leave_no_trace(
    codec: ModuleType, key: object, value: object, headers: object
) -> None:
    writer = codec.RecordWriter(bytearray(b"before"), NO_LIMIT)

    with pytest.raises((TypeError, AttributeError, ValueError)):
        writer.append(key, value, headers, timestamp=0)

    assert (writer.out, writer.records_count) == (b"before", 0)


@given(st.binary(max_size=100), st.integers(0, 20))
def test_garbage_never_does_worse_than_being_refused(garbage: bytes, records: int) -> None:
    assert len({str(_outcome(twin, garbage, records)) for twin in TWINS}) == 1


def located(codec: ModuleType, payload: bytes, count: int, last: int, base: int) -> "array[int]":
    places = array("q", [0]) * (codec.PLACE_FIELDS * count)
    codec.locate_records(payload, count, 0, last, base, places)
    return places


@given(messages, st.data())
def test_records_are_copied_as_they_are_or_moved_in_time(
    messages: list[Message], data: st.DataObject
) -> None:
    payload, base = encode(PURE, messages), messages[0].timestamp
    chosen = data.draw(st.lists(st.booleans(), min_size=len(messages), max_size=len(messages)))
    kept = [number for number, stays in enumerate(chosen) if stays]
    shift_ms = data.draw(st.sampled_from((0, 5)) | st.integers(-(10**12), 10**12))
    moved = [messages[number].timestamp - base + shift_ms for number in kept]
    fits = not shift_ms or all(-(1 << 63) <= one < 1 << 63 for one in moved)
    copies = set()
    for twin in TWINS:
        places = located(twin, payload, len(messages), len(messages) - 1, base)
        fields = twin.PLACE_FIELDS
        rows = [places[number * fields : (number + 1) * fields] for number in kept]
        front = array("q", [number for row in rows for number in row])
        out = bytearray(b"before")
        assert twin.copy_records(payload, front, len(kept), shift_ms, out) is fits
        copies.add(bytes(out))
    (copy,) = copies
    assume(fits and -(1 << 63) <= base - shift_ms < 1 << 63)

    found = decode_with_gaps(
        copy.removeprefix(b"before"), len(kept), len(messages), base - shift_ms
    )
    assert found == [
        (n, messages[n].timestamp, messages[n].key, messages[n].value, messages[n].headers)
        for n in kept
    ]


def decode_with_gaps(payload: bytes, count: int, before: int, base: int) -> list[Row]:
    preferred.check_records(payload, count, before - 1, base)
    return preferred.decode_records(payload, count, 0, before - 1, base, None)


def test_a_time_that_would_not_fit_is_not_moved(codec: ModuleType) -> None:
    payload = records_at(0, 1, timestamp_delta=-5)
    places = located(codec, payload, 2, 1, 0)
    out = bytearray(b"before")

    assert not codec.copy_records(payload, places, 2, -(1 << 63), out)
    assert out == b"before"


def test_records_without_a_key_are_counted(codec: ModuleType) -> None:
    rows = [Message(b"key", b""), Message(None, b""), Message(b"", None), Message(None, None)]

    assert codec.check_records(encode(codec, rows), 4, 3, 0) == 2


def test_whatever_is_refused_when_checked_is_not_located(codec: ModuleType) -> None:
    payload = encode(codec, SMALL)
    for mutant in mutants([payload], count(2_000, 100_000), seed=3):
        outcomes = []
        for step in (codec.check_records, lambda *a: located(codec, a[0], a[1], a[2], a[3])):
            try:
                step(mutant, len(SMALL), len(SMALL) - 1, 0)
                outcomes.append(True)
            except CorruptBatchError:
                outcomes.append(False)
        assert outcomes[0] is outcomes[1]


@pytest.mark.parametrize(("field", "value"), [(1, 1_000), (2, -1), (3, 1_000), (0, 9)])
def test_places_of_another_payload_are_not_copied(
    codec: ModuleType, field: int, value: int
) -> None:
    payload = encode(codec, SMALL[:1])
    places = located(codec, payload, 1, 0, 0)
    places[field] = value

    if field != 0:
        with pytest.raises(IndexError):
            codec.copy_records(payload, places, 1, 5, bytearray())
    if field < 2:
        places[1] = 1_000
        with pytest.raises(IndexError):
            codec.copy_records(payload, places, 1, 0, bytearray())
    with pytest.raises(IndexError):
        codec.copy_records(payload, places, 2, 0, bytearray())
    with pytest.raises(IndexError):
        codec.locate_records(payload, 1, 0, 0, 0, array("q", [0]))
