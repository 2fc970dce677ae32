"""What a message is held by that outlives the process which received it."""

from typing import NamedTuple

from waystation.client.message import Message
from waystation.model.errors import InvalidRequestError
from waystation.model.offsets import Offset

__all__ = ["HeldMessage", "Receipt"]

_OFFSET_MAX = (1 << 63) - 1
_PARTITION_MAX = (1 << 31) - 1


class Receipt(NamedTuple):
    """Names a message that is held; as text it can be kept anywhere."""

    partition: int
    offset: Offset
    member_id: str

    def __str__(self) -> str:
        return f"{self.partition}-{self.offset}-{self.member_id}"

    @classmethod
    def of(cls, text: str) -> "Receipt":
        """Read what ``str`` has written."""
        parts = text.strip().split("-", 2)
        if len(parts) == 3 and parts[2] and all(map(_is_number, parts[:2])):
            partition, offset = int(parts[0]), int(parts[1])
            if partition <= _PARTITION_MAX and offset <= _OFFSET_MAX:
                return cls(partition, Offset(offset), parts[2])
        raise InvalidRequestError(
            f"{text!r} is no receipt: it is what came with the message that it holds"
        )


class HeldMessage(NamedTuple):
    """A message, how often it was delivered, and what it is settled by within ``lock_ms``."""

    message: Message
    deliveries: int
    receipt: Receipt
    lock_ms: int


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 20
