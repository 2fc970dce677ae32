# cython: annotation_typing=False, boundscheck=False, wraparound=False, cdivision=True
"""The last offset of each key of a log, in as much memory as was agreed on.

A slot holds an offset and 128 bits that stand for a key; keys themselves are not kept.

1. A map never grows: when it is full it says so, at a record, and the caller goes on with
   what it has.
2. No two keys are taken for one.  Their hashes are SipHash-2-4's of 128 bits under a secret
   that every map is given anew: among a billion keys the chance that any two are equal is
   1 in 10**21, and whoever writes records cannot look for such keys without the secret.
3. Both twins answer alike: ``keys.pxd`` gives the C types, as ``codec.pxd`` does.

Records are found by ``codec.locate_records`` first; its numbers say where their keys lie.  The
functions at the end make the entries of a key index (``key_entries.py``) of the same hashes.
"""

from array import array
from mmap import mmap

from waystation.model.ids import ProducerId
from waystation.model.offsets import Offset
from waystation.records.codec import BATCH_FIELDS, PLACE_FIELDS
from waystation.records.record import Buffer

__all__ = [
    "SLOT_BYTES",
    "KeyMap",
    "brief_hash",
    "count_buckets",
    "key_hash",
    "note_batches",
    "note_records",
    "scan_entries",
    "sort_pass",
]

SLOT_BYTES = 24

_FIELDS = PLACE_FIELDS
_BATCH_FIELDS = BATCH_FIELDS
_OFFSET, _TIMESTAMP, _KEY_AT, _KEY_BYTES, _VALUE_BYTES = range(4, PLACE_FIELDS)
_WORD = (1 << 64) - 1
_HALF = (1 << 32) - 1
_PILES = 1 << 11
_PILE_MASK = _PILES - 1
# SipHash's own; by name, for a literal of this size would be a Python object in C too.
_A, _B = 0x736F6D6570736575, 0x646F72616E646F6D
_C, _D = 0x6C7967656E657261, 0x7465646279746573


