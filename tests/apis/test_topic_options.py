"""Every option of a topic does something, also when it changes while records flow."""

import pytest

import tests.apis.test_topic_cleaning_options
import tests.apis.test_topic_segment_options
import tests.apis.test_topic_syncing_options  # noqa: F401, what these show is shown
from tests.apis.asking import TOPIC, Asking
from tests.apis.kit import ThreadedNode, batch_of
from tests.apis.options import shown, shows
from tests.apis.topic_options import (
    BATCH,
    HOUR,
    files_of,
    fill_key,
    offsets_in,
    partition_of,
    stored_once,
)
from waystation.model.errors import ErrorCode
from waystation.model.settings import options_of
from waystation.model.topics import TopicSettings
from waystation.records.batch import BatchBuilder
from waystation.records.compression import Codec
from waystation.records.header import TimestampType, peek
from waystation.runtime.clock import SystemClock

TEXT = b"all the same " * 50
REPLICAS_NOT = ["0", "0:", ":1", "a:b", "*,0:1", "0:1:2", "-1:2", "0:1 2"]


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
