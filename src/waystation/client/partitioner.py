"""Which partition a record goes to.

1. A record with a key goes where every Kafka client would send it: murmur2 of the key, made
   positive, modulo the number of partitions.  The same key keeps its partition, and so its
   order, for as long as the number of partitions stays.
2. Records without a key are spread: ``sticky`` fills one batch before it moves on, which
   makes few large batches; ``round-robin`` moves on with every record.

Both kinds of spreading pass over partitions that have no leader while others have one.
"""

from collections.abc import Sequence
from functools import lru_cache
from random import Random
from struct import Struct
from typing import Protocol

__all__ = [
    "PARTITIONERS",
    "Partitioner",
    "RoundRobin",
    "Sticky",
    "murmur2",
    "partition_of_key",
    "partitioner_for",
]

_M = 0x5BD1E995
_SEED = 0x9747B28C
_MASK = 0xFFFFFFFF
_WORD = Struct("<I")
_SHORT_KEY_BYTES = 64
_REMEMBERED_KEYS = 8_192


def murmur2(key: bytes) -> int:
    """The 32 bits, unsigned, that Kafka's Java client computes for ``key``."""
    length = len(key)
    h = _SEED ^ length
    whole = length & ~3
    for (word,) in _WORD.iter_unpack(key[:whole]):
        k = (word * _M) & _MASK
        h = ((h * _M) & _MASK) ^ (((k ^ (k >> 24)) * _M) & _MASK)
    if whole != length:
        h = ((h ^ int.from_bytes(key[whole:], "little")) * _M) & _MASK
    h = ((h ^ (h >> 13)) * _M) & _MASK
    return h ^ (h >> 15)


_murmur2_of_short = lru_cache(maxsize=_REMEMBERED_KEYS)(murmur2)


def partition_of_key(key: bytes, partitions: int) -> int:
    """Where ``key`` lives in a topic of so many partitions.

    HOT: once per record with a key.  Keys come again, so that short ones are remembered: a
    hit costs an eighth of the hash, a miss a quarter more (benchmarks/client/producer.py).
    """
    hashed = _murmur2_of_short(key) if len(key) <= _SHORT_KEY_BYTES else murmur2(key)
    return (hashed & 0x7FFFFFFF) % partitions


class Partitioner(Protocol):
    """Spreads the keyless records of one topic."""

    def choose(self, available: Sequence[int]) -> int:
        """The partition of the next record, one of ``available``, which is never empty."""
        ...

    def batch_filled(self) -> None:
        """Note that the batch which the last record joined takes no more."""
        ...


class Sticky:
    """Stays with one partition until its batch is full or sent, then picks another at random."""

    __slots__ = ("_chance", "_current")

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self._current = -1

    def choose(self, available: Sequence[int]) -> int:
        """The partition of the batch being filled, or a new one if that has no leader."""
        if self._current not in available:
            self._current = self._chance.choice(available)
        return self._current

    def batch_filled(self) -> None:
        """Move on with the next record."""
        self._current = -1


class RoundRobin:
    """Gives every partition its turn."""

    __slots__ = ("_turn",)

    def __init__(self, chance: Random) -> None:
        # Producers that start together should not all begin with partition 0.
        self._turn = chance.randrange(1 << 16)

    def choose(self, available: Sequence[int]) -> int:
        """The next partition of those available."""
        self._turn += 1
        return available[self._turn % len(available)]

    def batch_filled(self) -> None:
        """A full batch changes nothing here."""


_PARTITIONERS: dict[str, type[Sticky] | type[RoundRobin]] = {
    "sticky": Sticky,
    "round-robin": RoundRobin,
}
PARTITIONERS = tuple(_PARTITIONERS)


def partitioner_for(name: str, chance: Random) -> Partitioner:
    """A fresh partitioner for one topic; ``name`` is one of ``PARTITIONERS``."""
    return _PARTITIONERS[name](chance)
