"""What a log promises while nothing goes wrong; faults are in tests/storage_faults."""

import pytest

from tests.storage.building import (
    NOW,
    SMALL,
    append,
    append_values,
    batch_of,
    flush,
    new_log,
    offsets,
    open_log,
    read_all,
    values_of,
)
from waystation.model.errors import (
    CorruptBatchError,
    InvalidProducerEpochError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
)
from waystation.model.ids import LeaderEpoch
from waystation.model.offsets import Millis, Offset
from waystation.model.topics import TopicSettings
from waystation.records.header import batches, peek, stamp
from waystation.storage.log import Log
from waystation.testing.disk import SimulatedDisk


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


@pytest.fixture
def log(disk: SimulatedDisk) -> Log:
    return new_log(disk)[1]


def test_batches_get_the_next_offsets_and_the_leaders_epoch(log: Log) -> None:
    first = append(log, batch_of(b"a", b"b"), epoch=3)
    second = append(log, batch_of(b"c"), epoch=4)

    assert (first.base_offset, first.last_offset) == (0, 1)
    assert (second.base_offset, second.last_offset) == (2, 2)
    content = read_all(log)
    header = peek(content)
    assert (header.base_offset, header.partition_leader_epoch) == (0, 3)
    assert peek(content, header.size_bytes).partition_leader_epoch == 4


def test_what_was_appended_is_read_back_byte_for_byte(log: Log) -> None:
    batches = [batch_of(b"x" * size) for size in (0, 10, 300, 5)]
    for batch in batches:
        append(log, batch)

    assert read_all(log) == b"".join(batches)


def test_a_read_begins_with_the_batch_that_holds_the_offset(log: Log) -> None:
    append(log, batch_of(b"a"))
    middle = batch_of(b"b", b"c", b"d")
    append(log, middle)
    append(log, batch_of(b"e"))

    found = log.read(Offset(2), 1 << 20, Offset(4))

    assert found.region is not None
    assert found.region.read() == middle
    assert found.next_offset == 4


def test_a_read_takes_no_more_than_whole_batches_that_fit(log: Log) -> None:
    batches = [batch_of(b"x" * 30) for _ in range(4)]
    for batch in batches:
        append(log, batch)
    size = len(batches[0])

    found = log.read(Offset(0), 2 * size + 5, log.log_end)

    assert found.region is not None
    assert found.region.read() == b"".join(batches[:2])
    assert found.next_offset == 2


def test_one_batch_is_read_though_it_is_larger_than_asked_for(log: Log) -> None:
    batch = batch_of(b"x" * 100)
    append(log, batch)

    assert log.read(Offset(0), 10, log.log_end).region is not None
    assert log.read(Offset(0), 10, log.log_end, at_least_one=False).region is None


def test_nothing_at_or_past_the_given_end_is_read(log: Log) -> None:
    batches = [batch_of(b"a", b"b"), batch_of(b"c", b"d"), batch_of(b"e")]
    for batch in batches:
        append(log, batch)

    for upto, whole in ((5, 3), (4, 2), (3, 1), (2, 1)):
        found = log.read(Offset(0), 1 << 20, Offset(upto))
        assert found.region is not None
        assert found.region.read() == b"".join(batches[:whole])
    assert log.read(Offset(0), 1 << 20, Offset(1)).region is None
    assert log.read(Offset(2), 1 << 20, Offset(2)).region is None


def test_reading_outside_the_log_is_refused(log: Log) -> None:
    append_values(log, b"a", b"b")
    log.advance_log_start(Offset(1))

    with pytest.raises(OffsetOutOfRangeError):
        log.read(Offset(0), 100, log.log_end)
    with pytest.raises(OffsetOutOfRangeError):
        log.read(Offset(3), 100, log.log_end)
    assert log.read(Offset(2), 100, log.log_end).region is None


def test_a_region_stays_readable_when_its_segment_is_dropped(disk: SimulatedDisk) -> None:
    directory, log = new_log(disk)
    append_values(log, b"a" * 400, b"b" * 400)
    region = log.read(Offset(0), 1 << 20, log.log_end).region
    log.advance_log_start(Offset(1))
    for step in directory.checkpoint_steps({}):
        step()
    directory.drop_retired(log, NOW)
    directory.purge(NOW)

    assert region is not None
    assert b"a" * 400 in region.read()
    assert values_of(log) == [b"b" * 400]


# --- rolling --------------------------------------------------------------------------------


