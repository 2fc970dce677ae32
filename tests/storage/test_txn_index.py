"""What a log knows of aborted transactions, on disk and after it."""

from pathlib import Path
from struct import Struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.storage.building import (
    FOLDER,
    NOW,
    SMALL,
    append,
    batch_of,
    checkpoint,
    end,
    flush,
    new_log,
    open_log,
    restart,
)
from waystation.model.ids import ProducerId
from waystation.model.offsets import Millis, Offset
from waystation.model.topics import TopicSettings
from waystation.storage.disk import RealDisk
from waystation.storage.log import Log
from waystation.storage.open_files import FileHandle, OpenFiles
from waystation.storage.txn_index import ENTRY, AbortedTxn, TxnIndex
from waystation.testing.disk import SimulatedDisk

KAFKAS = Struct(">hqqqq")
LARGE = TopicSettings(segment_bytes=1 << 20)
EVERYTHING = Offset(1 << 62)


class Writer:
    """Producers that write one record per batch, in transactions."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.sequences: dict[int, int] = {}

    def write(self, producer: int) -> None:
        sequence = self.sequences.get(producer, 0)
        self.sequences[producer] = sequence + 1
        append(self.log, batch_of(b"x", producer=producer, sequence=sequence, transactional=True))

    def end(self, producer: int, *, commit: bool) -> None:
        end(self.log, producer, commit=commit)


def spans(found: list[AbortedTxn]) -> list[tuple[int, int, int]]:
    return [(one.producer_id, one.first_offset, one.last_offset) for one in found]


def aborted(log: Log, start: int = 0, upto: int = EVERYTHING) -> list[tuple[int, int, int]]:
    return spans(log.aborted(Offset(start), Offset(upto)))


def two_of_three_aborted(log: Log) -> None:
    """Producer 1 aborts [0, 3), producer 2 commits, producer 3 aborts [2, 5)."""
    writer = Writer(log)
    for producer in (1, 2, 3):
        writer.write(producer)
    writer.end(1, commit=False)
    writer.end(2, commit=True)
    writer.end(3, commit=False)


def test_aborted_transactions_are_known_and_committed_ones_are_not() -> None:
    _, log = new_log(SimulatedDisk(0), LARGE)
    two_of_three_aborted(log)

    assert aborted(log) == [(1, 0, 3), (3, 2, 5)]


@pytest.mark.parametrize(
    ("start", "upto", "found"),
    [
        (0, 1, [(1, 0, 3)]),
        (3, 6, [(1, 0, 3), (3, 2, 5)]),
        (4, 6, [(3, 2, 5)]),
        (0, 2, [(1, 0, 3)]),
        (6, 9, []),
    ],
)
def test_only_those_that_reach_into_the_range_are_named(
    start: int, upto: int, found: list[tuple[int, int, int]]
) -> None:
    _, log = new_log(SimulatedDisk(0), LARGE)
    two_of_three_aborted(log)

    assert aborted(log, start, upto) == found


def test_a_log_without_aborts_makes_no_file() -> None:
    disk = SimulatedDisk(0)
    directory, log = new_log(disk)
    writer = Writer(log)
    for _ in range(20):
        writer.write(1)
        writer.end(1, commit=True)
    end(log, 7, commit=False)
    checkpoint(directory)

    assert len(log.segments) > 2
    assert not [one for one in disk.entries(FOLDER) if one.name.endswith(".txnindex")]


def test_the_file_has_kafkas_layout(tmp_path: Path) -> None:
    directory, log = new_log(RealDisk(), LARGE, tmp_path)
    two_of_three_aborted(log)
    checkpoint(directory)

    content = (log.path / "00000000000000000000.txnindex").read_bytes()

    assert list(KAFKAS.iter_unpack(content)) == [(0, 1, 0, 3, 1), (0, 3, 2, 5, 6)]


def test_entries_of_many_segments_are_found_from_any_offset() -> None:
    _, log = new_log(SimulatedDisk(0), SMALL)
    writer = Writer(log)
    for _ in range(40):
        writer.write(1)
        writer.end(1, commit=False)

    assert len(log.segments) > 5
    assert aborted(log) == [(1, 2 * n, 2 * n + 1) for n in range(40)]
    assert aborted(log, 30, 40) == [(1, 2 * n, 2 * n + 1) for n in range(15, 20)]


def test_a_long_transaction_is_found_in_the_segment_of_its_marker() -> None:
    _, log = new_log(SimulatedDisk(0), SMALL)
    writer = Writer(log)
    writer.write(9)
    for _ in range(40):
        writer.write(1)
        writer.end(1, commit=True)
    writer.end(9, commit=False)

    assert len(log.segments) > 5
    assert aborted(log, 0, 1) == [(9, 0, 81)]
    assert aborted(log, 50, 60) == [(9, 0, 81)]


@pytest.mark.parametrize("checkpointed", [True, False])
def test_they_survive_a_kill_and_a_power_loss(checkpointed: bool) -> None:
    disk = SimulatedDisk(3)
    directory, log = new_log(disk, SMALL)
    writer = Writer(log)
    for number in range(30):
        writer.write(1)
        writer.end(1, commit=number % 3 == 0)
        if checkpointed and number == 17:
            checkpoint(directory)
    writer.write(2)
    flush(log)
    before = aborted(log)

    directory, log = restart(directory, disk)
    assert aborted(log) == before
    disk.crash()
    directory, log = open_log(disk)

    assert aborted(log) == before
    assert log.last_stable(log.log_end) == 60
    assert [one.producer_id for one in log.producers.open_transactions()] == [2]


def test_a_cut_takes_the_entries_of_what_it_cuts() -> None:
    disk = SimulatedDisk(0)
    directory, log = new_log(disk, SMALL)
    writer = Writer(log)
    for _ in range(30):
        writer.write(1)
        writer.end(1, commit=False)
    checkpoint(directory)

    log.truncate_to(Offset(41))

    assert aborted(log) == [(1, 2 * n, 2 * n + 1) for n in range(20)]
    assert log.last_stable(log.log_end) == 40
    (still_open,) = log.producers.open_transactions()
    assert still_open.first_offset == 40

    end(log, 1, commit=True)
    directory, log = restart(directory, disk)

    assert aborted(log) == [(1, 2 * n, 2 * n + 1) for n in range(20)]
    assert log.last_stable(log.log_end) == log.log_end == 42


def test_a_log_that_begins_elsewhere_knows_no_transactions() -> None:
    disk = SimulatedDisk(0)
    directory, log = new_log(disk, SMALL)
    writer = Writer(log)
    for _ in range(10):
        writer.write(1)
        writer.end(1, commit=False)
    writer.write(2)
    checkpoint(directory)

    log.start_at(Offset(500))

    assert aborted(log) == []
    assert not log.producers.unstable.are_there
    assert not [one for one in disk.entries(FOLDER) if one.name.endswith(".txnindex")]


def test_dropped_segments_take_their_entries_with_them() -> None:
    disk = SimulatedDisk(0)
    directory, log = new_log(disk, SMALL)
    writer = Writer(log)
    for _ in range(30):
        writer.write(1)
        writer.end(1, commit=False)
    checkpoint(directory)
    kept_from = log.segments[-2].base_offset

    log.advance_log_start(kept_from)
    checkpoint(directory)
    directory.plan_log_starts()()
    directory.drop_retired(log, NOW)
    directory.purge(Millis(NOW + 1))

    assert aborted(log)[0][2] >= kept_from
    files = {one.name for one in disk.entries(FOLDER) if one.name.endswith(".txnindex")}
    assert len(files) <= 2


@pytest.mark.parametrize(
    "nonsense", [b"", b"\0" * 34, b"\1" * 33, ENTRY.pack(0, 1, 5, 4, 4), ENTRY.pack(9, 1, 0, 1, 2)]
)
def test_nonsense_below_the_recovery_point_is_made_anew(nonsense: bytes, tmp_path: Path) -> None:
    directory, log = new_log(RealDisk(), SMALL, tmp_path)
    writer = Writer(log)
    for _ in range(30):
        writer.write(1)
        writer.end(1, commit=False)
    before = aborted(log)
    directory.close({})
    directory.unlock()
    damaged = log.path / f"{log.segments[1].base_offset:020}.txnindex"
    damaged.write_bytes(nonsense or damaged.read_bytes()[:-1])

    directory, log = open_log(RealDisk(), SMALL, tmp_path)

    assert aborted(log) == before
    directory.close({})
    directory.unlock()
    _, log = open_log(RealDisk(), SMALL, tmp_path)
    assert aborted(log) == before


def test_a_file_without_its_segment_is_swept_away(tmp_path: Path) -> None:
    directory, log = new_log(RealDisk(), SMALL, tmp_path)
    append(log, batch_of(b"x"))
    flush(log)
    directory.unlock()
    orphan = log.path / "00000000000000000777.txnindex"
    orphan.write_bytes(ENTRY.pack(0, 1, 2, 3, 4))

    open_log(RealDisk(), SMALL, tmp_path)

    assert not orphan.exists()


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=1_300),
    st.integers(0, 4_000),
    st.booleans(),
)
def test_since_gives_all_from_an_offset_on(gaps: list[int], start: int, saved: bool) -> None:
    disk = SimulatedDisk(0)
    disk.make_directory(Path("/data"))
    handle = FileHandle(OpenFiles(disk, 10), Path("/data"), "0.txnindex")
    handle.create = True
    index, last = TxnIndex(handle, 0), 0
    entries = []
    for gap in gaps:
        last += gap
        entries.append(AbortedTxn(ProducerId(1), Offset(last - 1), Offset(last), Offset(last + 1)))
        index.add(entries[-1])
    if saved:
        index.save()

    assert list(index.since(Offset(start))) == [one for one in entries if one.last_offset >= start]
    index.cut(Offset(0), Offset(start))
    assert list(index.since(Offset(0))) == [one for one in entries if one.last_offset < start]
