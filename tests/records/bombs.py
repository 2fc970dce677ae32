"""Small payloads that decompress to a great deal, and a program that measures the harm.

Run as a program it refuses each bomb and prints by how many bytes the process grew at its
peak, allocations of the C and Rust libraries included, which no tracer of Python's sees.
"""

import gzip
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lz4.frame
import zstandard

from waystation.model.errors import MessageTooLargeError
from waystation.records.compression import Codec, compress, decompress

MIB = 1 << 20
LIMIT_BYTES = 8 * MIB
BOMB_BYTES = 256 * MIB
ZEROS = bytes(MIB)
PATTERN = bytes(range(256)) * (MIB // 256)


def snappy_bomb(size_bytes: int) -> bytes:
    """Raw snappy: one literal byte, then copies of 64 bytes each."""
    size = bytearray()
    rest = size_bytes
    while rest >= 0x80:
        size.append(rest & 0x7F | 0x80)
        rest >>= 7
    size.append(rest)
    return bytes(size) + b"\x00A" + b"\xfe\x01\x00" * (size_bytes // 64)


def much_by(writer: Any, piece: bytes) -> bytes:
    """The piece again and again, compressed one by one so that making a bomb is harmless."""
    compressed = b"".join(writer.compress(piece) for _ in range(BOMB_BYTES // len(piece)))
    return compressed + bytes(writer.flush())


def lz4_bomb() -> bytes:
    writer = lz4.frame.LZ4FrameCompressor(block_size=lz4.frame.BLOCKSIZE_MAX4MB)
    return bytes(writer.begin()) + much_by(writer, ZEROS)


def zstd_bomb(piece: bytes, size: int = -1) -> bytes:
    """Zeros become blocks that tell their size, a pattern becomes blocks that do not."""
    return much_by(zstandard.ZstdCompressor().compressobj(size=size), piece)


BOMBS: dict[str, tuple[Codec, Callable[[], bytes]]] = {
    "gzip": (Codec.GZIP, lambda: much_by(zlib.compressobj(9, wbits=31), ZEROS)),
    "gzip-members": (Codec.GZIP, lambda: gzip.compress(ZEROS) * 256),
    "snappy": (Codec.SNAPPY, lambda: snappy_bomb(BOMB_BYTES)),
    "snappy-claim": (Codec.SNAPPY, lambda: b"\xff\xff\xff\xff\x0f\x00A"),
    "snappy-blocks": (Codec.SNAPPY, lambda: compress(Codec.SNAPPY, ZEROS) * 256),
    "lz4": (Codec.LZ4, lz4_bomb),
    "lz4-frames": (Codec.LZ4, lambda: lz4.frame.compress(ZEROS) * 256),
    "zstd": (Codec.ZSTD, lambda: zstd_bomb(ZEROS)),
    "zstd-pattern": (Codec.ZSTD, lambda: zstd_bomb(PATTERN)),
    "zstd-declared": (Codec.ZSTD, lambda: zstd_bomb(PATTERN, BOMB_BYTES)),
    "zstd-frames": (Codec.ZSTD, lambda: zstandard.compress(ZEROS) * 256),
}


def memory_kib(field: str) -> int:
    """What Linux says of this process: ``VmRSS`` now, ``VmHWM`` at its highest."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


def main() -> None:
    bombs = [(codec, make()) for codec, make in BOMBS.values()]
    for codec in Codec:
        decompress(codec, compress(codec, bytes(100)), 100)  # imports its library
    Path("/proc/self/clear_refs").write_text("5")  # forgets the highest so far
    before_kib = memory_kib("VmRSS")
    for codec, bomb in bombs:
        try:
            decompress(codec, bomb, LIMIT_BYTES)
        except MessageTooLargeError:
            continue
        raise AssertionError(f"a bomb of {codec.name} passed")
    print((memory_kib("VmHWM") - before_kib) * 1024)  # noqa: T201


if __name__ == "__main__":
    main()
