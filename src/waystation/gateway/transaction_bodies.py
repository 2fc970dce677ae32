"""Transactions as JSON: what callers send, and what they are told."""

from typing import Annotated

import msgspec
from msgspec import Meta

from waystation.gateway.payloads import NewMessage
from waystation.gateway.routes import Params
from waystation.gateway.topics import Offset, Partition, TopicName

__all__ = [
    "Added",
    "AddedMessage",
    "Begun",
    "KeptOffsets",
    "NewMessages",
    "NewOffsets",
    "NewTopicMessage",
    "NewTransaction",
    "TransactionParams",
    "TransactionState",
    "TransactionTopic",
]

Name = Annotated[str, Meta(min_length=1, max_length=10_000)]


class TransactionParams(Params, frozen=True):
    """Which transaction."""

    transaction: Annotated[str, Meta(min_length=1, description="As it was told when it began.")]


class NewTransaction(Params, frozen=True):
    """A transaction to begin."""

    timeout_ms: Annotated[
        int,
        Meta(
            ge=1_000,
            le=2**31 - 1,
            description="It is aborted unless it is committed within this time.",
        ),
    ] = 60_000


class Begun(msgspec.Struct, frozen=True):
    """A transaction that may be added to."""

    transaction: str
    """Names it in all further calls, at any node."""
    expires_at_ms: int
    """When it is aborted, in milliseconds since 1970."""


class NewTopicMessage(NewMessage, frozen=True, kw_only=True):
    """A message to add, and to which topic."""

    topic: TopicName


class NewMessages(Params, frozen=True):
    """Messages to add, of whatever topics."""

    messages: Annotated[list[NewTopicMessage], Meta(min_length=1)]


class AddedMessage(msgspec.Struct, frozen=True):
    """Where a message is, for those who read it once the transaction is committed."""

    topic: str
    partition: int
    offset: int


class Added(msgspec.Struct, frozen=True):
    """What was added, in the order given."""

    messages: list[AddedMessage]


class NewOffset(Params, frozen=True):
    """How far a group has got in a partition: the offset that it will read next."""

    topic: TopicName
    partition: Partition
    offset: Offset
    metadata: Annotated[str, Meta(max_length=4_096)] = ""


class NewOffsets(Params, frozen=True):
    """Offsets of a consumer group that count if the transaction is committed."""

    group: Name
    offsets: Annotated[list[NewOffset], Meta(min_length=1)]
    member_id: Annotated[
        str, Meta(description="Of a member that commits; else the group has none.")
    ] = ""
    generation: Annotated[
        int, Meta(ge=-1, le=2**31 - 1, description="The generation, or epoch, of that member.")
    ] = -1


class KeptOffsets(msgspec.Struct, frozen=True):
    """How many offsets are in the transaction now, by this call."""

    group: str
    offsets: int


class TransactionTopic(msgspec.Struct, frozen=True):
    """Partitions that the transaction has written to."""

    topic: str
    partitions: list[int]


class TransactionState(msgspec.Struct, frozen=True):
    """How a transaction stands."""

    transaction: str
    state: str
    """``open``, ``prepared``, ``committing``, ``committed``, ``aborting`` or ``aborted``."""
    expires_at_ms: int
    topics: list[TransactionTopic] = []
    """What it has written to, while it is open."""
