"""Compaction beside everything else, in a whole node and in a real broker process."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from tests.apis.asking import TOPIC, Asking
from tests.apis.kit import ThreadedNode
from waystation.partition.partition import Partition
from waystation.records.batch import BatchBuilder, records_of
from waystation.records.header import batches
from waystation.runtime.clock import SystemClock
from waystation.storage.log import Log
from waystation.telemetry.metrics import Sample
from waystation.testing.process import BrokerProcess

EAGER = {
    "log.cleaner.backoff.ms": "20",
    "log.flush.offset.checkpoint.interval.ms": "1",
    "recovery.bytes.max": "0",
    "file.delete.delay.ms": "0",
}
PADDING = b"x" * 400


@pytest.fixture
def node(tmp_path: Path) -> Iterator[ThreadedNode]:
    options = {name.replace(".", "_"): value for name, value in EAGER.items()}
    more = (tmp_path / "a", tmp_path / "b")
    dirs = ",".join(map(str, more))
    with ThreadedNode(tmp_path / "data", log_dirs=dirs, **options) as running:
        yield running


@pytest.fixture
def client(node: ThreadedNode) -> Iterator[Asking]:
    with Asking(*node.address) as connected:
        yield connected


def batch(*rows: tuple[bytes, bytes | None]) -> bytes:
    builder = BatchBuilder(limit_bytes=8 << 20)
    for key, value in rows:
        assert builder.append(key, value, timestamp=SystemClock().now())
    return builder.build()


def partition_of(node: ThreadedNode, topic: str) -> Partition:
    return node.node.broker.replicas.get(topic, 0)


def rows_in(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    offset, rows = log.log_start, []
    while offset < log.log_end:
        region, offset = log.read(offset, 1 << 20, log.log_end)
        assert region is not None
        content = region.read()
        for at, _ in batches(content):
            rows += [(int(one.offset), one.key, one.value) for one in records_of(content, at)]
    return rows


def metric(node: ThreadedNode, name: str) -> Sample:
    return node.call(lambda: sample_of(node, name))


def sample_of(node: ThreadedNode, name: str) -> Sample:
    (sample,) = next(one.samples for one in node.node.registry.snapshot() if one.name == name)
    return sample


def test_topics_in_every_directory_are_compacted(node: ThreadedNode, client: Asking) -> None:
    for topic in ("one", "two"):
        client.create(topic, cleanup_policy="compact", segment_bytes="600")
        for number in range(9):
            client.produce(topic, batch((b"k%d" % (number % 2), PADDING + b"%d" % number)))
    logs = [partition_of(node, topic).log for topic in ("one", "two")]
    node.until(lambda: all(log.clean_end == 8 for log in logs))

    assert logs[0].directory is not logs[1].directory
    for log in logs:
        rows = node.call(lambda log=log: rows_in(log))  # type: ignore[misc]
        assert [at for at, _, _ in rows] == [6, 7, 8]
    assert metric(node, "waystation_compaction_cleaned_bytes_total").value > 6_000
    assert metric(node, "waystation_compaction_freed_bytes_total").value > 3_000
    node.until(lambda: sample_of(node, "waystation_compaction_seconds").buckets[-1][1] >= 2)


def test_a_log_of_many_keys_takes_several_passes(tmp_path: Path) -> None:
    """log_cleaner_dedupe_buffer_size of a megabyte holds 32,766 keys."""
    options = {name.replace(".", "_"): value for name, value in EAGER.items()}
    small = {**options, "log_cleaner_dedupe_buffer_size": str(1 << 20)}
    count, half = 50_000, 25_000
    with ThreadedNode(tmp_path / "data", **small) as node, Asking(*node.address) as client:
        client.create("many", cleanup_policy="compact", segment_bytes="1000000")
        for first in (0, half, 0, half):
            rows = [(b"key-%d" % (first + number), b"") for number in range(half)]
            assert client.produce("many", batch(*rows)).error_code == 0
        client.configure(TOPIC, "many", segment_ms="1")
        log = partition_of(node, "many").log
        node.until(lambda: log.clean_end == 2 * count)

        assert [at for at, _, _ in node.call(lambda: rows_in(log))] == [*range(count, 2 * count)]
        assert metric(node, "waystation_compaction_seconds").buckets[-1][1] >= 4


def test_a_damaged_log_is_refused_and_the_others_are_not(
    node: ThreadedNode, client: Asking
) -> None:
    for topic in ("damaged", "sound"):
        client.create(
            topic, cleanup_policy="compact", segment_bytes="600", min_cleanable_dirty_ratio="1"
        )
        for number in range(5):
            client.produce(topic, batch((b"key", PADDING + b"%d" % number)))
    damaged, sound = (partition_of(node, topic).log for topic in ("damaged", "sound"))
    damaged.segments[1].file().pwrite(b"!", 100)
    for topic in ("damaged", "sound"):
        client.configure(TOPIC, topic, min_cleanable_dirty_ratio="0")
    node.until(lambda: sound.clean_end == 4)
    node.until(lambda: metric_now(node, "waystation_compaction_refused_partitions") == 1)

    assert damaged.clean_end == 0
    assert damaged.directory.offline is None
    assert not [path for path in damaged.path.iterdir() if path.suffix in (".cleaned", ".swap")]


def metric_now(node: ThreadedNode, name: str) -> float:
    """As ``metric``, on the node's own loop."""
    families = node.node.registry.snapshot()
    return next(one.samples[0].value for one in families if one.name == name)


