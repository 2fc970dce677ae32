"""Queues that choose, queues over transactions, and queues that outlive their broker."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.apis.conftest import MakeNode
from tests.apis.kit import ThreadedNode, batch_of
from tests.apis.sharing import ACCEPT, GROUP, RELEASE, Sharing, messages, ranges
from tests.apis.test_read_committed import ALICE, BOB, Transactions
from waystation.records.batch import BatchBuilder
from waystation.records.compression import Codec
from waystation.runtime.clock import SystemClock


@pytest.fixture
def ann(node: ThreadedNode, topic: str) -> Iterator[Sharing]:
    with Sharing(*node.address) as connected:
        connected.group = topic
        yield connected


@pytest.fixture
def bob(node: ThreadedNode, topic: str) -> Iterator[Sharing]:
    with Sharing(*node.address) as connected:
        connected.group, connected.member = topic, "bob"
        yield connected


def offsets(reply: Any) -> list[int]:
    return [offset for offset, _ in messages(reply)]


# --- order by key ---------------------------------------------------------------------------


def keyed(ann: Sharing, topic: str, keys: str, codec: Codec = Codec.NONE) -> UUID:
    """A topic with one message per letter, in batches of four; blanks have no key."""
    ann.create(topic)
    for at in range(0, len(keys), 4):
        some = [None if key == " " else key.encode() for key in keys[at : at + 4]]
        batch = batch_of(*(b"%d" % (at + n) for n in range(len(some))), keys=some, codec=codec)
        assert ann.produce(topic, batch).error_code == 0
    return ann.begin(topic)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_of_each_key_one_message_is_out_at_a_time(
    ann: Sharing, bob: Sharing, topic: str, codec: Codec
) -> None:
    ann.configure(GROUP, topic, share_order="key")
    topic_id = keyed(ann, topic, "aabacb a", codec)

    first = ann.take(topic_id)
    assert offsets(first) == [0, 2, 4, 6]  # a, b, c and the one without a key
    assert offsets(bob.take(topic_id, max_wait_ms=50)) == []

    assert ann.say(topic_id, [(0, 0, [ACCEPT]), (2, 2, [RELEASE])]).error_code == 0
    second = bob.take(topic_id, partitions=())
    assert ranges(second) == [(1, 1, 1), (2, 2, 2)]
    assert messages(second) == [(1, b"1"), (2, b"2")]

    assert bob.say(topic_id, [(1, 2, [ACCEPT])]).error_code == 0
    assert offsets(bob.take(topic_id, partitions=())) == [3, 5]


def test_order_by_key_holds_after_another_leader_has_loaded_the_queue(
    ann: Sharing, bob: Sharing, topic: str
) -> None:
    ann.configure(GROUP, topic, share_order="key")
    topic_id = keyed(ann, topic, "abab")
    ann.take(topic_id)
    ann.say(topic_id, [(0, 0, [ACCEPT])])
    ann.say(topic_id, [], epoch=-1)  # nobody reads it: it is loaded again

    assert ranges(bob.take(topic_id)) == [(1, 1, 2), (2, 2, 1)]


def test_a_group_that_changes_its_order_gets_a_new_queue(
    ann: Sharing, bob: Sharing, topic: str
) -> None:
    topic_id = keyed(ann, topic, "aaa")
    assert offsets(ann.take(topic_id, max_records=1)) == [0, 1, 2]

    ann.configure(GROUP, topic, share_order="key")

    assert offsets(bob.take(topic_id)) == [0]


# --- priorities -----------------------------------------------------------------------------


def test_higher_priorities_go_first(ann: Sharing, topic: str) -> None:
    ann.configure(GROUP, topic, share_priority="true")
    ann.create(topic)
    builder = BatchBuilder()
    for number, priority in enumerate([b"0", b"9", None, b"5", b"many", b"9"]):
        headers = () if priority is None else (("priority", priority),)
        builder.append(None, b"%d" % number, headers, timestamp=SystemClock().now())
    ann.produce(topic, builder.build())
    topic_id = ann.begin(topic)

    seen = []
    for _ in range(6):
        reply = ann.take(topic_id, max_records=1)
        seen += offsets(reply)

    assert seen == [1, 5, 3, 0, 2, 4]


# --- transactions ---------------------------------------------------------------------------


def test_only_committed_messages_are_given_where_the_group_says_so(
    node: ThreadedNode, ann: Sharing, topic: str
) -> None:
    ann.configure(GROUP, topic, share_isolation_level="read_committed")
    ann.create(topic)
    topic_id = ann.begin(topic)
    writes = Transactions(node, topic)
    writes.write(ALICE, b"0", b"1")
    writes.write(BOB, b"2")
    ann.produce(topic, batch_of(b"3"))
    ann.send_take(topic_id)
    assert not ann.has_reply(0.05)

    writes.end(ALICE, commit=False)  # 4
    assert not ann.has_reply(0.05)
    writes.end(BOB, commit=True)  # 5

    first = ann.taken()
    assert ranges(first) == [(2, 3, 1)]
    assert messages(first) == [(2, b"2"), (3, b"3")]
    assert ann.say(topic_id, [(2, 3, [ACCEPT])]).error_code == 0
    ann.produce(topic, batch_of(b"6"))
    assert ranges(ann.take(topic_id)) == [(6, 6, 1)]


@pytest.mark.parametrize("order", ["none", "key"])
def test_markers_are_no_messages(node: ThreadedNode, ann: Sharing, topic: str, order: str) -> None:
    ann.configure(GROUP, topic, share_order=order)
    ann.create(topic)
    topic_id = ann.begin(topic)
    writes = Transactions(node, topic)
    writes.write(ALICE, b"0")
    writes.end(ALICE, commit=False)
    ann.produce(topic, batch_of(b"2"))

    assert ranges(ann.take(topic_id)) == [(0, 0, 1), (2, 2, 1)]


# --- restarts -------------------------------------------------------------------------------

FEW = {
    "share_coordinator_state_topic_num_partitions": "1",
    "offsets_topic_num_partitions": "1",
}


def test_a_restart_knows_what_was_settled_and_how_often_the_rest_was_delivered(
    make_node: MakeNode,
) -> None:
    first = make_node(**FEW)
    with Sharing(*first.address) as ann:
        ann.create("t")
        for number in range(6):
            ann.produce("t", batch_of(b"%d" % number))
        topic_id = ann.begin("t")
        ann.take(topic_id)
        ann.say(topic_id, [(0, 1, [ACCEPT]), (3, 3, [RELEASE]), (4, 4, [ACCEPT])])
    first.stop()

    second = make_node(**FEW)
    with Sharing(*second.address) as ann:
        reply = ann.take(topic_id)
        assert ranges(reply) == [(2, 3, 2), (5, 5, 2)]
        assert messages(reply) == [(2, b"2"), (3, b"3"), (5, b"5")]
        assert ann.say(topic_id, [(2, 3, [ACCEPT]), (5, 5, [ACCEPT])]).error_code == 0
        ann.produce("t", batch_of(b"6", b"7"))
        assert ranges(ann.take(topic_id)) == [(6, 7, 1)]


@pytest.mark.parametrize(
    ("reset", "given"), [("earliest", [0, 1]), ("latest", [2]), ("by", [0, 1])]
)
def test_a_group_says_where_its_queues_begin(
    node: ThreadedNode, ann: Sharing, topic: str, reset: str, given: list[int]
) -> None:
    policy = "by_duration:PT1H" if reset == "by" else reset
    ann.configure(GROUP, topic, share_auto_offset_reset=policy)
    ann.create(topic)
    ann.produce(topic, batch_of(b"0", b"1"))
    topic_id = ann.begin(topic, start=-1)
    ann.send_take(topic_id)
    node.until(lambda: any(one.queue_id.topic_id == topic_id for one in node.node.broker.queues))
    if reset == "latest":
        assert not ann.has_reply(0.05)
        with Sharing(*node.address) as other:
            other.produce(topic, batch_of(b"2"))

    assert offsets(ann.taken()) == given


# --- what goes once it is acknowledged ------------------------------------------------------

EAGER = {
    **FEW,
    "log_retention_check_interval_ms": "20",
    "log_segment_delete_delay_ms": "0",
    "log_segment_bytes": "4000",
}


def disk_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.glob("t-0/*.log"))


def test_the_disk_shrinks_when_queues_have_acknowledged(
    make_node: MakeNode, tmp_path: Path
) -> None:
    node = make_node(**EAGER)
    with Sharing(*node.address) as ann:
        ann.create("t", retention_after_ack="queue,other")
        for _ in range(50):
            ann.produce("t", batch_of(bytes(1_000)))
        full = disk_bytes(tmp_path / "data")
        topic_id = ann.begin("t")
        settle_all(ann, topic_id, 50)
        log = node.node.broker.replicas.get("t", 0).log
        assert log.log_start == 0, "other has no position"

        ann.configure(2, "t", retention_after_ack="queue")

        node.until(lambda: log.log_start >= 45)
        node.until(lambda: disk_bytes(tmp_path / "data") < full / 5)
        ann.produce("t", batch_of(b"new"))
        assert messages(ann.take(topic_id, partitions=())) == [(50, b"new")]


def settle_all(ann: Sharing, topic_id: UUID, total: int) -> None:
    done = 0
    while done < total:
        acquired = ranges(ann.take(topic_id))
        said = [(first, last, [ACCEPT]) for first, last, _ in acquired]
        assert ann.say(topic_id, said).error_code == 0
        done += sum(last - first + 1 for first, last, _ in acquired)


def test_what_was_not_acknowledged_stays_however_old_unless_there_is_a_cap(
    make_node: MakeNode,
) -> None:
    node = make_node(**EAGER)
    with Sharing(*node.address) as ann:
        ann.create("t", retention_after_ack="queue", retention_ms="1")
        for _ in range(20):
            ann.produce("t", batch_of(bytes(1_000)))
        ann.begin("t", start=10)
        log = node.node.broker.replicas.get("t", 0).log
        node.until(lambda: log.log_start >= 6)
        assert log.log_start <= 10

        ann.configure(2, "t", retention_after_ack_bytes="5000")

        node.until(lambda: log.log_start > 10)
        assert log.size_bytes <= 8_000
