"""The four codecs that Kafka clients use, each unable to fill the memory.

A few hundred bytes can claim to hold gigabytes, so ``decompress`` is told a limit and keeps
three promises whatever the bytes are:

1. it makes no more than ``limit_bytes`` of output and holds at most twice that;
2. output past the limit is ``MessageTooLargeError``, bytes that are not of the codec are
   ``CorruptBatchError``, and nothing else is raised;
3. what Kafka's clients write is understood: several gzip members or lz4 and zstd frames after
   one another, snappy with and without xerial's frame around it.

What ``compress`` writes, Kafka's Java client reads: its lz4 wants independent blocks, its
snappy xerial's frame.  Each library is imported by its first use.
"""

from collections.abc import Callable
from enum import IntEnum
from io import BytesIO

from waystation.model.errors import CorruptBatchError, MessageTooLargeError
from waystation.records.record import Buffer

__all__ = ["Codec", "compress", "decompress"]

# What one call of a library may read and write; small enough that bytes it leaves over are
# cheap to offer again, large enough that calls do not count.
_PIECE_BYTES = 16 << 10
_OUTPUT_BYTES = 64 << 10

_GZIP_WBITS = 31

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + (1).to_bytes(4, "big") * 2
_XERIAL_BLOCK_BYTES = 32 << 10
# Three bytes copy 64 at most, so no honest block claims to expand more than this.
_SNAPPY_MOST_EXPANSION = 22

_ZSTD_BLOCK_BYTES = 128 << 10
_ZSTD_HEADER_MOST_BYTES = 18
_ZSTD_SKIPPABLE = range(0x184D2A50, 0x184D2A60)

_Step = Callable[[memoryview], tuple[bytes, int, bool]]
"""Takes input; gives output, how many bytes it took, and whether the frame ended there."""


class Codec(IntEnum):
    """How the records of a batch are compressed, by its number in the batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(codec: Codec, payload: Buffer, level: int | None = None) -> bytes:
    """Compress at ``level``, or as the codec's library prefers; snappy has no levels."""
    match codec:
        case Codec.NONE:
            return bytes(payload)
        case Codec.GZIP:
            import zlib

            return zlib.compress(payload, -1 if level is None else level, _GZIP_WBITS)
        case Codec.SNAPPY:
            return _xerial(memoryview(payload))
        case Codec.LZ4:
            from lz4 import frame  # type: ignore[import-untyped]  # lz4 ships no types

            return bytes(
                frame.compress(
                    payload, compression_level=level or 0, block_linked=False, store_size=False
                )
            )
        case Codec.ZSTD:
            from zstandard import ZstdCompressor

            return ZstdCompressor(3 if level is None else level).compress(payload)


def decompress(codec: Codec, payload: Buffer, limit_bytes: int) -> bytes:
    """The payload as it was before ``compress``, or an error once it passes ``limit_bytes``."""
    view = memoryview(payload)
    sink = _Sink(limit_bytes)
    match codec:
        case Codec.NONE:
            sink.write(view)
        case Codec.GZIP:
            _read_frames(_gzip_member, view, sink)
        case Codec.SNAPPY:
            _read_snappy(view, sink)
        case Codec.LZ4:
            _read_frames(_lz4_frame, view, sink)
        case Codec.ZSTD:
            _read_zstd(view, sink)
    return sink.content()


