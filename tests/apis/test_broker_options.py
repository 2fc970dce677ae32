"""Every option of a broker does something; the live ones without a restart."""

import struct
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import tests.apis.test_group_options
import tests.apis.test_share_options
import tests.apis.test_topic_options
import tests.apis.test_transaction_options  # noqa: F401, what these show is shown
from tests.apis.asking import BROKER, TOPIC, Asking, fetch_request, session_request
from tests.apis.clustering import ThreadedCluster
from tests.apis.conftest import MakeNode
from tests.apis.kit import HungUpError, ThreadedNode, batch_of
from tests.apis.options import shown, shows
from tests.apis.topic_options import (
    BATCH,
    HOUR,
    fill,
    fill_key,
    partition_of,
    stored_once,
)
from waystation.broker.replica_wire import Questions
from waystation.messages.create_topics import CreatableTopic, CreateTopicsRequest
from waystation.messages.metadata import MetadataRequest, MetadataRequestTopic
from waystation.model.errors import ErrorCode, InvalidSettingsError
from waystation.model.ids import NodeId
from waystation.model.settings import options_of
from waystation.model.topics import TopicSettings
from waystation.node.settings import all_options, load
from waystation.storage.reserve import FILE

TESTS = Path(__file__).parents[1]

# What one package obeys by itself is shown where that package is tested.
ELSEWHERE = {
    "log.cleaner.dedupe.buffer.size": "broker/test_cleaning.py",
    "log.cleaner.io.max.bytes.per.second": "broker/test_cleaning.py",
    "queued.max.request.bytes": "server/test_hostile.py",
    "max.inflight.requests.per.connection": "server/test_connection.py",
    "socket.read.linger.ms": "server/test_connection.py",
    "socket.send.buffer.bytes": "server/test_outbox.py",
    "open.files.max": "storage/test_directory.py",
    "recovery.bytes.max": "storage/test_directory.py",
    "offsets.retention.minutes": "groups/test_offsets.py",
    "group.share.max.share.sessions": "sharing/test_sessions.py",
    "group.share.partition.max.record.locks": "sharing/queues.py",
    "group.share.partition.max.ranges": "sharing/queues.py",
    "schedule.horizon.ms": "broker/test_schedules.py",
    "schedule.past.max.ms": "broker/test_schedules.py",
    "schedule.recurring.max": "scheduling/test_schedule.py",
    "schedule.retimed.max": "scheduling/test_schedule.py",
    "schedule.batch.records": "scheduling/test_schedule.py",
    "schedule.near.entries": "scheduling/test_schedule.py",
    "schedule.buffer.entries": "scheduling/life.py",
    "schedule.trust.ms": "broker/test_moving.py",
    "http.hosts": "gateway/test_hosts.py",
    "inbox.topic": "gateway/test_inbox_life.py",
    "webhook.allow": "support/webhook_calls.py",
    "webhook.ca.file": "gateway/test_webhook_life.py",
    "inbox.partitions": "gateway/test_inbox_life.py",
    "broker.machine": "broker/test_controller.py",
    "replicas.share.machine": "broker/test_controller.py",
    "auto.leader.rebalance.enable": "broker/test_controller.py",
    "leader.imbalance.check.interval.seconds": "broker/test_controller.py",
    "leader.imbalance.per.broker.percentage": "broker/test_controller.py",
    "reassignment.moves.max": "broker/test_controller.py",
    "store.connect.timeout.ms": "broker/test_membership_cluster.py",
}


def ask_brokers(client: Asking) -> object:
    return client.ask(MetadataRequest(topics=[]), 1).brokers


@shows("listen", "node.id", "broker.rack", "advertise")
def test_clients_are_told_who_and_where_the_broker_is(make_node: MakeNode) -> None:
    running = make_node(
        listen="127.0.0.2:0", node_id="7", broker_rack="attic", advertise="elsewhere:99"
    )
    with Asking(*running.address) as client:
        (broker,) = client.ask(MetadataRequest(topics=[]), 1).brokers

        assert running.address[0] == "127.0.0.2"
        assert (broker.node_id, broker.rack) == (7, "attic")
        assert (broker.host, broker.port) == ("elsewhere", 99)


