"""The options of a topic that say what goes, and when: retention and compaction."""

from tests.apis.asking import TOPIC, Asking
from tests.apis.conftest import coordinate
from tests.apis.grouping import Grouping
from tests.apis.kit import ThreadedNode, batch_of
from tests.apis.options import shows
from tests.apis.topic_options import (
    BATCH,
    HOUR,
    files_of,
    fill,
    fill_key,
    keyed,
    offsets_in,
    partition_of,
)
from waystation.model.errors import ErrorCode
from waystation.records.batch import records_of
from waystation.records.header import batches


@shows("cleanup.policy")
def test_old_records_go_as_the_policy_says(tidy: ThreadedNode, tidily: Asking, topic: str) -> None:
    for wrong in ("shrink", "", "compact,shrink"):
        told = tidily.alter(TOPIC, topic, {"cleanup.policy": wrong})
        assert told.error_code != 0
    tidily.create(topic, segment_bytes="600", retention_bytes="-1")
    fill_key(tidily, topic)
    assert tidily.produce(topic, BATCH).error_code == 0
    tidily.configure(TOPIC, topic, cleanup_policy="compact")

    tidy.until(lambda: partition_of(tidy, topic).log.clean_end == 4)
    assert offsets_in(tidily, topic) == [3, 4]
    told = tidily.produce(topic, BATCH)
    assert told.error_code == ErrorCode.INVALID_RECORD
    assert [one.batch_index for one in told.record_errors] == [0]
    assert tidily.start_and_end(topic) == (0, 5)
    tidily.configure(TOPIC, topic, cleanup_policy="compact,delete", retention_ms="1")
    tidy.until(lambda: partition_of(tidy, topic).log.log_start == 5)


@shows("min.cleanable.dirty.ratio")
def test_a_log_is_compacted_when_it_is_as_dirty_as_told(
    tidy: ThreadedNode, tidily: Asking, topic: str
) -> None:
    tidily.create(
        topic, cleanup_policy="compact", segment_bytes="600", min_cleanable_dirty_ratio="1"
    )
    fill_key(tidily, topic)
    log = partition_of(tidy, topic).log
    tidy.until(lambda: log.recovery_point == 4)
    assert log.clean_end == 0
    tidily.configure(TOPIC, topic, min_cleanable_dirty_ratio="0.9")

    tidy.until(lambda: log.clean_end == 3)


@shows("min.compaction.lag.ms")
def test_what_is_young_is_left_alone(tidy: ThreadedNode, tidily: Asking, topic: str) -> None:
    tidily.create(topic, cleanup_policy="compact", segment_bytes="600", min_compaction_lag_ms=HOUR)
    fill_key(tidily, topic, 2, timestamp=5)
    fill_key(tidily, topic, 3)
    log = partition_of(tidy, topic).log

    tidy.until(lambda: log.clean_end == 2)
    assert offsets_in(tidily, topic) == [1, 2, 3, 4]
    tidily.configure(TOPIC, topic, min_compaction_lag_ms="0")
    tidy.until(lambda: log.clean_end == 4)
    assert offsets_in(tidily, topic) == [3, 4]


@shows("max.compaction.lag.ms")
def test_what_is_old_is_compacted_however_little_it_is(
    tidy: ThreadedNode, tidily: Asking, topic: str
) -> None:
    tidily.create(topic, cleanup_policy="compact", min_cleanable_dirty_ratio="1")
    fill_key(tidily, topic)
    tidily.configure(TOPIC, topic, max_compaction_lag_ms="1")

    tidy.until(lambda: partition_of(tidy, topic).log.clean_end == 4)
    assert offsets_in(tidily, topic) == [3]


@shows("delete.retention.ms")
def test_tombstones_stay_as_long_as_told(tidy: ThreadedNode, tidily: Asking, topic: str) -> None:
    tidily.create(topic, cleanup_policy="compact", segment_bytes="600", delete_retention_ms=HOUR)
    tidily.produce(topic, keyed(0))
    tidily.produce(topic, batch_of(None, keys=[b"key"]))
    fill_key(tidily, topic, 0)
    log = partition_of(tidy, topic).log
    tidily.produce(topic, keyed(1, b"other"))
    tidy.until(lambda: log.clean_end == 2)
    assert offsets_in(tidily, topic) == [1, 2]
    soon = topic + "-soon"
    tidily.create(soon, cleanup_policy="compact", segment_bytes="600", delete_retention_ms="1")
    tidily.produce(soon, keyed(0))
    tidily.produce(soon, batch_of(None, keys=[b"key"]))
    tidily.produce(soon, keyed(1, b"other"))

    tidy.until(lambda: offsets_of_log(tidy, soon) == [2])


