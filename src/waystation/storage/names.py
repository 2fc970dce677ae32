"""How the files of a log are called: Kafka's names, so that Kafka's tools find them."""

import re
from uuid import UUID

from waystation.model.ids import TopicPartition
from waystation.model.offsets import Offset

LOG, OFFSET_INDEX, TIME_INDEX = ".log", ".index", ".timeindex"
TXN_INDEX = ".txnindex"
INDEXES = (OFFSET_INDEX, TIME_INDEX, TXN_INDEX)
KEY_INDEX = ".keyindex"
"""Of topics with ``index.keys``; not one of the others, for it may be missing at any time."""
SNAPSHOT = ".snapshot"
ONCE = ".once"
"""Idempotency keys, written beside snapshots."""
DELETED = ".deleted"
CLEANED, SWAP = ".cleaned", ".swap"
CUT = ".cut"
TEMPORARY = ".tmp"
PARTITION_METADATA = "partition.metadata"
LEADER_EPOCHS = "leader-epoch-checkpoint"
RELOCATED = "relocated"
SCHEDULE = "schedule"
"""The folder with the index of what waits in a companion topic."""

_DELETED_DIRECTORY = "-delete"
_FUTURE_DIRECTORY = "-future"
_DIGITS = 20
# A file name has at most 255 bytes; partition, id and suffix take up to 51 of them.
_TOPIC_CHARACTERS_MAX = 200


def file_name(offset: int, suffix: str) -> str:
    """A segment's or snapshot's file: twenty digits and what it is."""
    return f"{offset:0{_DIGITS}d}{suffix}"


def parse_file_name(name: str) -> tuple[Offset, str] | None:
    """The offset and suffix of a segment's or snapshot's file; ``None`` for other names."""
    digits, dot, suffix = name.partition(".")
    if len(digits) == _DIGITS and digits.isdecimal() and dot:
        return Offset(int(digits)), dot + suffix
    return None


def parse_directory_name(name: str) -> TopicPartition | None:
    """The partition that a directory holds; ``None`` if it is no partition's."""
    topic, _, partition = name.rpartition("-")
    return TopicPartition(topic, int(partition)) if topic and partition.isdecimal() else None


def deleted_directory_name(partition: TopicPartition, unique: UUID) -> str:
    """A name for the directory of a deleted partition that no other ever had."""
    return _unique_name(partition, unique, _DELETED_DIRECTORY)


def future_directory_name(partition: TopicPartition, unique: UUID) -> str:
    """A name for the directory of a log that is on its way to another data directory."""
    return _unique_name(partition, unique, _FUTURE_DIRECTORY)


def is_needless_directory(name: str) -> bool:
    """Whether a directory waits to be removed: its partition was deleted."""
    return name.endswith(_DELETED_DIRECTORY)


def parse_future_directory_name(name: str) -> int | None:
    """Which partition is on its way there; of which topic, a long name does not tell."""
    found = re.fullmatch(rf".+-(\d+)\.[0-9a-f]{{32}}{_FUTURE_DIRECTORY}", name)
    return int(found[1]) if found else None


def _unique_name(partition: TopicPartition, unique: UUID, suffix: str) -> str:
    topic = partition.topic[:_TOPIC_CHARACTERS_MAX]
    return f"{topic}-{partition.partition}.{unique.hex}{suffix}"
