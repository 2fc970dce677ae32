"""Every option of a topic does something, also when it changes while records flow."""

from collections.abc import Iterator

import pytest

from tests.apis.asking import TOPIC, Asking, fetch_request, produce_request
from tests.apis.conftest import MakeNode, coordinate
from tests.apis.grouping import Grouping
from tests.apis.kit import ThreadedNode, batch_of
from tests.apis.options import shown, shows
from waystation.messages.produce_once import ProduceOnceRequest, ProduceOnceResponse
from waystation.model.errors import ErrorCode
from waystation.model.settings import options_of
from waystation.model.topics import TopicSettings
from waystation.partition.partition import Partition
from waystation.records.batch import BatchBuilder, records_of
from waystation.records.compression import Codec
from waystation.records.header import TimestampType, batches, peek
from waystation.records.once import HEADER_NAME
from waystation.runtime.chance import SystemChance
from waystation.runtime.clock import SystemClock
from waystation.telemetry.metrics import Histogram
from waystation.wire.versions import ApiKey

BATCH = batch_of(b"x" * 500)
TEXT = b"all the same " * 50
HOUR = "3600000"
REPLICAS_NOT = ["0", "0:", ":1", "a:b", "*,0:1", "0:1:2", "-1:2", "0:1 2"]


@pytest.fixture(scope="module")
def tidy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadedNode]:
    """A node that looks after its logs all the time."""
    options = {
        "log_retention_check_interval_ms": "1",
        "log_flush_offset_checkpoint_interval_ms": "1",
        "log_cleaner_backoff_ms": "20",
        "recovery_bytes_max": "0",
    }
    with ThreadedNode(tmp_path_factory.mktemp("tidy") / "data", **options) as running:
        yield running


@pytest.fixture
def tidily(tidy: ThreadedNode) -> Iterator[Asking]:
    with Asking(*tidy.address) as connected:
        yield connected


@pytest.fixture(scope="module")
def lazy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadedNode]:
    """A node that syncs nothing unless a topic wants it."""
    options = {"log_flush_offset_checkpoint_interval_ms": HOUR}
    with ThreadedNode(tmp_path_factory.mktemp("lazy") / "data", **options) as running:
        yield running


@pytest.fixture
def lazily(lazy: ThreadedNode) -> Iterator[Asking]:
    with Asking(*lazy.address) as connected:
        yield connected


def partition_of(node: ThreadedNode, topic: str) -> Partition:
    return node.node.broker.replicas.get(topic, 0)


def files_of(node: ThreadedNode, topic: str, suffix: str) -> list[str]:
    folder = partition_of(node, topic).log.path
    return sorted(path.name for path in folder.iterdir() if path.name.endswith(suffix))


def fill(client: Asking, topic: str, count: int = 4) -> None:
    for _ in range(count):
        client.produce(topic, BATCH)


def keyed(number: int, key: bytes = b"key", timestamp: int | None = None) -> bytes:
    return batch_of(b"%500d" % number, keys=[key], timestamp=timestamp)


def fill_key(client: Asking, topic: str, count: int = 4, timestamp: int | None = None) -> None:
    for number in range(count):
        assert client.produce(topic, keyed(number, timestamp=timestamp)).error_code == 0


def offsets_in(client: Asking, topic: str) -> list[int]:
    end = client.start_and_end(topic)[1]
    found, offset = [], 0
    while offset < end:
        batch = bytes(client.fetch(topic, offset, partition_max_bytes=1).records)  # type: ignore[arg-type]
        found += [record.offset for record in records_of(batch)]
        offset = peek(batch).next_offset
    return found


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


@shows("index.keys")
def test_keys_are_indexed_while_the_topic_says_so(
    node: ThreadedNode, client: Asking, topic: str
) -> None:
    client.create(topic, segment_bytes="1000")
    fill_key(client, topic)
    client.configure(TOPIC, topic, index_keys="true")
    node.until(lambda: len(files_of(node, topic, ".keyindex")) == 3)
    client.configure(TOPIC, topic, index_keys="false")

    node.until(lambda: not files_of(node, topic, ".keyindex"))


def stored_once(client: Asking, topic: str, key: str) -> ProduceOnceResponse:
    builder = BatchBuilder()
    builder.append(None, b"v", ((HEADER_NAME, key.encode()),), timestamp=SystemClock().now())
    request = ProduceOnceRequest(topic=topic, timeout_ms=9_000, records=builder.build())
    told: ProduceOnceResponse = client.ask(request, 0)
    return told


