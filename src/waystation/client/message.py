"""A message as a consumer hands it out."""

from typing import NamedTuple

from crc32c import crc32c

from waystation.model.offsets import Millis, Offset
from waystation.records.record import Headers

__all__ = ["Message"]


class Message(NamedTuple):
    """What was sent and where it stands; immutable.

    A value of ``None`` is a tombstone.  ``timestamp`` is in milliseconds since 1970, by the
    producer's clock or the broker's, as the topic's ``message.timestamp.type`` says.
    """

    key: bytes | None
    value: bytes | None
    topic: str
    partition: int
    offset: Offset
    timestamp: Millis
    headers: Headers = ()

    @property
    def size(self) -> int:
        """Bytes of key and value together."""
        return len(self.key or b"") + len(self.value or b"")

    @property
    def crc(self) -> int:
        """CRC-32C of the key's bytes followed by the value's.

        It depends on nothing but what the message says, so it stays the same when a message
        is copied to another topic, and whoever holds the message can check it.  The batch it
        came in has a checksum of its own, which was verified before.
        """
        return int(crc32c(self.value or b"", crc32c(self.key or b"")))
