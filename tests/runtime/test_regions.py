"""Regions are plain facts about a file."""

from waystation.runtime.regions import FileRegion, size_of


class Shelf:
    """A file without a descriptor."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def fileno(self) -> int | None:
        return None

    def pread(self, nbytes: int, position: int) -> bytes:
        return self.content[position : position + nbytes]


def test_a_region_reads_the_bytes_it_names() -> None:
    region = FileRegion(Shelf(b"0123456789"), 3, 4)

    assert region.read() == b"3456"


def test_parts_of_every_kind_count_their_bytes() -> None:
    words = memoryview(bytearray(8)).cast("I")
    parts = [b"abc", bytearray(4), memoryview(b"hello"), words, FileRegion(Shelf(b""), 0, 100)]

    assert [size_of(part) for part in parts] == [3, 4, 5, 8, 100]
