"""Idempotency keys through thousands of random lives on a disk that forgets and tears."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.storage_faults.lives import simulated
from tests.storage_faults.once import OnceTrial
from tests.support.soak import count
from waystation.model.offsets import Offset
from waystation.storage import recovery
from waystation.storage.disk import Disk, RealDisk
from waystation.storage.once_files import OnceChunk, OnceFiles
from waystation.storage.once_inheriting import Inheritance
from waystation.storage.once_window import OnceWindow

SEEDS_PER_TEST = 50
STEPS = 50
BUG_SEEDS = 400
Patch = pytest.MonkeyPatch


@pytest.mark.parametrize("first", range(0, count(500, 20_000), SEEDS_PER_TEST))
def test_a_key_is_known_for_as_long_as_its_message_was_safe(first: int) -> None:
    looked_at = sum(
        simulated(OnceTrial, seed, STEPS).looked_at for seed in range(first, first + SEEDS_PER_TEST)
    )

    assert looked_at > SEEDS_PER_TEST


@pytest.mark.parametrize("seed", [912, 1883])
def test_no_snapshot_vouches_for_keys_that_a_cut_took(seed: int) -> None:
    """These seeds lost power between the two."""
    simulated(OnceTrial, seed, STEPS)


@pytest.mark.parametrize("seed", range(count(8, 300)))
def test_a_killed_process_forgets_no_key(seed: int, tmp_path: Path) -> None:
    """The page cache outlives the process: whatever was appended is there."""

    def kill() -> RealDisk:
        trial.flushed_end = trial.log.log_end
        trial.directory.unlock()
        return RealDisk()

    trial = OnceTrial(seed, RealDisk(), tmp_path / "data", kill)
    trial.run(STEPS)

    assert trial.lives > 1


def vouches_before_keys_are_synced(patch: Patch) -> None:
    honest = OnceFiles.write

    def write(files: OnceFiles, chunk: OnceChunk) -> None:
        disk, files._disk = files._disk, _Lazy(files._disk)  # type: ignore[assignment]
        try:
            honest(files, chunk)
        finally:
            files._disk = disk

    patch.setattr(OnceFiles, "write", write)


def keeps_keys_of_a_tail_that_was_cut(patch: Patch) -> None:
    patch.setattr(OnceFiles, "cut", lambda *_: None)


def remembers_a_tail_that_was_cut(patch: Patch) -> None:
    patch.setattr(OnceWindow, "cut", lambda *_: None)


def drops_whole_chunks_when_the_log_is_cut(patch: Patch) -> None:
    honest = OnceChunk.before

    def before(chunk: OnceChunk, offset: Offset) -> OnceChunk | None:
        return honest(chunk, offset) if chunk.end <= offset else None

    patch.setattr(OnceChunk, "before", before)


def reads_no_keys_behind_the_snapshot(patch: Patch) -> None:
    patch.setattr(recovery, "once_at", lambda *_: [])


def forgets_what_a_checkpoint_could_not_write(patch: Patch) -> None:
    honest = OnceWindow.take_fresh

    def take(window: OnceWindow, written_to: Offset, end: Offset) -> bytes:
        window.let_go(end)
        return honest(window, max(written_to, window.fresh_since), end)

    patch.setattr(OnceWindow, "take_fresh", take)


def does_not_write_what_it_mended(patch: Patch) -> None:
    patch.setattr(OnceFiles, "mend", lambda *_: None)


def begins_before_its_keys_are_named(patch: Patch) -> None:
    honest = Inheritance.begin

    def begin(inheritance: Inheritance, start: Callable[[Offset], None]) -> None:
        start(inheritance.offset)
        honest(inheritance, lambda _: None)

    patch.setattr(Inheritance, "begin", begin)


BUGS = (
    begins_before_its_keys_are_named,
    does_not_write_what_it_mended,
    vouches_before_keys_are_synced,
    keeps_keys_of_a_tail_that_was_cut,
    remembers_a_tail_that_was_cut,
    drops_whole_chunks_when_the_log_is_cut,
    reads_no_keys_behind_the_snapshot,
    forgets_what_a_checkpoint_could_not_write,
)


@pytest.mark.parametrize("plant", BUGS, ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_caught(plant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    plant(monkeypatch)

    assert any(map(_fails, range(BUG_SEEDS)))


def _fails(seed: int) -> bool:
    try:
        simulated(OnceTrial, seed, STEPS)
    except Exception:
        return True
    return False


class _Lazy:
    """A disk whose files are never synced."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def __getattr__(self, name: str) -> object:
        return getattr(self._disk, name)

    def open(self, path: Path, *, create: bool = False) -> object:
        return _LazyFile(self._disk.open(path, create=create))


class _LazyFile:
    def __init__(self, file: object) -> None:
        self._file = file

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)

    def datasync(self) -> None:
        """Say that it is done."""
