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


def snappy_bomb(size_bytes: int) -> bytes:
    """Raw snappy: one literal byte, then copies of 64 bytes each."""
    size = bytearray()
    rest = size_bytes
    while rest >= 0x80:
        size.append(rest & 0x7F | 0x80)
        rest >>= 7
    size.append(rest)
    return bytes(size) + b"\x00A" + b"\xfe\x01\x00" * (size_bytes // 64)


def zeros_by(start: Callable[[], Any], size_bytes: int) -> bytes:
    """Zeros compressed piece by piece, so that the test itself needs no memory."""
    writer = start()
    compressed = bytearray()
    for _ in range(size_bytes // MIB):
        compressed += writer.compress(bytes(MIB))
    return bytes(compressed + writer.flush())


def lz4_zeros(size_bytes: int) -> bytes:
    writer = lz4.frame.LZ4FrameCompressor(block_size=lz4.frame.BLOCKSIZE_MAX4MB)
    head = bytes(writer.begin())
    return (
        head
        + b"".join(writer.compress(bytes(MIB)) for _ in range(size_bytes // MIB))
        + bytes(writer.flush())
    )


def declared_zstd() -> bytes:
    start = zstandard.ZstdCompressor().compressobj
    return zeros_by(lambda: start(size=BOMB_BYTES), BOMB_BYTES)


BOMBS: dict[str, tuple[Codec, Callable[[], bytes]]] = {
    "gzip": (Codec.GZIP, lambda: zeros_by(lambda: zlib.compressobj(9, wbits=31), BOMB_BYTES)),
    "gzip-members": (Codec.GZIP, lambda: gzip.compress(bytes(MIB)) * 256),
    "snappy": (Codec.SNAPPY, lambda: snappy_bomb(BOMB_BYTES)),
    "snappy-claim": (Codec.SNAPPY, lambda: b"\xff\xff\xff\xff\x0f\x00A"),
    "snappy-blocks": (Codec.SNAPPY, lambda: compress(Codec.SNAPPY, bytes(MIB)) * 256),
    "lz4": (Codec.LZ4, lambda: lz4_zeros(BOMB_BYTES)),
    "lz4-frames": (Codec.LZ4, lambda: lz4.frame.compress(bytes(MIB)) * 256),
    "zstd": (Codec.ZSTD, lambda: zeros_by(zstandard.ZstdCompressor().compressobj, BOMB_BYTES)),
    "zstd-declared": (Codec.ZSTD, declared_zstd),
    "zstd-frames": (Codec.ZSTD, lambda: zstandard.compress(bytes(MIB)) * 256),
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