class _Sink:
    """Output so far; a byte past the limit is refused before it is kept."""

    __slots__ = ("_kept", "limit_bytes", "room_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self._kept = BytesIO()
        self.limit_bytes = self.room_bytes = limit_bytes

    def expect(self, size_bytes: int) -> None:
        """Refuse, before it is made, output that is known to be larger than the room left."""
        if size_bytes > self.room_bytes:
            size_bytes += self.limit_bytes - self.room_bytes
            raise MessageTooLargeError(size_bytes, self.limit_bytes, "the uncompressed batch")

    def write(self, piece: Buffer) -> None:
        self.expect(len(piece))
        self.room_bytes -= len(piece)
        self._kept.write(piece)

    def content(self) -> bytes:
        return self._kept.getvalue()


# --- gzip and lz4: streams of frames --------------------------------------------------------


def _read_frames(start: Callable[[], _Step], view: memoryview, sink: _Sink) -> None:
    at = 0
    while at < len(view):
        step, ended = start(), False
        while not ended:
            piece, taken, ended = step(view[at : at + _PIECE_BYTES])
            sink.write(piece)
            at += taken
            if not (ended or taken or piece):
                raise CorruptBatchError(f"compressed records end in mid-frame after {at} bytes")


def _gzip_member() -> _Step:
    import zlib

    member = zlib.decompressobj(_GZIP_WBITS)

    def step(piece: memoryview) -> tuple[bytes, int, bool]:
        try:
            out = member.decompress(piece, _OUTPUT_BYTES)
        except zlib.error as error:
            raise CorruptBatchError(f"records are not gzip: {error}") from None
        left = len(member.unused_data) if member.eof else len(member.unconsumed_tail)
        return out, len(piece) - left, member.eof

    return step


def _lz4_frame() -> _Step:
    from lz4 import frame

    context = frame.create_decompression_context()

    def step(piece: memoryview) -> tuple[bytes, int, bool]:
        try:
            out, taken, ended = frame.decompress_chunk(context, piece, max_length=_OUTPUT_BYTES)
        except RuntimeError as error:
            raise CorruptBatchError(f"records are not lz4: {error}") from None
        return out, taken, ended

    return step


# --- snappy ---------------------------------------------------------------------------------


def _xerial(view: memoryview) -> bytes:
    from cramjam import snappy

    out = BytesIO()
    out.write(_XERIAL_HEADER)
    for at in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = snappy.compress_raw(view[at : at + _XERIAL_BLOCK_BYTES])
        out.write(len(block).to_bytes(4, "big"))
        out.write(block)
    return out.getvalue()


def _read_snappy(view: memoryview, sink: _Sink) -> None:
    if view[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        _read_snappy_block(view, sink)
        return
    at = 0
    while at < len(view):
        if view[at : at + len(_XERIAL_MAGIC)] == _XERIAL_MAGIC:
            at = _inside(view, at + len(_XERIAL_HEADER))
        else:
            block = _inside(view, at + 4)
            at = _inside(view, block + int.from_bytes(view[at:block], "big"))
            _read_snappy_block(view[block:at], sink)


def _read_snappy_block(block: memoryview, sink: _Sink) -> None:
    from cramjam import DecompressionError, snappy

    try:
        size = snappy.decompress_raw_len(block)
        sink.expect(size)
        if size > _SNAPPY_MOST_EXPANSION * len(block):
            raise CorruptBatchError(f"snappy block of {len(block)} bytes claims {size}")
        sink.write(memoryview(snappy.decompress_raw(block)))
    except DecompressionError as error:
        raise CorruptBatchError(f"records are not snappy: {error}") from None


# --- zstd -----------------------------------------------------------------------------------


def _read_zstd(view: memoryview, sink: _Sink) -> None:
    """Decompress frame by frame, each into room that its block headers allow.

    The library believes the size that a frame declares over any limit, and without one it
    cannot tell a cut frame from a full buffer; so the frame's outline is read first.
    """
    from zstandard import ZstdDecompressor, ZstdError

    decompressor = ZstdDecompressor()
    at = 0
    while at < len(view):
        end, least, most = _zstd_outline(view, at)
        sink.expect(least)
        if most:
            room = min(most, sink.room_bytes)
            try:
                sink.write(decompressor.decompress(view[at:end], max_output_size=room))
            except ZstdError as error:
                sink.expect(most)
                raise CorruptBatchError(f"records are not zstd: {error}") from None
        at = end


def _zstd_outline(view: memoryview, at: int) -> tuple[int, int, int]:
    """Where the frame at ``at`` ends, and the least and most that it may expand to."""
    if int.from_bytes(view[at : at + 4], "little") in _ZSTD_SKIPPABLE:
        end = at + 8 + int.from_bytes(view[at + 4 : at + 8], "little")
        return _inside(view, end), 0, 0
    from zstandard import CONTENTSIZE_UNKNOWN, ZstdError, frame_header_size, get_frame_parameters

    head = bytes(view[at : at + _ZSTD_HEADER_MOST_BYTES])
    try:
        frame, end = get_frame_parameters(head), at + frame_header_size(head)
    except ZstdError as error:
        raise CorruptBatchError(f"records are not zstd: {error}") from None
    end, least, most = _zstd_blocks(view, end, min(frame.window_size, _ZSTD_BLOCK_BYTES))
    end = _inside(view, end + 4 * frame.has_checksum)
    if frame.content_size == CONTENTSIZE_UNKNOWN:
        return end, least, most
    if not least <= frame.content_size <= most:
        raise CorruptBatchError(f"zstd frame declares {frame.content_size} bytes, has {most}")
    return end, frame.content_size, frame.content_size


def _zstd_blocks(view: memoryview, at: int, block_bytes: int) -> tuple[int, int, int]:
    least = most = last = 0
    while not last:
        head = int.from_bytes(view[at : _inside(view, at + 3)], "little")
        last, kind, size = head & 1, head >> 1 & 3, head >> 3
        match kind:
            case 0 | 1:
                least, most = least + size, most + size
                at += 3 + (1 if kind else size)
            case 2:
                most += block_bytes
                at += 3 + size
            case _:
                raise CorruptBatchError(f"zstd block at byte {at} has the reserved type")
    return at, least, most


def _inside(view: memoryview, end: int) -> int:
    if end > len(view):
        raise CorruptBatchError(f"compressed records should reach byte {end} of {len(view)}")
    return end