def test_a_broker_stops_in_the_middle_of_a_slow_pass(tmp_path: Path) -> None:
    """log_cleaner_io_max_bytes_per_second of a kilobyte would take an hour for this."""
    options = {name.replace(".", "_"): value for name, value in EAGER.items()}
    slow = {**options, "log_cleaner_io_max_bytes_per_second": "1024"}
    with ThreadedNode(tmp_path / "data", **slow) as node, Asking(*node.address) as client:
        client.create("slow", cleanup_policy="compact", segment_bytes="1000000")
        for number in range(5):
            client.produce("slow", batch((b"key", b"%d" % number * 900_000)))
        log = partition_of(node, "slow").log
        node.until(lambda: log.recovery_point == 5)
        began = SystemClock().monotonic()
        node.stop()

        assert SystemClock().monotonic() - began < 10
        assert log.clean_end == 0


def test_a_topic_may_be_deleted_while_it_is_compacted(tmp_path: Path) -> None:
    options = {name.replace(".", "_"): value for name, value in EAGER.items()}
    slow = {**options, "log_cleaner_io_max_bytes_per_second": str(1 << 20)}
    with ThreadedNode(tmp_path / "data", **slow) as node, Asking(*node.address) as client:
        for life in range(3):
            client.create("fleeting", cleanup_policy="compact", segment_bytes="200000")
            for number in range(5):
                client.produce("fleeting", batch((b"key", b"%d" % number * 150_000)))
            log = partition_of(node, "fleeting").log
            node.until(lambda log=log: log.recovery_point == 5)  # type: ignore[misc]
            client.delete("fleeting")
            assert not log.path.exists() or life < 3
        client.create("fleeting", cleanup_policy="compact")
        assert client.start_and_end("fleeting") == (0, 0)
        assert node.node.broker.directories[0].offline is None


# --- over the Kafka protocol ----------------------------------------------------------------


def test_a_compacted_topic_is_read_by_confluent(tmp_path: Path) -> None:
    """Also after a kill that is as bad as a power failure."""
    broker = BrokerProcess(tmp_path / "data", options=EAGER, volatile=True)
    with broker.start():
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        config = {"cleanup.policy": "compact", "segment.bytes": "500"}
        admin.create_topics([NewTopic("prices", 1, config=config)])["prices"].result(10)
        resource = ConfigResource(ResourceType.TOPIC, "prices")
        shown = admin.describe_configs([resource])[resource].result(10)
        assert shown["cleanup.policy"].value == "compact"
        written = produce(broker.bootstrap)
        last = {key: (offset, value) for offset, key, value in written}
        found = read_until_compacted(broker.bootstrap, len(written), {*last.values()})
        broker.kill()
        broker.start()
        again = consume(broker.bootstrap, len(written))

    assert refused_without_key(found) == []
    for messages in (found, again):
        there = [(one.offset(), one.key(), one.value()) for one in messages]
        assert set(there) <= set(written)
        assert {key: (offset, value) for offset, key, value in there} == last
    assert len(found) < len(written) / 2


def produce(bootstrap: str) -> list[tuple[int, bytes, bytes | None]]:
    """Ten rounds of twenty keys, compressed, idempotent; the last round deletes half of them."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "compression.type": "lz4",
            "linger.ms": 5,
        }
    )
    written: list[tuple[int, bytes, bytes | None]] = []
    refused: list[KafkaError] = []

    def reported(error: KafkaError | None, message: Message) -> None:
        if error is None:
            written.append((message.offset(), message.key(), message.value()))
        else:
            refused.append(error)

    for number in range(10):
        for key in range(20):
            value = None if number == 9 and key % 2 else b"%d" % number * 50
            producer.produce("prices", value, b"key-%d" % key, on_delivery=reported)
        assert producer.flush(10) == 0
    producer.produce("prices", b"no key", on_delivery=reported)
    assert producer.flush(10) == 0
    assert [error.code() for error in refused] == [KafkaError.INVALID_RECORD]
    return written


def refused_without_key(messages: list[Message]) -> list[Message]:
    return [one for one in messages if one.key() is None]


def read_until_compacted(bootstrap: str, end: int, last: set[object]) -> list[Message]:
    deadline = SystemClock().monotonic() + 20
    while True:
        found = consume(bootstrap, end)
        if len(found) < end / 2:
            return found
        assert SystemClock().monotonic() < deadline, f"{len(found)} of {end} are still there"


def consume(bootstrap: str, end: int) -> list[Message]:
    """Everything up to the end, however few there are."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "none",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
        }
    )
    consumer.assign([TopicPartition("prices", 0, 0)])
    found: list[Message] = []
    try:
        while True:
            message = consumer.poll(10)
            assert message is not None, "no end of the partition"
            error = message.error()
            if error is None:
                found.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                assert consumer.get_watermark_offsets(TopicPartition("prices", 0)) == (0, end)
                assert message.offset() == end
                return found
            else:
                raise AssertionError(error)
    finally:
        consumer.close()