@shows("http")
def test_http_is_served_where_it_is_told(make_node: MakeNode) -> None:
    running = make_node(http="127.0.0.1:0")

    with urllib.request.urlopen(f"http://{running.node.http_address}/readyz", timeout=9) as reply:
        assert reply.status == 200


@shows("insecure")
def test_the_world_is_let_in_only_on_purpose(make_node: MakeNode) -> None:
    with pytest.raises(InvalidSettingsError, match="--insecure"):
        make_node(listen="0.0.0.0:0")
    running = make_node(listen="0.0.0.0:0", insecure="true")

    with Asking("127.0.0.1", running.address[1]) as client:
        (broker,) = client.ask(MetadataRequest(topics=[]), 1).brokers
        assert broker.host == "localhost"


@shows("store")
def test_only_stores_that_exist_are_accepted() -> None:
    with pytest.raises(InvalidSettingsError, match="store"):
        load([("test", {"store": "paper"})])


@shows("log.dirs")
def test_partitions_are_spread_over_data_directories(make_node: MakeNode, tmp_path: Path) -> None:
    running = make_node(log_dirs=f"{tmp_path / 'a'},{tmp_path / 'b'}")
    with Asking(*running.address) as client:
        client.create("spread", partitions=4)

    for name in "ab":
        assert len(list((tmp_path / name).glob("spread-*"))) == 2


@shows("num.partitions", "default.replication.factor")
def test_topics_get_as_many_partitions_and_replicas_as_told(
    make_node: MakeNode, topic: str
) -> None:
    with Asking(*make_node(num_partitions="2").address) as client:

        def create(name: str) -> tuple[int, int]:
            wanted = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1)
            (made,) = client.ask(CreateTopicsRequest(topics=[wanted]), 5).topics
            return made.error_code, made.num_partitions

        assert create(topic) == (0, 2)
        client.configure(BROKER, "", num_partitions="3")
        assert create(topic + "-more") == (0, 3)
        client.configure(BROKER, "1", default_replication_factor="2")
        assert create(topic + "-many") == (ErrorCode.INVALID_REPLICATION_FACTOR, -1)


@shows("auto.create.topics.enable", "delete.topic.enable")
def test_topics_come_and_go_only_if_that_is_on(make_node: MakeNode, topic: str) -> None:
    with Asking(*make_node().address) as client:

        def comes(name: str) -> int:
            asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
            return int(client.ask(asked, 4).topics[0].error_code)

        assert comes(topic) == 0
        client.configure(BROKER, "1", auto_create_topics_enable="false")
        assert comes(topic + "-more") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        client.configure(BROKER, "1", delete_topic_enable="false")
        with pytest.raises(AssertionError, match=r"delete\.topic\.enable"):
            client.delete(topic)


@shows("fetch.max.bytes")
def test_a_response_is_no_larger_than_told(make_node: MakeNode, topic: str) -> None:
    with Asking(*make_node().address) as client:
        client.create(topic)
        fill(client, topic)
        assert len(client.read(topic)) == 4
        client.configure(BROKER, "1", fetch_max_bytes="1200")

        assert len(client.read(topic)) == 2


@shows("max.incremental.fetch.session.cache.slots")
def test_no_more_sessions_are_remembered_than_told(make_node: MakeNode, topic: str) -> None:
    running = make_node(max_incremental_fetch_session_cache_slots="2")
    with Asking(*running.address) as client:
        client.create(topic)
        opened = [
            client.ask(session_request(0, 0, fetch_request(topic).topics), 11).session_id
            for _ in range(3)
        ]

        assert [session > 0 for session in opened] == [True, True, False]


