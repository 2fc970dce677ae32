"""The journal where no new file can be had; its random lives are in ``tests/storage_faults``."""

import errno
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from waystation.model.errors import StorageError
from waystation.model.ids import TopicId
from waystation.model.offsets import Offset
from waystation.storage.disk import DiskFile, RealDisk
from waystation.storage.journal import Journal

TOPIC = TopicId(UUID(int=7))


class Disk(RealDisk):
    """A disk that opens no file while it is out of something."""

    __slots__ = ("lacks",)

    def __init__(self) -> None:
        self.lacks = 0

    def open(self, path: Path, *, create: bool = False) -> DiskFile:
        if self.lacks:
            raise OSError(self.lacks, "cannot open")
        return super().open(path, create=create)


class Writer:
    """A partition that remembers what the journal told it."""

    log_end = flushed_end = Offset(0)

    def __init__(self) -> None:
        self.told: list[Offset | StorageError | None] = []

    def journaled(self, outcome: Offset | StorageError) -> None:
        self.told.append(outcome)

    def not_journaled(self) -> None:
        self.told.append(None)

    def flush(self) -> None:
        self.flushed_end = self.log_end


def now(work: Callable[[], None]) -> None:
    work()


@pytest.mark.parametrize("lacks", [errno.ENOSPC, errno.EMFILE, errno.EIO])
def test_where_no_file_can_be_opened_the_logs_own_files_are_synced(
    tmp_path: Path, lacks: int
) -> None:
    disk, writer = Disk(), Writer()
    journal = Journal(
        disk,
        tmp_path,
        submit=now,
        background=lambda _work: None,
        post=now,
        defer=lambda _s, work: work(),
        fail=pytest.fail,
    )
    disk.lacks = lacks
    writer.log_end = Offset(1)
    journal.add(writer, TOPIC, 0, memoryview(b"first"))

    assert writer.told == [None]

    disk.lacks = 0
    writer.log_end = Offset(2)
    journal.add(writer, TOPIC, 0, memoryview(b"second"))

    assert writer.told == [None, Offset(2)]
