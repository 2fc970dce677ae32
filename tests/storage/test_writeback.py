"""Large writes that nobody waits for are handed to the disk early."""

import threading
from pathlib import Path

import pytest

from tests.storage.building import NOW, append, batch_of, new_log
from waystation.model.topics import TopicSettings
from waystation.storage.disk import RealDisk, RealFile


def test_the_disk_is_told_after_every_megabyte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hints: list[tuple[int, int, str]] = []

    def start_writeback(_file: RealFile, position: int, nbytes: int) -> None:
        hints.append((position, nbytes, threading.current_thread().name))

    monkeypatch.setattr(RealFile, "start_writeback", start_writeback)
    directory, log = new_log(RealDisk(), TopicSettings(), tmp_path)
    batch = batch_of(b"x" * 1_000_000)
    for _ in range(4):
        append(log, batch, now=NOW)
    directory.close({})
    directory.unlock()

    assert [(position, nbytes) for position, nbytes, _ in hints] == [
        (0, 2 * len(batch)),
        (2 * len(batch), 2 * len(batch)),
    ]
    assert all(thread != "MainThread" for _, _, thread in hints)
