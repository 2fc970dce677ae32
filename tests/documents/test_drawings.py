"""What the design documents draw of storage, drawn again by the code, as files show it."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from struct import iter_unpack
from uuid import UUID

import pytest

from waystation.model.ids import LeaderEpoch, NodeId, TopicId, TopicPartition
from waystation.model.offsets import Millis, Offset
from waystation.model.topics import TopicSettings
from waystation.records.batch import BatchBuilder
from waystation.records.header import batches, peek
from waystation.storage.directory import DataDirectory
from waystation.storage.disk import RealDisk
from waystation.storage.log import Log
from waystation.storage.settings import StorageSettings

NOW = Millis(1_700_000_000_000)


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[DataDirectory]:
    opened = DataDirectory(tmp_path, RealDisk(), StorageSettings(), NodeId(1))
    yield opened
    opened.unlock()


def one_record(value: bytes) -> bytearray:
    builder = BatchBuilder()
    assert builder.append(None, value, timestamp=NOW)
    return bytearray(builder.build())


def new_log(directory: DataDirectory, settings: TopicSettings) -> Log:
    return directory.create_log(TopicPartition("orders", 0), TopicId(UUID(int=1)), settings)


def append(log: Log, batch: bytearray) -> Offset:
    view = memoryview(batch)
    return log.append(view, peek(view), LeaderEpoch(0), NOW).base_offset


def test_segments_are_0_to_999_then_to_1999_then_to_2342(directory: DataDirectory) -> None:
    size_bytes = len(one_record(b"order"))
    log = new_log(directory, TopicSettings(segment_bytes=1_000 * size_bytes))
    for _ in range(2_343):
        append(log, one_record(b"order"))
    directory.close({})

    held = {}
    for path in sorted(log.path.glob("*.log")):
        headers = [header for _, header in batches(memoryview(path.read_bytes()))]
        held[path.name] = (headers[0].base_offset, headers[-1].last_offset)
    assert held == {
        "00000000000000000000.log": (0, 999),
        "00000000000000001000.log": (1_000, 1_999),
        "00000000000000002000.log": (2_000, 2_342),
    }


def test_every_segment_has_a_log_an_offset_index_and_a_time_index(
    directory: DataDirectory,
) -> None:
    size_bytes = len(one_record(b"order"))
    log = new_log(directory, TopicSettings(segment_bytes=10 * size_bytes))
    for _ in range(25):
        append(log, one_record(b"order"))
    directory.close({})

    for first in (0, 10, 20):
        kinds = {path.suffix for path in log.path.glob(f"{first:020}.*")}
        assert kinds >= {".log", ".index", ".timeindex"}


def test_a_segment_holds_a_gigabyte_unless_told() -> None:
    assert TopicSettings().segment_bytes == 1 << 30


def test_the_sparse_index_has_an_entry_about_every_4096_bytes(directory: DataDirectory) -> None:
    log = new_log(directory, TopicSettings())
    batch = one_record(b"x" * 935)
    for _ in range(1_000):
        append(log, bytearray(batch))
    directory.close({})

    (index,) = log.path.glob("*.index")
    entries = list(iter_unpack(">ii", index.read_bytes()))
    assert len(entries) > 100
    for offset, position in entries:
        assert position == offset * len(batch)
    for (_, before), (_, after) in pairwise(entries):
        assert 4096 <= after - before <= 4096 + 2 * len(batch)


def test_appending_gives_offsets_by_which_the_same_bytes_are_read(
    directory: DataDirectory,
) -> None:
    log = new_log(directory, TopicSettings(segment_bytes=1_000, index_interval_bytes=300))
    sent = [one_record(b"order %d" % number) for number in range(50)]
    offsets = [append(log, batch) for batch in sent]

    assert offsets == list(range(50))
    for offset, batch in zip(offsets, sent, strict=True):
        region = log.read(offset, 1, log.log_end).region
        assert region is not None
        assert region.file.pread(region.nbytes, region.position) == batch
