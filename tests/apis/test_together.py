"""Everything at once: many clients make, fill, read, cut, change and delete the same topics.

Whatever they do to each other, no request fails for a reason of ours, the data directory stays
online, every background task goes on, and what a partition answers makes sense by itself.
"""

import threading
from collections.abc import Callable
from random import Random

import pytest

from tests.apis.asking import TOPIC, Asking, fetch_request, produce_request, records_in
from tests.apis.conftest import MakeNode
from tests.apis.kit import batch_of
from tests.support.soak import count
from waystation.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from waystation.messages.create_topics import CreatableTopic, CreateTopicsRequest
from waystation.messages.delete_topics import DeleteTopicsRequest
from waystation.messages.metadata import MetadataRequest
from waystation.model.errors import ErrorCode

CLIENTS = 4
STEPS = count(250, 5_000)
TOPICS = [f"shared-{number}" for number in range(3)]

# What another client's doings may lead to.
EXPECTED = {
    ErrorCode.NONE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.TOPIC_ALREADY_EXISTS,
    ErrorCode.INVALID_PARTITIONS,
    ErrorCode.OFFSET_OUT_OF_RANGE,
}


class Busybody:
    """One client that does something else each time."""

    def __init__(self, address: tuple[str, int], seed: int) -> None:
        self.address = address
        self.random = Random(seed)
        self.codes: set[int] = set()
        self.problem: BaseException | None = None

    def run(self) -> None:
        try:
            with Asking(*self.address) as client:
                for _ in range(STEPS):
                    self.step(client)
        except BaseException as problem:
            self.problem = problem

    def step(self, client: Asking) -> None:
        doings: list[tuple[int, Callable[[Asking, str], int]]] = [
            (8, self.create),
            (2, self.delete),
            (30, self.produce),
            (30, self.fetch),
            (6, self.truncate),
            (6, self.change),
            (4, self.grow),
            (4, self.look),
            (10, self.leave),
        ]
        weights = [weight for weight, _ in doings]
        (_, doing) = self.random.choices(doings, weights)[0]
        self.codes.add(doing(client, self.random.choice(TOPICS)))

    def create(self, client: Asking, topic: str) -> int:
        wanted = CreatableTopic(name=topic, num_partitions=2, replication_factor=1)
        return int(client.ask(CreateTopicsRequest(topics=[wanted]), 7).topics[0].error_code)

    def delete(self, client: Asking, topic: str) -> int:
        request = DeleteTopicsRequest(topic_names=[topic], timeout_ms=9_000)
        return int(client.ask(request, 5).responses[0].error_code)

    def produce(self, client: Asking, topic: str) -> int:
        acks = self.random.choice([-1, 1])
        size = self.random.choice([10, 1_000, 20_000])
        told = client.produce(topic, batch_of(b"x" * size), acks=acks, partition=self.either())
        return told.error_code

    def fetch(self, client: Asking, topic: str) -> int:
        wait_ms = self.random.choice([0, 0, 5])
        at = self.random.choice([0, 0, 3, 50])
        found = client.fetch(topic, at, partition=self.either(), max_wait_ms=wait_ms, min_bytes=1)
        offsets = [one.offset for one in records_in(found)]
        assert offsets == sorted(set(offsets))
        assert not offsets or offsets[-1] < found.high_watermark
        return found.error_code

    def truncate(self, client: Asking, topic: str) -> int:
        return int(client.delete_records(topic, self.random.choice([-1, 1])).error_code)

    def change(self, client: Asking, topic: str) -> int:
        option, value = self.random.choice(
            [
                ("segment.bytes", "2000"),
                ("segment.bytes", "1000000"),
                ("segment.ms", "1"),
                ("retention.ms", "1"),
                ("retention.ms", "1000000"),
                ("durability", "memory"),
                ("durability", "disk"),
                ("file.delete.delay.ms", "0"),
            ]
        )
        return client.alter(TOPIC, topic, {option: value}).error_code

    def grow(self, client: Asking, topic: str) -> int:
        wanted = self.random.randint(2, 4)
        more = CreatePartitionsTopic(name=topic, count=wanted, assignments=None)
        request = CreatePartitionsRequest(topics=[more], timeout_ms=9_000)
        return int(client.ask(request, 3).results[0].error_code)

    def look(self, client: Asking, topic: str) -> int:
        known = client.ask(MetadataRequest(topics=None), 9)
        assert len(known.brokers) == 1
        return 0

    def leave(self, client: Asking, topic: str) -> int:
        """Ask for things and do not wait for the answers."""
        with Asking(*self.address) as hasty:
            hasty.send(fetch_request(topic, 0, max_wait_ms=60_000, min_bytes=1 << 20), 11)
            hasty.send(produce_request(topic, batch_of(b"late"), self.either()), 9)
        return 0

    def either(self) -> int:
        return self.random.randint(0, 1)


@pytest.mark.parametrize("seed", range(2))
def test_clients_that_get_in_each_others_way_break_nothing(make_node: MakeNode, seed: int) -> None:
    running = make_node(
        log_retention_check_interval_ms="1",
        log_flush_offset_checkpoint_interval_ms="1",
        recovery_bytes_max="0",
        log_retention_ms="1000000",
    )
    background = len(running.node.broker._tasks)
    clients = [Busybody(running.address, 1_000 * seed + number) for number in range(CLIENTS)]
    threads = [threading.Thread(target=one.run) for one in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    problems = [one.problem for one in clients if one.problem is not None]
    assert not problems, problems[0]
    unexpected = set().union(*(one.codes for one in clients)) - EXPECTED
    assert not unexpected, f"seed {seed}: {sorted(unexpected)}"
    broker = running.node.broker
    assert [one.offline for one in broker.directories] == [None]
    assert len(broker._tasks) == background, "a background task ended"
    values = {one.name: one.samples for one in running.call(running.node.registry.snapshot)}
    assert values["waystation_requests_failed_total"][0].value == 0
    running.until(lambda: len(broker.long_polls) == 0)
    with Asking(*running.address) as client:
        client.create("after")
        assert client.produce("after", batch_of(b"x")).error_code == 0
