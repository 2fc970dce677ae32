"""Messages that wait, as ``schedules.py`` hands them out."""

from typing import NamedTuple, Protocol, Self

from waystation.model.errors import InvalidRequestError
from waystation.model.offsets import Millis, Offset
from waystation.records.record import Headers
from waystation.scheduling.errors import NotPendingError

__all__ = [
    "Identified",
    "MaybeCancelledError",
    "MessageId",
    "Place",
    "Scheduled",
    "ScheduledMessage",
]


class Identified(Protocol):
    """What says where a message waits: a ``RecordMetadata``, a ``Scheduled``, a ``MessageId``."""

    @property
    def partition(self) -> int:
        """Of the companion topic, and of the topic itself."""
        ...

    @property
    def offset(self) -> Offset:
        """In the companion topic."""
        ...


class MessageId(NamedTuple):
    """What a message that waits is called: ``3-1742``, its partition and offset there."""

    partition: int
    offset: Offset

    def __str__(self) -> str:
        return f"{self.partition}-{self.offset}"

    @classmethod
    def of(cls, given: "str | Identified") -> Self:
        """Read an id as it is printed, or take it from what has one."""
        if not isinstance(given, str):
            return cls(given.partition, given.offset)
        partition, dash, offset = given.strip().partition("-")
        if not dash or not (partition.isdecimal() and offset.isdecimal()):
            raise InvalidRequestError(
                f"{given!r} is no id of a message: give its partition and offset, such as 3-1742"
            )
        return cls(int(partition), Offset(int(offset)))


class Place(NamedTuple):
    """Where a list goes on: behind the message that is due then, in that partition."""

    due: Millis
    partition: int
    offset: Offset

    def __str__(self) -> str:
        return f"{self.due}/{self.partition}-{self.offset}"

    @classmethod
    def of(cls, text: str) -> Self:
        """Read a place as it is printed."""
        due, slash, name = text.partition("/")
        if not slash or not due.isdecimal():
            raise InvalidRequestError(f"{text!r} is no place in a list: give what the list printed")
        return cls(Millis(int(due)), *MessageId.of(name))


class Scheduled(NamedTuple):
    """One message that waits, as lists show it.

    ``due`` is when it goes next, in ms since 1970; ``cron`` and ``zone`` say what it follows if it
    recurs.  Without details the last three are not known.
    """

    topic: str
    partition: int
    offset: Offset
    due: Millis
    cron: str | None = None
    zone: str | None = None
    sent: Millis | None = None
    key: bytes | None = None
    value_bytes: int | None = None

    @property
    def id(self) -> MessageId:
        """What it is called."""
        return MessageId(self.partition, self.offset)

    @property
    def place(self) -> Place:
        """Where a list goes on behind it."""
        return Place(self.due, self.partition, self.offset)


class ScheduledMessage(NamedTuple):
    """One message that waits, with all that is in it; ``sent`` is when the broker took it."""

    topic: str
    partition: int
    offset: Offset
    due: Millis
    cron: str | None
    zone: str | None
    sent: Millis
    key: bytes | None
    value: bytes | None
    headers: Headers

    @property
    def id(self) -> MessageId:
        """What it is called."""
        return MessageId(self.partition, self.offset)


class MaybeCancelledError(NotPendingError):
    """A message is gone, and an earlier attempt to cancel it got no answer.

    So it was cancelled, or it was delivered; nobody can say by now.
    """

    def __init__(self, message_id: str, why: str) -> None:
        super().__init__(
            message_id,
            f"{why}; whether it was cancelled is not known, for an earlier attempt got no answer: "
            "look for it in its topic",
        )
