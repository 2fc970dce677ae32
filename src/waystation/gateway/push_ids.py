"""Ids of pushed messages: how far a subscriber has got in all partitions that it reads.

An id says of every partition which offset comes next, and of which topic, so that whoever shows
it to any node goes on exactly behind the message that had it.  It is text that needs no escaping:
``k3Jd_9aQ.0-15.1-22`` is a mark of the topic, offset 15 of partition 0 and 22 of partition 1.

The mark is taken from the topic's id: a topic that was deleted and made anew has another, and its
offsets mean something else.
"""

import re
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from waystation.model.ids import TopicId

__all__ = ["Ids", "NotAnIdError", "Positions", "Resume", "id_of", "mark_of", "resumed"]

Positions = Mapping[int, int]
"""The next offset of each partition."""

_MARK_BYTES: Final = 6
_MARK_CHARS: Final = 8
_ID: Final = re.compile(r"([A-Za-z0-9_-]{8})((?:\.[0-9]{1,10}-[0-9]{1,19})+)", re.ASCII)
_MOST_CHARS: Final = 16 << 10


class NotAnIdError(ValueError):
    """The text is not the id of a pushed message."""


class Resume(NamedTuple):
    """What an id says."""

    mark: str
    positions: dict[int, int]


def mark_of(topic: TopicId) -> str:
    """What all ids of a topic begin with."""
    return urlsafe_b64encode(topic.bytes[:_MARK_BYTES]).decode()


def id_of(mark: str, positions: Positions) -> str:
    """The id of who has got so far."""
    return mark + "".join(f".{where}-{offset}" for where, offset in sorted(positions.items()))


def resumed(text: str) -> Resume:
    """What ``text`` says; ``NotAnIdError`` if it is not an id."""
    found = _ID.fullmatch(text) if len(text) <= _MOST_CHARS else None
    if found is None:
        raise NotAnIdError("it is not what a message was given as its id")
    pairs = [one.split("-") for one in found[2].split(".")[1:]]
    positions = {int(where): int(offset) for where, offset in pairs}
    if len(positions) != len(pairs) or max(positions.values()) >= 2**63:
        raise NotAnIdError("it names a partition twice, or an offset that cannot be")
    return Resume(found[1], positions)


class Ids:
    """Ids one after the other, as positions move; HOT: once per message and format."""

    __slots__ = ("_parts",)

    def __init__(self, mark: str, positions: Positions) -> None:
        self._parts = {-1: mark}
        self._parts |= {where: f".{offset}" for where, offset in _written(positions)}

    def past(self, partition: int, offset: int) -> bytes:
        """The id of the message at ``offset``."""
        self._parts[partition] = f".{partition}-{offset + 1}"
        return "".join(self._parts.values()).encode()


def _written(positions: Positions) -> Iterator[tuple[int, str]]:
    for where, offset in sorted(positions.items()):
        yield where, f"{where}-{offset}"
