"""The records every client writes and reads back, byte for byte."""

import time
from typing import NamedTuple

# Within retention: older records would be gone before they are read, on a slow day.
TIMESTAMP = time.time_ns() // 1_000_000 - 600_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Sample(NamedTuple):
    """One record as a client is given it."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    timestamp: int


def samples() -> list[Sample]:
    """Keys, no keys, headers, tombstones, empty values, every byte, and something large."""
    every_byte = bytes(range(256))
    records = [
        Sample(b"key", b"value", (), TIMESTAMP),
        Sample(None, b"no key", (), TIMESTAMP + 1),
        Sample(b"tombstone", None, (), TIMESTAMP + 2),
        Sample(b"", b"", (), TIMESTAMP + 3),
        Sample(every_byte, every_byte * 4, (("bytes", every_byte),), TIMESTAMP + 4),
        Sample(b"headers", b"x", (("one", b"1"), ("two", b"2"), ("one", b"again")), TIMESTAMP + 5),
        Sample(b"large", bytes(n * n % 251 for n in range(200_000)), (), TIMESTAMP + 6),
    ]
    records += [
        Sample(b"%d" % (n % 7), b"message %d " % n * (n % 20 + 1), (), TIMESTAMP + 10 + n)
        for n in range(500)
    ]
    return records
