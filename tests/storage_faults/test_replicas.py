"""What was cut off a follower's log stays away, what was safe stays; planted bugs are caught."""

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import pytest

from tests.storage_faults.lives import TOPIC_ID
from tests.storage_faults.replicas import Replica, World
from tests.support.soak import count
from waystation.model.errors import StorageError
from waystation.model.offsets import NO_OFFSET, Offset
from waystation.storage import journal as journal_module
from waystation.storage import journal_replay, journal_voids, truncation
from waystation.storage.directory import DataDirectory
from waystation.storage.disk import Disk
from waystation.storage.journal import Journal
from waystation.storage.journal_voids import Place, Void
from waystation.storage.log import Log
from waystation.testing.disk import SimulatedDisk

STEPS = 120
BLOCK = 40
Patch = pytest.MonkeyPatch


@pytest.fixture(autouse=True)
def small_files(monkeypatch: Patch) -> None:
    """So that they fill up and are used again within a life."""
    monkeypatch.setattr(journal_module, "FILE_BYTES", 3_000)
    monkeypatch.setattr(journal_replay, "FILE_BYTES", 3_000)
    monkeypatch.setattr(journal_module, "_ROUND_BYTES_MAX", 50_000)
    monkeypatch.setattr(journal_module, "_ZEROS", bytes(20_000))


@pytest.mark.parametrize("block", range(count(2, 250)))
def test_what_was_cut_stays_away_and_what_was_safe_stays(block: int) -> None:
    cuts = replayed = 0
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        world = lived(seed)
        cuts += world.cuts
        replayed += world.replayed

    assert cuts > 50, "too few logs were cut"
    assert replayed > 50, "too little came from the journal"


def lived(seed: int) -> World:
    world = World(seed)
    try:
        world.run(STEPS)
    except Exception as error:
        error.add_note(f"seed {seed}")
        raise
    return world


# --- planted bugs ---------------------------------------------------------------------------


def voids_nothing(patch: Patch) -> None:
    patch.setattr(DataDirectory, "void_journal", lambda *_: None)


def voids_are_not_synced(patch: Patch) -> None:
    honest = journal_voids.write_voids

    def hastily(disk: Disk, folder: Path, voids: Iterable[Void]) -> None:
        with pytest.MonkeyPatch.context() as within:
            replace = disk.replace
            within.setattr(disk, "replace", partial(replace, durable=False))
            honest(disk, folder, voids)

    patch.setattr(journal_module, "write_voids", hastily)


def voids_what_comes_after_the_cut(patch: Patch) -> None:
    patch.setattr(Void, "covers", lambda self, _place, end: end > self.offset)


def voids_more_than_was_cut(patch: Patch) -> None:
    patch.setattr(Void, "covers", lambda self, place, _end: place < self.place)


def forgets_what_is_about_to_be_written(patch: Patch) -> None:
    """The place is that of what was written; entries that wait for a round lie behind it."""
    honest = Journal.void

    def void(self: Journal, *args: object) -> None:
        pending, self._pending = self._pending, bytearray()
        honest(self, *args)  # type: ignore[arg-type]
        self._pending = pending

    patch.setattr(Journal, "void", void)


def remembers_the_newest_void_alone(patch: Patch) -> None:
    def only(_voids: Iterable[Void], new: Void, _flushed_end: Offset) -> list[Void]:
        return [new]

    patch.setattr(journal_module, "with_void", only)


def believes_a_round_that_began_before_the_cut(patch: Patch) -> None:
    patch.setattr(Journal, "forget", lambda *_: None)


def counts_the_journal_as_before_the_cut(patch: Patch) -> None:
    def cut(self: Replica, how: Callable[[], None]) -> None:
        how()
        self._journal.forget(self)

    patch.setattr(Replica, "cut", cut)


def keeps_snapshots_behind_the_cut(patch: Patch) -> None:
    def only_marks(log: Log, offset: Offset) -> None:
        log.directory.void_journal(log, offset)
        log.recovery_point = min(log.recovery_point, max(offset, Offset(0)))
        log.directory.write_marks(log)

    patch.setattr(truncation, "_stop_vouching", only_marks)


def removes_voids_before_what_they_void(patch: Patch) -> None:
    honest = journal_replay.empty

    def empty(disk: Disk, folder: Path) -> None:
        disk.unlink(folder / journal_voids.FILE)
        disk.sync_directory(folder)
        honest(disk, folder)

    patch.setattr(journal_replay, "empty", empty)


BUGS = (
    voids_nothing,
    voids_are_not_synced,
    voids_what_comes_after_the_cut,
    voids_more_than_was_cut,
    forgets_what_is_about_to_be_written,
    remembers_the_newest_void_alone,
    believes_a_round_that_began_before_the_cut,
    counts_the_journal_as_before_the_cut,
    keeps_snapshots_behind_the_cut,
    removes_voids_before_what_they_void,
)
SEEDS = 60
# Rare ones are looked for where they were met last.
FIRST_SEEDS = {
    "voids_more_than_was_cut": 60,
    "keeps_snapshots_behind_the_cut": 100,
    "removes_voids_before_what_they_void": 320,
}


@pytest.mark.parametrize("plant", BUGS, ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_caught(plant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    plant(monkeypatch)

    assert first_failure(FIRST_SEEDS.get(plant.__name__, 0)) is not None


def first_failure(first: int) -> int | None:
    """The first seed whose life fails."""
    for seed in range(first, first + SEEDS):
        try:
            lived(seed)
        except (AssertionError, OSError):
            return seed
    return None


# --- voids ----------------------------------------------------------------------------------


def void(offset: int, place: int, partition: int = 0) -> Void:
    return Void(TOPIC_ID, partition, Offset(offset), Place(1, place))


def test_a_void_of_what_is_flushed_is_one_of_everything() -> None:
    earlier, other = void(7, 100), void(3, 50, partition=1)

    assert journal_voids.with_void([earlier, other], void(9, 200), Offset(9)) == [
        other,
        void(NO_OFFSET, 200),
    ]


def test_an_earlier_void_from_a_lower_offset_still_counts() -> None:
    voids = journal_voids.with_void([void(7, 100)], void(9, 200), Offset(5))

    assert voids == [void(7, 100), void(9, 200)]


def test_a_later_void_from_a_lower_offset_says_all() -> None:
    assert journal_voids.with_void([void(9, 100)], void(7, 200), Offset(5)) == [void(7, 200)]


def test_a_full_disk_refuses_a_cut_before_anything_is_cut() -> None:
    world = World(1)
    replica = world.replicas[0]
    while replica.log_end < 3:
        world._append(0)
    world.disk.space_bytes = 0
    world.directory.reserve.spend()
    world.disk.space_bytes = 0

    with pytest.raises(StorageError, match="full"):
        replica.log.truncate_to(Offset(1))
    assert replica.log_end >= 3
    assert world.directory.offline is None


def test_a_damaged_file_of_voids_is_told_rather_than_ignored() -> None:
    disk = SimulatedDisk(1)
    folder = Path("/data/journal")
    disk.make_directory(folder)
    journal_voids.write_voids(disk, folder, [void(7, 100)])

    assert journal_voids.read_voids(disk, folder) == {(TOPIC_ID, 0): [void(7, 100)]}

    disk.replace(folder / journal_voids.FILE, b"0\n2\nnonsense\n")
    with pytest.raises(OSError, match="damaged"):
        journal_voids.read_voids(disk, folder)
