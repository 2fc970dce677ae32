"""Names of files and directories, ours and others'."""

from uuid import UUID

import pytest

from waystation.model.ids import TopicPartition
from waystation.storage import names


def test_files_are_named_by_twenty_digits() -> None:
    assert names.file_name(2342, names.LOG) == "00000000000000002342.log"
    assert names.parse_file_name("00000000000000002342.log") == (2342, ".log")
    assert names.parse_file_name("00000000000000002342.log.deleted") == (2342, ".log.deleted")


@pytest.mark.parametrize("name", ["12.log", "0000000000000000234x.log", "notes.txt", "", ".log"])
def test_other_files_are_nobodys(name: str) -> None:
    assert names.parse_file_name(name) is None


@pytest.mark.parametrize(
    ("name", "partition"),
    [("orders-0", ("orders", 0)), ("a-b.c_d-12", ("a-b.c_d", 12)), ("--3", ("-", 3))],
)
def test_directories_are_named_by_topic_and_partition(
    name: str, partition: tuple[str, int]
) -> None:
    assert names.parse_directory_name(name) == partition
    assert str(TopicPartition(*partition)) == name


@pytest.mark.parametrize("name", ["orders", "orders-", "-1", "lost+found", "journal", "orders-x"])
def test_other_directories_are_nobodys(name: str) -> None:
    assert names.parse_directory_name(name) is None


def test_a_deleted_directory_is_never_taken_for_a_log() -> None:
    longest = TopicPartition("t" * 249, 2_147_483_647)
    name = names.deleted_directory_name(longest, UUID(int=1))

    assert names.is_needless_directory(name)
    assert names.parse_directory_name(name) is None
    assert len(name) <= 255
    assert name != names.deleted_directory_name(longest, UUID(int=2))
