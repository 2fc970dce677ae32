"""One data directory: who may use it, what it remembers, how it ends."""

import subprocess
import sys
from pathlib import Path
from uuid import UUID

import pytest

from tests.storage.building import (
    FOLDER,
    NAME,
    NOW,
    ROOT,
    SMALL,
    STORAGE,
    TOPIC_ID,
    append,
    append_values,
    batch_of,
    checkpoint,
    flush,
    names_in,
    new_log,
    open_directory,
    open_log,
    segment_name,
    values_of,
)
from waystation.model.errors import StorageError
from waystation.model.ids import NO_BROKER_EPOCH, BrokerEpoch, NodeId, TopicId, TopicPartition
from waystation.model.offsets import Offset
from waystation.storage.directory import DataDirectory
from waystation.storage.disk import DiskFile, RealDisk
from waystation.storage.settings import StorageSettings
from waystation.testing.disk import SimulatedDisk

OTHER_ID = TopicId(UUID(int=8))


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


def test_a_second_process_is_told_who_holds_the_directory(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(tmp_path / "data")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    holder.stdout.readline()

    with pytest.raises(StorageError) as refused:
        open_directory(RealDisk(), tmp_path / "data")

    assert str(tmp_path / "data") in str(refused.value)
    assert str(holder.pid) in str(refused.value)
    holder.kill()
    holder.communicate()
    open_directory(RealDisk(), tmp_path / "data").unlock()


_HOLD = """
import sys
from pathlib import Path
from waystation.model.ids import NodeId
from waystation.storage.directory import DataDirectory
from waystation.storage.disk import RealDisk
from waystation.storage.settings import StorageSettings
held = DataDirectory(Path(sys.argv[1]), RealDisk(), StorageSettings(), NodeId(1))
print("held", flush=True)
sys.stdin.read()
"""


def test_another_nodes_directory_is_refused(disk: SimulatedDisk) -> None:
    open_directory(disk).unlock()

    with pytest.raises(StorageError, match="belongs to node 1, this is node 2"):
        DataDirectory(ROOT, disk, STORAGE, NodeId(2))
    open_directory(disk).unlock()


def test_a_directory_keeps_its_own_id(disk: SimulatedDisk) -> None:
    directory = open_directory(disk)
    directory.unlock()

    assert open_directory(disk).id == directory.id


def test_a_new_log_survives_a_crash_empty(disk: SimulatedDisk) -> None:
    new_log(disk)
    disk.crash()

    log = open_log(disk)[1]

    assert (log.name, log.topic_id, log.log_end) == (NAME, TOPIC_ID, 0)


def test_a_log_that_was_never_finished_is_removed(disk: SimulatedDisk) -> None:
    directory = open_directory(disk)
    disk.make_directory(FOLDER)
    disk.open(FOLDER / segment_name(0), create=True)

    assert directory.open_logs(lambda _: SMALL) == []
    assert str(NAME) not in names_in(disk, ROOT)


def test_a_log_whose_metadata_had_no_name_yet_is_removed(disk: SimulatedDisk) -> None:
    """Its maker was killed between writing the file and giving it its name."""
    directory = open_directory(disk)
    disk.make_directory(FOLDER)
    disk.open(FOLDER / "partition.metadata.tmp", create=True).pwrite(b"version: 0", 0)

    assert directory.open_logs(lambda _: SMALL) == []
    assert directory.offline is None
    assert str(NAME) not in names_in(disk, ROOT)


def test_records_without_partition_metadata_are_not_removed(disk: SimulatedDisk) -> None:
    directory, log = new_log(disk)
    append_values(log, b"a")
    directory.unlock()
    disk.unlink(FOLDER / "partition.metadata")
    directory = open_directory(disk)

    assert directory.open_logs(lambda _: SMALL) == []
    assert directory.offline is not None
    assert "partition.metadata is missing" in directory.offline
    assert segment_name(0) in names_in(disk)


def test_a_deleted_log_is_gone_after_a_crash(disk: SimulatedDisk) -> None:
    directory, log = new_log(disk)
    append_values(log, b"a")
    flush(log)
    directory.delete_log(log)
    disk.crash()

    directory = open_directory(disk)

    assert directory.open_logs(lambda _: SMALL) == []
    assert [name for name in names_in(disk, ROOT) if "orders" in name] == []


def test_a_new_log_is_not_taken_for_its_deleted_namesake(disk: SimulatedDisk) -> None:
    directory, log = new_log(disk)
    append_values(log, *[b"x"] * 50)
    log.advance_log_start(Offset(20))
    flush(log)
    checkpoint(directory)
    directory.delete_log(log)
    log = directory.create_log(NAME, OTHER_ID, SMALL)
    append_values(log, b"new")
    flush(log)
    disk.crash()

    log = open_log(disk)[1]

    assert (log.topic_id, log.log_start, log.log_end) == (OTHER_ID, 0, 1)
    assert values_of(log) == [b"new"]


def test_a_deleted_logs_checkpoint_leaves_nothing_to_its_namesake(disk: SimulatedDisk) -> None:
    directory, log = new_log(disk)
    append_values(log, *[b"x"] * 50)
    write = next(directory.checkpoint_steps({}))
    directory.delete_log(log)
    log = directory.create_log(NAME, OTHER_ID, SMALL)
    write()

    assert directory.offline is None
    assert names_in(disk) == [segment_name(0), "partition.metadata"]


def test_after_a_clean_close_nothing_is_scanned(disk: SimulatedDisk) -> None:
    directory, log = new_log(disk, SMALL)
    append_values(log, *[b"x" * 100] * 500)
    directory.close({})
    directory.unlock()

    counting = CountingDisk(disk)
    log = open_log(counting)[1]

    assert log.log_end == 500
    assert counting.read_bytes < 2_000


def test_the_clean_marker_is_gone_while_the_directory_is_open(disk: SimulatedDisk) -> None:
    directory, _ = new_log(disk)
    directory.close({})
    directory.unlock()
    assert ".kafka_cleanshutdown" in names_in(disk, ROOT)

    open_log(disk)
    disk.crash()

    assert ".kafka_cleanshutdown" not in names_in(disk, ROOT)


def test_a_clean_stop_counts_for_the_registration_it_was_made_under(disk: SimulatedDisk) -> None:
    directory, _ = new_log(disk)
    assert directory.stopped_life is None
    directory.close({}, BrokerEpoch(7))
    directory.unlock()

    assert open_directory(disk).stopped_life == 7


def test_who_never_registered_passes_on_how_the_last_life_ended(disk: SimulatedDisk) -> None:
    directory, _ = new_log(disk)
    for life, told in ((BrokerEpoch(7), 7), (None, 7)):
        directory.close({}, life)
        directory.unlock()
        directory = open_log(disk)[0]
        assert directory.stopped_life == told

    disk.crash()
    directory = open_log(disk)[0]
    assert directory.stopped_life is None
    directory.close({})
    directory.unlock()
    assert open_directory(disk).stopped_life == NO_BROKER_EPOCH


def test_a_directory_that_was_not_opened_is_left_as_it_was_found(disk: SimulatedDisk) -> None:
    directory, log = new_log(disk)
    append_values(log, *[b"x"] * 50)
    for step in directory.checkpoint_steps({}):
        step()
    points = disk.read(ROOT / "recovery-point-offset-checkpoint")
    disk.crash()
    directory = open_directory(disk)
    directory.close({})
    directory.unlock()

    assert disk.read(ROOT / "recovery-point-offset-checkpoint") == points
    directory = open_log(disk)[0]
    assert directory.stopped_life is None
    directory.close({}, BrokerEpoch(3))
    directory.unlock()
    directory = open_directory(disk)
    directory.close({})
    directory.unlock()
    assert open_directory(disk).stopped_life == 3


def test_a_directory_remembers_its_cluster_and_its_last_life(disk: SimulatedDisk) -> None:
    directory = open_directory(disk)
    identity = directory.id
    assert (directory.cluster_id, directory.last_life_on("desk")) == (None, NO_BROKER_EPOCH)
    directory.joined("the-cluster", BrokerEpoch(4), "desk")
    directory.unlock()

    directory = open_directory(disk)
    assert (directory.cluster_id, directory.last_life_on("desk")) == ("the-cluster", 4)
    assert directory.id == identity
    assert directory.last_life_on("another machine") == NO_BROKER_EPOCH


def test_high_watermarks_are_written_for_the_logs_held_here(disk: SimulatedDisk) -> None:
    directory, _ = new_log(disk)
    marks = {NAME: Offset(5), TopicPartition("elsewhere", 0): Offset(1)}
    for step in directory.checkpoint_steps(marks):
        step()

    assert disk.read(ROOT / "replication-offset-checkpoint") == b"0\n1\norders 0 5\n"


def test_a_checkpoint_of_many_logs_goes_in_steps(disk: SimulatedDisk) -> None:
    directory = open_directory(disk)
    logs = [
        directory.create_log(TopicPartition("orders", number), TOPIC_ID, SMALL)
        for number in range(10)
    ]
    for log in logs:
        append_values(log, b"x" * 1_000)
    moved = []
    for step in directory.checkpoint_steps({}):
        step()
        moved.append(sum(log.recovery_point == 1 for log in logs))

    assert moved == [4, 8, 10]
    assert disk.read(ROOT / "recovery-point-offset-checkpoint").startswith(b"0\n10\n")


def test_a_checkpoint_leaves_out_logs_with_little_to_verify(disk: SimulatedDisk) -> None:
    directory = open_directory(disk, storage=StorageSettings(recovery_bytes_max=1_000))
    log = directory.create_log(NAME, TOPIC_ID, SMALL)
    append_values(log, b"a")
    checkpoint(directory)
    assert log.recovery_point == 0

    append_values(log, b"x" * 1_000)
    checkpoint(directory)

    assert log.recovery_point == 2


def test_no_log_is_left_out_for_long(disk: SimulatedDisk) -> None:
    directory = open_directory(disk, storage=StorageSettings(recovery_bytes_max=1_000_000))
    log = directory.create_log(NAME, TOPIC_ID, SMALL)
    append_values(log, b"a")
    for _ in range(13):
        checkpoint(directory)

    assert log.recovery_point == 1


def test_segments_go_when_their_start_is_written_and_their_time_is_over(
    disk: SimulatedDisk,
) -> None:
    directory, log = new_log(disk)
    append_values(log, *[b"x" * 400] * 3)
    log.advance_log_start(Offset(2))

    directory.drop_retired(log, NOW)
    assert segment_name(0) in names_in(disk), "dropped before its start was written"

    checkpoint(directory)
    directory.drop_retired(log, NOW)
    assert segment_name(0, ".log.deleted") in names_in(disk)

    directory.purge(NOW)
    assert [name for name in names_in(disk) if name.endswith((".log", ".deleted"))] == [
        segment_name(2)
    ]


def test_many_logs_share_few_descriptors(disk: SimulatedDisk) -> None:
    directory = open_directory(disk, storage=StorageSettings(open_files_max=16))
    logs = [
        directory.create_log(TopicPartition("t", number), TOPIC_ID, SMALL) for number in range(40)
    ]
    for log in logs:
        append(log, batch_of(b"a"))
        flush(log)

    assert len(directory.files) <= 16
    assert all(values_of(log) == [b"a"] for log in logs)


class CountingDisk(SimulatedDisk):
    """Another disk, whose reads of segments and indexes are counted."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self.__dict__ = disk.__dict__
        self.read_bytes = 0

    def open(self, path: Path, *, create: bool = False) -> DiskFile:
        file = super().open(path, create=create)
        if path.suffix in (".log", ".index", ".timeindex"):
            return CountedFile(self, file)
        return file


class CountedFile:
    """A file whose reads are counted."""

    def __init__(self, disk: CountingDisk, file: DiskFile) -> None:
        self._disk, self._file = disk, file

    def pread(self, nbytes: int, position: int) -> bytes:
        found = self._file.pread(nbytes, position)
        self._disk.read_bytes += len(found)
        return found

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)
