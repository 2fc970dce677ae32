"""Fetch: what is read, how much of it, how long is waited, and what is refused."""

import time
from uuid import uuid4

import pytest

from tests.apis.asking import Asking, fetch_request, records_in
from tests.apis.conftest import MakeNode
from tests.apis.kit import ThreadedNode, batch_of, versions
from waystation.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from waystation.model.errors import ErrorCode
from waystation.model.ids import NO_TOPIC_ID
from waystation.records.header import batches
from waystation.wire.versions import ApiKey

LONG_MS = 15_000


def size_of(found: object) -> int:
    return len(bytes(found.records))  # type: ignore[attr-defined]


@pytest.mark.parametrize("version", versions(ApiKey.FETCH))
def test_records_are_read_in_every_version(client: Asking, topic: str, version: int) -> None:
    client.create(topic)
    client.produce(topic, batch_of(b"a", b"b"))
    client.produce(topic, batch_of(b"c"))
    found = client.fetch(topic, 0, version=version)

    assert found.error_code == 0
    assert found.high_watermark == found.last_stable_offset == 3
    assert found.log_start_offset == (0 if version >= 5 else -1)
    assert found.aborted_transactions is None
    assert [(one.offset, one.value) for one in records_in(found)] == [
        (0, b"a"),
        (1, b"b"),
        (2, b"c"),
    ]


def test_an_offset_inside_a_batch_gives_the_whole_batch(client: Asking, topic: str) -> None:
    client.create(topic)
    client.produce(topic, batch_of(b"a", b"b", b"c"))

    assert [one.offset for one in client.read(topic, 2)] == [0, 1, 2]


def test_the_end_of_the_log_is_empty_and_no_error(client: Asking, topic: str) -> None:
    client.create(topic)
    client.produce(topic, batch_of(b"a"))
    found = client.fetch(topic, 1)

    assert (found.error_code, found.high_watermark, size_of(found)) == (0, 1, 0)


@pytest.mark.parametrize("offset", [-1, 2, 1 << 60])
def test_an_offset_outside_the_log_is_out_of_range(client: Asking, topic: str, offset: int) -> None:
    client.create(topic)
    client.produce(topic, batch_of(b"a"))
    found = client.fetch(topic, offset)

    assert found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (found.high_watermark, found.log_start_offset) == (-1, -1)


def test_deleted_records_are_out_of_range(client: Asking, topic: str) -> None:
    client.create(topic)
    client.produce(topic, batch_of(b"a"))
    client.produce(topic, batch_of(b"b"))
    client.delete_records(topic, 1)

    assert client.fetch(topic, 0).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    found = client.fetch(topic, 1)
    assert (found.log_start_offset, found.high_watermark) == (1, 2)


def test_a_partition_that_is_not_there_is_unknown(client: Asking, topic: str) -> None:
    client.create(topic)
    topic_id = client.topic_id(topic)

    assert client.fetch("absent", 0).error_code == 3
    assert client.fetch(topic, 0, partition=1).error_code == 3
    assert client.fetch("", 0, version=13, topic_id=topic_id, partition=1).error_code == 3
    for unknown in (uuid4(), NO_TOPIC_ID):
        found = client.fetch("", 0, version=13, topic_id=unknown)
        assert found.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_topic_made_anew_is_another_topic(client: Asking, topic: str) -> None:
    client.create(topic)
    client.produce(topic, batch_of(b"old"))
    old = client.topic_id(topic)
    client.delete(topic)
    client.create(topic)

    assert client.fetch("", 0, version=13, topic_id=old).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert client.read(topic) == []


def test_another_leader_epoch_is_fenced_or_unknown(make_node: MakeNode, topic: str) -> None:
    first = make_node()
    with Asking(*first.address) as client:
        client.create(topic)
        client.produce(topic, batch_of(b"a"))
    first.stop()
    with Asking(*make_node().address) as client:
        assert client.fetch(topic, 0, current_leader_epoch=1).error_code == 0
        old = client.fetch(topic, 0, current_leader_epoch=0)
        assert old.error_code == ErrorCode.FENCED_LEADER_EPOCH
        new = client.fetch(topic, 0, current_leader_epoch=2)
        assert new.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        # The same where there is nothing to read.
        end = client.fetch(topic, 1, current_leader_epoch=0)
        assert end.error_code == ErrorCode.FENCED_LEADER_EPOCH