class KeyMap:
    """Open addressing in one array; at most three quarters of the slots are used."""

    __slots__ = (
        "_first_secret",
        "_hashes",
        "_second_secret",
        "_slots",
        "_table",
        "count",
        "limit",
    )

    def __init__(self, slots: int, secret: bytes) -> None:
        """Room for three quarters of ``slots`` keys; ``secret`` are 16 bytes nobody foresees."""
        assert len(secret) == 16, f"a secret of {len(secret)} bytes"
        self._slots = max(slots, 4)
        # The system's memory is zeroed page by page when it is first used; an array would be
        # filled at once, with everybody waiting.
        self._table = memoryview(mmap(-1, self._slots * SLOT_BYTES)).cast("Q")
        self._hashes = array("Q")
        self._first_secret = int.from_bytes(secret[:8], "little")
        self._second_secret = int.from_bytes(secret[8:], "little")
        self.count = 0
        self.limit = self._slots // 4 * 3

    def note(self, payload: Buffer, places: "array[int]", count: int, since: int) -> int:
        """Note the keys of ``count`` records that are at or past ``since``.

        Returns how many records could be looked at: fewer than ``count`` if the map is full.

        HOT: for every record that was not compacted yet: 0.1 µs compiled.
        """
        at = 0
        self._hash_all(payload, places, count)
        for index in range(count):
            offset = places[at + _OFFSET]
            if places[at + _KEY_BYTES] >= 0 and offset >= since:
                low = self._hashes[2 * index]
                high = self._hashes[2 * index + 1]
                slot = self._find(low, high)
                if self._table[slot + 2] == 0:
                    if self.count >= self.limit:
                        return index
                    self.count += 1
                    self._table[slot] = low
                    self._table[slot + 1] = high
                if self._table[slot + 2] <= offset:
                    self._table[slot + 2] = offset + 1
            at += _FIELDS
        return count

    def sift(
        self,
        payload: Buffer,
        places: "array[int]",
        count: int,
        upto: int,
        drop_tombstones: bool,
    ) -> tuple[int, int, int]:
        """Move the places of the records that stay to the front, in their order.

        Everything at or past ``upto`` stays, for the map does not know what follows it.
        Before it the last record of a key stays, unless it is a tombstone that may go, and
        a record without a key never.  Returns how many stay, how many of them are tombstones,
        and the greatest of their relative timestamps.

        HOT: for every record of a batch of which some stay and some go.
        """
        at = 0
        to = 0
        kept = 0
        tombstones = 0
        newest = 0
        self._hash_all(payload, places, count)
        for index in range(count):
            offset = places[at + _OFFSET]
            is_tombstone = places[at + _VALUE_BYTES] < 0
            stays = offset >= upto
            if (
                not stays
                and places[at + _KEY_BYTES] >= 0
                and not (drop_tombstones and is_tombstone)
            ):
                slot = self._find(self._hashes[2 * index], self._hashes[2 * index + 1])
                # An empty slot holds 0: nobody noted the key, so no later record has it.
                stays = self._table[slot + 2] <= offset + 1
            if stays:
                if kept == 0 or places[at + _TIMESTAMP] > newest:
                    newest = places[at + _TIMESTAMP]
                if is_tombstone:
                    tombstones += 1
                kept += 1
                if to != at:
                    for field in range(_FIELDS):
                        places[to + field] = places[at + field]
                to += _FIELDS
            at += _FIELDS
        return kept, tombstones, newest

    def judge(
        self,
        window: Buffer,
        places: "array[int]",
        batches: "array[int]",
        count: int,
        upto: int,
        end: int,
        last_of: "dict[ProducerId, Offset]",
    ) -> int:
        """Move the batches that must be looked at to the front, in their order; how many.

        Those that lose every record, and need not stay, are not among them: one must stay if
        it ends at ``end``, or ``last_of`` its producer is this one or unknown (-1).  In place
        of the number of its first record each then has 1 if it stays as it is, else 0.

        HOT: for every record that is compacted and not compressed, as ``note``.
        """
        to = 0
        if not 0 <= count * _BATCH_FIELDS <= len(batches):
            raise IndexError(f"no rows of {count} batches")
        for number in range(count):
            row = number * _BATCH_FIELDS
            at = batches[row + 3] * _FIELDS
            stop = at + batches[row + 4] * _FIELDS
            _check_range(places, at, stop, len(window))
            kept = False
            gone = False
            # A tombstone that stays is as good as a change: the batch may have to be dated.
            while at < stop and not (kept and gone):
                if places[at + _OFFSET] >= upto or self._is_last(window, places, at):
                    kept = True
                    gone = gone or places[at + _VALUE_BYTES] < 0
                else:
                    gone = True
                at += _FIELDS
            known = None
            if not kept and batches[row + 5] >= 0:
                # Not by the name of its type, which would be called in C too.
                known = last_of.get(batches[row + 5])  # type: ignore[call-overload]
            if (
                not kept
                and batches[row] + batches[row + 1] != end
                and (known is None or (known >= 0 and known != batches[row + 2] - 1))
            ):
                continue
            for field in range(_BATCH_FIELDS):
                batches[to + field] = batches[row + field]
            batches[to + 3] = 0 if gone else 1
            to += _BATCH_FIELDS
        return to // _BATCH_FIELDS

    def _is_last(self, payload: Buffer, places: "array[int]", at: int) -> bool:
        """Whether no later record has the key of this one; false for one without a key."""
        if places[at + _KEY_BYTES] < 0:
            return False
        low, high = _hash(
            self._first_secret,
            self._second_secret,
            payload,
            places[at + _KEY_AT],
            places[at + _KEY_BYTES],
        )
        return self._table[self._find(low, high) + 2] <= places[at + _OFFSET] + 1

    def _hash_all(self, payload: Buffer, places: "array[int]", count: int) -> None:
        """All hashes before the first look at the table.

        Its slots are rarely in a cache, and only looks that follow each other closely are
        waited for together: with a million keys that is twice as fast.
        """
        at = 0
        _check_range(places, 0, count * _FIELDS, len(payload))
        if len(self._hashes) < 2 * count:
            self._hashes = array("Q", [0]) * (2 * count)
        for index in range(count):
            if places[at + _KEY_BYTES] >= 0:
                low, high = _hash(
                    self._first_secret,
                    self._second_secret,
                    payload,
                    places[at + _KEY_AT],
                    places[at + _KEY_BYTES],
                )
                self._hashes[2 * index] = low
                self._hashes[2 * index + 1] = high
            at += _FIELDS

    def _find(self, low: int, high: int) -> int:
        """The slot of a hash, or the free one where it belongs; there is always a free one."""
        slot = low % self._slots * 3
        end = self._slots * 3
        while self._table[slot + 2] != 0:
            if self._table[slot] == low and self._table[slot + 1] == high:
                break
            slot += 3
            if slot == end:
                slot = 0
        return slot


