"""Which idempotency keys a partition remembers, and the messages that came with them.

1. The newest message of a key is found by the key's hash for as long as the window says.
2. Every replica that has the same batches remembers the same, and so does one that was restarted
   (``once_files.py``): the batches alone decide, no clock.
3. What is cut off the log is forgotten with it; what retention or compaction take is not.
4. A key takes 48 bytes, and a third more that is lost to growing; nothing else is kept per key.

Keys lie in buckets by the first bits of their hash, in the order of their offsets.  A bucket is
searched as one string of bytes: of a million keys it has 250, which takes some microseconds.
"""

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Final

from waystation.model.offsets import Millis, Offset
from waystation.records.once import OnceEntry

__all__ = ["ENTRY_BYTES", "PAGES", "OnceWindow", "entries_before", "newest_in"]

_ENTRY = Struct(">16sq8sqq")
ENTRY_BYTES: Final = _ENTRY.size
_OFFSET = Struct(">q")
_OFFSET_AT: Final = 16
_AT: Final = 32
_BUCKET_SHIFT: Final = 4
_BUCKETS: Final = 1 << (16 - _BUCKET_SHIFT)
_BUCKETS_PER_TURN: Final = 64
_PAGE_BYTES: Final = 64 << 10
_BUCKETS_PER_PAGE: Final = 512
PAGES: Final = _BUCKETS
"""So many there may be, some of them passed over."""
_NEVER: Final = Offset((1 << 63) - 1)


class OnceWindow:
    """The keys of one partition.  Belongs to the loop's thread."""

    __slots__ = ("_buckets", "_count", "_expired_to", "_fresh", "_taken", "fresh_since")

    def __init__(self) -> None:
        self._buckets: dict[int, bytearray] = {}
        self._count = 0
        self._expired_to = 0
        self._fresh = bytearray()
        self._taken: list[tuple[Offset, bytes]] = []
        self.fresh_since = Offset(0)
        """From which offset on what is fresh is gathered; else it is looked for when wanted."""

    def __len__(self) -> int:
        """How many are remembered, some of them perhaps for longer than they must be."""
        return self._count

    def __iter__(self) -> Iterator[OnceEntry]:
        for bucket in self._buckets.values():
            for fields in _ENTRY.iter_unpack(bytes(bucket)):
                yield OnceEntry._make(fields)

    def find(self, hashed: bytes) -> OnceEntry | None:
        """The newest message of a key, however old it is."""
        bucket = self._buckets.get(_bucket(hashed))
        if bucket is None:
            return None
        at = bucket.rfind(hashed)
        while at > 0 and at % ENTRY_BYTES:
            # Sixteen bytes of something else; begin before them.
            at = bucket.rfind(hashed, 0, at + len(hashed) - 1)
        return None if at < 0 else OnceEntry._make(_ENTRY.unpack_from(bucket, at))

    def page(self, first: int, end: Offset) -> tuple[bytes, int]:
        """Some of the keys before ``end``, and which page is next; -1 if there is none.

        Keys of one page, and pages, are in the order in which ``load`` wants them.
        """
        if not self._buckets:
            return b"", -1
        packed, number = bytearray(), first
        last = min(first + _BUCKETS_PER_PAGE, _BUCKETS)
        while number < last and len(packed) < _PAGE_BYTES:
            bucket = self._buckets.get(number)
            if bucket is not None:
                packed += bucket[: _place(bucket, end)]
            number += 1
        return bytes(packed), number if number < _BUCKETS else -1

    # --- what the log says ----------------------------------------------------------------------

    def note(self, entries: Iterable[OnceEntry]) -> None:
        """Remember messages that were appended, or are found in the log.

        Those that are remembered already are passed over, which is why a log may be replayed
        from any point before its end.
        """
        for entry in entries:
            packed = _ENTRY.pack(*entry)
            if self._add(packed, entry.hashed, entry.offset):
                self._fresh += packed

    def load(self, packed: bytes) -> None:
        """Remember what ``take_fresh`` gave once."""
        for at in range(0, len(packed), ENTRY_BYTES):
            one = packed[at : at + ENTRY_BYTES]
            self._add(one, one, _OFFSET.unpack_from(one, _OFFSET_AT)[0])

    def _add(self, packed: bytes, hashed: bytes, offset: int) -> bool:
        bucket = self._buckets.setdefault(_bucket(hashed), bytearray())
        if bucket and _last_offset(bucket) >= offset:
            return False
        bucket += packed
        self._count += 1
        return True

    def cut(self, offset: Offset) -> None:
        """Forget everything from ``offset`` on: it was cut off the log."""
        for number, bucket in list(self._buckets.items()):
            end = _place(bucket, offset)
            if end < len(bucket):
                self._keep(number, bucket, bucket[:end])
        self._fresh = bytearray(entries_before(self._fresh, offset))
        self._taken = [(end, entries_before(packed, offset)) for end, packed in self._taken]
        self.fresh_since = min(self.fresh_since, offset)

    def expire(self, before: Millis) -> None:
        """Forget what was stored before ``before``, in some of the buckets.

        All of them at once would be a long turn of the loop: 64 calls go round.
        """
        first = self._expired_to
        self._expired_to = (first + _BUCKETS_PER_TURN) % _BUCKETS
        for number in range(first, first + _BUCKETS_PER_TURN):
            bucket = self._buckets.get(number)
            if bucket is None:
                continue
            start = 0
            while start < len(bucket) and _stored_at(bucket, start) < before:
                start += ENTRY_BYTES
            if start < len(bucket) and _stored_at(bucket, start) > _stored_at(
                bucket, len(bucket) - ENTRY_BYTES
            ):
                # A clock went back: what is first here would hold up all that follows.
                self._keep(number, bucket, _since_in(bucket, before))
            elif start:
                self._keep(number, bucket, bucket[start:])

    def _keep(self, number: int, bucket: bytearray, kept: bytearray) -> None:
        self._count -= (len(bucket) - len(kept)) // ENTRY_BYTES
        if kept:
            self._buckets[number] = kept
        else:
            del self._buckets[number]

    # --- what a checkpoint writes ---------------------------------------------------------------

    def take_fresh(self, written_to: Offset, end: Offset) -> bytes:
        """What is new since ``written_to``, where ``end`` is the end of the log.

        What was taken before and never written is taken again; it is kept until then, because
        to look for it among all keys would be a long turn of the loop.
        """
        if written_to < self.fresh_since:
            self._fresh, self._taken = self._since(written_to), []
            self.fresh_since = written_to
        self.let_go(written_to)
        self._taken.append((end, bytes(self._fresh)))
        self._fresh = bytearray()
        return b"".join(packed for _, packed in self._taken)

    def let_go(self, written_to: Offset) -> None:
        """What was taken and lies before ``written_to`` is on disk: it is not asked for again."""
        if self._taken and self._taken[0][0] <= written_to:
            self._taken = [one for one in self._taken if one[0] > written_to]
            self.fresh_since = max(self.fresh_since, written_to)

    def _since(self, offset: Offset) -> bytearray:
        fresh = bytearray()
        for bucket in self._buckets.values():
            fresh += bucket[_place(bucket, offset) :]
        return fresh

    def copied(self) -> "OnceWindow":
        """The same, for a log whose files say nothing of it yet."""
        other = OnceWindow()
        other._buckets = {number: bucket[:] for number, bucket in self._buckets.items()}
        other._count, other.fresh_since = self._count, _NEVER
        return other