def test_a_reader_that_went_astray_is_told_where(make_node: MakeNode, topic: str) -> None:
    first = make_node()
    with Asking(*first.address) as client:
        client.create(topic)
        client.produce(topic, batch_of(b"a"))
    first.stop()
    with Asking(*make_node().address) as client:
        client.produce(topic, batch_of(b"b"))
        agreeing = client.fetch(topic, 1, last_fetched_epoch=0, version=12)
        assert agreeing.diverging_epoch is None
        assert len(records_in(agreeing)) == 1
        astray = client.fetch(topic, 2, last_fetched_epoch=0, version=12)
        assert astray.diverging_epoch is not None
        assert (astray.diverging_epoch.epoch, astray.diverging_epoch.end_offset) == (0, 1)
        assert size_of(astray) == 0
        lost = client.fetch(topic, 0, last_fetched_epoch=9, version=12)
        assert lost.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_who_reads_only_committed_records_gets_a_list_of_aborts(client: Asking, topic: str) -> None:
    client.create(topic)
    client.produce(topic, batch_of(b"a"))
    found = client.fetch(topic, 0, isolation_level=1)

    assert found.aborted_transactions == []
    assert found.last_stable_offset == 1
    assert len(records_in(found)) == 1


# --- how much -----------------------------------------------------------------------------------


def test_the_first_batch_comes_whole_however_small_the_limits(client: Asking, topic: str) -> None:
    client.create(topic)
    batch = batch_of(b"x" * 500)
    client.produce(topic, batch)
    client.produce(topic, batch)

    for limits in (
        {"partition_max_bytes": 0},
        {"partition_max_bytes": -1},
        {"max_bytes": 0},
        {"max_bytes": -5},
        {"partition_max_bytes": 10, "max_bytes": 10},
    ):
        assert size_of(client.fetch(topic, 0, **limits)) == len(batch)


def test_no_batch_is_cut(client: Asking, topic: str) -> None:
    client.create(topic)
    batch = batch_of(b"x" * 100)
    for _ in range(10):
        client.produce(topic, batch)
    for limit in range(len(batch), 4 * len(batch), 50):
        found = client.fetch(topic, 0, partition_max_bytes=limit)

        assert size_of(found) == limit // len(batch) * len(batch)


def test_the_limit_of_the_response_counts_over_partitions(client: Asking, topic: str) -> None:
    client.create(topic, partitions=3)
    batch = batch_of(b"x" * 400)
    for partition in range(3):
        client.produce(topic, batch, partition=partition)
    asked = [
        FetchPartition(partition=n, fetch_offset=0, partition_max_bytes=1 << 20) for n in range(3)
    ]
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=2 * len(batch) + 10,
        topics=[FetchTopic(topic=topic, partitions=asked)],
    )
    found = client.ask(request, 11).responses[0].partitions

    assert [len(bytes(one.records)) for one in found] == [len(batch), len(batch), 0]
    assert [one.error_code for one in found] == [0, 0, 0]
    assert [one.high_watermark for one in found] == [1, 1, 1]


def test_the_broker_has_the_last_word_on_the_size(make_node: MakeNode, topic: str) -> None:
    with Asking(*make_node(fetch_max_bytes="1024").address) as client:
        client.create(topic)
        batch = batch_of(b"x" * 400)
        for _ in range(5):
            client.produce(topic, batch)

        assert size_of(client.fetch(topic, 0)) == 2 * len(batch)


# --- how long -----------------------------------------------------------------------------------


def test_a_long_poll_wakes_when_something_is_produced(
    node: ThreadedNode, client: Asking, other: Asking, topic: str
) -> None:
    client.create(topic)
    client.send(fetch_request(topic, 0, max_wait_ms=LONG_MS, min_bytes=1), 11)
    node.until(lambda: len(node.node.broker.long_polls) == 1)
    began = time.monotonic()
    other.produce(topic, batch_of(b"news"))
    found = client.receive(ApiKey.FETCH, 11).responses[0].partitions[0]

    assert time.monotonic() - began < LONG_MS / 1_000 / 3
    assert [one.value for one in records_in(found)] == [b"news"]
    assert node.call(lambda: len(node.node.broker.long_polls)) == 0


