"""Going from batch to batch, and stopping where there is none."""

import random
from pathlib import Path

import pytest

from tests.storage.building import batch_of
from waystation.storage.disk import DiskFile
from waystation.storage.walk import BrokenBatchError, verify, walk
from waystation.testing.disk import SimulatedDisk

SIZES = [0, 10, 100, 5_000, 70_000, 3, 1_040_000, 8_000, 40, *[7] * 400, 30_000, 9]


@pytest.fixture
def batches() -> list[bytearray]:
    return [batch_of(random.Random(size).randbytes(size)) for size in SIZES]


def file_of(content: bytes) -> DiskFile:
    file = SimulatedDisk().open(Path("/log"), create=True)
    file.pwrite(content, 0)
    return file


@pytest.mark.parametrize("go", [walk, verify])
def test_every_batch_is_met_at_its_position(go: type[walk], batches: list[bytearray]) -> None:
    content = b"".join(batches)

    steps = list(go(file_of(content), 0, len(content)))

    assert [step.header.size_bytes for step in steps] == [len(batch) for batch in batches]
    assert [step.position for step in steps] == [
        sum(map(len, batches[:number])) for number in range(len(batches))
    ]


@pytest.mark.parametrize("go", [walk, verify])
@pytest.mark.parametrize("missing", [1, 30, 60])
def test_a_batch_that_is_cut_off_is_broken(
    go: type[walk], missing: int, batches: list[bytearray]
) -> None:
    content = b"".join(batches[:5])[:-missing]
    met = []

    with pytest.raises(BrokenBatchError) as broken:
        met.extend(go(file_of(content), 0, len(content)))

    assert broken.value.position == sum(map(len, batches[:4]))


def test_a_changed_byte_is_met_only_by_those_who_verify(batches: list[bytearray]) -> None:
    batches[3][200] ^= 1
    content = b"".join(batches)

    assert len(list(walk(file_of(content), 0, len(content)))) == len(batches)
    with pytest.raises(BrokenBatchError) as broken:
        list(verify(file_of(content), 0, len(content)))
    assert broken.value.position == sum(map(len, batches[:3]))


@pytest.mark.parametrize("garbage", [bytes(1_000), b"\xff" * 1_000, b"short"])
def test_garbage_is_broken_where_it_begins(garbage: bytes) -> None:
    batch = batch_of(b"x")
    content = bytes(batch) + garbage

    with pytest.raises(BrokenBatchError) as broken:
        list(walk(file_of(content), 0, len(content)))

    assert broken.value.position == len(batch)