def test_a_full_segment_is_followed_by_one_named_by_the_next_offset(log: Log) -> None:
    append_values(log, *[b"x" * 200] * 5)

    assert offsets(log) == [0, 1, 2, 3, 4] or offsets(log) == [0, 2, 4]
    assert all(segment.size_bytes <= SMALL.segment_bytes for segment in log.segments)
    assert len(values_of(log)) == 5


def test_a_batch_larger_than_a_segment_gets_one_of_its_own(log: Log) -> None:
    append_values(log, b"a", b"x" * 2_000, b"b")

    assert offsets(log) == [0, 1, 2]
    assert values_of(log) == [b"a", b"x" * 2_000, b"b"]


def test_a_segment_that_is_old_enough_is_closed(log: Log) -> None:
    log.reconfigure(TopicSettings(segment_ms=1_000))
    append(log, batch_of(b"a"), now=NOW)

    assert not log.maybe_roll(Millis(NOW + 999))
    assert log.maybe_roll(Millis(NOW + 1_000))
    assert offsets(log) == [0, 1]
    assert not log.maybe_roll(Millis(NOW + 5_000)), "an empty segment was closed"


def test_old_timestamps_do_not_make_a_new_segment_old(log: Log) -> None:
    log.reconfigure(TopicSettings(segment_ms=1_000))
    append(log, batch_of(b"a", timestamp=1_000), now=NOW)

    assert not log.maybe_roll(Millis(NOW + 10))


def test_a_full_index_closes_its_segment(log: Log) -> None:
    log.reconfigure(TopicSettings(index_interval_bytes=0, segment_index_bytes=36))
    append_values(log, *[b"x"] * 10)

    assert len(log.segments) == 2
    assert len(values_of(log)) == 10


# --- time -----------------------------------------------------------------------------------


def test_the_first_record_at_or_after_a_time_is_found(log: Log) -> None:
    for number in range(20):
        append(log, batch_of(b"x" * 50, b"y", timestamp=1_000 + 10 * number))

    assert log.find_by_time(Millis(0)) == (0, 1_000)
    assert log.find_by_time(Millis(1_001)) == (1, 1_001)
    assert log.find_by_time(Millis(1_002)) == (2, 1_010)
    assert log.find_by_time(Millis(1_105)) == (22, 1_110)
    assert log.find_by_time(Millis(2_000)) is None


def test_times_that_go_back_are_found_in_the_order_of_offsets(log: Log) -> None:
    for timestamp in (5_000, 1_000, 3_000, 9_000, 2_000):
        append(log, batch_of(b"x" * 200, timestamp=timestamp))

    assert log.find_by_time(Millis(4_000)) == (0, 5_000)
    assert log.find_by_time(Millis(6_000)) == (3, 9_000)


def test_deleted_records_are_not_found_by_time(log: Log) -> None:
    append(log, batch_of(b"a", b"b", b"c", timestamp=1_000))
    log.advance_log_start(Offset(1))

    assert log.find_by_time(Millis(0)) == (1, 1_001)


def test_the_record_with_the_greatest_timestamp_is_found(log: Log) -> None:
    assert log.max_timestamp() is None
    for timestamp in (5_000, 9_000, 9_000, 3_000):
        append(log, batch_of(b"x" * 200, b"y", timestamp=timestamp))

    assert log.max_timestamp() == (3, 9_001)


# --- producers ------------------------------------------------------------------------------


def test_a_repeated_batch_is_told_its_first_place_and_not_written(log: Log) -> None:
    for number in range(5):
        append(log, batch_of(b"a", b"b", producer=9, sequence=2 * number))

    for number in range(5):
        told = append(log, batch_of(b"a", b"b", producer=9, sequence=2 * number))
        assert told.duplicate
        assert (told.base_offset, told.last_offset) == (2 * number, 2 * number + 1)
    assert log.log_end == 10


def test_a_gap_in_a_sequence_is_refused(log: Log) -> None:
    append(log, batch_of(b"a", producer=9, sequence=0))

    with pytest.raises(OutOfOrderSequenceError):
        append(log, batch_of(b"c", producer=9, sequence=2))
    assert log.log_end == 1


def test_a_fenced_producer_is_refused(log: Log) -> None:
    append(log, batch_of(b"a", producer=9, sequence=0, producer_epoch=1))

    with pytest.raises(InvalidProducerEpochError):
        append(log, batch_of(b"b", producer=9, sequence=0, producer_epoch=0))


