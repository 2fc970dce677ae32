"""Views where there are several brokers: who leads a topic answers for its views."""

import threading
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.apis.asking import Asking, fetch_request, records_in
from tests.apis.clustering import ThreadedCluster
from tests.apis.viewing import keyed, make_view, walk
from waystation.messages.metadata import MetadataRequest, MetadataRequestTopic
from waystation.model.errors import ErrorCode
from waystation.wire.versions import ApiKey

YES = "key = 'yes'"
EVERYWHERE = (1, 2, 3)
LONG_MS = 15_000


@pytest.fixture(scope="module")
def racks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadedCluster]:
    options = {
        number: {"broker.rack": rack} for number, rack in zip(EVERYWHERE, "abc", strict=True)
    }
    with ThreadedCluster(tmp_path_factory.mktemp("racks"), options_of=options) as running:
        yield running


@pytest.fixture
def view(racks: ThreadedCluster, topic: str) -> str:
    """A view of a topic that 1 leads and 2 holds, too; two of six match."""
    racks.create(topic, [1, 2])
    with racks.client(1) as client:
        make_view(client, f"v-{topic}", topic, YES)
        client.produce(topic, keyed("no", "yes", "no"))
        client.produce(topic, keyed("no", "no", "yes"))
    racks.settle()
    return f"v-{topic}"


def test_everybody_shows_it_and_only_the_leader_answers(racks: ThreadedCluster, view: str) -> None:
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=view)])
    for number in EVERYWHERE:
        with racks.client(number) as client:
            (told,) = client.ask(asked, 12).topics
            found = client.fetch(view, 0, version=16)

        assert told.partitions[0].leader_id == 1
        if number == 1:
            assert [one.offset for one in records_in(found)] == [1, 5]
        else:
            assert found.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert found.current_leader.leader_id == 1


def test_who_names_its_rack_reads_from_a_replica_there(racks: ThreadedCluster, view: str) -> None:
    request = fetch_request(view, 0, max_wait_ms=LONG_MS, min_bytes=1)
    request.rack_id = "b"
    with racks.client(1) as client:
        sent = client.ask(request, 11).responses[0].partitions[0]
    racks.until(
        lambda: racks.node(2).broker.replicas.get(view.removeprefix("v-"), 0).high_watermark == 6
    )
    with racks.client(2) as client:
        found = client.ask(request, 11).responses[0].partitions[0]

    assert (sent.preferred_read_replica, bytes(sent.records)) == (2, b"")
    assert found.error_code == ErrorCode.NONE
    assert [one.offset for one in records_in(found)] == [1, 5]


def test_who_waits_is_told_when_another_leads(racks: ThreadedCluster, view: str) -> None:
    topic = view.removeprefix("v-")
    with racks.client(1) as client:
        client.send(fetch_request(view, 6, max_wait_ms=LONG_MS, min_bytes=1), 11)
        assert not client.has_reply(0.1)
        racks.rewrite(topic, leader=2)
        told = client.receive(ApiKey.FETCH, 11).responses[0].partitions[0]
    racks.until(lambda: racks.node(2).broker.replicas.get(topic, 0).high_watermark == 6)
    with racks.client(2) as client:
        shown = walk(client, view)

    assert told.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert shown.offsets == [1, 5]


def test_a_reader_loses_and_repeats_nothing_when_the_leader_dies(racks: ThreadedCluster) -> None:
    """The view's leader, which is its topic's, is killed while both are read and written."""
    topic, count = "mortal", 3_000
    racks.create(topic, [3, 1, 2])
    with racks.client(3) as client:
        make_view(client, "v-mortal", topic, YES)
    racks.settle()
    producer = Producer(
        {"bootstrap.servers": racks.bootstrap, "enable.idempotence": True, "linger.ms": 1}
    )
    consumer = Consumer({"bootstrap.servers": racks.bootstrap, "group.id": "none"})
    consumer.assign([TopicPartition("v-mortal", 0, 0)])
    kill = threading.Thread(target=racks.kill, args=(3,))
    found: list[bytes | None] = []
    for number in range(count):
        key = b"yes" if number % 7 == 0 else b"no"
        producer.produce(topic, b"%d" % number, key, partition=0)
        producer.poll(0)
        if number == count // 3:
            found += [one.value() for one in consumer.consume(20, 10)]
            kill.start()
    assert producer.flush(30) == 0
    kill.join()
    wanted = [b"%d" % number for number in range(0, count, 7)]
    while len(found) < len(wanted) and (some := consumer.consume(len(wanted) - len(found), 20)):
        assert all(one.error() is None for one in some)
        found += [one.value() for one in some]
    consumer.close()

    assert found == wanted
    with Asking(*racks.node(racks.partition(topic).leader or 0).address) as client:
        assert [one.value for one in walk(client, "v-mortal").records] == wanted