def key_hash(secret: bytes, key: bytes) -> bytes:
    """The 16 bytes that stand for ``key`` in a map: for tests against published values."""
    low, high = _hash(
        int.from_bytes(secret[:8], "little"),
        int.from_bytes(secret[8:], "little"),
        key,
        0,
        len(key),
    )
    return int(low).to_bytes(8, "little") + int(high).to_bytes(8, "little")


def brief_hash(secret: tuple[int, int], key: bytes) -> int:
    """The 64 bits that stand for ``key`` in an index, where a hit is compared with the key."""
    return int(_brief_hash(secret[0], secret[1], key, 0, len(key)))


def note_records(
    payload: Buffer,
    places: "array[int]",
    count: int,
    position: int,
    secret: tuple[int, int],
    entries: "array[int]",
    to: int,
) -> int:
    """Write an entry for each key of a batch at ``position`` from ``entries[to]`` on; the new end.

    An entry is the lowest 32 bits of the key's brief hash above the batch's position.
    """
    first = secret[0]
    second = secret[1]
    _check_range(places, 0, count * _FIELDS, len(payload))
    if not 0 <= to <= len(entries) - count:
        raise IndexError(f"no room for {count} entries at {to}")
    return _note_entries(payload, places, 0, count * _FIELDS, position, first, second, entries, to)


def note_batches(
    window: Buffer,
    places: "array[int]",
    batches: "array[int]",
    count: int,
    position: int,
    secret: tuple[int, int],
    entries: "array[int]",
    to: int,
) -> int:
    """As ``note_records``, for ``count`` batches of a window that begins at ``position``.

    HOT: for every record of a topic with ``index.keys`` (benchmarks/storage/key_index.py).
    """
    first = secret[0]
    second = secret[1]
    if not 0 <= count * _BATCH_FIELDS <= len(batches):
        raise IndexError(f"no rows of {count} batches")
    for number in range(count):
        row = number * _BATCH_FIELDS
        at = batches[row + 3] * _FIELDS
        stop = at + batches[row + 4] * _FIELDS
        _check_range(places, at, stop, len(window))
        if not 0 <= to <= len(entries) - batches[row + 4]:
            raise IndexError(f"no room for {batches[row + 4]} entries at {to}")
        to = _note_entries(
            window, places, at, stop, position + batches[row], first, second, entries, to
        )
    return to


def _note_entries(
    view: Buffer,
    places: "array[int]",
    at: int,
    stop: int,
    position: int,
    first: int,
    second: int,
    entries: "array[int]",
    to: int,
) -> int:
    while at < stop:
        if places[at + _KEY_BYTES] >= 0:
            low = _brief_hash(first, second, view, places[at + _KEY_AT], places[at + _KEY_BYTES])
            entries[to] = ((low & _HALF) << 32) | position
            to += 1
        at += _FIELDS
    return to


def sort_pass(source: "array[int]", target: "array[int]", count: int, shift: int) -> None:
    """Bring ``count`` entries into the order of the eleven bits above ``shift``, else as they were.

    Three passes, from the lowest bits to the highest, sort them by their hashes.  One at a time,
    for nobody else has the interpreter meanwhile: some hundred microseconds for 262,144 entries.
    """
    if not 0 <= count <= min(len(source), len(target)) or not 0 <= shift <= 63:
        raise IndexError(f"no {count} entries, or no bits above {shift}")
    starts = array("q", [0]) * _PILES
    _sort_pass(source, target, count, shift, starts)


def _sort_pass(
    source: "array[int]", target: "array[int]", count: int, shift: int, starts: "array[int]"
) -> None:
    for index in range(count):
        pile = (source[index] >> shift) & _PILE_MASK
        starts[pile] += 1
    start = 0
    for pile in range(_PILES):
        size = starts[pile]
        starts[pile] = start
        start += size
    for index in range(count):
        pile = (source[index] >> shift) & _PILE_MASK
        target[starts[pile]] = source[index]
        starts[pile] += 1


