"""Whose a data directory is, and which topic a log belongs to: two small text files of Kafka's."""

from collections.abc import Callable
from pathlib import Path
from uuid import UUID

from waystation.model.errors import StorageError
from waystation.model.ids import NodeId, TopicId, uuid_of, uuid_text
from waystation.storage.disk import Disk

META_PROPERTIES = "meta.properties"


def claim(disk: Disk, directory: Path, node: NodeId, new_id: Callable[[], UUID]) -> UUID:
    """Make a new directory this node's, or prove that it is; the directory's own id."""
    path = directory / META_PROPERTIES
    try:
        text = disk.read(path).decode(errors="replace")
    except FileNotFoundError:
        directory_id = new_id()
        content = f"version=1\nnode.id={node}\ndirectory.id={uuid_text(directory_id)}\n"
        disk.replace(path, content.encode())
        return directory_id
    facts = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    if facts.get("node.id") != str(node):
        raise StorageError(
            f"{directory} belongs to node {facts.get('node.id')}, this is node {node}: use "
            "--node-id, or another --data-dir"
        )
    try:
        return uuid_of(facts["directory.id"])
    except (KeyError, ValueError):
        raise StorageError(f"{path} is damaged: it names no directory.id") from None


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
