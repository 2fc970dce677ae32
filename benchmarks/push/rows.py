"""What is measured of push, as declarations: who is sent what, and by which product's ways.

Always so many subscribers with so many messages a second each, every one on a connection of its
own.  What differs is how many of them are sent the same.  A stream is what a product has for it:
a partition of a topic, or the messages of one key; a subject; a queue of one's own bound to an
exchange.
"""

from __future__ import annotations

from dataclasses import dataclass

SUBSCRIBERS, PER_SECOND = 1_000, 10
P99_MS = 20.0
"""What Waystation promises of each of its own rows but those that are for information."""


@dataclass(frozen=True)
class Scenario:
    """So many streams with as many messages a second as each subscriber is to get."""

    name: str
    streams: int
    is_promised: bool = False
    subscribers: int = SUBSCRIBERS
    is_queue: bool = False
    """All subscribers take from one queue, which gets what all of them are to get together."""


FAN_OUT = Scenario("one stream: all are sent the same", 1, is_promised=True)
TENTHS = Scenario("10 streams with 100 subscribers each", 10, is_promised=True)
HUNDREDTHS = Scenario("100 streams with 10 subscribers each", 100)
OWN = Scenario("1,000 streams with a subscriber each", SUBSCRIBERS, is_promised=True)
QUEUE = Scenario("a queue of 100 subscribers, acknowledged", 1, subscribers=100, is_queue=True)


@dataclass(frozen=True)
class Way:
    """One way of a product to push, and what it is measured with."""

    peer: str
    dialect: str
    scenarios: tuple[Scenario, ...]


WAYS: tuple[Way, ...] = (
    Way("waystation", "sse", (FAN_OUT, TENTHS, HUNDREDTHS)),
    Way("waystation", "sse-key", (TENTHS, HUNDREDTHS, OWN)),
    Way("waystation", "websocket", (FAN_OUT, TENTHS, HUNDREDTHS)),
    Way("waystation", "queue-socket", (QUEUE,)),
    Way("rabbitmq", "amqp", (FAN_OUT, TENTHS, HUNDREDTHS, OWN)),
    Way("rabbitmq", "amqp-queue", (QUEUE,)),
    Way("nats", "nats", (FAN_OUT, TENTHS, HUNDREDTHS, OWN)),
    Way("nats", "nats-queue", (QUEUE,)),
)
