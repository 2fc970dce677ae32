"""The file of a segment's key index: blocks of sorted entries, one behind the other.

A block covers a stretch of the segment, from where the block before it ends, and holds an entry
(``records/key_entries.py``) for each key in each batch there.  It ends with the header of the last
batch that it covers, word for word: **a block counts if that batch is still there, at its place.**
An offset has one batch per leader epoch, and compaction only ever makes a log shorter, so that all
before it is the same then; whatever cut, compacted or replaced the segment meanwhile, nobody has to
tell the index.

A block is believed once its checksum was seen to match in this process.  Nothing is ever synced
here: after a crash blocks are torn or missing, and are made anew from the log.

An entry is found with two reads: where the entries of the hash's first bits lie, then those.
"""

import struct
from array import array
from bisect import bisect_left
from typing import Final, NamedTuple

from crc32c import crc32c

from waystation.records import keys
from waystation.records.header import HEADER_BYTES, Buffer
from waystation.records.key_entries import KeyEntries, Sorting
from waystation.runtime.regions import ReadableFile

__all__ = [
    "BLOCK_ENTRIES",
    "Block",
    "OvertakenError",
    "encode_block",
    "find_positions",
    "read_block",
]

BLOCK_ENTRIES: Final = 1 << 18
"""How many entries a block has at most, about: as much stays in memory, and is read after a start,
of each log; and so many more are looked at for each look-up."""

_MAGIC: Final = b"WSKEYS1\n"
_HEADER: Final = struct.Struct(f"<8sqIIIIIB16s{HEADER_BYTES}sI")
_ENDS: Final = struct.Struct("<II")
_CHECKSUM: Final = struct.Struct("<I")
_HEAD_BYTES: Final = _HEADER.size + _CHECKSUM.size
_ENTRY_BYTES: Final = 8
_BUCKET_BYTES: Final = 4
_HASH_BITS: Final = 32
_POSITION: Final = (1 << 32) - 1
# So that a bucket has about this many entries.
_BUCKET_ENTRIES_BITS: Final = 6
# A bucket with more has a key with very many messages, and is searched in place.
_READ_ENTRIES: Final = 2_048
_VERIFY_BYTES: Final = 1 << 20


class OvertakenError(Exception):
    """The log was cut, or its files are not what they were: look again."""


class Block(NamedTuple):
    """Where a block lies in its file, and what it covers."""

    at: int
    start: int
    end: int
    """Positions in the segment: it covers ``[start, end)``."""
    last_at: int
    """Where the last batch in there begins."""
    entries: int
    bits: int
    secret: bytes
    last_header: bytes

    @property
    def size_bytes(self) -> int:
        """Of the block in its file."""
        return self.entries_at - self.at + self.entries * _ENTRY_BYTES

    @property
    def entries_at(self) -> int:
        """Where its entries begin."""
        return self.at + _HEAD_BYTES + _BUCKET_BYTES * ((1 << self.bits) + 1)


def encode_block(
    noted: KeyEntries,
    sorting: Sorting,
    secret: bytes,
    base_offset: int,
    at: int,
    start: int,
    end: int,
) -> tuple[Block, list[Buffer]]:
    """The block of what was noted of ``[start, end)``, to be written at ``at`` in these pieces."""
    count = noted.count
    bits = max(count.bit_length() - _BUCKET_ENTRIES_BITS, 0)
    entries, ends = sorting.sort(noted.entries, count), array("I", bytes(4 * ((1 << bits) + 1)))
    keys.count_buckets(entries, count, bits, ends)
    body = [memoryview(ends).cast("B"), memoryview(entries)[:count].cast("B")]
    head = _HEADER.pack(
        _MAGIC,
        base_offset,
        start,
        end,
        noted.last_at,
        count,
        0,
        bits,
        secret,
        noted.last_header,
        crc32c(body[1], crc32c(body[0])),
    )
    block = Block(at, start, end, noted.last_at, count, bits, secret, noted.last_header)
    return block, [head + _CHECKSUM.pack(crc32c(head)), *body]


def read_block(
    file: ReadableFile, at: int, base_offset: int, start: int, segment: ReadableFile, size: int
) -> Block | None:
    """The block at ``at``, if it is whole and covers the ``segment`` as it is from ``start`` on."""
    head = file.pread(_HEAD_BYTES, at)
    if (
        len(head) < _HEAD_BYTES
        or crc32c(head[: _HEADER.size]) != _CHECKSUM.unpack_from(head, _HEADER.size)[0]
    ):
        return None
    magic, base, begins, end, last_at, count, _, bits, secret, last, checksum = _HEADER.unpack_from(
        head
    )
    if (magic, base, begins) != (_MAGIC, base_offset, start) or not start <= last_at < end <= size:
        return None
    block = Block(at, begins, end, last_at, count, bits, secret, last)
    if segment.pread(HEADER_BYTES, last_at) != last or not _matches(file, block, checksum):
        return None
    return block


def _matches(file: ReadableFile, block: Block, checksum: int) -> bool:
    position, end, found = block.at + _HEAD_BYTES, block.at + block.size_bytes, 0
    while position < end:
        piece = file.pread(min(_VERIFY_BYTES, end - position), position)
        if not piece:
            return False
        found = crc32c(piece, found)
        position += len(piece)
    return found == checksum


def find_positions(
    file: ReadableFile, block: Block, wanted: int, since: int, most: int
) -> list[int]:
    """Up to ``most`` positions from ``since`` on of batches with a key of the hash ``wanted``.

    HOT: per look-up once for each block of what is looked at.
    """
    if not block.entries:
        return []
    bucket = wanted >> (_HASH_BITS - block.bits)
    low, high = _ENDS.unpack(_read(file, _ENDS.size, block.at + _HEAD_BYTES + 4 * bucket))
    if low == high:
        return []
    first, behind = wanted << 32 | max(since, 0), (wanted + 1) << 32
    if high - low > _READ_ENTRIES:
        low = _search(file, block, first, low, high)
    found: list[int] = []
    while low < high and len(found) < most:
        some = min(high - low, _READ_ENTRIES)
        entries = array("Q", _read(file, some * _ENTRY_BYTES, _entry_at(block, low)))
        for number in range(bisect_left(entries, first), some):
            entry = entries[number]
            if entry >= behind:
                return found[:most]
            # A key that a batch has twice is noted twice.
            if not found or found[-1] != entry & _POSITION:
                found.append(entry & _POSITION)
        low += some
    return found[:most]


def _entry_at(block: Block, number: int) -> int:
    return block.entries_at + number * _ENTRY_BYTES


def _read(file: ReadableFile, nbytes: int, at: int) -> bytes:
    """All of them: they were there when the block was believed."""
    content = file.pread(nbytes, at)
    if len(content) < nbytes:
        raise OvertakenError
    return content


def _search(file: ReadableFile, block: Block, wanted: int, low: int, high: int) -> int:
    """The number of the first entry that is not less than ``wanted``."""
    while low < high:
        middle = (low + high) // 2
        piece = _read(file, _ENTRY_BYTES, _entry_at(block, middle))
        if int.from_bytes(piece, "little") < wanted:
            low = middle + 1
        else:
            high = middle
    return low
