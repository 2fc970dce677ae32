import pytest

from waystation.model.errors import MalformedFrameError
from waystation.wire.frame import framed, payload_bytes


class Region:
    """Stands for bytes of a file: it has a size and no content."""

    nbytes = 1000


def test_a_frame_begins_with_the_size_of_all_its_parts() -> None:
    region = Region()
    parts = [b"abc", memoryview(b"defg"), region, bytearray(b"h")]

    frame = framed(parts)

    assert frame == [(1008).to_bytes(4, "big"), *parts]
    assert frame[3] is region


def test_a_length_is_read_where_it_stands() -> None:
    assert payload_bytes(b"xx\0\0\1\0", 2, limit_bytes=256) == 256


@pytest.mark.parametrize("length", [-1, -(2**31), 257, 2**31 - 1])
def test_a_length_that_is_negative_or_over_the_limit_is_refused(length: int) -> None:
    with pytest.raises(MalformedFrameError, match=f"{length} bytes, the limit is 256"):
        payload_bytes(length.to_bytes(4, "big", signed=True), 0, limit_bytes=256)
