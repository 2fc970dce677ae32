"""Compacted logs on a disk that forgets and tears, and on the real one; and planted bugs."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.storage_faults.compacted import CompactedTrial
from tests.storage_faults.lives import simulated
from tests.support.soak import count
from waystation.model.offsets import Millis, Offset
from waystation.records.header import Buffer
from waystation.records.sieve import KeyNotes, Sieve
from waystation.storage import cleanable, recovery, swapping
from waystation.storage.cleanable import next_group
from waystation.storage.compaction import Compaction, Work
from waystation.storage.log import Log
from waystation.storage.reader import Reader
from waystation.storage.rewriting import Writing
from waystation.storage.segment import Segment
from waystation.storage.swapping import Swap
from waystation.testing.disk import VolatileDisk

SEEDS_PER_TEST = 50
STEPS = 50
Patch = pytest.MonkeyPatch


@pytest.mark.parametrize("first", range(0, count(300, 20_000), SEEDS_PER_TEST))
def test_the_last_record_of_each_key_survives_every_crash(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        run(seed)


@pytest.mark.parametrize("seed", range(count(5, 200)))
def test_it_does_on_the_real_disk_too(seed: int, tmp_path: Path) -> None:
    """Each life has a disk whose unsynced writes and names end with it."""

    def crash() -> VolatileDisk:
        trial.directory.unlock()
        return VolatileDisk()

    trial = CompactedTrial(seed, VolatileDisk(), tmp_path / "data", crash)
    trial.run(STEPS)

    assert trial.lives > 1


def test_most_passes_go_through() -> None:
    """A trial that never compacts would prove nothing."""
    passes = [len(run(seed).through) for seed in range(20)]

    assert sum(passes) > 60


def run(seed: int) -> CompactedTrial:
    return simulated(CompactedTrial, seed, STEPS)


# --- planted bugs ---------------------------------------------------------------------------


def commits_to_what_is_not_synced(patch: Patch) -> None:
    patch.setattr(Writing, "_sync", lambda _, fresh: fresh.finish())


def exchanges_names_without_syncing_them(patch: Patch) -> None:
    patch.setattr(Swap, "_sync_names", lambda _: None)


def forgets_what_was_committed(patch: Patch) -> None:
    patch.setattr(recovery, "finish_swaps", lambda *_: None)


def leaves_old_segments_behind_the_new_one(patch: Patch) -> None:
    patch.setattr(swapping, "_end_of", lambda *_: Offset(0))


def takes_an_old_index_for_the_new_one(patch: Patch) -> None:
    def commit(swap: Swap) -> None:
        with swap._log.cutting:
            swap.check()
            swap._rename(".log", ".cleaned", ".swap")
            swap._sync_names()
            for suffix in (".index", ".timeindex"):
                swap._rename(suffix, ".cleaned", ".swap")
            swap._sync_names()
            swap._log.swap = swap

    patch.setattr(Swap, "commit", commit)


def compacts_what_is_not_committed(patch: Patch) -> None:
    def everything(log: Log, mark: Offset, first_dirty: Offset, now: Millis) -> Iterator[Segment]:
        yield from log.segments[:-1]

    patch.setattr(cleanable, "_cleanable", everything)


def drops_tombstones_at_once(patch: Patch) -> None:
    honest = Compaction._terms
    patch.setattr(Compaction, "_terms", lambda *a: honest(*a)._replace(delete_retention_ms=0))


def dates_tombstones_whose_records_are_still_there(patch: Patch) -> None:
    patch.setattr(Sieve, "_is_clean", lambda *_: True)


def forgets_the_last_sequence_of_a_producer(patch: Patch) -> None:
    honest = Compaction._terms
    patch.setattr(Compaction, "_terms", lambda *a: honest(*a)._replace(last_of={}))


def takes_a_full_map_for_a_whole_one(patch: Patch) -> None:
    honest = KeyNotes._note

    def note(self: KeyNotes, payload: Buffer, records: int) -> None:
        honest(self, payload, records)
        self.full_at = None

    patch.setattr(KeyNotes, "_note", note)


def lets_readers_look_where_the_old_segment_was(patch: Patch) -> None:
    patch.setattr(Reader, "forget_segments", lambda *_: None)


def exchanges_the_newest_first(patch: Patch) -> None:
    def works(self: Compaction) -> Iterator[Work]:
        yield from self._note_keys()
        yield from self._secure_start()
        groups, at = [], self._log.segments[0].base_offset
        while group := next_group(self._log, at, self.end):
            groups.append(group)
            at = group[-1].next_offset
        for group in groups[::-1]:
            held = all(one in self._log.segments for one in group)
            if not held or not (yield from self._compact(group)):
                return
        self._log.clean_end = max(self._log.clean_end, self.end)
        yield self._log.directory.write_clean_ends
        self.finished = True

    patch.setattr(Compaction, "_works", works)


def forgets_segments_that_retention_took(patch: Patch) -> None:
    patch.setattr(Compaction, "_secure_start", lambda _: iter(()))


def cuts_a_log_behind_the_back_of_a_swap(patch: Patch) -> None:
    patch.setattr(Log, "_finish_swap", lambda _: None)


BUGS = (
    commits_to_what_is_not_synced,
    exchanges_names_without_syncing_them,
    forgets_what_was_committed,
    leaves_old_segments_behind_the_new_one,
    compacts_what_is_not_committed,
    drops_tombstones_at_once,
    dates_tombstones_whose_records_are_still_there,
    forgets_the_last_sequence_of_a_producer,
    takes_a_full_map_for_a_whole_one,
    lets_readers_look_where_the_old_segment_was,
    exchanges_the_newest_first,
    forgets_segments_that_retention_took,
    cuts_a_log_behind_the_back_of_a_swap,
    takes_an_old_index_for_the_new_one,
)
SEEDS = 600
# Rare ones are looked for where they were met last.
FIRST_SEEDS = {
    "dates_tombstones_whose_records_are_still_there": 40,
    "exchanges_the_newest_first": 60,
    "forgets_segments_that_retention_took": 80,
    "cuts_a_log_behind_the_back_of_a_swap": 80,
}


@pytest.mark.parametrize("plant", BUGS, ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_caught(plant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    plant(monkeypatch)

    assert first_failure(FIRST_SEEDS.get(plant.__name__, 0)) is not None


def first_failure(first: int = 0) -> int | None:
    """The first seed whose trial fails."""
    for seed in range(first, first + SEEDS):
        try:
            run(seed)
        except Exception:
            return seed
    return None
