"""Ids of transactions: all that a node needs to take part in one that another has begun.

An id is a transactional id, the producer id and epoch of one transaction under it, and when its
time is over.  Whoever holds it may add, commit and abort, at any node.  Nobody guesses one: the
transactional id has 128 random bits.
"""

import secrets
import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final, NamedTuple

from waystation.client.delivery import Identity
from waystation.model.ids import ProducerEpoch, ProducerId
from waystation.model.offsets import Millis

__all__ = ["TransactionId", "new_transactional_id"]

_PREFIX: Final = "http-"
_FORM: Final = struct.Struct(">16sqhq")
_DIGITS: Final = 46  # 34 bytes as base64, without what would fill it up


class TransactionId(NamedTuple):
    """One transaction."""

    transactional_id: str
    identity: Identity
    expires_at: Millis

    def __str__(self) -> str:
        secret = bytes.fromhex(self.transactional_id.removeprefix(_PREFIX))
        packed = _FORM.pack(secret, *self.identity, self.expires_at)
        return urlsafe_b64encode(packed).decode().rstrip("=")

    @classmethod
    def parse(cls, text: str) -> "TransactionId | None":
        """The transaction that ``text`` names; ``None`` if no node can have made it."""
        try:
            secret, producer, epoch, expires_at = _FORM.unpack(
                urlsafe_b64decode(text.encode("ascii") + b"==")
            )
        except (ValueError, struct.error):
            return None
        identity = Identity(ProducerId(producer), ProducerEpoch(epoch))
        found = cls(_PREFIX + secret.hex(), identity, Millis(expires_at))
        # What does not come out as it went in had characters that base64 leaves out.
        if str(found) != text or len(text) != _DIGITS or min(producer, epoch, expires_at) < 0:
            return None
        return found


def new_transactional_id() -> str:
    """One that nobody else has."""
    return _PREFIX + secrets.token_hex(16)
