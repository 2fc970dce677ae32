"""Which entries of the journal are void, because their log was cut.

The journal holds a copy of what a log got, and a follower's log may be cut.  Replayed after a
crash, a tail that was cut would come back, perhaps behind what was appended in its place.  So a
cut first writes down a void: the entries of this log that came before it, from an offset on.

1. What was cut is never replayed once the cut is done; nor is it if a crash interrupted that.
2. What was not cut, and is safe in the journal alone, stays so.
3. What is added after the cut counts, at whatever offsets it lies.

The file is removed with the entries that it speaks of.
"""

import errno
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID

from waystation.model.ids import TopicId
from waystation.model.offsets import NO_OFFSET, Offset
from waystation.storage.disk import Disk

FILE: Final = "voids"
_VERSION: Final = "0"


class Place(NamedTuple):
    """Where an entry begins: later ones compare greater."""

    generation: int
    position: int


class Void(NamedTuple):
    """Entries of one log before ``place`` that reach past ``offset`` count no more."""

    topic_id: TopicId
    partition: int
    offset: Offset
    place: Place

    def covers(self, place: Place, end: Offset) -> bool:
        """Whether it makes the entry void that begins at ``place`` and whose batch ends so."""
        return place < self.place and end > self.offset


def with_void(voids: Iterable[Void], new: Void, flushed_end: Offset) -> list[Void]:
    """``new`` and what must still be said beside it; at most two per log are left.

    What the log's own files have safe needs none of its entries, so that a void from such an
    offset on may as well be one of everything.
    """
    kept: list[Void] = []
    for one in (*voids, new):
        if (one.topic_id, one.partition) == (new.topic_id, new.partition):
            known = one._replace(offset=NO_OFFSET) if one.offset <= flushed_end else one
            kept = [two for two in kept if not _says_all_of(known, two)]
            kept.append(known)
        else:
            kept.append(one)
    return kept


def _says_all_of(later: Void, earlier: Void) -> bool:
    same_log = (later.topic_id, later.partition) == (earlier.topic_id, earlier.partition)
    return same_log and later.place >= earlier.place and later.offset <= earlier.offset


def write_voids(disk: Disk, folder: Path, voids: Iterable[Void]) -> None:
    """Durable when this returns."""
    rows = [
        f"{one.topic_id.hex} {one.partition} {one.offset} "
        f"{one.place.generation} {one.place.position}"
        for one in voids
    ]
    disk.replace(folder / FILE, "\n".join([_VERSION, str(len(rows)), *rows, ""]).encode())


def read_voids(disk: Disk, folder: Path) -> dict[tuple[TopicId, int], list[Void]]:
    """By log.  A file that is damaged raises: without it nobody knows what may be replayed."""
    try:
        content = disk.read(folder / FILE)
    except FileNotFoundError:
        return {}
    found: dict[tuple[TopicId, int], list[Void]] = {}
    try:
        version, count, *rows = content.decode().splitlines()
        if version != _VERSION or int(count) != len(rows):
            raise ValueError(f"version {version}, {count} rows announced, {len(rows)} there")
        for row in rows:
            topic, partition, offset, generation, position = row.split(" ")
            place = Place(int(generation), int(position))
            one = Void(TopicId(UUID(hex=topic)), int(partition), Offset(int(offset)), place)
            found.setdefault((one.topic_id, one.partition), []).append(one)
    except ValueError as problem:
        raise OSError(errno.EIO, f"{folder / FILE} is damaged: {problem}") from problem
    return found
