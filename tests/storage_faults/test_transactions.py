"""Logs with transactions on a disk that forgets and tears, and on the real one; planted bugs."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.storage_faults.lives import simulated
from tests.storage_faults.transactional import TransactionalTrial
from tests.support.soak import count
from waystation.model.offsets import Millis, Offset
from waystation.records.endings import Aborted, Endings
from waystation.records.header import BatchHeader
from waystation.records.sieve import Sieve
from waystation.storage import log as log_module
from waystation.storage import swapping
from waystation.storage.log import Log
from waystation.storage.producer_state import Producer, ProducerStates
from waystation.storage.recovery import Recovery
from waystation.storage.rewriting import Writing
from waystation.storage.segment import Segment
from waystation.storage.snapshots import encode_snapshot
from waystation.storage.unstable import Unstable
from waystation.testing.disk import VolatileDisk

SEEDS_PER_TEST = 25
STEPS = 50
Patch = pytest.MonkeyPatch


@pytest.mark.parametrize("first", range(0, count(150, 20_000), SEEDS_PER_TEST))
def test_transactions_survive_every_crash(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        simulated(TransactionalTrial, seed, STEPS)


@pytest.mark.parametrize("seed", range(count(5, 200)))
def test_they_do_on_the_real_disk_too(seed: int, tmp_path: Path) -> None:
    """Each life has a disk whose unsynced writes and names end with it."""

    def crash() -> VolatileDisk:
        trial.directory.unlock()
        return VolatileDisk()

    trial = TransactionalTrial(seed, VolatileDisk(), tmp_path / "data", crash)
    trial.run(STEPS)

    assert trial.lives > 1


def test_lives_are_full_of_transactions() -> None:
    """Trials without them would prove nothing."""
    trials = [simulated(TransactionalTrial, seed, STEPS) for seed in range(10)]

    assert sum(trial.passes for trial in trials) > 10
    assert sum(one.marker is not None for trial in trials for one in trial.written.events) > 40
    assert sum(trial.aborted_seen for trial in trials) > 40


# --- planted bugs ---------------------------------------------------------------------------


def calls_it_stable_up_to_the_high_watermark(patch: Patch) -> None:
    patch.setattr(Log, "last_stable", lambda _, mark: mark)


def calls_it_stable_before_the_marker_is_safe(patch: Patch) -> None:
    honest = Unstable.first
    patch.setattr(Unstable, "first", lambda self, mark: honest(self, Offset(1 << 60)))


def forgets_an_abort_in_a_crash(patch: Patch) -> None:
    """What recovery finds behind the recovery point gets no entry."""
    honest = Recovery.run

    def run(self: Recovery) -> object:
        with pytest.MonkeyPatch.context() as inside:
            inside.setattr(Segment, "note_aborted", lambda *_: None)
            return honest(self)

    patch.setattr(Recovery, "run", run)


def does_not_sync_what_was_aborted(patch: Patch) -> None:
    honest = Segment.begin_index_syncs

    def begin_index_syncs(segment: Segment) -> list[object]:
        index, segment.txn_index = segment.txn_index, None
        try:
            return list(honest(segment))
        finally:
            segment.txn_index = index

    patch.setattr(Segment, "begin_index_syncs", begin_index_syncs)


def snapshots_no_open_transaction(patch: Patch) -> None:
    def encode(producers: list[Producer]) -> bytes:
        copies = []
        for one in producers:
            copy = Producer(one.producer_id, one.epoch)
            copy.batches, copy.coordinator_epoch = one.batches, one.coordinator_epoch
            copies.append(copy)
        return encode_snapshot(copies)

    patch.setattr(log_module, "encode_snapshot", encode)


def snapshots_only_producers_with_batches(patch: Patch) -> None:
    def encode(producers: list[Producer]) -> bytes:
        return encode_snapshot([one for one in producers if one.batches])

    patch.setattr(log_module, "encode_snapshot", encode)


def keeps_aborts_of_what_was_cut_off(patch: Patch) -> None:
    patch.setattr(Segment, "forget_aborted", lambda *_: None)


def drops_markers_at_once(patch: Patch) -> None:
    def sift_marker(self: Sieve, batch: object, header: BatchHeader, must_stay: bool) -> object:
        needed = self._endings.needs(header)
        return batch if needed or must_stay else None

    patch.setattr(Sieve, "_sift_marker", sift_marker)


def drops_markers_of_transactions_that_are_there(patch: Patch) -> None:
    patch.setattr(Endings, "needs", lambda *_: False)


def forgets_markers_of_headers(patch: Patch) -> None:
    """A batch without records is taken for none."""
    honest = Endings.took_back

    def took_back(self: Endings, header: BatchHeader) -> bool:
        return honest(self, header) if header.records_count else True

    patch.setattr(Endings, "took_back", took_back)


def keeps_what_was_aborted_and_forgets_that_it_was(patch: Patch) -> None:
    patch.setattr(
        Endings, "took_back", lambda self, header: bool(self._begun.add(header.producer_id))
    )
    patch.setattr(Writing, "_note_aborted", lambda *_: None)


def lets_committed_records_give_way_to_aborted_ones(patch: Patch) -> None:
    patch.setattr(Aborted, "holds", lambda *_: False)
    patch.setattr(Endings, "took_back", lambda *_: False)


def compacts_past_the_last_stable_offset(patch: Patch) -> None:
    from tests.storage_faults import transactional

    honest = transactional.dirt_of

    def dirt_of(log: Log, _: Offset, now: Millis) -> object:
        return honest(log, log.flushed_end, now)

    patch.setattr(transactional, "dirt_of", dirt_of)


def takes_an_old_list_of_aborts_for_the_new_one(patch: Patch) -> None:
    honest = swapping.Swap.replace

    def replace(swap: swapping.Swap) -> bool:
        swap.txn_bytes += 34
        return honest(swap)

    patch.setattr(swapping.Swap, "replace", replace)


def ends_transactions_by_markers_of_others(patch: Patch) -> None:
    honest = Unstable.end

    def end(self: Unstable, producer_id: object, offset: Offset) -> object:
        return honest(self, next(iter(self._open)), offset)

    patch.setattr(Unstable, "end", end)


def lets_late_markers_in(patch: Patch) -> None:
    patch.setattr(ProducerStates, "check_marker", lambda *_: None)


def replays_no_markers(patch: Patch) -> None:
    honest = ProducerStates.replay
    patch.setattr(
        ProducerStates, "replay", lambda self, header, _, *now: honest(self, header, None, *now)
    )


BUGS = (
    calls_it_stable_up_to_the_high_watermark,
    calls_it_stable_before_the_marker_is_safe,
    forgets_an_abort_in_a_crash,
    does_not_sync_what_was_aborted,
    snapshots_no_open_transaction,
    snapshots_only_producers_with_batches,
    keeps_aborts_of_what_was_cut_off,
    drops_markers_at_once,
    drops_markers_of_transactions_that_are_there,
    forgets_markers_of_headers,
    keeps_what_was_aborted_and_forgets_that_it_was,
    lets_committed_records_give_way_to_aborted_ones,
    compacts_past_the_last_stable_offset,
    takes_an_old_list_of_aborts_for_the_new_one,
    ends_transactions_by_markers_of_others,
    lets_late_markers_in,
    replays_no_markers,
)
SEEDS = 600
# Rare ones are looked for where they were met last.
FIRST_SEEDS: dict[str, int] = {}


@pytest.mark.parametrize("plant", BUGS, ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_caught(plant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    plant(monkeypatch)

    assert first_failure(FIRST_SEEDS.get(plant.__name__, 0)) is not None


def first_failure(first: int = 0) -> int | None:
    """The first seed whose trial fails."""
    for seed in range(first, first + SEEDS):
        try:
            simulated(TransactionalTrial, seed, STEPS)
        except Exception:
            return seed
    return None
