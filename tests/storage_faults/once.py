"""Random lives of a log with idempotency keys, checked against a list of all that were used.

Beyond what holds of every log (``operations.py``), whenever someone looks:

1. every key within its window whose message the log had is known, with its place and time, also
   if retention has taken the message since;
2. no key is known of a message that was cut off the log, or lost with power.
"""

import errno
import random
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.storage_faults.lives import Weighted
from tests.storage_faults.operations import WEIGHTS, Batch, Trial
from waystation.model.errors import WaystationError
from waystation.model.ids import LeaderEpoch
from waystation.model.offsets import Millis, Offset
from waystation.model.topics import DAY_MS, TopicSettings
from waystation.records.header import mark_once, peek
from waystation.records.once import HEADER_NAME, OnceEntry, hash_of, once_batch
from waystation.storage.disk import Disk, DiskFile
from waystation.storage.once_inheriting import Inheritance
from waystation.storage.once_window import OnceWindow
from waystation.storage.settings import StorageSettings
from waystation.storage.truncation import CutPlan
from waystation.testing.disk import PowerLossError


class Used(NamedTuple):
    """A key, and where its message went when."""

    key: bytes
    offset: int
    at: int
    timestamp: int


class OnceTrial(Trial):
    """One log to which messages with idempotency keys are sent, among others."""

    def __init__(self, seed: int, disk: Disk, path: Path, crash: Callable[[], Disk]) -> None:
        super().__init__(seed, disk, path, crash)
        self.used: list[Used] = []
        self.inherited: list[Used] = []
        self.lossy = False
        self.looked_at = 0

    def _chosen_settings(self, chance: random.Random) -> tuple[TopicSettings, StorageSettings]:
        settings = TopicSettings(
            segment_bytes=chance.choice((600, 3_000, 20_000)),
            index_interval_bytes=100,
            segment_ms=chance.choice((300, 3_600_000)),
            retention_bytes=chance.choice((-1, 1_000, 4_000)),
            retention_ms=chance.choice((-1, 1_000)),
            file_delete_delay_ms=0,
            compression_type=chance.choice(("producer", "zstd")),
            idempotency_window_ms=chance.choice((1_500, DAY_MS)),
        )
        return settings, StorageSettings(recovery_bytes_max=chance.choice((0, 5_000)))

    def run(self, steps: int) -> None:
        """As for any log, with keys."""
        for _ in range(steps):
            self.step(_ACTIONS)
        self.check_keys()
        self.crash()
        self.lose_power(-1)
        self.append_once()
        self.restart_cleanly()

    # --- what can happen ------------------------------------------------------------------------

    def append_once(self) -> None:
        """Some new keys, and now and then one whose window is over."""
        keys = [b"key-%d" % self.chance.getrandbits(60) for _ in range(self.chance.choice((1, 3)))]
        over = [one.key for one in self.used if one.at < self._since]
        if over and self.chance.random() < 0.3:
            keys.append(self.chance.choice(over))
        times = [self.now - self.chance.choice((0, 7, 90_000)) for _ in keys]
        rows = [
            (0, time, b"k", b"v" * 20, ((HEADER_NAME, key),))
            for time, key in zip(times, keys, strict=True)
        ]
        content = once_batch(rows, Millis(self.now))
        header = mark_once(content)
        try:
            told = self.log.append_once(
                memoryview(content), header, LeaderEpoch(self.epoch), Millis(self.now)
            )
        except WaystationError:
            if self.directory.offline is None:
                raise
            return
        base = told.base_offset
        self.batches.append(
            Batch(bytes(content), base, base + len(keys), self.epoch, -1, -1, tuple(times))
        )
        for number, (key, time) in enumerate(zip(keys, times, strict=True)):
            self.used.append(Used(key, base + number, self.now, time))

    def forget_keys(self) -> None:
        for _ in range(64):
            self.log.forget_keys(Millis(self.now))

    def append_elsewhere(self) -> None:
        """A batch with keys comes as a follower gets it."""
        before = len(self.batches)
        self.append_once()
        if len(self.batches) == before:
            return
        copied = self.batches[-1]
        self.log.truncate_to(Offset(copied.base), CutPlan(self.log, Offset(copied.base)))
        # From here on it is as if this log had never had it.
        kept, self.used = self.used, [one for one in self.used if one.offset < copied.base]
        self._cut_to(copied.base)
        self.log.append_replicated(memoryview(bytearray(copied.content)), Millis(self.now))
        self.batches.append(copied)
        self.used = kept
        assert peek(copied.content).base_offset == copied.base

    def _cut_to(self, offset: int) -> None:
        self._forget_past(offset)
        self.flushed_end = offset
        self.was_truncated = True

    def begin_elsewhere(self) -> None:
        """The keys are the leader's from now on, who knows of some before the log's beginning."""
        origin = self.new_origin = self.log.log_end + self.chance.randrange(1, 1_000)
        self.was_truncated = self.lossy = True
        offsets = sorted(self.chance.sample(range(origin), min(origin, 3)))
        self.inherited = [
            Used(b"key-%d" % self.chance.getrandbits(60), offset, self.now, self.now - 7)
            for offset in offsets
        ]
        inheritance = Inheritance(self.log, Offset(origin), _pages(self.inherited))
        inheritance.work()
        inheritance.begin(self.log.start_at)
        self._adopt_origin()

    def crash_and_damage_keys(self) -> None:
        """What the disk has of keys is not what was written; power may be lost meanwhile too."""
        self.disk = self._crash()
        files = [one for one in self.disk.entries(self.log.path) if one.name.endswith(".once")]
        if files:
            victim = self.chance.choice(files)
            self.lossy = True
            file = self.disk.open(self.log.path / victim.name)
            file.pwrite(b"\xff\xfe\xfd", self.chance.randrange(max(victim.size_bytes - 3, 1)))
            file.datasync()
        self.lose_power(self.chance.randrange(30))
        try:
            self._reopen()
        except PowerLossError:
            self.crash()

    def run_out_of_space(self) -> None:
        """A checkpoint gets no further than a part of its keys."""
        files = self.log.once_files
        disk, files._disk = files._disk, _Full(files._disk)  # type: ignore[assignment]
        try:
            self.checkpoint()
        finally:
            files._disk = disk

    def _adopt_origin(self) -> None:
        super()._adopt_origin()
        self.used, self.inherited, self.lossy = self.inherited, [], False

    # --- what must hold -------------------------------------------------------------------------

    @property
    def _since(self) -> int:
        return self.now - self.settings.idempotency_window_ms

    def _forget_past(self, log_end: int) -> None:
        super()._forget_past(log_end)
        self.used = [one for one in self.used if one.offset < log_end]

    def _check_after_restart(self) -> None:
        super()._check_after_restart()
        if self.lossy:
            # What the log holds is known, the rest may be.
            self.used = [one for one in self.used if one.offset >= self.log.segments[0].base_offset]
            self.lossy = False
        self.check_keys()

    def check_keys(self) -> None:
        """Promises 1 and 2."""
        newest = {one.key: one for one in self.used}
        for used in newest.values():
            found = self.log.once.find(hash_of(used.key))
            if found is None or found.offset != used.offset:
                assert used.at < self._since, f"{used} is not known, but {found}"
                continue
            assert (found.at, found.timestamp) == (used.at, used.timestamp), f"{used}: {found}"
            self.looked_at += 1
        for entry in self.log.once:
            assert entry.offset < self.log.log_end, f"{entry} was never in a log of {self.log}"