@shows("idempotency.window.ms")
def test_an_idempotency_key_counts_for_as_long_as_told(client: Asking, topic: str) -> None:
    client.create(topic)
    assert [stored_once(client, topic, "a").places[0].offset for _ in range(2)] == [0, 0]
    client.configure(TOPIC, topic, idempotency_window_ms="1")
    assert any(stored_once(client, topic, "a").places[0].offset for _ in range(1_000))
    end = client.start_and_end(topic)[1]
    client.configure(TOPIC, topic, idempotency_window_ms=HOUR)

    assert stored_once(client, topic, "a").places[0].offset == end - 1


@shows("idempotency.keys.max")
def test_so_many_idempotency_keys_are_remembered_and_none_forgotten(
    client: Asking, topic: str
) -> None:
    client.create(topic, idempotency_keys_max="2")
    assert [stored_once(client, topic, key).error_code for key in "ab"] == [0, 0]
    refused = stored_once(client, topic, "c")
    assert refused.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert "idempotency.keys.max" in (refused.error_message or "")
    assert stored_once(client, topic, "a").places[0].offset == 0
    client.configure(TOPIC, topic, idempotency_keys_max="3")

    assert stored_once(client, topic, "c").places[0].offset == 2


@shows("schedule.enable")
def test_messages_wait_for_their_time_beside_a_topic_that_says_so(
    node: ThreadedNode, client: Asking, topic: str
) -> None:
    place = f"{topic}.delay"
    client.create(topic)
    assert client.produce(place, BATCH).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    client.configure(TOPIC, topic, schedule_enable="true")

    told = client.produce(place, BATCH)
    assert told.error_code == ErrorCode.INVALID_RECORD
    assert [one.batch_index for one in told.record_errors] == [0]
    assert "deliver-at" in (told.record_errors[0].batch_index_error_message or "")
    builder = BatchBuilder()
    builder.append(b"key", b"value", (("deliver-after", b"1"),), timestamp=0)
    assert client.produce(place, builder.build()).error_code == 0
    node.until(lambda: partition_of(node, topic).high_watermark == 1)
    assert offsets_in(client, topic) == [0]
    client.configure(TOPIC, topic, schedule_enable="false")
    assert client.produce(place, BATCH).error_code == 0


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


@shows("segment.bytes")
def test_a_segment_is_rolled_before_it_is_too_large(
    node: ThreadedNode, client: Asking, topic: str
) -> None:
    client.create(topic)
    fill(client, topic)
    assert len(files_of(node, topic, ".log")) == 1
    client.configure(TOPIC, topic, segment_bytes=str(2 * len(BATCH)))
    fill(client, topic)

    assert [name[-6:-4] for name in files_of(node, topic, ".log")] == ["00", "04", "06"]


@shows("segment.ms")
def test_a_segment_is_rolled_when_it_is_too_old(
    tidy: ThreadedNode, tidily: Asking, topic: str
) -> None:
    tidily.create(topic)
    fill(tidily, topic)
    tidily.configure(TOPIC, topic, segment_ms="1")

    tidy.until(lambda: len(files_of(tidy, topic, ".log")) == 2)


class Luckless(SystemChance):
    """Draws the greatest number there is."""

    def below(self, limit: int) -> int:
        return limit - 1


@shows("segment.jitter.ms")
def test_a_segment_may_be_rolled_earlier_by_chance(make_node: MakeNode, topic: str) -> None:
    running = make_node(Luckless())
    with Asking(*running.address) as client:
        client.create(topic, segment_ms=HOUR)
        fill(client, topic)
        log = partition_of(running, topic).log
        now = SystemClock().now()
        assert not running.call(lambda: log.maybe_roll(now))
        client.configure(TOPIC, topic, segment_jitter_ms=HOUR)

        running.until(lambda: len(log.segments) == 2)


@shows("index.interval.bytes", "segment.index.bytes")
def test_an_index_is_as_dense_and_as_large_as_told(
    node: ThreadedNode, client: Asking, topic: str
) -> None:
    client.create(topic)
    fill(client, topic)
    log = partition_of(node, topic).log
    sparse = log.active.index_bytes
    client.configure(TOPIC, topic, index_interval_bytes="0")
    fill(client, topic)
    dense = log.active.index_bytes

    assert sparse < dense
    client.configure(TOPIC, topic, segment_index_bytes="24")
    fill(client, topic, 12)
    assert len(log.segments) >= 3
    assert all(one.index_bytes <= 32 for one in log.segments[1:])


@shows("max.message.bytes")
def test_a_batch_may_be_as_large_as_told(client: Asking, topic: str) -> None:
    client.create(topic, max_message_bytes=str(len(BATCH) - 1))
    assert client.produce(topic, BATCH).error_code == ErrorCode.MESSAGE_TOO_LARGE
    client.configure(TOPIC, topic, max_message_bytes=str(len(BATCH)))

    assert client.produce(topic, BATCH).error_code == 0


