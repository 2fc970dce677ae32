"""The random lives catch what they are for: each bug planted here makes one of them fail."""

from collections.abc import Callable

import pytest

from tests.storage_faults.lives import simulated
from tests.storage_faults.operations import Trial
from tests.storage_faults.test_random_lives import STEPS
from waystation.model.offsets import Offset
from waystation.storage import checkpointing, recovery, truncation
from waystation.storage.directory import DataDirectory
from waystation.storage.index_file import IndexFile
from waystation.storage.log import Log
from waystation.storage.recovery import Recovery
from waystation.storage.segment import Segment
from waystation.storage.tickets import CheckpointTicket, FlushTicket
from waystation.storage.walk import walk

SEEDS = 600
# Rare ones are looked for where they were met last.
FIRST_SEEDS = {"forgets_the_producers_of_dropped_segments": 430}
Patch = pytest.MonkeyPatch


def skips_the_directory_sync(patch: Patch) -> None:
    def sync(ticket: FlushTicket) -> None:
        for file in ticket._files:
            file.datasync()

    patch.setattr(FlushTicket, "sync", sync)


def calls_it_flushed_before_the_sync(patch: Patch) -> None:
    honest = Log.begin_flush

    def begin_flush(log: Log) -> FlushTicket | None:
        ticket = honest(log)
        log.flushed_end = log.log_end
        return ticket

    patch.setattr(Log, "begin_flush", begin_flush)
    patch.setattr(FlushTicket, "sync", lambda ticket: None)


def syncs_only_the_active_segment(patch: Patch) -> None:
    def sync(ticket: FlushTicket) -> None:
        ticket._files[-1].datasync()
        if ticket._folder is not None:
            ticket._disk.sync_directory(ticket._folder)

    patch.setattr(FlushTicket, "sync", sync)


def tries_a_failed_sync_again(patch: Patch) -> None:
    honest = FlushTicket.sync

    def sync(ticket: FlushTicket) -> None:
        try:
            honest(ticket)
        except OSError:
            for segment in ticket.segments:
                segment.log.open().datasync()

    patch.setattr(FlushTicket, "sync", sync)


def believes_a_tail_without_its_checksums(patch: Patch) -> None:
    patch.setattr(recovery, "verify", walk)


def leaves_the_torn_tail_in_place(patch: Patch) -> None:
    honest = Segment.file

    def keep(self: Recovery, segment: Segment, *_: object) -> None:
        self._names_changed = True
        segment.size_bytes = honest(segment).size()

    patch.setattr(Recovery, "_cut", keep)


def keeps_index_entries_of_a_lost_tail(patch: Patch) -> None:
    patch.setattr(IndexFile, "keep_below", lambda *_: None)


def does_not_sync_indexes_before_it_trusts_them(patch: Patch) -> None:
    patch.setattr(Segment, "begin_index_syncs", lambda _: [])


def snapshots_before_the_log_is_synced(patch: Patch) -> None:
    honest = CheckpointTicket.sync

    def sync(ticket: CheckpointTicket) -> None:
        ticket._files = []
        honest(ticket)

    patch.setattr(CheckpointTicket, "sync", sync)


def believes_snapshots_of_what_was_cut_off(patch: Patch) -> None:
    patch.setattr(truncation, "_stop_vouching", lambda *_: None)


def drops_files_before_the_start_is_written(patch: Patch) -> None:
    def write(directory: DataDirectory, begun: object) -> None:
        directory._written["log-start-offset-checkpoint"] = directory._starts()

    patch.setattr(DataDirectory, "_write_starts", write)


def forgets_the_producers_of_dropped_segments(patch: Patch) -> None:
    patch.setattr(Recovery, "_retired_past", lambda *_: ())


def replays_no_producers(patch: Patch) -> None:
    patch.setattr(Recovery, "_replay_producers", lambda *_: None)


def writes_a_start_that_the_log_does_not_reach(patch: Patch) -> None:
    def starts(directory: DataDirectory) -> dict[object, Offset]:
        return {name: log.log_start for name, log in directory.logs.items() if log.log_start}

    patch.setattr(DataDirectory, "_starts", starts)
    patch.setattr(
        DataDirectory, "_carry_out", lambda self, log, ticket: checkpointing.abandon(log, ticket)
    )


BUGS = (
    skips_the_directory_sync,
    calls_it_flushed_before_the_sync,
    syncs_only_the_active_segment,
    tries_a_failed_sync_again,
    believes_a_tail_without_its_checksums,
    leaves_the_torn_tail_in_place,
    keeps_index_entries_of_a_lost_tail,
    does_not_sync_indexes_before_it_trusts_them,
    snapshots_before_the_log_is_synced,
    believes_snapshots_of_what_was_cut_off,
    drops_files_before_the_start_is_written,
    forgets_the_producers_of_dropped_segments,
    replays_no_producers,
    writes_a_start_that_the_log_does_not_reach,
)


@pytest.mark.parametrize("plant", BUGS, ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_caught(plant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    plant(monkeypatch)

    assert first_failure(FIRST_SEEDS.get(plant.__name__, 0)) is not None


def first_failure(first: int = 0) -> int | None:
    """The first seed whose trial fails."""
    for seed in range(first, first + SEEDS):
        try:
            simulated(Trial, seed, STEPS)
        except Exception:
            return seed
    return None