@shows("log.retention.check.interval.ms")
def test_retention_looks_as_often_as_told(make_node: MakeNode, topic: str) -> None:
    running = make_node(log_retention_check_interval_ms=HOUR)
    with Asking(*running.address) as client:
        client.create(topic, retention_ms="1")
        fill(client, topic)
        assert client.start_and_end(topic) == (0, 4)
        client.configure(BROKER, "1", log_retention_check_interval_ms="1")

        running.until(lambda: partition_of(running, topic).log.log_start == 4)


@shows("log.flush.offset.checkpoint.interval.ms")
def test_logs_are_synced_and_written_down_as_often_as_told(make_node: MakeNode, topic: str) -> None:
    running = make_node(log_flush_offset_checkpoint_interval_ms=HOUR, recovery_bytes_max="0")
    with Asking(*running.address) as client:
        client.create(topic, durability="memory")
        fill(client, topic)
        log = partition_of(running, topic).log
        assert (log.flushed_end, log.recovery_point) == (0, 0)
        client.configure(BROKER, "1", log_flush_offset_checkpoint_interval_ms="1")

        running.until(lambda: log.flushed_end == 4 and log.recovery_point == 4)


@shows("log.cleaner.enable", "log.cleaner.backoff.ms")
def test_logs_are_compacted_if_and_as_often_as_told(make_node: MakeNode, topic: str) -> None:
    running = make_node(
        log_cleaner_enable="false",
        log_cleaner_backoff_ms="5",
        log_flush_offset_checkpoint_interval_ms="1",
        recovery_bytes_max="0",
    )
    with Asking(*running.address) as client:
        client.create(topic, cleanup_policy="compact", segment_bytes="600")
        fill_key(client, topic)
        log = partition_of(running, topic).log
        running.until(lambda: log.recovery_point == 4)
        assert log.clean_end == 0
        client.configure(BROKER, "1", log_cleaner_enable="true")
        running.until(lambda: log.clean_end == 3)
        client.configure(BROKER, "1", log_cleaner_backoff_ms=HOUR)
        time.sleep(0.05)
        fill_key(client, topic)
        running.until(lambda: log.recovery_point == 8)

        assert log.clean_end == 3


@shows("flush.threads")
def test_as_many_threads_sync_as_told(make_node: MakeNode) -> None:
    def flushers() -> int:
        return sum(one.name.startswith("flusher") for one in threading.enumerate())

    before = flushers()
    make_node(flush_threads="3")
    assert flushers() - before == 3


@shows("producer.id.expiration.ms")
def test_a_quiet_producer_is_forgotten_when_told(make_node: MakeNode, topic: str) -> None:
    running = make_node(log_retention_check_interval_ms="1")
    with Asking(*running.address) as client:
        client.create(topic)
        client.produce(topic, batch_of(b"x", producer=(client.new_producer(), 0, 0), timestamp=5))
        producers = partition_of(running, topic).log.producers
        assert len(producers) == 1
        client.configure(BROKER, "1", producer_id_expiration_ms="1")

        running.until(lambda: len(producers) == 0)


@shows("num.recovery.threads.per.data.dir")
def test_recovery_uses_as_many_threads_as_told(make_node: MakeNode) -> None:
    running = make_node(num_recovery_threads_per_data_dir="5")

    assert running.node.broker.directories[0]._recovery_threads == 5


@shows("disk.reserve.bytes")
def test_as_much_of_the_disk_is_reserved_as_told(make_node: MakeNode) -> None:
    running = make_node(disk_reserve_bytes="65536")
    reserve = running.node.broker.directories[0].path / FILE

    running.until(reserve.exists)
    running.until(lambda: reserve.stat().st_size == 65_536)


@shows("broker.session.timeout.ms")
def test_the_broker_is_alive_as_long_as_it_renews_its_lease(make_node: MakeNode) -> None:
    running = make_node(broker_session_timeout_ms="1000")
    ends = running.node._store._deadlines  # type: ignore[union-attr]
    (first,) = ends.values()

    running.until(lambda: next(iter(ends.values())) > first)
    assert running.call(lambda: running.node.broker.image.brokers)


