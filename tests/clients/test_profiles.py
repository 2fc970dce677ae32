"""A broker with a profile, as librdkafka's users see it."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewTopic,
    ResourceType,
)

from tests.support.command import COMMAND
from waystation.model.settings import PROFILES
from waystation.testing.process import BrokerProcess

DEFAULT = ConfigSource.DEFAULT_CONFIG.value
SIZES = (100, 40_000)
"""One that goes through the journal, and one that does not."""
COUNT = 300


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    options = {"profile": "throughput"}
    with BrokerProcess(tmp_path_factory.mktemp("busy") / "data", options=options) as running:
        yield running


@pytest.fixture
def admin(busy: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": busy.bootstrap})


def configs(
    admin: AdminClient, name: str, kind: ResourceType = ResourceType.TOPIC
) -> dict[str, ConfigEntry]:
    resource = ConfigResource(kind, name)
    return admin.describe_configs([resource])[resource].result(10)  # type: ignore[no-any-return]


def test_clients_see_what_a_profile_sets_and_that_it_is_one(admin: AdminClient, topic: str) -> None:
    admin.create_topics([NewTopic(topic, 1)])[topic].result(10)
    inherited = configs(admin, topic)

    assert inherited["profile"].value == "throughput"
    assert inherited["profile"].source == ConfigSource.STATIC_BROKER_CONFIG.value
    assert inherited["flush.linger.ms"].value == "20"
    assert inherited["fetch.linger.ms"].value == "10"
    assert inherited["flush.linger.ms"].source == DEFAULT
    assert "profile" in inherited["flush.linger.ms"].synonyms

    word = ConfigEntry("profile", "latency", incremental_operation=AlterConfigOpType.SET)
    own = ConfigEntry("fetch.linger.ms", "7", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[word, own])
    admin.incremental_alter_configs([resource])[resource].result(10)
    altered = configs(admin, topic)

    assert altered["profile"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert (altered["flush.linger.ms"].value, altered["flush.linger.ms"].source) == ("0", DEFAULT)
    assert altered["fetch.linger.ms"].value == "7"
    assert altered["fetch.linger.ms"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value


def test_a_broker_tells_its_own_options_and_its_topics_defaults(admin: AdminClient) -> None:
    broker = configs(admin, "1", ResourceType.BROKER)

    assert (broker["flush.linger.ms"].value, broker["flush.linger.ms"].source) == ("20", DEFAULT)
    assert broker["socket.read.linger.ms"].value == "1"
    assert broker["durability"].value == "disk"


def test_help_and_the_list_of_options_know_profiles() -> None:
    def said(*words: str) -> str:
        done = subprocess.run([*COMMAND, *words], capture_output=True, text=True, check=True)
        return done.stdout

    assert "--profile [balanced|latency|throughput]" in said("serve", "--help")
    assert "--profile [balanced|latency|throughput]" in said("topic", "create", "--help")
    assert "flush.linger.ms = -1, latency: 0, throughput: 20, live" in said("serve", "--options")


@pytest.mark.parametrize("profile", PROFILES)
def test_what_was_acknowledged_survives_a_crash_under_every_profile(
    tmp_path: Path, topic: str, profile: str
) -> None:
    """The broker's unsynced writes die with it, as in a power failure."""
    acknowledged: list[tuple[int, int]] = []

    def note(error: object, message: Message) -> None:
        if error is None:
            acknowledged.append((message.partition(), message.offset()))

    broker = BrokerProcess(tmp_path / "data", options={"profile": profile}, volatile=True)
    with broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic(topic, 3)])[topic].result(10)
        producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.num.messages": 5})
        for number in range(COUNT):
            value = b"x" * SIZES[number % 2]
            producer.produce(topic, value, partition=number % 3, on_delivery=note)
        while len(acknowledged) < COUNT // 3:
            producer.poll(10)
        broker.kill()
        producer.purge()
        producer.flush(10)
        broker.start()
        ends = ends_of(broker.bootstrap, topic)

    assert acknowledged
    assert all(offset < ends[partition] for partition, offset in acknowledged)


def ends_of(bootstrap: str, topic: str) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "ends"})
    try:
        return {
            number: consumer.get_watermark_offsets(TopicPartition(topic, number), 20)[1]
            for number in range(3)
        }
    finally:
        consumer.close()
