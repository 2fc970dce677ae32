"""Random lives of several logs that share a journal, on a disk that forgets.

What must hold after every crash: whatever the journal or a flush called safe is there, in order;
nothing is there twice, and nothing that was not appended.  Each planted bug is caught.
"""

import random
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from tests.support.soak import count
from waystation.model.errors import StorageError
from waystation.model.ids import LeaderEpoch, NodeId, TopicId, TopicPartition
from waystation.model.offsets import Millis, Offset
from waystation.model.topics import TopicSettings
from waystation.records.batch import BatchBuilder, records_of
from waystation.records.header import peek
from waystation.storage import journal as journal_module
from waystation.storage import journal_replay
from waystation.storage.directory import DataDirectory
from waystation.storage.journal import FOLDER, Journal
from waystation.storage.journal_replay import entries_of, replay
from waystation.storage.log import Log
from waystation.storage.settings import StorageSettings
from waystation.testing.disk import SimulatedDisk

ROOT = Path("/data")
LOGS = 3
NOW = Millis(1_700_000_000_000)
SETTINGS = TopicSettings(segment_bytes=20_000)


class Replica:
    """A log that writes through the journal, by the rules that a partition follows."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.journal_from = self.journaled_end = log.flushed_end
        self.failed: StorageError | None = None

    @property
    def log_end(self) -> Offset:
        return self.log.log_end

    @property
    def flushed_end(self) -> Offset:
        return self.log.flushed_end

    @property
    def safe_end(self) -> Offset:
        if self.journal_from <= self.flushed_end < self.journaled_end:
            return self.journaled_end
        return self.flushed_end

    def journaled(self, outcome: Offset | StorageError) -> None:
        if isinstance(outcome, StorageError):
            self.failed = outcome
        else:
            self.journaled_end = outcome

    def not_journaled(self) -> None:
        self.journal_from = self.log.log_end

    def flush(self) -> None:
        ticket = self.log.begin_flush()
        if ticket is not None:
            ticket.sync()
            self.log.finish_flush(ticket)


class World:
    """Logs, a journal and a disk; work waits in lists until the seed says that it happens."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.disk = SimulatedDisk(seed)
        # Every other life goes without files that were prepared beforehand.
        self.prepares = seed % 2 == 0
        self.written: list[list[bytes]] = [[] for _ in range(LOGS)]
        self.safe = [0] * LOGS
        self.number = 0
        self.start()

    def start(self) -> None:
        self.work: list[Callable[[], None]] = []
        self.soon: list[Callable[[], None]] = []
        self.directory = DataDirectory(ROOT, self.disk, StorageSettings(), NodeId(1))
        found = {log.name: log for log in self.directory.open_logs(lambda _: SETTINGS)}
        replay(self.disk, ROOT / FOLDER, found.values(), NOW)
        names = [TopicPartition("t", number) for number in range(LOGS)]
        logs = [
            found.get(name) or self.directory.create_log(name, topic_id(name.partition), SETTINGS)
            for name in names
        ]
        self.replicas = [Replica(log) for log in logs]
        self.journal = Journal(
            self.disk,
            ROOT / FOLDER,
            submit=self.work.append,
            background=self.work.append if self.prepares else lambda _: None,
            post=self.soon.append,
            defer=lambda _, run: self.soon.append(run),
            fail=self.directory.fail,
            generation=self.disk.life << 32,
        )

    def step(self) -> None:
        match self.chance.randrange(12):
            case 0 | 1 | 2 | 3 | 4:
                self.append(self.chance.randrange(LOGS))
            case 5 | 6:
                self.run(self.soon)
            case 7 | 8:
                self.run(self.work)
            case 9:
                self.chance.choice(self.replicas).flush()
            case 10:
                self.journal.tidy()
            case _ if self.chance.random() < 0.3:
                self.crash()
        for number, replica in enumerate(self.replicas):
            self.safe[number] = max(self.safe[number], replica.safe_end)

    def run(self, waiting: list[Callable[[], None]]) -> None:
        if waiting:
            waiting.pop(0)()

    def append(self, number: int) -> None:
        builder = BatchBuilder()
        self.number += 1
        value = b"%d:" % self.number + self.chance.randbytes(self.chance.choice([10, 300, 40_000]))
        builder.append(None, value, timestamp=NOW)
        batch = memoryview(bytearray(builder.build()))
        replica = self.replicas[number]
        base = replica.log_end
        flushed = replica.flushed_end
        replica.log.append(batch, peek(batch), LeaderEpoch(0), NOW)
        self.written[number].append(value)
        if self.journal.takes(len(batch)):
            if flushed >= base:
                replica.journal_from = base
            self.journal.add(replica, topic_id(number), number, batch)
        else:
            replica.not_journaled()

    def stop(self) -> None:
        """A clean shutdown: everything is safe, and nothing is left to replay."""
        self.directory.close({})
        self.safe = [replica.log_end for replica in self.replicas]
        for entry in self.disk.entries(ROOT / FOLDER):
            assert not list(entries_of(self.disk.read(ROOT / FOLDER / entry.name))), entry.name

    def crash(self) -> None:
        self.disk.crash()
        self.start()
        for number, replica in enumerate(self.replicas):
            found = read(replica.log)
            assert replica.log_end >= self.safe[number], (
                f"log {number} ends at {replica.log_end}, {self.safe[number]} was safe"
            )
            assert found == self.written[number][: len(found)], f"log {number} holds other records"
            assert len(found) == replica.log_end, f"log {number} has a gap"
            del self.written[number][len(found) :]
            self.safe[number] = replica.log_end