_ACTIONS: Weighted = (
    *((getattr(OnceTrial, action.__name__), weight) for action, weight in WEIGHTS),
    (OnceTrial.append_once, 30),
    (OnceTrial.append_elsewhere, 2),
    (OnceTrial.forget_keys, 3),
    (OnceTrial.check_keys, 5),
    (OnceTrial.crash_and_damage_keys, 2),
    (OnceTrial.run_out_of_space, 4),
)


def _pages(inherited: list[Used]) -> list[bytes]:
    """As a leader tells them."""
    window, pages, page = OnceWindow(), list[bytes](), 0
    window.note(
        OnceEntry(
            hash_of(one.key), Offset(one.offset), b"f" * 8, Millis(one.at), Millis(one.timestamp)
        )
        for one in inherited
    )
    while page >= 0:
        packed, page = window.page(
            page, Offset(inherited[-1].offset + 1) if inherited else Offset(0)
        )
        pages.append(packed)
    return pages


class _Full:
    """A disk that takes half of what it is given."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def __getattr__(self, name: str) -> object:
        return getattr(self._disk, name)

    def open(self, path: Path, *, create: bool = False) -> object:
        return _FullFile(self._disk.open(path, create=create))


class _FullFile:
    def __init__(self, file: DiskFile) -> None:
        self._file = file

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)

    def pwrite(self, content: bytes, position: int) -> None:
        self._file.pwrite(content[: len(content) // 2], position)
        raise OSError(errno.ENOSPC, "no space left on device")
