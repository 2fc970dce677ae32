"""Compaction where transactions are open, committed and aborted."""

import pytest

from tests.storage.building import FOLDER, NOW, append, checkpoint, end, flush, open_directory
from tests.storage.compacting import COMPACT, compact, new_compacted, pass_over, settled
from waystation.model.ids import ProducerEpoch, ProducerId
from waystation.model.offsets import Millis, Offset
from waystation.records.batch import BatchBuilder, records_of
from waystation.records.control import read_marker
from waystation.records.header import batches
from waystation.storage.cleanable import dirt_of
from waystation.storage.directory import DataDirectory
from waystation.storage.log import Log
from waystation.storage.swapping import Swap
from waystation.testing.disk import SimulatedDisk

DAY_MS = 86_400_000
PADDING = b"x" * 150
EVERYTHING = Offset(1 << 62)


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


class Writers:
    """Producers that write one record of a key per batch, in transactions."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.sequences: dict[int, int] = {}

    def write(self, producer: int, key: bytes, value: bytes) -> None:
        sequence = self.sequences.get(producer, 0)
        self.sequences[producer] = sequence + 1
        builder = BatchBuilder(
            producer_id=ProducerId(producer),
            producer_epoch=ProducerEpoch(0),
            base_sequence=sequence,
            is_transactional=True,
        )
        builder.append(key, PADDING + value, timestamp=NOW)
        append(self.log, bytearray(builder.build()))

    def end(self, producer: int, *, commit: bool) -> None:
        end(self.log, producer, commit=commit)


def committed_rows(log: Log) -> list[tuple[int, bytes, bytes]]:
    """Offset, key and value of what a reader of committed records is shown."""
    offset, rows = log.log_start, []
    stable = log.last_stable(log.log_end)
    while offset < stable:
        found = log.read(offset, 1 << 20, stable)
        assert found.region is not None, f"nothing at {offset}"
        content, aborted = found.region.read(), log.aborted(offset, found.next_offset)
        for at, header in batches(content):
            spans = [one for one in aborted if one.producer_id == header.producer_id]
            hidden = any(one.first_offset <= header.base_offset < one.last_offset for one in spans)
            if header.is_control or (header.is_transactional and hidden):
                continue
            rows += [
                (int(one.offset), one.key or b"", (one.value or b"")[len(PADDING) :])
                for one in records_of(content, at)
            ]
        offset = found.next_offset
    return rows


def markers(log: Log) -> list[tuple[int, bool]]:
    offset, found = log.log_start, []
    while offset < log.log_end:
        read = log.read(offset, 1 << 20, log.log_end)
        assert read.region is not None
        content = read.region.read()
        for at, header in batches(content):
            marker = read_marker(content, at)
            if marker is not None:
                found.append((int(header.base_offset), marker.committed))
        offset = read.next_offset
    return found


def reopen(directory: DataDirectory, disk: SimulatedDisk) -> tuple[DataDirectory, Log]:
    directory.unlock()
    directory = open_directory(disk)
    (log,) = directory.open_logs(lambda _: COMPACT)
    return directory, log


def forget_producers(log: Log) -> None:
    """As after the time for which quiet producers are remembered."""
    log.producers.expire(Millis(NOW + 99 * DAY_MS), DAY_MS)


def test_an_aborted_record_does_not_replace_a_committed_one(disk: SimulatedDisk) -> None:
    directory, log = new_compacted(disk)
    writers = Writers(log)
    for number in range(6):
        writers.write(1, b"k", b"%d" % number)
        writers.end(1, commit=number < 3)
    settled(directory, log)
    assert [row[2] for row in committed_rows(log)] == [b"0", b"1", b"2"]

    compact(log)

    assert committed_rows(log) == [(4, b"k", b"2")]
    assert log.size_bytes < 10 * len(PADDING)
    _, log = reopen(directory, disk)
    assert committed_rows(log) == [(4, b"k", b"2")]


def test_nothing_past_the_last_stable_offset_is_touched(disk: SimulatedDisk) -> None:
    directory, log = new_compacted(disk)
    writers = Writers(log)
    writers.write(1, b"k", b"0")
    writers.end(1, commit=True)
    writers.write(2, b"k", b"open")
    for number in range(6):
        writers.write(1, b"k", b"%d" % number)
        writers.end(1, commit=True)
    settled(directory, log)

    dirt = dirt_of(log, log.last_stable(log.log_end), NOW)

    assert dirt.end <= 2
    writers.end(2, commit=False)
    settled(directory, log)
    assert dirt_of(log, log.last_stable(log.log_end), NOW).end == log.active.base_offset


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_goes_a_while_after_its_transaction(disk: SimulatedDisk, commit: bool) -> None:
    directory, log = new_compacted(disk)
    writers = Writers(log)
    writers.write(1, b"k", b"first")
    writers.end(1, commit=commit)
    for _ in range(4):
        writers.write(2, b"k", b"last")
        writers.end(2, commit=True)
    settled(directory, log)
    forget_producers(log)

    compact(log)
    assert (1, commit) in markers(log)
    dated = compact(log)
    assert (1, commit) in markers(log)
    assert dated.horizon == NOW + DAY_MS
    compact(log, NOW + DAY_MS - 1)
    assert (1, commit) in markers(log)
    compact(log, NOW + DAY_MS)

    assert (1, commit) not in markers(log)
    assert markers(log)
    assert committed_rows(log)[-1][2] == b"last"
    _, log = reopen(directory, disk)
    assert log.last_stable(log.log_end) == log.log_end


def test_the_index_keeps_an_entry_until_its_transaction_is_gone(disk: SimulatedDisk) -> None:
    directory, log = new_compacted(disk)
    writers = Writers(log)
    for number in range(6):
        writers.write(1, b"k", b"%d" % number)
        writers.end(1, commit=False)
    settled(directory, log)
    forget_producers(log)

    compact(log)
    assert len(log.aborted(Offset(0), EVERYTHING)) == 6
    directory, log = reopen(directory, disk)
    assert len(log.aborted(Offset(0), EVERYTHING)) == 6
    compact(log)

    # The last batch of a segment stays as a header, and so does what belongs to it.
    assert len(log.aborted(Offset(0), EVERYTHING)) < 3
    assert committed_rows(log) == []


def test_a_transaction_that_lost_its_records_is_not_open_after_a_restart(
    disk: SimulatedDisk,
) -> None:
    """The headers that compaction leaves of it still begin one: its marker must end it."""
    directory, log = new_compacted(disk)
    writers = Writers(log)
    for number in range(8):
        writers.write(number % 3, b"k", b"%d" % number)
        writers.end(number % 3, commit=number % 2 == 0)
    settled(directory, log)
    for days in range(4):
        compact(log, NOW + days * DAY_MS)
    for name in [one.name for one in disk.entries(FOLDER)]:
        if name.endswith(".snapshot"):
            disk.unlink(FOLDER / name)

    _, log = reopen(directory, disk)

    assert log.producers.open_transactions() == []
    assert log.last_stable(log.log_end) == log.log_end


def test_a_group_that_is_gone_through_again_needs_the_same_markers(disk: SimulatedDisk) -> None:
    directory, log = new_compacted(disk)
    writers = Writers(log)
    for number in range(8):
        writers.write(1, b"k%d" % number, b"v")
    writers.end(1, commit=True)
    settled(directory, log)
    with pytest.MonkeyPatch.context() as patch:
        honest, refused = Swap.replace, []

        def replace(swap: Swap) -> bool:
            if len(refused) < 3:
                refused.append(swap)
                return False
            return honest(swap)

        patch.setattr(Swap, "replace", replace)
        done = compact(log)

    assert done.finished
    assert done.horizon is None
    assert len(committed_rows(log)) == 8


@pytest.mark.parametrize("crash_after", range(14))
def test_a_crash_in_a_pass_brings_no_aborted_record_back(
    disk: SimulatedDisk, crash_after: int
) -> None:
    directory, log = new_compacted(disk)
    writers = Writers(log)
    for number in range(9):
        writers.write(number % 2, b"k%d" % (number % 3), b"%d" % number)
        if number >= 4:
            writers.end(number % 2, commit=number % 3 == 0)
    for producer in (0, 1):
        writers.end(producer, commit=False)
    settled(directory, log)
    expected = {key: value for _, key, value in committed_rows(log)}

    for number, work in enumerate(pass_over(log).steps()):
        if number == crash_after:
            break
        work()
    disk.crash()
    directory, log = reopen(directory, disk)

    assert {key: value for _, key, value in committed_rows(log)} == expected
    compact(log)
    assert {key: value for _, key, value in committed_rows(log)} == expected
    assert log.last_stable(log.log_end) == log.log_end


def test_batches_without_a_sequence_leave_no_headers_behind(disk: SimulatedDisk) -> None:
    """Coordinators write such, under ever new epochs: nothing of them is worth remembering."""
    directory, log = new_compacted(disk)
    for epoch in range(30):
        builder = BatchBuilder(
            producer_id=ProducerId(1),
            producer_epoch=ProducerEpoch(epoch),
            is_transactional=True,
        )
        builder.append(b"k", PADDING, timestamp=NOW)
        append(log, bytearray(builder.build()))
        end(log, 1, commit=True, producer_epoch=epoch + 1)
    settled(directory, log)
    before = log.size_bytes

    compact(log)
    compact(log)
    compact(log, NOW + DAY_MS)

    assert log.size_bytes < before / 5
    assert len(committed_rows(log)) == 1


def test_the_log_can_be_cut_after_a_pass(disk: SimulatedDisk) -> None:
    directory, log = new_compacted(disk)
    writers = Writers(log)
    for number in range(8):
        writers.write(1, b"k%d" % number, b"v")
        writers.end(1, commit=number % 2 == 0)
    settled(directory, log)
    compact(log)

    log.truncate_to(Offset(9))

    assert all(one.last_offset < 9 for one in log.aborted(Offset(0), EVERYTHING))
    assert [one.first_offset for one in log.producers.open_transactions()] == [8]
    checkpoint(directory)
    _, log = reopen(directory, disk)
    assert log.last_stable(log.log_end) == 8


def test_a_swap_leaves_no_old_index_of_aborted_transactions(disk: SimulatedDisk) -> None:
    directory, log = new_compacted(disk)
    writers = Writers(log)
    for number in range(6):
        writers.write(1, b"k", b"%d" % number)
        writers.end(1, commit=False)
    settled(directory, log)
    forget_producers(log)
    for days in (0, 0, 1):
        compact(log, NOW + days * DAY_MS)
    flush(log)

    names = [one.name for one in disk.entries(FOLDER)]
    bases = [f"{one.base_offset:020}" for one in log.segments]
    indexed = [name.partition(".")[0] for name in names if name.endswith(".txnindex")]
    assert set(indexed) <= set(bases)
    assert not [name for name in names if name.endswith((".swap", ".cleaned"))]
