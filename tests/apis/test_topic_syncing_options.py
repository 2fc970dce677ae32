"""The options of a topic that say when a batch is synced, counts, and is told of."""

import pytest

from tests.apis.asking import TOPIC, Asking, fetch_request, produce_request
from tests.apis.kit import ThreadedNode, batch_of
from tests.apis.options import shows
from tests.apis.topic_options import BATCH, fill, partition_of
from waystation.model.errors import ErrorCode
from waystation.records.batch import records_of
from waystation.records.header import batches
from waystation.telemetry.metrics import Histogram
from waystation.wire.versions import ApiKey


@shows("min.insync.replicas")
def test_acks_all_needs_as_many_replicas_as_told(client: Asking, topic: str) -> None:
    client.create(topic, min_insync_replicas="2")

    assert client.produce(topic, BATCH).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert client.produce(topic, BATCH, acks=1).error_code == 0
    assert client.read(topic) == []
    client.configure(TOPIC, topic, min_insync_replicas="1")
    client.await_end(topic, 1)
    assert client.produce(topic, BATCH).base_offset == 1


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
