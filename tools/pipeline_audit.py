"""Whether what a job wrote into a topic is what it should have written.

Compared by value, message by message, with what readers of committed messages are shown: every
message once, and the messages of each key in their order.  Nothing here is shared with the jobs.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from waystation import Consumer, Message

__all__ = ["by_key", "differences", "order_of", "read_committed"]

Messages = dict[bytes | None, list[Any]]
"""What a topic says, by key, in the order of each."""


async def read_committed(bootstrap: str, topic: str) -> list[Message]:
    """All messages of a topic that nobody writes to any more."""
    found: list[Message] = []
    asked: dict[str, Any] = {"topics": topic, "bootstrap": bootstrap}
    async with Consumer(**asked, isolation="read_committed", start="earliest") as consumer:
        ends = await consumer.end_offsets()
        while any(consumer.position(one) < end for one, end in ends.items()):
            found += await consumer.poll(timeout_ms=200, max_messages=10_000)
    return found


def order_of(message: Message) -> dict[str, Any] | None:
    """The value as JSON; nothing if it is none."""
    try:
        value = json.loads(message.value or b"")
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def by_key(messages: Iterable[Message], meaning: Callable[[Message], Any]) -> Messages:
    """What each message means, by key; without those that mean nothing."""
    found: Messages = {}
    for message in messages:
        meant = meaning(message)
        if meant is not None:
            found.setdefault(message.key, []).append(meant)
    return found


def differences(wanted: Messages, found: Messages) -> dict[str, int]:
    """How many messages are missing, are there but should not be, and keys out of order."""
    missing, extra = _counted(wanted), _counted(found)
    both = missing & extra
    out_of_order = sum(
        1
        for key, values in wanted.items()
        if values != found.get(key) and _text_counts(values) == _text_counts(found.get(key, []))
    )
    return {
        "missing": (missing - both).total(),
        "extra": (extra - both).total(),
        "keys out of order": out_of_order,
    }


def _counted(messages: Messages) -> "Counter[tuple[bytes | None, str]]":
    return Counter((key, _text(value)) for key, values in messages.items() for value in values)


def _text_counts(values: list[Any]) -> "Counter[str]":
    return Counter(map(_text, values))


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
