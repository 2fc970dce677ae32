"""Bytes that were a batch once: what a broken disk, a broken client or a hostile one sends."""

from collections.abc import Callable, Iterator
from random import Random


def mutants(seeds: list[bytes], count: int, seed: int) -> Iterator[bytes]:
    """``count`` damaged versions of ``seeds``; the same ones for the same ``seed``."""
    random = Random(seed)
    for _ in range(count):
        damaged = bytearray(random.choice(seeds))
        for _ in range(random.choice((1, 1, 1, 2, 5))):
            random.choice(_DAMAGES)(random, damaged)
        yield bytes(damaged)


def _flip(random: Random, target: bytearray) -> None:
    if target:
        target[random.randrange(len(target))] ^= 1 << random.randrange(8)


def _overwrite(random: Random, target: bytearray) -> None:
    if target:
        target[random.randrange(len(target))] = random.choice((0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF))


def _cut(random: Random, target: bytearray) -> None:
    del target[random.randrange(len(target) + 1) :]


def _remove(random: Random, target: bytearray) -> None:
    at = random.randrange(len(target) + 1)
    del target[at : at + random.randrange(1, 9)]


def _insert(random: Random, target: bytearray) -> None:
    at = random.randrange(len(target) + 1)
    target[at:at] = random.randbytes(random.randrange(1, 9))


def _saturate(random: Random, target: bytearray) -> None:
    """A varint of the greatest length, or one byte too long."""
    at = random.randrange(len(target) + 1)
    target[at : at + 1] = b"\xff" * random.choice((4, 5, 9, 10)) + b"\x01"


_DAMAGES: list[Callable[[Random, bytearray], None]] = [
    _flip,
    _overwrite,
    _cut,
    _remove,
    _insert,
    _saturate,
]
