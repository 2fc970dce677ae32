"""Offsets in a file, as Kafka's own tool writes and reads them: ``topic,partition,offset`` lines.

With several groups in one file, each line begins with its group.
"""

import csv
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from waystation.model.errors import InvalidRequestError
from waystation.model.ids import TopicPartition

__all__ = ["read_offsets", "write_offsets"]

_STANDARD = Path("-")


def write_offsets(path: Path, offsets: Mapping[TopicPartition, int]) -> None:
    """Write a group's offsets; ``-`` is standard output."""
    rows = [(topic, number, offset) for (topic, number), offset in sorted(offsets.items())]
    if path == _STANDARD:
        csv.writer(sys.stdout, lineterminator="\n").writerows(rows)
        return
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


def read_offsets(path: Path, group_id: str) -> dict[TopicPartition, int]:
    """The offsets of ``group_id``; the error names the line that is none."""
    if path == _STANDARD:
        return _read(sys.stdin, "standard input", group_id)
    with path.open(newline="") as file:
        return _read(file, str(path), group_id)


def _read(lines: Iterable[str], name: str, group_id: str) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for number, row in enumerate(csv.reader(lines), start=1):
        if not row:
            continue
        *group, topic, partition, offset = ("", *row) if len(row) == 3 else row[:4]
        if len(row) not in (3, 4) or not (partition.isdigit() and offset.isdigit()):
            raise InvalidRequestError(
                f"{name}, line {number}: {','.join(row)!r} is no `topic,partition,offset`"
            )
        if group in ([""], [group_id]):
            found[TopicPartition(topic, int(partition))] = int(offset)
    if not found:
        raise InvalidRequestError(f"{name} holds no offset of group {group_id}")
    return found
