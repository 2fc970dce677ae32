"""What queues read of logs: what holds no message is told, and no more is read than is wanted."""

from array import array
from pathlib import Path

import pytest

from tests.partition.building import ELSEWHERE, MEMORY, NOW, World, batch_of, led
from waystation.broker.queue_reading import Stretch, Wish, covering, gathered, look
from waystation.model.ids import LeaderEpoch, ProducerEpoch, ProducerId
from waystation.model.offsets import Offset
from waystation.partition.partition import Partition
from waystation.records.batch import BatchBuilder, assemble, payload_of
from waystation.records.codec import PLACE_FIELDS, locate_records
from waystation.records.control import Marker
from waystation.records.header import batches, peek, stamp
from waystation.sharing.states import Acquired

ALL = -1
EVERYTHING = 1 << 24


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    made = World(tmp_path / "data").partition(MEMORY)
    made.follow_store(led())
    return made


def found(partition: Partition, first: int = 0, records: int = 100, **wish: bool) -> Stretch:
    stretch = look(partition, Offset(first), Wish(records, EVERYTHING, **wish))
    assert stretch is not None
    return stretch


def bases(stretch: Stretch) -> list[int]:
    return [header.base_offset for _, header in batches(memoryview(stretch.region.read()))]


def test_no_more_batches_are_read_than_hold_what_is_wanted(partition: Partition) -> None:
    for _ in range(5):
        partition.append(batch_of(b"a", b"b", b"c"), ALL, NOW)

    stretch = found(partition, 3, 4)

    assert bases(stretch) == [3, 6]
    assert (stretch.end, stretch.skipped, stretch.batch_ends) == (9, (), (9,))
    assert look(partition, Offset(15), Wish(1, EVERYTHING)) is None


def test_markers_hold_no_message(partition: Partition) -> None:
    partition.append(batch_of(b"0"), ALL, NOW)
    partition.append_marker(Marker(ProducerId(1), ProducerEpoch(0), 0, True), NOW)
    partition.append(batch_of(b"2"), ALL, NOW)
    partition.append(batch_of(b"3"), ALL, NOW)

    stretch = found(partition, 0, 2)

    assert bases(stretch) == [0, 1, 2]
    assert (stretch.end, stretch.skipped) == (3, [(1, 2)])
    assert found(partition, 2).skipped == ()


def test_what_was_aborted_is_left_out_where_only_committed_messages_count(
    partition: Partition,
) -> None:
    for number, producer in enumerate((1, 2, 1)):
        builder = BatchBuilder(
            producer_id=ProducerId(producer),
            producer_epoch=ProducerEpoch(0),
            base_sequence=number // 2,
            is_transactional=True,
        )
        builder.append(None, b"x", (), timestamp=NOW)
        partition.append(memoryview(bytearray(builder.build())), ALL, NOW)
    assert look(partition, Offset(0), Wish(9, EVERYTHING, committed_only=True)) is None
    partition.append_marker(Marker(ProducerId(1), ProducerEpoch(0), 0, False), NOW)
    partition.append_marker(Marker(ProducerId(2), ProducerEpoch(0), 0, True), NOW)

    stretch = found(partition, committed_only=True)

    assert stretch.skipped == [(0, 1), (2, 5)]
    assert found(partition).skipped == [(3, 5)]


def copied(partition: Partition, base: int, deltas: list[int], last_delta: int) -> None:
    """Append a batch as a leader has it that compacted its log."""
    builder = BatchBuilder()
    for _ in range(max(deltas) + 1):
        builder.append(None, b"x", (), timestamp=NOW)
    batch = bytearray(builder.build())
    partition.append_replicated(memoryview(_thinned(batch, base, deltas, last_delta)), NOW)


def _thinned(batch: bytearray, base: int, deltas: list[int], last_delta: int) -> bytearray:
    """The same batch with only these records, which keep their offsets."""
    header = peek(batch)
    payload = bytes(payload_of(batch, 0, header, EVERYTHING))
    places = array("q", [0]) * (PLACE_FIELDS * header.records_count)
    locate_records(
        payload, header.records_count, 0, header.last_offset_delta, header.base_timestamp, places
    )
    kept = b"".join(
        payload[places[delta * PLACE_FIELDS] : places[delta * PLACE_FIELDS + 1]] for delta in deltas
    )
    changed = header._replace(last_offset_delta=last_delta, records_count=len(deltas))
    thin = bytearray(assemble(changed, memoryview(kept)))
    stamp(memoryview(thin), 0, Offset(base), LeaderEpoch(1))
    return thin


def test_what_compaction_took_is_told(partition: Partition) -> None:
    partition.follow_store(led(ELSEWHERE, 1))
    copied(partition, 2, [0, 2], 4)  # 2 and 4 of 2 to 6
    copied(partition, 9, [0, 1], 1)
    partition.follow_store(led(epoch=2))

    stretch = found(partition)

    assert stretch.skipped == [(0, 2), (3, 4), (5, 9)]
    assert (stretch.end, list(stretch.batch_ends)) == (11, [7, 11])


def test_batches_that_lie_apart_are_joined(partition: Partition) -> None:
    for _ in range(4):
        partition.append(batch_of(b"a", b"b"), ALL, NOW)
    apart = [Acquired(Offset(1), Offset(2), 1), Acquired(Offset(6), Offset(7), 1)]
    together = [Acquired(Offset(1), Offset(3), 1)]

    data = gathered(partition, apart)
    assert isinstance(data, bytes)
    assert [header.base_offset for _, header in batches(memoryview(data))] == [0, 6]
    region = gathered(partition, together)
    assert not isinstance(region, bytes)


def test_what_was_not_acquired_is_not_sent(partition: Partition) -> None:
    for _ in range(4):
        partition.append(batch_of(b"a", b"b"), ALL, NOW)
    stretch = found(partition)

    region = covering(partition, stretch, [Acquired(Offset(0), Offset(3), 1)])

    assert [one.base_offset for _, one in batches(memoryview(region.read()))] == [0, 2]