def offsets_of_log(node: ThreadedNode, topic: str) -> list[int]:
    log = partition_of(node, topic).log
    offset, found = log.log_start, []
    while offset < log.log_end:
        region, offset = log.read(offset, 1 << 20, log.log_end)
        assert region is not None
        content = region.read()
        for at, _ in batches(content):
            found += [int(record.offset) for record in records_of(content, at)]
    return found


@shows("retention.ms")
def test_what_is_too_old_goes(tidy: ThreadedNode, tidily: Asking, topic: str) -> None:
    tidily.create(topic, segment_bytes="600")
    fill(tidily, topic)
    assert tidily.start_and_end(topic) == (0, 4)
    tidily.configure(TOPIC, topic, retention_ms="1")

    tidy.until(lambda: partition_of(tidy, topic).log.log_start == 4)
    assert tidily.start_and_end(topic) == (4, 4)


@shows("retention.bytes")
def test_what_is_too_much_goes(tidy: ThreadedNode, tidily: Asking, topic: str) -> None:
    tidily.create(topic, segment_bytes="600")
    fill(tidily, topic)
    tidily.configure(TOPIC, topic, retention_bytes=str(2 * len(BATCH)))

    tidy.until(lambda: partition_of(tidy, topic).log.log_start == 2)
    assert partition_of(tidy, topic).log.size_bytes == 2 * len(BATCH)


@shows("retention.after.archive")
def test_what_is_not_archived_stays(tidy: ThreadedNode, topic: str) -> None:
    coordinate(tidy)
    other = topic + "-other"
    with Grouping(*tidy.address) as client:
        client.create(topic, segment_bytes="600", retention_bytes="0", retention_after_archive="me")
        client.create(other, segment_bytes="600", retention_bytes="0")
        for wrong in ("lake,mirror", "lake\0", "é" * 16_384):
            told = client.alter(TOPIC, topic, {"retention.after.archive": wrong})
            assert told.error_code == ErrorCode.INVALID_CONFIG
            assert "retention.after.archive" in (told.error_message or "")
        for name in (topic, other):
            fill(client, name)
        tidy.until(lambda: partition_of(tidy, other).log.log_start == 3)
        assert client.start_and_end(topic) == (0, 4)
        assert client.commit("me", topic, 2) == 0

        tidy.until(lambda: partition_of(tidy, topic).log.log_start == 2)
        assert client.start_and_end(topic) == (2, 4)
        client.configure(TOPIC, topic, retention_after_archive="")
        tidy.until(lambda: partition_of(tidy, topic).log.log_start == 3)


@shows("retention.after.ack", "retention.after.ack.bytes")
def test_what_all_groups_are_done_with_goes(tidy: ThreadedNode, topic: str) -> None:
    coordinate(tidy)
    with Grouping(*tidy.address) as client:
        client.create(topic, segment_bytes="600", retention_ms="1", retention_after_ack="me,you")
        for wrong in ("me,lake\0", "é" * 16_384):
            told = client.alter(TOPIC, topic, {"retention.after.ack": wrong})
            assert told.error_code == ErrorCode.INVALID_CONFIG
            assert "retention.after.ack" in (told.error_message or "")
        fill(client, topic)
        assert client.commit("me", topic, 3) == 0
        assert client.start_and_end(topic) == (0, 4)
        assert client.commit("you", topic, 1) == 0

        tidy.until(lambda: partition_of(tidy, topic).log.log_start == 1)
        client.configure(TOPIC, topic, retention_after_ack_bytes=str(2 * len(BATCH)))
        tidy.until(lambda: partition_of(tidy, topic).log.log_start == 2)


@shows("file.delete.delay.ms")
def test_deleted_files_stay_as_long_as_they_are_told(
    tidy: ThreadedNode, tidily: Asking, topic: str
) -> None:
    later, soon = topic, topic + "-soon"
    tidily.create(later, segment_bytes="600", file_delete_delay_ms=HOUR)
    tidily.create(soon, segment_bytes="600", file_delete_delay_ms="0")
    for name in (later, soon):
        fill(tidily, name)
        tidily.delete_records(name, -1)

    tidy.until(lambda: len(files_of(tidy, later, ".log.deleted")) == 3)
    tidy.until(lambda: not files_of(tidy, soon, ".deleted"))
    assert len(files_of(tidy, soon, ".log")) == 1
