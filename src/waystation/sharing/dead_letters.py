"""What a dead letter says of itself: why it was given up, from where it came, and how often.

A dead letter is the message as it was, key, value and headers, and headers behind them that begin
with ``__dlq.``.  Names are Kafka's (KIP-1191) where Kafka has one; values are texts in UTF-8.

1. ``origin_of`` gives back what ``dead_letter_headers`` was given.
2. A message that is sent back, and dies again, has each of these headers once: the last word
   counts.  Only how often it was sent back goes with it.
"""

from typing import Final, NamedTuple

from waystation.model.ids import TopicPartition
from waystation.model.offsets import Millis, Offset
from waystation.records.record import Headers

__all__ = [
    "DELIVERIES_EXHAUSTED",
    "REJECTED_BY_CONSUMER",
    "Origin",
    "dead_letter_headers",
    "dead_letter_partition",
    "origin_of",
    "redriven_headers",
    "redrives_of",
]

REJECTED_BY_CONSUMER: Final = "rejected"
DELIVERIES_EXHAUSTED: Final = "deliveries-exhausted"

PREFIX: Final = "__dlq.errors."
TOPIC, PARTITION, OFFSET = f"{PREFIX}topic", f"{PREFIX}partition", f"{PREFIX}offset"
GROUP, DELIVERIES, MESSAGE = f"{PREFIX}group", f"{PREFIX}delivery.count", f"{PREFIX}message"
# Kafka has none for these.
REASON, TIMESTAMP, DIED_AT = f"{PREFIX}reason", f"{PREFIX}timestamp", f"{PREFIX}time"
CAUSE: Final = f"{PREFIX}cause"
REDRIVES: Final = "__dlq.redrives"


class Origin(NamedTuple):
    """Where a dead letter came from, and what became of it there."""

    source: TopicPartition
    offset: Offset
    timestamp: Millis
    """Of the message, as it was produced."""
    group: str
    deliveries: int
    reason: str
    """``rejected`` or ``deliveries-exhausted``."""
    died_at: Millis
    cause: str = ""
    """What the consumer that rejected it said of it, if it did."""


def dead_letter_partition(source: int, partitions: int) -> int:
    """To which partition of a dead-letter topic those of a partition go; Kafka's rule."""
    return source % partitions


def dead_letter_headers(headers: Headers, origin: Origin) -> Headers:
    """The headers of a message as a dead letter."""
    cause = ((CAUSE, origin.cause.encode()),) if origin.cause else ()
    return (
        *_without(headers),
        (TOPIC, origin.source.topic.encode()),
        (PARTITION, _text(origin.source.partition)),
        (OFFSET, _text(origin.offset)),
        (GROUP, origin.group.encode()),
        (DELIVERIES, _text(origin.deliveries)),
        (MESSAGE, _sentence(origin).encode()),
        (REASON, origin.reason.encode()),
        (TIMESTAMP, _text(origin.timestamp)),
        (DIED_AT, _text(origin.died_at)),
        *cause,
    )


def origin_of(headers: Headers) -> Origin | None:
    """What a dead letter says; ``None`` of any other message.

    One that Kafka wrote lacks some of it: no time is -1 then, no reason empty.
    """
    found = dict(headers)
    topic, partition, offset = found.get(TOPIC), found.get(PARTITION), found.get(OFFSET)
    if not topic or partition is None or offset is None:
        return None
    try:
        return Origin(
            TopicPartition(topic.decode(), int(partition)),
            Offset(int(offset)),
            Millis(int(found.get(TIMESTAMP) or -1)),
            (found.get(GROUP) or b"").decode(),
            int(found.get(DELIVERIES) or 0),
            (found.get(REASON) or b"").decode(),
            Millis(int(found.get(DIED_AT) or -1)),
            (found.get(CAUSE) or b"").decode(),
        )
    except ValueError:
        return None  # somebody else's headers


def redriven_headers(headers: Headers) -> Headers:
    """The headers of a dead letter that is sent back: its own, and how often that was done."""
    times = redrives_of(headers) + 1
    kept = tuple(one for one in _without(headers) if one[0] != REDRIVES)
    return (*kept, (REDRIVES, _text(times)))


def redrives_of(headers: Headers) -> int:
    """How often a message was sent back."""
    text = dict(headers).get(REDRIVES) or b""
    return int(text) if text.isdigit() and len(text) < 10 else 0


def _without(headers: Headers) -> Headers:
    return tuple(one for one in headers if not one[0].startswith(PREFIX))


def _sentence(origin: Origin) -> str:
    if origin.reason == REJECTED_BY_CONSUMER:
        return f"A consumer of {origin.group} rejected it at delivery {origin.deliveries}."
    return f"It was delivered {origin.deliveries} times and never accepted by {origin.group}."


def _text(number: int) -> bytes:
    return b"%d" % number
