"""What the coordination store's items say, as versioned JSON.

Every value names its format in the field ``v``.  A reader takes unknown fields of a format it
knows for additions and ignores them; a format it does not know is an error that names the key,
because guessing at metadata loses data.
"""

from typing import Any, TypeVar

import msgspec

from waystation.model.errors import MetadataFormatError
from waystation.model.ids import (
    NO_LEADER_EPOCH,
    BrokerEpoch,
    LeaderEpoch,
    NodeId,
    PartitionEpoch,
    TopicId,
)

V = TypeVar("V", bound="Value")


class Value(msgspec.Struct, frozen=True, tag_field="v", tag=1):
    """The root of all values."""


class ClusterValue(Value, frozen=True, tag=1):
    """Which cluster this is."""

    id: str


class BrokerValue(Value, frozen=True, tag=1):
    """One incarnation of a broker, and where clients reach it.

    Brokers with the same ``machine`` die together.  ``clean`` says that nothing of what it held
    was lost since its last life; ``features`` are format versions that it can write.
    """

    epoch: BrokerEpoch
    host: str
    port: int
    rack: str | None = None
    machine: str | None = None
    clean: bool = False
    features: dict[str, int] = {}


class ControllerValue(Value, frozen=True, tag=1):
    """Who decides; a higher epoch fences a lower one."""

    node: NodeId
    epoch: int


class TopicValue(Value, frozen=True, tag=1):
    """A topic's id, and for each partition its replicas, the preferred leader first."""

    id: TopicId
    replicas: tuple[tuple[NodeId, ...], ...]


class ViewValue(Value, frozen=True, tag=1):
    """A view's own id, its topic by name and by id, and which messages it shows."""

    id: TopicId
    on: str
    on_id: TopicId
    where: str


class PartitionValue(Value, frozen=True, tag=1):
    """Who leads a partition under which epoch, who is in sync, and who else may lead.

    ``unclean_epoch`` is the last leader epoch whose leader may have lacked committed records.
    """

    leader: NodeId | None
    leader_epoch: LeaderEpoch
    in_sync: tuple[NodeId, ...]
    eligible: tuple[NodeId, ...] = ()
    partition_epoch: PartitionEpoch = PartitionEpoch(0)
    unclean_epoch: LeaderEpoch = NO_LEADER_EPOCH


class ReassignmentValue(Value, frozen=True, tag=1):
    """The replicas that a partition shall have, and those it had when that was first asked."""

    target: tuple[NodeId, ...]
    origin: tuple[NodeId, ...] = msgspec.field(name="from")


class LeavingValue(Value, frozen=True, tag=1):
    """A broker's life that wants to end, once others lead what it leads."""

    epoch: BrokerEpoch


class DrainValue(Value, frozen=True, tag=1):
    """An operator wants the node to hold nothing."""


class ConfigValue(Value, frozen=True, tag=1):
    """Options as texts, as a client set them."""

    options: dict[str, str]


class CounterValue(Value, frozen=True, tag=1):
    """A counter: the first number that nobody was given yet."""

    next: int


_ENCODER = msgspec.json.Encoder()
_DECODERS: dict[type[Value], msgspec.json.Decoder[Any]] = {
    kind: msgspec.json.Decoder(kind) for kind in Value.__subclasses__()
}


def encode(value: Value) -> bytes:
    """The text to store."""
    return _ENCODER.encode(value)


def decode(kind: type[V], key: str, stored: bytes) -> V:
    """The value stored at ``key``, which must be of ``kind``."""
    try:
        value: V = _DECODERS[kind].decode(stored)
    except (msgspec.ValidationError, msgspec.DecodeError) as problem:
        raise MetadataFormatError(key, str(problem)) from problem
    return value
