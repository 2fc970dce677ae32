"""What the design documents draw, drawn again by the code."""

from itertools import pairwise
from pathlib import Path
from uuid import UUID

from waystation.model.ids import LeaderEpoch, NodeId, TopicId, TopicPartition
from waystation.model.offsets import Millis
from waystation.model.topics import TopicSettings
from waystation.records.batch import BatchBuilder
from waystation.records.header import peek
from waystation.storage.directory import DataDirectory
from waystation.storage.disk import RealDisk
from waystation.storage.log import Log
from waystation.storage.settings import StorageSettings

NOW = Millis(1_700_000_000_000)


def one_record(value: bytes) -> bytearray:
    builder = BatchBuilder()
    assert builder.append(None, value, timestamp=NOW)
    return bytearray(builder.build())


def new_log(path: Path, settings: TopicSettings) -> Log:
    directory = DataDirectory(path, RealDisk(), StorageSettings(), NodeId(1))
    return directory.create_log(TopicPartition("orders", 0), TopicId(UUID(int=1)), settings)


def append(log: Log, batch: bytearray) -> None:
    view = memoryview(batch)
    log.append(view, peek(view), LeaderEpoch(0), NOW)


def test_segments_are_0_to_999_then_to_1999_then_to_2342(tmp_path: Path) -> None:
    size_bytes = len(one_record(b"order"))
    log = new_log(tmp_path, TopicSettings(segment_bytes=1_000 * size_bytes))
    for _ in range(2_343):
        append(log, one_record(b"order"))

    files = sorted(path.name for path in log.path.glob("*.log"))
    assert files == [f"{first:020}.log" for first in (0, 1_000, 2_000)]
    assert log.log_end == 2_343
    assert [segment.active for segment in log.segments] == [False, False, True]


def test_a_segment_holds_a_gigabyte_and_the_index_an_entry_per_4096_bytes() -> None:
    settings = TopicSettings()

    assert settings.segment_bytes == 1 << 30
    assert settings.index_interval_bytes == 4096


def test_the_sparse_index_has_an_entry_about_every_4096_bytes(tmp_path: Path) -> None:
    log = new_log(tmp_path, TopicSettings())
    batch = one_record(b"x" * 935)
    for _ in range(1_000):
        append(log, bytearray(batch))
    written, index = 1_000 * len(batch), log.active.index

    positions = [index.entry(number)[1] for number in range(len(index))]
    gaps = [after - before for before, after in pairwise(positions)]
    assert positions[-1] > written - 3 * 4096
    assert all(4096 <= gap <= 4096 + 2 * len(batch) for gap in gaps)
