"""What classic consumers hide in the bytes of JoinGroup and SyncGroup: the "consumer" protocol.

A subscription says what a member wants and still owns, an assignment what it gets, by topic
name.  Versions 0 to 3 are read and written; a newer one is read as 3, whose fields it begins
with.  Three promises:

1. bytes that are no such message raise ``EmbeddedProtocolError`` and nothing else;
2. nothing is allocated for what is not there: every count is held against the bytes left;
3. a subscription may end between two fields, for some clients announce a version and leave
   out its last fields: what is missing is empty.
"""

from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

PROTOCOL_TYPE = "consumer"
NEWEST_VERSION = 3

NamedPartitions = tuple[tuple[str, tuple[int, ...]], ...]
"""Partitions by topic name, in the order of the bytes."""

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_OWNED_SINCE, _GENERATION_SINCE, _RACK_SINCE = 1, 2, 3


class EmbeddedProtocolError(ValueError):
    """Bytes that no consumer of the classic protocol would send."""


class Subscription(NamedTuple):
    """What a member wants to read; ``owned`` is what it reads until it is told otherwise."""

    topics: tuple[str, ...]
    version: int = NEWEST_VERSION
    user_data: bytes | None = None
    owned: NamedPartitions = ()
    generation: int = -1
    """The one under which ``owned`` was handed out."""
    rack_id: str | None = None


class Assignment(NamedTuple):
    """What a member shall read."""

    partitions: NamedPartitions
    version: int = NEWEST_VERSION
    user_data: bytes | None = None


def read_subscription(octets: bytes) -> Subscription:
    """The subscription in ``octets``."""
    bytes_left = _Reader(octets)
    version = bytes_left.version()
    topics = bytes_left.texts()
    user_data = None if bytes_left.exhausted else bytes_left.nullable_bytes()
    owned: NamedPartitions = ()
    generation, rack_id = -1, None
    if version >= _OWNED_SINCE and not bytes_left.exhausted:
        owned = bytes_left.partitions()
    if version >= _GENERATION_SINCE and not bytes_left.exhausted:
        generation = bytes_left.int32()
    if version >= _RACK_SINCE and not bytes_left.exhausted:
        rack_id = bytes_left.nullable_text()
    return Subscription(topics, version, user_data, owned, generation, rack_id)


def read_assignment(octets: bytes) -> Assignment:
    """The assignment in ``octets``; no bytes at all assign nothing."""
    if not octets:
        return Assignment(())
    bytes_left = _Reader(octets)
    version = bytes_left.version()
    partitions = bytes_left.partitions()
    user_data = None if bytes_left.exhausted else bytes_left.nullable_bytes()
    return Assignment(partitions, version, user_data)


def write_subscription(subscription: Subscription) -> bytes:
    """The bytes of a subscription in its own version, which leaves out what it cannot hold."""
    version = _writable(subscription.version)
    parts = [_INT16.pack(version), _INT32.pack(len(subscription.topics))]
    parts += map(_text, subscription.topics)
    parts.append(_nullable_bytes(subscription.user_data))
    if version >= _OWNED_SINCE:
        parts += _partitions(subscription.owned)
    if version >= _GENERATION_SINCE:
        parts.append(_INT32.pack(subscription.generation))
    if version >= _RACK_SINCE:
        rack_id = subscription.rack_id
        parts.append(_INT16.pack(-1) if rack_id is None else _text(rack_id))
    return b"".join(parts)


def write_assignment(assignment: Assignment) -> bytes:
    """The bytes of an assignment in its own version."""
    parts = [_INT16.pack(_writable(assignment.version)), *_partitions(assignment.partitions)]
    parts.append(_nullable_bytes(assignment.user_data))
    return b"".join(parts)


def _writable(version: int) -> int:
    return min(version, NEWEST_VERSION)


def _text(text: str) -> bytes:
    octets = text.encode()
    return _INT16.pack(len(octets)) + octets


def _nullable_bytes(octets: bytes | None) -> bytes:
    return _INT32.pack(-1) if octets is None else _INT32.pack(len(octets)) + octets


def _partitions(partitions: NamedPartitions) -> Iterable[bytes]:
    yield _INT32.pack(len(partitions))
    for topic, indexes in partitions:
        yield _text(topic)
        yield _INT32.pack(len(indexes))
        yield from map(_INT32.pack, indexes)


class _Reader:
    """Takes fields off the front of the bytes; each take is checked against what is left."""

    __slots__ = ("_at", "_octets")

    def __init__(self, octets: bytes) -> None:
        self._octets = octets
        self._at = 0

    @property
    def exhausted(self) -> bool:
        return self._at == len(self._octets)

    def version(self) -> int:
        version = self.int16()
        if version < 0:
            raise EmbeddedProtocolError(f"version {version} of the consumer protocol")
        return version

    def int16(self) -> int:
        (value,) = _INT16.unpack(self._take(2, "a 16-bit number"))
        return int(value)

    def int32(self) -> int:
        (value,) = _INT32.unpack(self._take(4, "a 32-bit number"))
        return int(value)

    def texts(self) -> tuple[str, ...]:
        return tuple(self.text() for _ in range(self._count("topics", least_bytes=2)))

    def partitions(self) -> NamedPartitions:
        return tuple(
            (self.text(), self._indexes()) for _ in range(self._count("topics", least_bytes=6))
        )

    def text(self) -> str:
        text = self.nullable_text()
        if text is None:
            raise EmbeddedProtocolError("a topic without a name")
        return text

    def nullable_text(self) -> str | None:
        length = self.int16()
        if length == -1:
            return None
        try:
            return str(self._take(length, "text"), "utf-8")
        except UnicodeDecodeError as error:
            raise EmbeddedProtocolError(f"text that is not UTF-8: {error.reason}") from None

    def nullable_bytes(self) -> bytes | None:
        length = self.int32()
        return None if length == -1 else self._take(length, "user data")

    def _indexes(self) -> tuple[int, ...]:
        count = self._count("partitions", least_bytes=4)
        return Struct(f">{count}i").unpack(self._take(4 * count, "partitions"))

    def _count(self, what: str, least_bytes: int) -> int:
        count = self.int32()
        left = len(self._octets) - self._at
        if not 0 <= count * least_bytes <= left:
            raise EmbeddedProtocolError(f"{count} {what} in {left} bytes")
        return count

    def _take(self, length: int, what: str) -> bytes:
        end = self._at + length
        if length < 0 or end > len(self._octets):
            left = len(self._octets) - self._at
            raise EmbeddedProtocolError(f"{what} of {length} bytes where {left} are left")
        taken = self._octets[self._at : end]
        self._at = end
        return taken