@shows("controlled.shutdown.timeout.ms")
def test_a_shutdown_waits_no_longer_than_told(make_node: MakeNode, topic: str) -> None:
    running = make_node(controlled_shutdown_timeout_ms="300")
    with Asking(*running.address) as client:
        client.create(topic)
        client.produce(topic, batch_of(*[b"x" * 1_000] * 900))
        for number in range(40):
            client.send(fetch_request(topic), 4, number)
        client.receive_frame()
        began = time.monotonic()
        running.stop()

        assert 0.2 < time.monotonic() - began < 5


# --- the listener's -----------------------------------------------------------------------------


@shows("idempotency.broker.keys.max")
def test_so_many_idempotency_keys_of_all_partitions_are_remembered(
    make_node: MakeNode, topic: str
) -> None:
    running = make_node(idempotency_broker_keys_max="3")
    with Asking(*running.address) as client:
        for name in (topic, f"{topic}-b"):
            client.create(name)
            assert [stored_once(client, name, key).error_code for key in "a"] == [0]
        assert stored_once(client, topic, "b").error_code == 0
        refused = stored_once(client, f"{topic}-b", "b")
        assert refused.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert "idempotency.broker.keys.max" in (refused.error_message or "")
        assert stored_once(client, topic, "a").places[0].offset == 0, "what is known is known"

        client.configure(BROKER, "1", idempotency_broker_keys_max="4")
        assert stored_once(client, f"{topic}-b", "b").error_code == 0
        client.delete(topic)
        deadline = time.monotonic() + 20
        while stored_once(client, f"{topic}-b", "c").error_code:
            assert time.monotonic() < deadline, "keys of a topic that is gone are counted"


@shows("max.connections", "max.connections.per.ip")
@pytest.mark.parametrize("option", ["max.connections", "max.connections.per.ip"])
def test_no_more_connections_are_let_in_than_told(make_node: MakeNode, option: str) -> None:
    running = make_node()
    with Asking(*running.address) as first, Asking(*running.address) as second:
        assert ask_brokers(second)
        assert first.alter(BROKER, "1", {option: "2"}).error_code == 0
        with Asking(*running.address) as third, pytest.raises((HungUpError, ConnectionError)):
            ask_brokers(third)
        assert first.alter(BROKER, "1", {option: None}).error_code == 0
        with Asking(*running.address) as third:
            assert ask_brokers(third)


@shows("connections.max.idle.ms")
def test_a_quiet_connection_is_closed_when_told(make_node: MakeNode) -> None:
    running = make_node()
    with Asking(*running.address) as quiet, Asking(*running.address) as client:
        ask_brokers(quiet)
        client.configure(BROKER, "1", connections_max_idle_ms="1000")

        assert quiet.is_hung_up()


@shows("socket.request.max.bytes")
def test_a_larger_request_than_told_is_not_read(make_node: MakeNode, topic: str) -> None:
    running = make_node(socket_request_max_bytes="2000")
    with Asking(*running.address) as client:
        client.create(topic)
        assert client.produce(topic, BATCH).error_code == 0
        client.send_frame(struct.pack(">hhih", 3, 1, 1, -1) + bytes(2_000))

        assert client.is_hung_up()


@shows("socket.listen.backlog.size", "socket.receive.buffer.bytes")
def test_sockets_are_made_as_told(make_node: MakeNode) -> None:
    running = make_node(socket_listen_backlog_size="7", socket_receive_buffer_bytes="65536")
    port = running.address[1]
    (listening,) = [
        line.split()
        for line in Path("/proc/net/tcp").read_text().splitlines()
        if f":{port:04X} 00000000:0000 0A" in line
    ]

    assert listening
    listener = running.node._listener
    assert listener is not None
    (sock,) = listener._sockets
    assert sock.getsockopt(1, 8) == 2 * 65_536  # SO_RCVBUF, which Linux doubles