def entries_before(packed: bytes | bytearray, offset: Offset) -> bytes:
    """The entries among ``packed`` that lie before ``offset``."""
    return b"".join(
        packed[at : at + ENTRY_BYTES]
        for at in range(0, len(packed), ENTRY_BYTES)
        if _OFFSET.unpack_from(packed, at + _OFFSET_AT)[0] < offset
    )


def newest_in(packed: bytes) -> Millis:
    """When the last of the entries in ``packed`` was stored."""
    return Millis(
        max(
            (_OFFSET.unpack_from(packed, at)[0] for at in range(_AT, len(packed), ENTRY_BYTES)),
            default=0,
        )
    )


def _bucket(hashed: bytes) -> int:
    return int.from_bytes(hashed[:2], "big") >> _BUCKET_SHIFT


def _stored_at(bucket: bytearray, place: int) -> int:
    at: int = _OFFSET.unpack_from(bucket, place + _AT)[0]
    return at


def _since_in(bucket: bytearray, since: Millis) -> bytearray:
    """What was stored at ``since`` or later, in whatever order."""
    kept = bytearray()
    for place in range(0, len(bucket), ENTRY_BYTES):
        if _stored_at(bucket, place) >= since:
            kept += bucket[place : place + ENTRY_BYTES]
    return kept


def _place(bucket: bytearray, offset: Offset) -> int:
    """Where the entries from ``offset`` on begin."""
    low, high = 0, len(bucket) // ENTRY_BYTES
    while low < high:
        middle = (low + high) // 2
        if _OFFSET.unpack_from(bucket, middle * ENTRY_BYTES + _OFFSET_AT)[0] < offset:
            low = middle + 1
        else:
            high = middle
    return low * ENTRY_BYTES


def _last_offset(bucket: bytearray) -> int:
    offset: int = _OFFSET.unpack_from(bucket, len(bucket) - ENTRY_BYTES + _OFFSET_AT)[0]
    return offset
