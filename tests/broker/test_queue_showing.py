"""What a queue that chooses is shown of a log: every message once, with its key, in order."""

import time
from pathlib import Path

import pytest

from tests.partition.building import MEMORY, NOW, World, led
from waystation.broker.queue_showing import Showing
from waystation.model.offsets import Offset
from waystation.partition.partition import Partition
from waystation.records.batch import BatchBuilder
from waystation.records.compression import Codec
from waystation.sharing.ordered_partition import Shown

ALL = -1


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    made = World(tmp_path / "data").partition(MEMORY)
    made.follow_store(led())
    return made


def append(partition: Partition, first: int, count: int, codec: Codec = Codec.NONE) -> None:
    builder = BatchBuilder(codec=codec)
    for number in range(first, first + count):
        key = None if number % 7 == 0 else b"" if number % 7 == 1 else b"k%d" % number
        builder.append(key, b"v" * 40, (("priority", b"%d" % (number % 10)),), timestamp=NOW)
    partition.append(memoryview(bytearray(builder.build())), ALL, NOW)


def shown(partition: Partition, *, with_priorities: bool, start: int = 0) -> list[Shown]:
    showing, at, found = Showing(partition, with_priorities=with_priorities), start, list[Shown]()
    while (seen := showing.next(Offset(at), 200, committed_only=False)) is not None:
        assert seen.end > at
        found += seen.shown
        at = seen.end
    return found


@pytest.mark.parametrize("with_priorities", [False, True])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4, Codec.ZSTD])
def test_every_message_is_shown_once_however_large_its_batch_is(
    partition: Partition, codec: Codec, with_priorities: bool
) -> None:
    total = 0
    for count in (3, 2_000, 40, 499, 500, 7, 3_000):
        append(partition, total, count, codec)
        total += count
    found = shown(partition, with_priorities=with_priorities)

    assert [one.offset for one in found] == list(range(total))
    for number, one in enumerate(found):
        key = None if number % 7 == 0 else b"" if number % 7 == 1 else b"k%d" % number
        assert one.key == key
        assert one.priority == (number % 10 if with_priorities else 0)
    assert shown(partition, with_priorities=with_priorities, start=1_234) == found[1_234:]


def test_a_slice_of_a_large_batch_costs_little(partition: Partition) -> None:
    """Of ten thousand messages all are found, and two hundred taken apart."""
    append(partition, 0, 10_000, Codec.LZ4)
    whole, some = [], []
    for _ in range(5):
        for with_priorities, spent_s in ((True, whole), (False, some)):
            showing = Showing(partition, with_priorities=with_priorities)
            began_s = time.thread_time()
            showing.next(Offset(0), 200, committed_only=False)
            spent_s.append(time.thread_time() - began_s)

    assert min(some) < min(whole) / 2