def topic_id(number: int) -> TopicId:
    return TopicId(UUID(int=number + 1))


def read(log: Log) -> list[bytes]:
    values: list[bytes] = []
    offset = log.log_start
    while offset < log.log_end:
        found = log.read(offset, 1 << 20, log.log_end, True)
        assert found.region is not None, f"nothing at {offset}"
        data = found.region.read()
        at = 0
        while at < len(data):
            values += [record.value or b"" for record in records_of(data, at)]
            at += peek(data, at).size_bytes
        offset = found.next_offset
    return values


def live(seed: int, steps: int = 150) -> None:
    world = World(seed)
    for _ in range(steps):
        world.step()
    # Every third life ends well, with an emptied journal.
    if seed % 3 == 0:
        world.stop()
    world.crash()


@pytest.mark.parametrize("block", range(4))
def test_what_the_journal_called_safe_survives(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Small files, so that they fill up and are used again within a life.
    monkeypatch.setattr(journal_module, "FILE_BYTES", 3_000)
    monkeypatch.setattr(journal_replay, "FILE_BYTES", 3_000)
    monkeypatch.setattr(journal_module, "_ROUND_BYTES_MAX", 50_000)
    monkeypatch.setattr(journal_module, "_ZEROS", bytes(20_000))
    for seed in range(block * count(60, 2_000), (block + 1) * count(60, 2_000)):
        live(seed)


BUGS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "a round is told before it is synced": lambda patch: patch.setattr(
        Journal, "_begin_round", told_too_early
    ),
    "a file is used again too soon": lambda patch: patch.setattr(
        journal_module._File, "is_done_with", True
    ),
    "nothing is replayed": lambda patch: patch.setattr(
        "tests.storage_faults.test_journal.replay", forget
    ),
    "the name of a new file is not synced": lambda patch: patch.setattr(
        SimulatedDisk, "sync_directory", only_for_logs
    ),
    "a gap in the journal is overlooked": lambda patch: patch.setattr(
        Replica, "not_journaled", lambda self: None
    ),
}


@pytest.mark.parametrize("bug", BUGS)
def test_each_planted_bug_is_caught(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "FILE_BYTES", 3_000)
    monkeypatch.setattr(journal_replay, "FILE_BYTES", 3_000)
    monkeypatch.setattr(journal_module, "_ROUND_BYTES_MAX", 50_000)
    monkeypatch.setattr(journal_module, "_ZEROS", bytes(20_000))
    BUGS[bug](monkeypatch)

    def every_seed() -> None:
        for seed in range(300):
            live(seed)

    with pytest.raises((AssertionError, ValueError)):
        every_seed()


def told_too_early(self: Journal) -> None:
    for log, end in self._ends.items():
        log.journaled(end)
    ORIGINAL_ROUND(self)


ORIGINAL_ROUND = Journal._begin_round


def forget(disk: SimulatedDisk, folder: Path, _logs: object, _now: Millis) -> int:
    disk.make_directory(folder)
    for entry in disk.entries(folder):
        disk.unlink(folder / entry.name)
    return 0


def only_for_logs(self: SimulatedDisk, path: Path) -> None:
    if path.name != FOLDER:
        ORIGINAL_SYNC(self, path)


ORIGINAL_SYNC = SimulatedDisk.sync_directory


def test_a_full_disk_sends_batches_to_their_own_files() -> None:
    world = World(1)
    world.append(0)
    world.disk.space_bytes = 100
    while world.soon or world.work:
        world.run(world.soon)
        world.run(world.work)

    replica = world.replicas[0]
    assert replica.failed is None
    assert replica.journal_from == replica.log_end
    assert world.directory.offline is None


def test_a_failed_sync_of_the_journal_takes_the_directory_offline() -> None:
    world = World(3)
    world.append(0)
    world.disk.fail_sync()
    while world.soon or world.work:
        world.run(world.soon)
        world.run(world.work)

    assert world.replicas[0].failed is not None
    assert world.directory.offline is not None


def test_a_foreign_file_in_the_journal_is_left_alone() -> None:
    world = World(3)
    world.disk.replace(ROOT / FOLDER / "notes.txt", b"mine")
    world.disk.replace(ROOT / FOLDER / "notes.wal", b"mine too")
    world.directory.unlock()
    world.start()

    assert world.disk.read(ROOT / FOLDER / "notes.txt") == b"mine"
    assert world.disk.read(ROOT / FOLDER / "notes.wal") == b"mine too"
