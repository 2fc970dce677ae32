from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.model.errors import MalformedFrameError
from waystation.wire.primitives import (
    decode_string,
    decode_uvarint,
    decode_varint,
    encode_uvarint,
    encode_varint,
    skip_tagged_fields,
    uuid_of,
)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (127, "7f"),
        (128, "8001"),
        (300, "ac02"),
        (16_384, "808001"),
        (2**32 - 1, "ffffffff0f"),
    ],
)
def test_uvarints_have_seven_bits_a_byte(value: int, encoded: str) -> None:
    assert encode_uvarint(value).hex() == encoded
    assert decode_uvarint(memoryview(bytes.fromhex(encoded)), 0) == (value, len(encoded) // 2)


@pytest.mark.parametrize(
    ("value", "encoded"), [(0, "00"), (-1, "01"), (1, "02"), (-64, "7f"), (64, "8001")]
)
def test_varints_fold_the_sign_into_the_lowest_bit(value: int, encoded: str) -> None:
    assert encode_varint(value).hex() == encoded
    assert decode_varint(memoryview(bytes.fromhex(encoded)), 0) == (value, len(encoded) // 2)


@given(st.integers(0, 2**32 - 1), st.binary(max_size=4), st.binary(max_size=4))
def test_uvarints_come_back_from_anywhere(value: int, before: bytes, after: bytes) -> None:
    encoded = encode_uvarint(value)
    found, at = decode_uvarint(memoryview(before + encoded + after), len(before))

    assert found == value
    assert at == len(before) + len(encoded)


@given(st.integers(-(2**63), 2**63 - 1))
def test_varints_hold_64_bits(value: int) -> None:
    encoded = encode_varint(value)

    assert decode_varint(memoryview(encoded), 0) == (value, len(encoded))


@given(st.integers(0, 2**32 - 1), st.data())
def test_a_cut_varint_is_refused(value: int, data: st.DataObject) -> None:
    encoded = encode_uvarint(value)
    cut = encoded[: data.draw(st.integers(0, len(encoded) - 1))]

    with pytest.raises(MalformedFrameError):
        decode_uvarint(memoryview(cut), 0)


@pytest.mark.parametrize("endless", ["ffffffff10", "ffffffffff01", "80" * 30, "ff" * 30])
def test_a_varint_of_more_than_32_bits_is_refused(endless: str) -> None:
    with pytest.raises(MalformedFrameError, match="32 bits"):
        decode_uvarint(memoryview(bytes.fromhex(endless)), 0)


def test_a_signed_varint_of_more_than_64_bits_is_refused() -> None:
    with pytest.raises(MalformedFrameError, match="64 bits"):
        decode_varint(memoryview(b"\xff" * 9 + b"\x7f"), 0)


@pytest.mark.parametrize("length", [-1, 6, 2**31 - 1])
def test_text_beyond_the_end_is_refused(length: int) -> None:
    with pytest.raises(MalformedFrameError, match=str(length)):
        decode_string(memoryview(b"hello"), 0, length)


def test_text_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(MalformedFrameError, match="not UTF-8"):
        decode_string(memoryview(b"\xffoo"), 0, 3)


def test_unknown_tagged_fields_are_passed_over() -> None:
    fields = b"\x05\x03abc" + encode_uvarint(900) + encode_uvarint(200) + bytes(200) + b"rest"

    assert skip_tagged_fields(memoryview(fields), 0, 2) == len(fields) - 4


@pytest.mark.parametrize("fields", ["", "05", "0503", "05036162", "05ffffffff0f"])
def test_tagged_fields_beyond_the_end_are_refused(fields: str) -> None:
    with pytest.raises(MalformedFrameError):
        skip_tagged_fields(memoryview(bytes.fromhex(fields)), 0, 1)


def test_a_great_number_of_tagged_fields_is_refused_at_once() -> None:
    with pytest.raises(MalformedFrameError, match="4294967295 tagged fields"):
        skip_tagged_fields(memoryview(bytes(100)), 0, 2**32 - 1)


def test_one_id_is_one_object() -> None:
    octets = bytes(range(16))

    assert uuid_of(octets) == UUID(bytes=octets)
    assert uuid_of(octets) is uuid_of(bytes(octets))