@shows(
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
)
@pytest.mark.parametrize(
    "option",
    [
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    ],
)
def test_copying_may_be_slowed_down_while_it_runs(client: Asking, option: str) -> None:
    """What it does is shown where there is something to copy."""
    outcomes = [client.alter(BROKER, "1", {option: one}) for one in ("1", "50000000", None)]
    assert [one.error_code for one in outcomes] == [0, 0, 0]
    for wrong in ("0", "-1", "fast"):
        assert client.alter(BROKER, "1", {option: wrong}).error_code == ErrorCode.INVALID_CONFIG


@shows(
    "replica.fetch.wait.max.ms",
    "replica.fetch.max.bytes",
    "replica.fetch.response.max.bytes",
    "replica.lag.time.max.ms",
)
def test_followers_ask_and_are_missed_as_told(tmp_path: Path, topic: str) -> None:
    options = {
        "replica.fetch.wait.max.ms": "123",
        "replica.fetch.max.bytes": "45678",
        "replica.fetch.response.max.bytes": "98765",
        "replica.lag.time.max.ms": "300",
    }
    with ThreadedCluster(tmp_path, 2, options=options) as cluster:
        peers, asked = cluster.node(2).broker.peers, []
        pose = peers.pose

        def listen(node: NodeId, question: Any, *rest: Any, **more: Any) -> bool:
            asked.append(question)
            return pose(node, question, *rest, **more)

        peers.pose = listen  # type: ignore[method-assign]
        cluster.create(topic, [1, 2])
        with cluster.client(1) as client:
            assert client.produce(topic, BATCH).error_code == 0
            cluster.cut(2, 1)
            assert client.produce(topic, BATCH, acks=1).error_code == 0
        cluster.until(lambda: cluster.partition(topic).in_sync == (1,))

    fetches = [one for one in asked if isinstance(one, Questions)]
    assert {(one.max_wait_ms, one.max_bytes) for one in fetches} == {(123, 98_765)}
    named = {each.max_bytes for one in fetches for each in one.asked}
    assert 45_678 in named
    assert named <= {0, 45_678}


def test_what_is_shown_elsewhere_is_there() -> None:
    for option, path in ELSEWHERE.items():
        text = (TESTS / path).read_text()
        named = option in text or option.replace(".", "_") in text
        assert named, f"{path} does not mention {option}"


def test_every_option_of_a_broker_is_shown_to_do_something() -> None:
    names = {one.name for one in all_options()} - {one.name for one in options_of(TopicSettings)}

    assert names <= shown | set(ELSEWHERE)


def test_a_topics_option_is_the_brokers_default(make_node: MakeNode, topic: str) -> None:
    with Asking(*make_node(message_max_bytes="100").address) as client:
        client.create(topic)
        assert client.produce(topic, BATCH).error_code == ErrorCode.MESSAGE_TOO_LARGE
        client.configure(BROKER, "", message_max_bytes="10000")
        assert client.produce(topic, BATCH).error_code == 0
        client.configure(BROKER, "1", message_max_bytes="100")
        assert client.produce(topic, BATCH).error_code == ErrorCode.MESSAGE_TOO_LARGE
        client.configure(TOPIC, topic, max_message_bytes="10000")
        assert client.produce(topic, BATCH).error_code == 0


def test_options_changed_live_are_obeyed_after_a_restart(make_node: MakeNode) -> None:
    first: ThreadedNode = make_node()
    with Asking(*first.address) as client:
        client.configure(BROKER, "1", max_connections="1")
    first.stop()
    again = make_node()

    with Asking(*again.address) as client:
        assert ask_brokers(client)
        with Asking(*again.address) as second, pytest.raises((HungUpError, ConnectionError)):
            ask_brokers(second)
