"""What a key index notes of batches: for each record with a key a number of 64 bits.

Its upper half is a hash of the key under a secret, its lower half where the record's batch begins
in its segment, so that entries in the order of their numbers are in the order of hashes, and of
offsets for each.

1. Two keys may have one hash: whoever follows an entry compares the key.  Without the secret nobody
   can look for such keys.
2. Of a window every whole batch is noted, compressed or not, of a transaction or not; markers have
   no keys.
3. No batch is believed that does not match its checksum.

Files are the business of storage (``storage/key_index.py``).
"""

from array import array
from typing import Final

from waystation.records import keys
from waystation.records.codec import BATCH_FIELDS
from waystation.records.header import HEADER_BYTES
from waystation.records.sieve import Places, whole_batch

__all__ = ["KeyEntries", "Places", "Secret", "Sorting", "hash_of", "secret_of"]

Secret = tuple[int, int]

_PASSES: Final = (32, 43, 54)
_LEAST_ROOM: Final = 4_096


def secret_of(content: bytes) -> Secret:
    """Sixteen bytes as the two numbers that hashes are made with."""
    return int.from_bytes(content[:8], "little"), int.from_bytes(content[8:16], "little")


def hash_of(secret: bytes, key: bytes) -> int:
    """The 32 bits that stand for ``key``."""
    return keys.brief_hash(secret_of(secret), key) & 0xFFFFFFFF


class Sorting:
    """Memory in which entries are sorted, used again for the next: new memory costs more."""

    __slots__ = ("_first", "_second")

    def __init__(self) -> None:
        self._first, self._second = array("Q"), array("Q")

    def sort(self, entries: "array[int]", count: int) -> "array[int]":
        """The first ``count`` of them in order, of which those of one hash were; until the next."""
        if len(self._first) < count:
            self._first, self._second = (array("Q", bytes(8 * count)) for _ in range(2))
        source, target, spare = entries, self._first, self._second
        for shift in _PASSES:
            keys.sort_pass(source, target, count, shift)
            source, target, spare = target, spare, target
        return source


class KeyEntries:
    """The entries of one stretch of a segment, in the order of its batches."""

    __slots__ = ("_places", "_secret", "count", "end_offset", "entries", "last_at", "last_header")

    def __init__(self, secret: bytes, places: Places) -> None:
        """``places`` may be shared by all that one thread uses."""
        self._places = places
        self._secret = secret_of(secret)
        self.entries = array("Q", bytes(8 * _LEAST_ROOM))
        self.count = 0
        self.last_at = -1
        """Where the last batch that was noted begins; -1 if there is none."""
        self.last_header = b""
        self.end_offset = -1
        """The offset behind that batch."""

    def clear(self) -> None:
        """Begin with the next stretch."""
        self.count, self.last_at, self.last_header = 0, -1, b""

    def take(self, window: memoryview, position: int, most: int) -> int:
        """Note the batches of ``window``, which begins at ``position``; how many bytes they take.

        Stops behind the batch with which there are ``most`` entries.

        HOT: a few times per megabyte of a topic with ``index.keys``.
        """
        places, at = self._places, 0
        while self.count < most:
            count, behind, records = places.find_many(window, at)
            if count:
                self._make_room(records)
                self.count = keys.note_batches(
                    window,
                    places.numbers,
                    places.batches,
                    count,
                    position,
                    self._secret,
                    self.entries,
                    self.count,
                )
                last = places.batches[(count - 1) * BATCH_FIELDS]
                self._passed(window, last, position, places.batches[(count - 1) * BATCH_FIELDS + 2])
                at = behind
                continue
            header = whole_batch(window, at)
            if header is None:
                break
            if header.records_count and not header.is_control:
                records = places.find(window[at : at + header.size_bytes], header)
                self._make_room(records)
                self.count = keys.note_records(
                    places.payload,
                    places.numbers,
                    records,
                    position + at,
                    self._secret,
                    self.entries,
                    self.count,
                )
            self._passed(window, at, position, header.next_offset)
            at += header.size_bytes
        return at

    def _passed(self, window: memoryview, at: int, position: int, end_offset: int) -> None:
        self.last_at, self.end_offset = position + at, end_offset
        self.last_header = bytes(window[at : at + HEADER_BYTES])

    def _make_room(self, records: int) -> None:
        wanted = self.count + records
        if wanted > len(self.entries):
            more = max(wanted, 2 * len(self.entries)) - len(self.entries)
            self.entries.frombytes(bytes(8 * more))