def test_a_long_poll_waits_for_enough_bytes(
    node: ThreadedNode, client: Asking, other: Asking, topic: str
) -> None:
    client.create(topic)
    batch = batch_of(b"x" * 100)
    client.send(fetch_request(topic, 0, max_wait_ms=LONG_MS, min_bytes=2 * len(batch)), 11)
    node.until(lambda: len(node.node.broker.long_polls) == 1)
    other.produce(topic, batch)
    assert not client.has_reply(0.05)
    other.produce(topic, batch)

    found = client.receive(ApiKey.FETCH, 11).responses[0].partitions[0]
    assert size_of(found) == 2 * len(batch)


def test_a_long_poll_ends_with_what_there_is(client: Asking, topic: str) -> None:
    client.create(topic)
    client.produce(topic, batch_of(b"little"))
    began = time.monotonic()
    found = client.fetch(topic, 0, max_wait_ms=80, min_bytes=1 << 20)

    assert 0.08 <= time.monotonic() - began < 2
    assert [one.value for one in records_in(found)] == [b"little"]


def test_who_waits_for_nothing_is_answered_at_once(client: Asking, topic: str) -> None:
    client.create(topic)
    began = time.monotonic()
    client.fetch(topic, 0, max_wait_ms=LONG_MS, min_bytes=0)
    client.ask(FetchRequest(max_wait_ms=LONG_MS, min_bytes=1), 4)

    assert time.monotonic() - began < LONG_MS / 1_000 / 3


def test_an_error_ends_the_wait(
    node: ThreadedNode, client: Asking, other: Asking, topic: str
) -> None:
    client.create(topic)
    assert client.fetch("absent", 0, max_wait_ms=LONG_MS, min_bytes=1).error_code == 3

    client.send(fetch_request(topic, 0, max_wait_ms=LONG_MS, min_bytes=1), 11)
    node.until(lambda: len(node.node.broker.long_polls) == 1)
    other.delete(topic)
    found = client.receive(ApiKey.FETCH, 11).responses[0].partitions[0]
    assert found.error_code in (3, ErrorCode.NOT_LEADER_OR_FOLLOWER)


def test_truncation_ends_the_wait_of_who_lost_its_place(
    node: ThreadedNode, client: Asking, other: Asking, topic: str
) -> None:
    client.create(topic)
    batch = batch_of(b"x" * 100)
    other.produce(topic, batch)
    client.send(fetch_request(topic, 0, max_wait_ms=LONG_MS, min_bytes=1 << 19), 11)
    node.until(lambda: len(node.node.broker.long_polls) == 1)
    other.delete_records(topic, -1)

    found = client.receive(ApiKey.FETCH, 11).responses[0].partitions[0]
    assert found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_the_wait_of_a_client_that_leaves_is_over(node: ThreadedNode, topic: str) -> None:
    with Asking(*node.address) as client:
        client.create(topic)
        for _ in range(3):
            client.send(fetch_request(topic, 0, max_wait_ms=0x7FFFFFFF, min_bytes=1), 11)
        node.until(lambda: len(node.node.broker.long_polls) == 3)
        partition = node.node.broker.replicas.get(topic, 0)
        assert len(partition.read_waiters) == 3

    node.until(lambda: len(node.node.broker.long_polls) == 0)
    assert len(partition.read_waiters) == 0


def test_large_fetches_do_not_enter_the_process(
    node: ThreadedNode, client: Asking, topic: str
) -> None:
    client.create(topic)
    for _ in range(4):
        client.produce(topic, batch_of(*[b"x" * 1_000] * 200))
    found = client.fetch(topic, 0)

    assert sum(1 for _ in batches(bytes(found.records))) == 4  # type: ignore[arg-type]
    families = {one.name: one for one in node.call(node.node.registry.snapshot)}
    assert families["waystation_sent_by_sendfile_bytes_total"].samples[0].value >= size_of(found)