# --- flushing and the rest ------------------------------------------------------------------


def test_nothing_is_flushed_before_the_sync_and_all_of_it_after(log: Log) -> None:
    append_values(log, b"a", b"b")
    ticket = log.begin_flush()
    assert ticket is not None
    assert log.flushed_end == 0

    ticket.sync()
    log.finish_flush(ticket)

    assert log.flushed_end == 2
    assert log.begin_flush() is None


def test_a_sync_covers_what_came_while_it_waited(log: Log) -> None:
    append_values(log, b"a")
    ticket = log.begin_flush()
    assert ticket is not None
    append_values(log, b"b")

    ticket.sync()
    append_values(log, b"c")
    log.finish_flush(ticket)

    assert log.flushed_end == 2


def test_a_sync_does_not_cover_the_segment_that_came_while_it_waited(log: Log) -> None:
    append_values(log, b"a" * 400)
    ticket = log.begin_flush()
    assert ticket is not None
    append_values(log, b"b" * 400)

    ticket.sync()
    log.finish_flush(ticket)

    assert offsets(log) == [0, 1]
    assert log.flushed_end == 1


def test_unflushed_bytes_and_their_age_are_known(log: Log) -> None:
    assert (log.unflushed_bytes, log.dirty_since) == (0, None)
    batch = batch_of(b"a")
    append(log, batch, now=NOW)
    append(log, batch, now=Millis(NOW + 5))

    assert (log.unflushed_bytes, log.dirty_since) == (2 * len(batch), NOW)

    flush(log)

    assert (log.unflushed_bytes, log.dirty_since) == (0, None)


def test_replicas_keep_the_leaders_offsets_and_epochs(disk: SimulatedDisk) -> None:
    leader = new_log(disk)[1]
    append(leader, batch_of(b"a", b"b", producer=9, sequence=0), epoch=1)
    append(leader, batch_of(b"x" * 450), epoch=2)
    replica_disk = SimulatedDisk()
    replica = new_log(replica_disk)[1]

    data = memoryview(bytearray(read_all(leader)))
    for at, header in batches(data):
        replica.append_replicated(data[at : at + header.size_bytes], NOW)

    assert read_all(replica) == read_all(leader)
    assert replica.epochs.entries == leader.epochs.entries
    assert append(replica, batch_of(b"a", b"b", producer=9, sequence=0)).duplicate


def test_a_replica_takes_only_what_can_follow(disk: SimulatedDisk) -> None:
    leader = new_log(disk)[1]
    append(leader, batch_of(b"a"), epoch=3)
    append(leader, batch_of(b"b"), epoch=3)
    first, second = (
        memoryview(bytearray(read_all(leader)))[at : at + header.size_bytes]
        for at, header in batches(read_all(leader))
    )
    torn, older = memoryview(bytearray(second)), memoryview(bytearray(second))
    torn[-1] ^= 1
    stamp(older, 0, Offset(1), LeaderEpoch(2))
    replica = new_log(SimulatedDisk())[1]
    replica.append_replicated(first, NOW)

    for refused in (first, torn, older, second[:-1]):
        with pytest.raises(CorruptBatchError):
            replica.append_replicated(refused, NOW)
        assert read_all(replica) == bytes(first)
    replica.append_replicated(second, NOW)
    assert read_all(replica) == read_all(leader)


def test_leader_epochs_end_where_the_next_began(log: Log) -> None:
    append(log, batch_of(b"a"), epoch=0)
    append(log, batch_of(b"b", b"c"), epoch=2)

    assert log.epoch_end(LeaderEpoch(0)) == (0, 1)
    assert log.epoch_end(LeaderEpoch(1)) == (0, 1)
    assert log.epoch_end(LeaderEpoch(2)) == (2, 3)


def test_a_cleanly_closed_log_is_the_same_when_it_opens(disk: SimulatedDisk) -> None:
    directory, log = new_log(disk)
    append_values(log, *[b"x" * 100] * 20)
    append(log, batch_of(b"z", producer=9, sequence=0), epoch=7)
    log.advance_log_start(Offset(3))
    before = read_all(log)
    directory.close({})
    directory.unlock()

    log = open_log(disk)[1]

    assert (log.log_start, log.log_end, log.flushed_end) == (3, 21, 21)
    assert read_all(log) == before
    assert log.epochs.latest == 7
    assert append(log, batch_of(b"z", producer=9, sequence=0)).duplicate
    assert append(log, batch_of(b"!")).base_offset == 21
