"""Messages to build batches from, as tests need them."""

from collections.abc import Iterable
from typing import NamedTuple

from hypothesis import strategies as st

from waystation.model.offsets import Millis
from waystation.records.batch import BatchBuilder, Record
from waystation.records.compression import Codec
from waystation.records.record import Headers


class Message(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp: int = 1_700_000_000_000


SAMPLE = [
    Message(b"key", b"value"),
    Message(None, b"no key", timestamp=1_700_000_000_250),
    Message(b"tombstone", None, timestamp=1_699_999_999_000),
    Message(b"", b"", (("empty", b""), ("null", None), ("", b"nameless"))),
    Message(None, None),
    Message(b"k" * 200, b"large " * 20_000, (("größe", "€".encode()),) * 3),
]

contents = st.none() | st.binary(max_size=300)
headers = st.lists(st.tuples(st.text(max_size=20), contents), max_size=4).map(tuple)
dates = st.integers(0, (1 << 63) - 2) | st.integers(1_600_000_000_000, 1_800_000_000_000)
dated = st.builds(Message, contents, contents, headers, dates)
undated = st.builds(Message, contents, contents, headers, st.just(-1))
dated_messages = st.lists(dated, min_size=1)
messages = st.lists(dated | undated, min_size=1)


def build(
    messages: Iterable[Message], codec: Codec = Codec.NONE, builder: BatchBuilder | None = None
) -> bytes:
    builder = builder or BatchBuilder(codec)
    for message in messages:
        fits = builder.append(
            message.key, message.value, message.headers, timestamp=Millis(message.timestamp)
        )
        assert fits, f"{message} does not fit"
    return builder.build()


def as_records(messages: Iterable[Message], base_offset: int = 0) -> list[Record]:
    return [
        Record._make((base_offset + i, m.timestamp, m.key, m.value, m.headers))
        for i, m in enumerate(messages)
    ]
