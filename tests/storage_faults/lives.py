"""What the random lives of a log have in common: a disk, its failures, and coming back.

Each kind of trial does things of its own, keeps a list of what the log must hold, and says in
``_check_after_restart`` what must be true of whatever a crash has left.
"""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

from waystation.model.errors import StorageError
from waystation.model.ids import NodeId, TopicId, TopicPartition
from waystation.model.offsets import Millis
from waystation.model.topics import TopicSettings
from waystation.storage.directory import DataDirectory
from waystation.storage.disk import Disk
from waystation.storage.settings import StorageSettings
from waystation.testing.disk import PowerLossError, SimulatedDisk

NAME = TopicPartition("orders", 0)
TOPIC_ID = TopicId(UUID(int=7))

Weighted = tuple[tuple[Callable[[Any], None], int], ...]
"""What can happen, and how often compared with the others."""


class Lives:
    """One log on one disk, for as many lives as the seed has crashes."""

    CRASHES_AGAIN = 0.3
    """How often power is lost once more while the log is opened."""
    POWER_LASTS = 40
    """How many steps of the disk at most until power is lost."""

    def __init__(self, seed: int, disk: Disk, path: Path, crash: Callable[[], Disk]) -> None:
        """``crash`` returns the disk of the next life."""
        self.chance = random.Random(seed)
        self.disk, self.path, self._crash = disk, path, crash
        self.now = 1_000_000
        self.flushed_end = self.start_written = 0
        self.lives = 1
        self.settings, self.storage = self._chosen_settings(self.chance)
        self.directory = DataDirectory(path, disk, self.storage, NodeId(1))
        self.log = self.directory.create_log(NAME, TOPIC_ID, self.settings)

    def _chosen_settings(self, chance: random.Random) -> tuple[TopicSettings, StorageSettings]:
        raise NotImplementedError

    def _check_after_restart(self) -> None:
        """What must hold; what the log lost is forgotten by the list too."""
        raise NotImplementedError

    def run(self, steps: int) -> None:
        """Do ``steps`` random things, crash, and come to a good end."""
        raise NotImplementedError

    # --- what can happen ----------------------------------------------------------------

    def step(self, actions: Weighted) -> None:
        """One random thing."""
        choices, weights = zip(*actions, strict=True)
        self.now += self.chance.randrange(200)
        try:
            self.chance.choices(choices, weights)[0](self)
        except PowerLossError:
            self.crash()
        except StorageError:
            assert self.directory.offline is not None
        if self.directory.offline is not None:
            self.crash()

    def roll(self) -> None:
        self.log.maybe_roll(Millis(self.now))

    def crash(self) -> None:
        """Lose power and come back; now and then power is lost again while coming back."""
        self.disk = self._crash()
        while self.chance.random() < self.CRASHES_AGAIN:
            self.lose_power(self.chance.randrange(40))
            try:
                self._reopen()
            except PowerLossError:
                self.disk = self._crash()
            else:
                return
        self._reopen()

    def crash_and_lose_snapshots(self) -> None:
        """What is known of producers must then come from the log itself."""
        self.disk = self._crash()
        for entry in self.disk.entries(self.log.path):
            if entry.name.endswith(".snapshot"):
                self.disk.unlink(self.log.path / entry.name)
        self.disk.sync_directory(self.log.path)
        self._reopen()

    def lose_power_soon(self) -> None:
        """In the middle of one of the next actions."""
        self.lose_power(self.chance.randrange(self.POWER_LASTS))

    def lose_power(self, after: int) -> None:
        """After so many steps of the disk, if it is one that can; -1: stay powered."""
        if isinstance(self.disk, SimulatedDisk):
            self.disk.lose_power(after)

    def restart_cleanly(self) -> None:
        self.directory.close({})
        self.directory.unlock()
        if self.directory.offline is None:
            self.flushed_end, self.start_written = self.log.log_end, self.log.log_start
            self._reopen()

    def _reopen(self) -> None:
        self.lives += 1
        self.directory = DataDirectory(self.path, self.disk, self.storage, NodeId(1))
        logs = self.directory.open_logs(lambda _: self.settings)
        assert self.directory.offline is None, self.directory.offline
        (self.log,) = logs
        assert (self.log.name, self.log.topic_id) == (NAME, TOPIC_ID)
        assert self.log.log_end >= self.flushed_end, (
            f"lost [{self.log.log_end}, {self.flushed_end})"
        )
        self._check_after_restart()


T = TypeVar("T", bound=Lives)


def simulated(kind: type[T], seed: int, steps: int) -> T:
    """One whole trial on a disk that forgets and tears; a failure names its seed."""
    disk = SimulatedDisk(seed)

    def crash() -> SimulatedDisk:
        disk.space_bytes = None
        disk.crash()
        return disk

    trial = kind(seed, disk, Path("/data"), crash)
    try:
        trial.run(steps)
    except Exception as error:
        error.add_note(f"seed {seed}")
        raise
    return trial
