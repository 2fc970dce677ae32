"""Whose a data directory is, and which topic a log belongs to: two small text files of Kafka's."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from waystation.model.errors import StorageError
from waystation.model.ids import NO_BROKER_EPOCH, BrokerEpoch, NodeId, TopicId, uuid_of, uuid_text
from waystation.storage.disk import Disk

META_PROPERTIES = "meta.properties"

_CLUSTER = "cluster.id"
_LIFE = "broker.epoch"
_PLACE = "broker.place"


class Identity(NamedTuple):
    """A directory's own id, the cluster it belongs to once it does, and its node's last life.

    ``place`` is where that life was: a copy of the directory is somewhere else.
    """

    id: UUID
    cluster_id: str | None = None
    broker_epoch: BrokerEpoch = NO_BROKER_EPOCH
    place: str = ""


def claim(disk: Disk, directory: Path, node: NodeId, new_id: Callable[[], UUID]) -> Identity:
    """Make a new directory this node's, or prove that it is."""
    path = directory / META_PROPERTIES
    try:
        text = disk.read(path).decode(errors="replace")
    except FileNotFoundError:
        made = Identity(new_id())
        write(disk, directory, node, made)
        return made
    facts = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    if facts.get("node.id") != str(node):
        raise StorageError(
            f"{directory} belongs to node {facts.get('node.id')}, this is node {node}: use "
            "--node-id, or another --data-dir"
        )
    try:
        return Identity(
            uuid_of(facts["directory.id"]),
            facts.get(_CLUSTER) or None,
            BrokerEpoch(int(facts.get(_LIFE, NO_BROKER_EPOCH))),
            facts.get(_PLACE, ""),
        )
    except (KeyError, ValueError):
        raise StorageError(f"{path} is damaged: it names no directory.id") from None


def write(disk: Disk, directory: Path, node: NodeId, identity: Identity) -> None:
    """Let the directory say this of itself."""
    lines = ["version=1", f"node.id={node}", f"directory.id={uuid_text(identity.id)}"]
    if identity.cluster_id is not None:
        lines.append(f"{_CLUSTER}={identity.cluster_id}")
    if identity.broker_epoch != NO_BROKER_EPOCH:
        lines += [f"{_LIFE}={identity.broker_epoch}", f"{_PLACE}={identity.place}"]
    disk.replace(directory / META_PROPERTIES, "".join(f"{line}\n" for line in lines).encode())


def encode_partition_metadata(topic_id: TopicId) -> bytes:
    """The content of ``partition.metadata``."""
    return f"version: 0\ntopic_id: {uuid_text(topic_id)}\n".encode()


def decode_partition_metadata(content: bytes) -> TopicId:
    """The topic that a log belongs to; ``ValueError`` if the file does not say."""
    lines = content.decode().splitlines()
    facts = dict(line.split(": ", 1) for line in lines if ": " in line)
    if facts.get("version") != "0" or "topic_id" not in facts:
        raise ValueError("partition.metadata names no topic id")
    return TopicId(uuid_of(facts["topic_id"]))