@shows("message.timestamp.type")
def test_the_brokers_clock_may_date_records(client: Asking, topic: str) -> None:
    client.create(topic)
    client.produce(topic, batch_of(b"mine", timestamp=5))
    client.configure(TOPIC, topic, message_timestamp_type="LogAppendTime")
    before = SystemClock().now()
    told = client.produce(topic, batch_of(b"yours", b"yours", timestamp=5))

    mine, *yours = client.read(topic)
    assert mine.timestamp == 5
    assert before <= told.log_append_time_ms <= SystemClock().now()
    assert [one.timestamp for one in yours] == [told.log_append_time_ms] * 2
    batch = bytes(client.fetch(topic, 1).records)  # type: ignore[arg-type]
    assert peek(batch).timestamp_type is TimestampType.LOG_APPEND_TIME


@shows("message.timestamp.before.max.ms", "message.timestamp.after.max.ms")
def test_records_may_be_as_old_and_as_new_as_told(client: Asking, topic: str) -> None:
    client.create(topic)
    now = SystemClock().now()
    ancient, soon, far = (batch_of(b"x", timestamp=at) for at in (0, now + 60_000, now + 8_000_000))
    refused = ErrorCode.INVALID_TIMESTAMP

    assert client.produce(topic, ancient).error_code == 0
    assert client.produce(topic, soon).error_code == 0
    assert client.produce(topic, far).error_code == refused
    client.configure(TOPIC, topic, message_timestamp_before_max_ms=HOUR)
    assert client.produce(topic, ancient).error_code == refused
    client.configure(TOPIC, topic, message_timestamp_after_max_ms="9000000")
    assert client.produce(topic, far).error_code == 0
    client.configure(TOPIC, topic, message_timestamp_after_max_ms="1000")
    assert client.produce(topic, soon).error_code == refused


@shows("min.insync.replicas")
def test_acks_all_needs_as_many_replicas_as_told(client: Asking, topic: str) -> None:
    client.create(topic, min_insync_replicas="2")

    assert client.produce(topic, BATCH).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert client.produce(topic, BATCH, acks=1).error_code == 0
    assert client.read(topic) == []
    client.configure(TOPIC, topic, min_insync_replicas="1")
    client.await_end(topic, 1)
    assert client.produce(topic, BATCH).base_offset == 1


@shows("compression.type")
@pytest.mark.parametrize(
    ("wanted", "codec"),
    [
        ("uncompressed", Codec.NONE),
        ("gzip", Codec.GZIP),
        ("snappy", Codec.SNAPPY),
        ("lz4", Codec.LZ4),
        ("zstd", Codec.ZSTD),
    ],
)
def test_batches_are_stored_as_compressed_as_told(
    client: Asking, topic: str, wanted: str, codec: Codec
) -> None:
    client.create(topic, compression_type=wanted)
    for sent in Codec:
        client.produce(topic, batch_of(TEXT, codec=sent))
    for offset in range(len(Codec)):
        found = client.fetch(topic, offset, partition_max_bytes=1)

        assert peek(bytes(found.records)).codec is codec  # type: ignore[arg-type]
    assert [one.value for one in client.read(topic)] == [TEXT] * len(Codec)


def test_a_batch_that_grows_too_large_is_refused(client: Asking, topic: str) -> None:
    client.create(topic, compression_type="uncompressed", max_message_bytes="500")
    told = client.produce(topic, batch_of(TEXT, TEXT, codec=Codec.GZIP))

    assert told.error_code == ErrorCode.MESSAGE_TOO_LARGE


@shows("durability")
def test_acks_all_waits_for_the_disk_if_told(
    lazy: ThreadedNode, lazily: Asking, topic: str
) -> None:
    lazily.create(topic, durability="memory")
    lazily.produce(topic, BATCH)
    partition = partition_of(lazy, topic)
    assert (partition.high_watermark, partition.safe_end) == (1, 0)
    lazily.configure(TOPIC, topic, durability="disk")
    lazily.produce(topic, BATCH)

    assert partition.safe_end == 2


def syncs(node: ThreadedNode) -> int:
    """How many syncs there were that somebody waited for."""
    seconds = node.node.broker._flusher._stopwatch
    assert isinstance(seconds, Histogram)
    return seconds.count


def produce_at_once(client: Asking, topic: str, batch: bytes, count: int) -> None:
    for _ in range(count):
        client.send(produce_request(topic, batch, 0, -1), 9)
    for _ in range(count):
        (told,) = client.receive(ApiKey.PRODUCE, 9).responses[0].partition_responses
        assert told.error_code == 0


