"""Small text files that say how far things are, in Kafka's format.

A version, a count, then one line per entry.  A file that is damaged says nothing: whoever reads
it falls back to what is safe, which is to look at the log itself.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from waystation.model.ids import LeaderEpoch, TopicPartition
from waystation.model.offsets import Offset
from waystation.replication.epochs import EpochStart
from waystation.storage.disk import Disk
from waystation.telemetry.logs import get_logger

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEAN_ENDS = "cleaner-offset-checkpoint"

_VERSION = "0"
_events = get_logger("storage")


def read_offsets(disk: Disk, path: Path) -> dict[TopicPartition, Offset]:
    """The offset noted for each partition; nothing if the file is absent or damaged."""
    return {
        TopicPartition(topic, int(partition)): Offset(int(offset))
        for topic, partition, offset in _read(disk, path, 3)
    }


def write_offsets(disk: Disk, path: Path, offsets: Mapping[TopicPartition, Offset]) -> None:
    """Note an offset for each partition; durable when this returns."""
    rows = [f"{name.topic} {name.partition} {at}" for name, at in offsets.items()]
    disk.replace(path, _encode(rows))


def read_epochs(disk: Disk, path: Path) -> list[EpochStart]:
    """Where each leader epoch began; nothing if the file is absent or damaged."""
    return [
        EpochStart(LeaderEpoch(int(epoch)), Offset(int(start)))
        for epoch, start in _read(disk, path, 2)
    ]


def encode_epochs(entries: Iterable[EpochStart]) -> bytes:
    """The content of a leader epoch checkpoint."""
    return _encode([f"{epoch} {start}" for epoch, start in entries])


def _read(disk: Disk, path: Path, width: int) -> list[list[str]]:
    try:
        version, count, *lines = disk.read(path).decode().splitlines()
        rows = [line.split(" ") for line in lines]
        if version != _VERSION or int(count) != len(rows):
            raise ValueError(f"version {version}, {count} entries announced, {len(rows)} there")
        for row in rows:
            if len(row) != width or not all(word.lstrip("-").isdecimal() for word in row[-2:]):
                raise ValueError(f"the line {' '.join(row)!r}")
    except FileNotFoundError:
        return []
    except (ValueError, UnicodeDecodeError) as problem:
        _events.warning("checkpoint.damaged", path=str(path), found=str(problem))
        return []
    return rows


def _encode(rows: list[str]) -> bytes:
    return "\n".join([_VERSION, str(len(rows)), *rows, ""]).encode()
