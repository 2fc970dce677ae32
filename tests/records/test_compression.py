import gzip
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from tests.records.bombs import BOMBS, LIMIT_BYTES, MIB
from tests.records.mutations import mutants
from tests.support.soak import count
from waystation.model.errors import CorruptBatchError, MessageTooLargeError
from waystation.records.compression import Codec, compress, decompress

ROOT = Path(__file__).parents[2]
CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
TEXT = b"".join(b"%d: a line of a log, much like the line before\n" % i for i in range(4000))
NOISE = Random(1).randbytes(200_000)
XERIAL = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"


def zstd_stream(payload: bytes) -> bytes:
    """A frame that does not declare its size, as a streaming writer leaves it."""
    writer = zstandard.ZstdCompressor(write_checksum=True).compressobj()
    return writer.compress(payload) + writer.flush()


@pytest.mark.parametrize("payload", [b"", b"x", TEXT, NOISE], ids=["empty", "x", "text", "noise"])
@pytest.mark.parametrize("codec", Codec)
def test_what_is_compressed_comes_back(codec: Codec, payload: bytes) -> None:
    compressed = compress(codec, payload)

    assert decompress(codec, compressed, len(payload)) == payload
    assert decompress(codec, memoryview(compressed), 10 * MIB) == payload
    assert decompress(codec, bytearray(compress(codec, memoryview(payload))), 10 * MIB) == payload


@given(st.sampled_from(Codec), st.binary(max_size=2000), st.integers(1, 20))
def test_any_bytes_come_back(codec: Codec, payload: bytes, repeats: int) -> None:
    assert decompress(codec, compress(codec, payload * repeats), MIB) == payload * repeats


@pytest.mark.parametrize(("codec", "level"), [(Codec.GZIP, 1), (Codec.LZ4, 9), (Codec.ZSTD, 9)])
def test_a_level_is_obeyed(codec: Codec, level: int) -> None:
    levelled = compress(codec, TEXT, level)

    assert levelled != compress(codec, TEXT)
    assert decompress(codec, levelled, len(TEXT)) == TEXT


@pytest.mark.parametrize(
    ("codec", "frame"),
    [
        (Codec.GZIP, gzip.compress),
        (Codec.SNAPPY, lambda payload: compress(Codec.SNAPPY, payload)),
        (Codec.LZ4, lz4.frame.compress),
        (Codec.LZ4, lambda payload: lz4.frame.compress(payload, content_checksum=True)),
        (Codec.ZSTD, zstandard.compress),
        (Codec.ZSTD, zstd_stream),
    ],
)
def test_frames_after_one_another_are_one_payload(
    codec: Codec, frame: Callable[[bytes], bytes]
) -> None:
    parts = [TEXT, b"", NOISE, TEXT, b"tail"]
    payload = b"".join(parts)

    assert decompress(codec, b"".join(map(frame, parts)), len(payload)) == payload


def test_snappy_is_read_with_and_without_its_frame() -> None:
    raw = bytes(cramjam.snappy.compress_raw(TEXT))
    framed = XERIAL + len(raw).to_bytes(4, "big") + raw

    assert decompress(Codec.SNAPPY, raw, len(TEXT)) == TEXT
    assert decompress(Codec.SNAPPY, framed, len(TEXT)) == TEXT
    assert compress(Codec.SNAPPY, TEXT).startswith(XERIAL)


def test_zstd_frames_to_be_skipped_are_skipped() -> None:
    skippable = (0x184D2A53).to_bytes(4, "little") + (5).to_bytes(4, "little") + b"skip!"

    assert decompress(Codec.ZSTD, skippable + zstandard.compress(TEXT), MIB) == TEXT


def test_lz4_is_written_as_the_java_client_wants_it() -> None:
    """It refuses blocks that depend on one another."""
    assert lz4.frame.get_frame_info(compress(Codec.LZ4, TEXT))["block_linked"] is False


def test_each_library_is_imported_by_its_first_use() -> None:
    """An idle broker pays for none of them."""
    loaded = "print(*sorted({'cramjam', 'lz4', 'zstandard'} & set(sys.modules)))"
    program = f"import sys, waystation.records.batch as b; {loaded}; b.compress(3, b''); {loaded}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert done.stdout.splitlines() == ["", "lz4"], done.stderr


@pytest.mark.parametrize("payload", [b"x", TEXT, NOISE], ids=["x", "text", "noise"])
@pytest.mark.parametrize("codec", CODECS)
def test_a_payload_cut_anywhere_is_corrupt(codec: Codec, payload: bytes) -> None:
    compressed = compress(codec, payload)
    cuts = {1, 2, 5, 9, 15, len(compressed) // 2, len(compressed) - 5, len(compressed) - 1}
    for cut in sorted(cut for cut in cuts if 0 < cut < len(compressed)):
        with pytest.raises(CorruptBatchError):
            decompress(codec, compressed[:cut], MIB)


@pytest.mark.parametrize("codec", CODECS)
def test_one_byte_past_the_limit_is_too_large(codec: Codec) -> None:
    for payload in (TEXT, NOISE):
        compressed = compress(codec, payload)

        assert decompress(codec, compressed, len(payload)) == payload
        with pytest.raises(MessageTooLargeError) as raised:
            decompress(codec, compressed, len(payload) - 1)
        assert raised.value.limit_bytes == len(payload) - 1
        assert raised.value.size_bytes > raised.value.limit_bytes


@pytest.mark.parametrize("codec", CODECS)
def test_damage_is_refused_or_harmless(codec: Codec) -> None:
    seeds = [compress(codec, TEXT[:2000]), compress(codec, b"abc" * 50), compress(codec, b"")]
    for damaged in mutants(seeds, count(20_000, 500_000), seed=int(codec)):
        with suppress(CorruptBatchError, MessageTooLargeError):
            assert len(decompress(codec, damaged, MIB)) <= MIB


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_within_its_limit(name: str) -> None:
    codec, make = BOMBS[name]
    bomb = make()

    tracemalloc.start()
    with pytest.raises(MessageTooLargeError):
        decompress(codec, bomb, LIMIT_BYTES)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak <= LIMIT_BYTES * 9 // 8 + MIB // 2


def test_libraries_hold_no_more_than_the_limit_either() -> None:
    """Measured from outside the libraries: the peak of a process that meets every bomb."""
    command = [sys.executable, "-m", "tests.records.bombs"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)

    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 2 * LIMIT_BYTES + 4 * MIB


def lying_zstd(claimed_bytes: int) -> bytes:
    """A frame of one small block that declares to hold ``claimed_bytes``."""
    magic, single_segment_8_byte_size = 0xFD2FB528, 0xE0
    head = magic.to_bytes(4, "little") + bytes([single_segment_8_byte_size])
    last_raw_block = (1 | 3 << 3).to_bytes(3, "little") + b"abc"
    return head + claimed_bytes.to_bytes(8, "little") + last_raw_block


@pytest.mark.parametrize("claimed", [4, MIB, 1 << 40, (1 << 63) - 1])
def test_a_zstd_frame_that_lies_about_its_size_is_refused(claimed: int) -> None:
    assert decompress(Codec.ZSTD, lying_zstd(3), MIB) == b"abc"
    tracemalloc.start()
    with pytest.raises(CorruptBatchError):
        decompress(Codec.ZSTD, lying_zstd(claimed), 8 * MIB)
    assert tracemalloc.get_traced_memory()[1] < MIB
    tracemalloc.stop()