def count_buckets(entries: "array[int]", count: int, bits: int, ends: "array[int]") -> None:
    """Let ``ends[i + 1]`` be how many entries have the first ``bits`` of their hash up to ``i``."""
    if not 0 <= count <= len(entries) or not 0 <= bits <= 24 or len(ends) != (1 << bits) + 1:
        raise IndexError(f"no {count} entries, or no room for the buckets of {bits} bits")
    shift = 64 - bits
    bucket = 0
    for index in range(count):
        # A shift by 64 is nobody's friend in C.
        wanted = entries[index] >> shift if bits else 0
        while bucket < wanted:
            ends[bucket + 1] = index
            bucket += 1
    while bucket < 1 << bits:
        ends[bucket + 1] = count
        bucket += 1


def scan_entries(entries: "array[int]", count: int, wanted: int, since: int) -> list[int]:
    """The positions from ``since`` on of entries, in no order of hashes, with the hash ``wanted``.

    HOT: once per look-up, for what no block holds yet.
    """
    found: list[int] = []
    if not 0 <= count <= len(entries):
        raise IndexError(f"no {count} entries")
    for index in range(count):
        entry = entries[index]
        if entry >> 32 == wanted and entry & _HALF >= since:
            found.append(entry & _HALF)
    return found


def _check_range(places: "array[int]", at: int, stop: int, payload_bytes: int) -> None:
    """Places that were not made of this payload would be read outside it."""
    if not 0 <= at <= stop <= len(places):
        raise IndexError(f"no places in [{at}, {stop})")
    while at < stop:
        if places[at + _KEY_BYTES] > 0 and not (
            0 <= places[at + _KEY_AT] <= payload_bytes - places[at + _KEY_BYTES]
        ):
            raise IndexError("a key outside the payload")
        at += _FIELDS


def _hash(first: int, second: int, view: Buffer, at: int, length: int) -> tuple[int, int]:
    """SipHash-2-4 with an output of two words."""
    a = first ^ _A
    b = second ^ _B ^ 0xEE
    c = first ^ _C
    d = second ^ _D
    end = at + length
    while end - at >= 8:
        word = _word(view, at)
        d ^= word
        a, b, c, d = _round(a, b, c, d)
        a, b, c, d = _round(a, b, c, d)
        a ^= word
        at += 8
    word = (length & 0xFF) << 56
    shift = 0
    while at < end:
        byte = view[at]
        word |= byte << shift
        shift += 8
        at += 1
    d ^= word
    a, b, c, d = _round(a, b, c, d)
    a, b, c, d = _round(a, b, c, d)
    a ^= word
    c ^= 0xEE
    for _ in range(4):
        a, b, c, d = _round(a, b, c, d)
    low = a ^ b ^ c ^ d
    b ^= 0xDD
    for _ in range(4):
        a, b, c, d = _round(a, b, c, d)
    return low, a ^ b ^ c ^ d


def _brief_hash(first: int, second: int, view: Buffer, at: int, length: int) -> int:
    """SipHash-1-3 with an output of one word: half the time of the other."""
    a = first ^ _A
    b = second ^ _B
    c = first ^ _C
    d = second ^ _D
    end = at + length
    while end - at >= 8:
        word = _word(view, at)
        d ^= word
        a, b, c, d = _round(a, b, c, d)
        a ^= word
        at += 8
    word = (length & 0xFF) << 56
    shift = 0
    while at < end:
        byte = view[at]
        word |= byte << shift
        shift += 8
        at += 1
    d ^= word
    a, b, c, d = _round(a, b, c, d)
    a ^= word
    c ^= 0xFF
    for _ in range(3):
        a, b, c, d = _round(a, b, c, d)
    return a ^ b ^ c ^ d


def _round(a: int, b: int, c: int, d: int) -> tuple[int, int, int, int]:
    a = (a + b) & _WORD
    b = _turned(b, 13) ^ a
    a = _turned(a, 32)
    c = (c + d) & _WORD
    d = _turned(d, 16) ^ c
    a = (a + d) & _WORD
    d = _turned(d, 21) ^ a
    c = (c + b) & _WORD
    b = _turned(b, 17) ^ c
    c = _turned(c, 32)
    return a, b, c, d


def _turned(word: int, by: int) -> int:
    return ((word << by) | (word >> (64 - by))) & _WORD


def _word(view: Buffer, at: int) -> int:
    """Eight bytes, the least significant first."""
    word = 0
    for place in range(8):
        byte = view[at + place]
        word |= byte << (8 * place)
    return word
