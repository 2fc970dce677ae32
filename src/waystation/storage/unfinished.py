"""Moves between data directories that a stop or a crash has interrupted, as a start finds them.

What was copied lies in a directory of its own name, see ``relocation.py``, which also says what it
is worth.
"""

from pathlib import Path
from typing import NamedTuple

from waystation.model.ids import TopicId
from waystation.storage import names
from waystation.storage.disk import Disk
from waystation.storage.identity import decode_partition_metadata


class Unfinished(NamedTuple):
    """A partition that was on its way to the directory that knows of this."""

    topic_id: TopicId
    partition: int
    path: Path | None
    """What was copied, if that is of use."""


def unfinished_at(disk: Disk, path: Path) -> Unfinished | None:
    """The move whose copy is at ``path``; one that had only just begun is removed, and none."""
    number = names.parse_future_directory_name(path.name)
    assert number is not None, f"{path} is no copy on its way"
    try:
        topic_id = decode_partition_metadata(disk.read(path / names.PARTITION_METADATA))
    except (FileNotFoundError, ValueError):
        disk.remove_tree(path)
        return None
    return Unfinished(topic_id, number, path)
