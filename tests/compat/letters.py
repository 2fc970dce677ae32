"""What every client sends, and what must come back: byte for byte, in order.

A client program reads the letters from a JSON-lines file, sends them to one topic per codec and
prints what it reads back, one JSON object per record; told to ``read``, it only reads.  Keys,
values and header values travel as hexadecimal text, ``null`` standing for no value, so that no
client's idea of strings gets between.
"""

import json
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONS = 2
_COUNT = 60
# An hour ago: what is older than retention.ms would be deleted under the readers' eyes.
FIRST_TIMESTAMP_MS = int(time.time() - 3_600) * 1_000

Letter = dict[str, Any]


class WrongAnswerError(Exception):
    """A client or tool did not do or say what it should; the text is for the report."""


def letters() -> list[Letter]:
    """With and without key, value and headers, small and large, dull and incompressible."""
    return [
        {
            "partition": n % PARTITIONS,
            "timestamp": FIRST_TIMESTAMP_MS + 1_000 * n,
            "key": _hex(None if n % 5 == 0 else f"key-{n}-".encode() + _noise(n, n % 9)),
            "value": _hex(_value(n)),
            "headers": [[f"header-{h}", _hex(_noise(n + h, 7 * h))] for h in range(n % 4)],
        }
        for n in range(_COUNT)
    ]


def with_idempotency_keys() -> list[Letter]:
    """The same, each with the header that names its idempotency key."""
    return [
        {
            **letter,
            "headers": [*letter["headers"], ["idempotency-key", f"letter-{n}".encode().hex()]],
        }
        for n, letter in enumerate(letters())
    ]


def topic(prefix: str, codec: str) -> str:
    """Where a client sends what it compresses with ``codec``."""
    return f"{prefix}-{codec}"


def write_letters(path: Path) -> None:
    """The file that client programs read."""
    path.write_text("".join(json.dumps(letter) + "\n" for letter in letters()))


def check(prefix: str, lines: list[str], sent: list[Letter] | None = None) -> None:
    """Raise ``WrongAnswerError`` unless ``lines`` are the letters, in order, in every topic."""
    by_topic: dict[str, list[Letter]] = defaultdict(list)
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:
            raise WrongAnswerError(f"not a record: {line:.200}") from None
        by_topic[record.pop("topic")].append(record)
    for codec in CODECS:
        check_topic(codec, by_topic[topic(prefix, codec)], sent)


def check_topic(codec: str, records: list[Letter], wanted: list[Letter] | None = None) -> None:
    """The same for one topic's records, in any order of partitions."""
    if len(records) != _COUNT:
        raise WrongAnswerError(f"{codec}: {len(records)} records came back, {_COUNT} were sent")
    for partition in range(PARTITIONS):
        sent = [one for one in wanted or letters() if one["partition"] == partition]
        expected = [{**letter, "offset": offset} for offset, letter in enumerate(sent)]
        read = [record for record in records if record["partition"] == partition]
        if len(read) != len(expected):
            raise WrongAnswerError(f"{codec}: partition {partition} holds {len(read)} records")
        for letter, got in zip(expected, read, strict=True):
            if letter != got:
                raise WrongAnswerError(f"{codec}: {_difference(letter, got)}")


def _value(n: int) -> bytes | None:
    match n % 7:
        case 1:
            return None  # a tombstone where there is a key
        case 2:
            return b""
        case 3:
            return b"dull " * 20_000
        case 4:
            return _noise(n, 30_000)
    return _noise(n, 11 * n)


def _noise(seed: int, nbytes: int) -> bytes:
    """Bytes that no codec can shrink, the same on every run (a linear congruential generator)."""
    state, noise = seed * 2_654_435_761 + 1, bytearray()
    for _ in range(nbytes):
        state = (state * 6_364_136_223_846_793_005 + 1_442_695_040_888_963_407) & (2**64 - 1)
        noise.append(state >> 56)
    return bytes(noise)


def _hex(value: bytes | None) -> str | None:
    return None if value is None else value.hex()


def _difference(wanted: Letter, got: Letter) -> str:
    where = f"partition {wanted['partition']} offset {wanted['offset']}"
    wrong = [name for name in wanted if wanted[name] != got.get(name)]
    shown = ", ".join(
        f"{name} is {got.get(name)!r:.60}, should be {wanted[name]!r:.60}" for name in wrong
    )
    return f"{where}: {shown or f'unexpected fields {got.keys() - wanted.keys()}'}"
