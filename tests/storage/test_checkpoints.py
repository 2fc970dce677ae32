"""Kafka's checkpoint files, whole and damaged."""

from pathlib import Path

import pytest

from waystation.model.ids import LeaderEpoch, TopicPartition
from waystation.model.offsets import Offset
from waystation.replication.epochs import EpochStart
from waystation.storage.checkpoints import encode_epochs, read_epochs, read_offsets, write_offsets
from waystation.testing.disk import SimulatedDisk

PATH = Path("/checkpoint")
OFFSETS = {TopicPartition("orders", 0): Offset(12), TopicPartition("a.b-c_d", 30): Offset(0)}


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


def test_offsets_are_lines_of_topic_partition_and_offset(disk: SimulatedDisk) -> None:
    write_offsets(disk, PATH, OFFSETS)

    assert disk.read(PATH) == b"0\n2\norders 0 12\na.b-c_d 30 0\n"
    assert read_offsets(disk, PATH) == OFFSETS


def test_written_offsets_survive_a_crash(disk: SimulatedDisk) -> None:
    write_offsets(disk, PATH, {})
    write_offsets(disk, PATH, OFFSETS)
    disk.crash()

    assert read_offsets(disk, PATH) == OFFSETS


def test_epochs_are_lines_of_epoch_and_offset(disk: SimulatedDisk) -> None:
    entries = [EpochStart(LeaderEpoch(0), Offset(0)), EpochStart(LeaderEpoch(4), Offset(99))]
    disk.replace(PATH, encode_epochs(entries))

    assert disk.read(PATH) == b"0\n2\n0 0\n4 99\n"
    assert read_epochs(disk, PATH) == entries


def test_an_absent_file_says_nothing(disk: SimulatedDisk) -> None:
    assert read_offsets(disk, PATH) == {}
    assert read_epochs(disk, PATH) == []


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 50,
        b"1\n0\n",
        b"0\n2\norders 0 12\n",
        b"0\n1\norders 0\n",
        b"0\n1\norders zero 12\n",
        b"0\nmany\norders 0 12\n",
        b"\xff\xfe\n",
    ],
)
def test_a_damaged_file_says_nothing(disk: SimulatedDisk, content: bytes) -> None:
    disk.replace(PATH, content)

    assert read_offsets(disk, PATH) == {}
