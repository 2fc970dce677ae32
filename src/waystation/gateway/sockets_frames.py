"""What is said over the sockets of topics and queues, one JSON object per message.

Those of clients are checked as bodies are: unknown fields are mistakes.  ``ref`` is the client's
own name for what it says; the answer, or the error, bears the same.
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from waystation.gateway.payloads import Moment, NewMessage, StoredMessage
from waystation.gateway.push_events import Gap
from waystation.gateway.routes import Frames, Params
from waystation.gateway.sockets import ErrorFrame
from waystation.gateway.topics import Offset, Partition

__all__ = [
    "QUEUE_FRAMES",
    "TOPIC_FRAMES",
    "Ack",
    "Commit",
    "Committed",
    "Credit",
    "Extend",
    "Nack",
    "PartitionsFrame",
    "Ready",
    "Refused",
    "Send",
    "Sent",
    "Settled",
]

Ref = Annotated[str, Meta(max_length=256)] | int | None
MessageIds = Annotated[list[str], Meta(min_length=1, max_length=1_000)]


class _Said(Params, frozen=True, tag_field="type", tag=str.lower):
    """What a client says."""


class Credit(_Said, frozen=True):
    """Take so many messages more."""

    messages: Annotated[int, Meta(ge=1, le=1_000_000)]
    ref: Ref = None


class At(Params, frozen=True):
    """The next offset to read of a partition."""

    partition: Partition
    offset: Offset


class Commit(_Said, frozen=True):
    """Keep the group's place: of each partition the offset behind the last message processed."""

    positions: Annotated[list[At], Meta(min_length=1, max_length=10_000)]
    ref: Ref = None


class Send(_Said, frozen=True):
    """Send a message to this very topic or queue."""

    message: NewMessage
    ref: Ref = None


class Ack(_Said, frozen=True):
    """Settle messages for good."""

    ids: MessageIds
    ref: Ref = None


class Nack(_Said, frozen=True):
    """Give messages back, for another delivery, or up."""

    ids: MessageIds
    requeue: Annotated[bool, Meta(description="False: never again; dead letters.")] = True
    delay: (
        Annotated[Moment, Meta(description="Give them back so much later: '30s', or ms.")] | None
    ) = None
    ref: Ref = None


class Extend(_Said, frozen=True):
    """Let the leases of messages begin anew."""

    ids: MessageIds
    ref: Ref = None


class _Told(msgspec.Struct, frozen=True, tag_field="type", tag=str.lower, omit_defaults=True):
    """What the node says."""


class Ready(_Told, frozen=True):
    """The subscription is there; messages sent from now on are pushed."""

    id: str | None = None
    """Where it begins, without a group."""


class PushedMessage(StoredMessage, frozen=True, tag_field="type", tag="message"):
    """A message; ``id`` is how far this socket has got, or the name to settle it by."""

    id: str | None = None
    deliveries: int | None = None
    """Of a queue: how often it was delivered, this time included."""
    lease_ms: int | None = None
    """Of a queue: how long it is this socket's."""


class GapFrame(Gap, frozen=True, tag_field="type", tag="gap"):
    """What retention took."""


class PartitionsFrame(_Told, frozen=True, tag=lambda _: "partitions"):
    """Which partitions the group has given this member, or taken from it."""

    assigned: list[int] = []
    revoked: list[int] = []


class Committed(_Told, frozen=True):
    """The group's place is kept."""

    ref: Ref = None


class Sent(_Told, frozen=True):
    """The message is kept."""

    partition: int
    offset: int
    timestamp_ms: int
    ref: Ref = None


class Refused(msgspec.Struct, frozen=True):
    """A message that was not settled, and why."""

    id: str
    reason: str


class Settled(_Told, frozen=True):
    """How many messages were settled, and which were not."""

    settled: int
    refused: list[Refused] = []
    ref: Ref = None


class _Ref(msgspec.Struct):
    ref: Ref = None


def ref_in(said: bytes) -> str | int | None:
    """The ref of what cannot be understood otherwise."""
    try:
        return msgspec.json.decode(said, type=_Ref).ref
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


TOPIC_FRAMES: Any = Frames(
    Credit | Commit | Send,
    Ready | PushedMessage | GapFrame | PartitionsFrame | Committed | Sent | ErrorFrame,
)
QUEUE_FRAMES: Any = Frames(
    Credit | Ack | Nack | Extend | Send, Ready | PushedMessage | Settled | Sent | ErrorFrame
)