@shows("flush.linger.ms")
@pytest.mark.parametrize("batch", [BATCH, batch_of(b"x" * 40_000)], ids=["small", "large"])
def test_one_sync_serves_all_that_came_while_the_topic_lingers(
    lazy: ThreadedNode, lazily: Asking, topic: str, batch: bytes
) -> None:
    """Small batches go to the journal, large ones to files of their own."""
    lazily.create(topic, flush_linger_ms="0")
    before = syncs(lazy)
    for _ in range(5):
        lazily.produce(topic, batch)
    assert syncs(lazy) - before == 5, "who is answered one by one is synced one by one"

    lazily.configure(TOPIC, topic, flush_linger_ms="300")
    lazily.produce(topic, batch)
    before = syncs(lazy)
    produce_at_once(lazily, topic, batch, 20)
    assert syncs(lazy) - before <= 2
    assert partition_of(lazy, topic).safe_end == 26, "acknowledged, and not safe"


@shows("profile")
def test_a_profile_is_a_default_of_other_options(
    lazy: ThreadedNode, lazily: Asking, topic: str
) -> None:
    lazily.create(topic, profile="throughput")

    def lingers() -> tuple[int, int]:
        settings = partition_of(lazy, topic).settings
        return settings.flush_linger_ms, settings.fetch_linger_ms

    assert lingers() == (20, 10)
    lazily.configure(TOPIC, topic, profile="latency")
    assert lingers() == (0, 0)
    lazily.configure(TOPIC, topic, flush_linger_ms="4")
    assert lingers() == (4, 0)
    told = lazily.alter(TOPIC, topic, {"profile": None, "flush.linger.ms": None})
    assert (told.error_code, lingers()) == (0, (-1, -1))
    wrong = lazily.alter(TOPIC, topic, {"profile": "speed"})
    assert wrong.error_code == ErrorCode.INVALID_CONFIG
    assert "must be one of balanced, latency, throughput" in (wrong.error_message or "")


@shows("fetch.linger.ms")
def test_a_consumer_is_answered_no_more_often_than_the_topic_says(
    lazy: ThreadedNode, lazily: Asking, topic: str
) -> None:
    lazily.create(topic, fetch_linger_ms="300")
    lazily.produce(topic, BATCH)
    assert len(records_of(bytes(lazily.fetch(topic, 0).records or b""))) == 1
    with lazy.client() as writer:
        request = fetch_request(topic, 1, max_wait_ms=5_000)
        lazily.send(request, 11)
        for _ in range(5):
            writer.send(produce_request(topic, BATCH, 0, -1), 9)
            writer.receive(ApiKey.PRODUCE, 9)
    found = lazily.receive(ApiKey.FETCH, 11).responses[0].partitions[0].records

    assert len(list(batches(memoryview(bytearray(found))))) == 5


@shows("flush.messages")
def test_so_many_records_are_synced_together(
    lazy: ThreadedNode, lazily: Asking, topic: str
) -> None:
    lazily.create(topic, durability="memory", flush_messages="3")
    fill(lazily, topic, 2)
    partition = partition_of(lazy, topic)
    assert partition.log.flushed_end == 0
    fill(lazily, topic, 1)

    lazy.until(lambda: partition.log.flushed_end == 3)


@shows("flush.ms")
def test_nothing_waits_longer_for_a_sync_than_told(
    lazy: ThreadedNode, lazily: Asking, topic: str
) -> None:
    lazily.create(topic, durability="memory")
    fill(lazily, topic, 2)
    partition = partition_of(lazy, topic)
    assert partition.log.flushed_end == 0
    lazily.configure(TOPIC, topic, flush_ms="1")

    lazy.until(lambda: partition.log.flushed_end == 2)


@shows(
    "unclean.leader.election.enable",
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
)
@pytest.mark.parametrize(
    ("option", "good", "bad"),
    [
        ("unclean.leader.election.enable", ["true", "false"], ["maybe", ""]),
        ("leader.replication.throttled.replicas", ["", "*", "0:1", "0:1,12:345"], REPLICAS_NOT),
        ("follower.replication.throttled.replicas", ["", "*", "0:1", "0:1,12:345"], REPLICAS_NOT),
    ],
)
def test_what_counts_among_several_brokers_is_taken_and_checked(
    client: Asking, topic: str, option: str, good: list[str], bad: list[str]
) -> None:
    """What they do there is shown where there are several: tests/broker, tests/cluster."""
    client.create(topic)

    assert [client.alter(TOPIC, topic, {option: one}).error_code for one in good] == [0] * len(good)
    for wrong in bad:
        outcome = client.alter(TOPIC, topic, {option: wrong})
        assert outcome.error_code == ErrorCode.INVALID_CONFIG, wrong
        assert option in (outcome.error_message or "")


def test_every_option_of_a_topic_is_shown_to_do_something() -> None:
    assert {one.name for one in options_of(TopicSettings)} <= shown
