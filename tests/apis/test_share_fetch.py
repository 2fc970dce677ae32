"""ShareFetch and ShareAcknowledge against a running node, field by field."""

from collections.abc import Iterator
from uuid import uuid4

import pytest

from tests.apis.kit import ThreadedNode, batch_of
from tests.apis.sharing import ACCEPT, REJECT, RELEASE, RENEW, Sharing, messages, ranges
from waystation.messages.share_fetch import BY_LIMIT
from waystation.model.error_codes import ErrorCode


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


def filled(ann: Sharing, topic: str, *batches: int, start: int = 0) -> object:
    """A topic with batches of so many messages; its id."""
    ann.create(topic)
    number = 0
    for count in batches:
        values = [b"%d" % (number + one) for one in range(count)]
        assert ann.produce(topic, batch_of(*values)).error_code == 0
        number += count
    return ann.begin(topic, start=start)


@pytest.mark.parametrize("version", [1, 2])
def test_a_consumer_is_given_messages_and_accepts_them(
    ann: Sharing, topic: str, version: int
) -> None:
    topic_id = filled(ann, topic, 3)

    reply = ann.take(topic_id, version=version)

    assert reply.error_code == 0
    assert reply.acquisition_lock_timeout_ms == 30_000
    assert ranges(reply) == [(0, 2, 1)]
    assert messages(reply) == [(0, b"0"), (1, b"1"), (2, b"2")]

    assert ann.say(topic_id, [(0, 2, [ACCEPT])], version=version).error_code == 0
    assert ranges(ann.take(topic_id, partitions=(), max_wait_ms=1, version=version)) == []


def test_what_one_consumer_holds_is_not_given_to_another(
    ann: Sharing, bob: Sharing, topic: str
) -> None:
    topic_id = filled(ann, topic, 2, 2)

    assert ranges(ann.take(topic_id, max_records=2)) == [(0, 1, 1)]
    assert ranges(bob.take(topic_id)) == [(2, 3, 1)]


def test_batches_are_given_whole_unless_the_limit_is_strict(
    ann: Sharing, bob: Sharing, topic: str
) -> None:
    topic_id = filled(ann, topic, 10, 10)

    assert ranges(ann.take(topic_id, max_records=3)) == [(0, 9, 1)]
    reply = bob.take(topic_id, max_records=3, mode=BY_LIMIT)
    assert ranges(reply) == [(10, 12, 1)]
    assert messages(reply) == [(10, b"10"), (11, b"11"), (12, b"12")]


def test_no_batch_is_split_where_the_number_of_messages_that_may_be_out_ends(
    ann: Sharing, bob: Sharing, topic: str
) -> None:
    topic_id = filled(ann, topic, 1_500, 1_500, 1_500)

    assert ranges(ann.take(topic_id)) == [(0, 1_499, 1)]
    assert ranges(bob.take(topic_id)) == [(1_500, 2_999, 1)]
    assert ranges(bob.take(topic_id, max_wait_ms=0)) == []
    assert ann.say(topic_id, [(0, 1_499, [ACCEPT])]).error_code == 0
    reply = ann.take(topic_id)
    assert ranges(reply) == [(3_000, 4_499, 1)]
    assert len(messages(reply)) == 1_500


def test_ranges_are_no_longer_than_a_consumer_wants_them(ann: Sharing, topic: str) -> None:
    topic_id = filled(ann, topic, 5)

    assert ranges(ann.take(topic_id, batch_size=2)) == [(0, 1, 1), (2, 3, 1), (4, 4, 1)]


def test_released_messages_come_again_and_the_delivery_is_counted(
    ann: Sharing, bob: Sharing, topic: str
) -> None:
    topic_id = filled(ann, topic, 5)
    ann.take(topic_id)

    said = [(0, 4, [ACCEPT, RELEASE, RELEASE, REJECT, ACCEPT])]
    assert ann.say(topic_id, said).error_code == 0

    reply = bob.take(topic_id)
    assert ranges(reply) == [(1, 2, 2)]
    assert messages(reply) == [(1, b"1"), (2, b"2")]


def test_acknowledging_goes_along_with_fetching(ann: Sharing, topic: str) -> None:
    topic_id = filled(ann, topic, 2, 2)
    ann.take(topic_id, max_records=2)

    reply = ann.take(topic_id, acks=[(0, 1, [ACCEPT])])

    (told,) = reply.responses[0].partitions
    assert (told.error_code, told.acknowledge_error_code) == (0, 0)
    assert ranges(reply) == [(2, 3, 1)]
    refused = ann.say(topic_id, [(0, 0, [ACCEPT])])
    assert refused.error_code == ErrorCode.INVALID_RECORD_STATE
    assert "settled" in refused.error_message


def test_a_consumer_waits_until_something_is_produced(
    ann: Sharing, bob: Sharing, topic: str
) -> None:
    topic_id = filled(ann, topic)
    ann.send_take(topic_id)
    assert not ann.has_reply(0.05)

    bob.produce(topic, batch_of(b"new"))

    assert messages(ann.taken()) == [(0, b"new")]


def test_a_consumer_waits_until_something_is_released(
    ann: Sharing, bob: Sharing, topic: str
) -> None:
    topic_id = filled(ann, topic, 1)
    ann.take(topic_id)
    bob.send_take(topic_id)
    assert not bob.has_reply(0.05)

    ann.say(topic_id, [(0, 0, [RELEASE])])

    assert ranges(bob.taken()) == [(0, 0, 2)]


def test_nothing_is_held_while_there_is_too_little(ann: Sharing, bob: Sharing, topic: str) -> None:
    topic_id = filled(ann, topic, 1)
    ann.send_take(topic_id, min_bytes=10_000)
    assert not ann.has_reply(0.05)

    assert ranges(bob.take(topic_id)) == [(0, 0, 1)]


def test_too_little_is_given_when_the_time_is_up(ann: Sharing, topic: str) -> None:
    topic_id = filled(ann, topic, 1)

    assert ranges(ann.take(topic_id, min_bytes=10_000, max_wait_ms=20)) == [(0, 0, 1)]


def test_a_lost_connection_gives_everything_back(ann: Sharing, bob: Sharing, topic: str) -> None:
    topic_id = filled(ann, topic, 3)
    ann.take(topic_id)
    bob.send_take(topic_id)
    assert not bob.has_reply(0.05)

    ann.close()

    assert ranges(bob.taken()) == [(0, 2, 2)]


def test_closing_a_session_accepts_what_it_says_and_gives_the_rest_back(
    ann: Sharing, bob: Sharing, topic: str
) -> None:
    topic_id = filled(ann, topic, 3)
    ann.take(topic_id)

    closed = ann.take(topic_id, acks=[(0, 0, [ACCEPT])], epoch=-1)

    assert closed.responses[0].partitions[0].acknowledge_error_code == 0
    assert ranges(bob.take(topic_id)) == [(1, 2, 2)]
    assert ann.say(topic_id, [], epoch=1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


def test_locks_end(node: ThreadedNode, ann: Sharing, bob: Sharing, topic: str) -> None:
    ann.configure(32, topic, share_record_lock_duration_ms="100")
    topic_id = filled(ann, topic, 2)
    assert ann.take(topic_id).acquisition_lock_timeout_ms == 100

    assert ranges(bob.take(topic_id)) == [(0, 1, 2)]
    late = ann.say(topic_id, [(0, 1, [ACCEPT])])
    assert late.error_code == ErrorCode.INVALID_RECORD_STATE


def test_locks_are_renewed(ann: Sharing, bob: Sharing, topic: str) -> None:
    ann.configure(32, topic, share_record_lock_duration_ms="400")
    topic_id = filled(ann, topic, 1)
    ann.take(topic_id)
    bob.send_take(topic_id)

    for _ in range(3):
        assert not bob.has_reply(0.2)
        assert ann.say(topic_id, [(0, 0, [RENEW])], renews=True).error_code == 0

    unsaid = ann.say(topic_id, [(0, 0, [RENEW])])
    assert unsaid.error_code == ErrorCode.INVALID_REQUEST
    assert ann.take(topic_id, acks=[(0, 0, [RENEW])], renews=True).error_code == 0
    assert ann.say(topic_id, [(0, 0, [ACCEPT])]).error_code == 0
    assert not bob.has_reply(0.6)


def test_sessions_are_counted(ann: Sharing, topic: str) -> None:
    topic_id = filled(ann, topic, 1)
    assert ann.take(topic_id, epoch=7).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    ann.take(topic_id)

    assert ann.take(topic_id, epoch=7).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH


def test_nonsense_is_refused(ann: Sharing, topic: str) -> None:
    topic_id = filled(ann, topic, 5)
    ann.take(topic_id)

    for said in (
        [(0, 1, [ACCEPT, ACCEPT, ACCEPT])],
        [(0, 0, [9])],
        [(3, 1, [ACCEPT])],
        [(0, 2, [ACCEPT]), (1, 3, [ACCEPT])],
    ):
        assert ann.say(topic_id, said).error_code == ErrorCode.INVALID_REQUEST
    for missing in ("group", "member"):
        before = getattr(ann, missing)
        setattr(ann, missing, "")
        assert ann.take(topic_id).error_code == ErrorCode.INVALID_REQUEST
        setattr(ann, missing, before)
    assert ann.say(topic_id, [(0, 4, [ACCEPT])]).error_code == 0


def test_what_is_not_there_is_said(ann: Sharing, topic: str) -> None:
    topic_id = filled(ann, topic, 1)

    unknown = ann.take(uuid4())
    assert unknown.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    ann.epoch = 0
    missing = ann.take(topic_id, partitions=(7,))
    code = missing.responses[0].partitions[0].error_code
    assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    ann.epoch, ann.group = 0, "never-begun"
    not_begun = ann.take(topic_id)
    assert not_begun.responses[0].partitions[0].error_code == ErrorCode.INVALID_REQUEST
    assert "never-begun" in not_begun.responses[0].partitions[0].error_message


def test_deleted_records_are_passed_over(ann: Sharing, topic: str) -> None:
    topic_id = filled(ann, topic, 2, 2, 2)
    ann.take(topic_id, max_records=2)
    ann.delete_records(topic, 4)

    assert ann.say(topic_id, [(0, 1, [ACCEPT])]).error_code == 0
    assert ranges(ann.take(topic_id)) == [(4, 5, 1)]


def test_a_topic_that_goes_takes_its_queues_along(
    node: ThreadedNode, ann: Sharing, bob: Sharing, topic: str
) -> None:
    topic_id = filled(ann, topic, 1)
    ann.take(topic_id)
    ann.send_take(topic_id)
    assert not ann.has_reply(0.05)

    bob.delete(topic)

    code = ann.taken().responses[0].partitions[0].error_code
    assert code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_ID)
    node.until(lambda: all(host.queue_id.topic_id != topic_id for host in node.node.broker.queues))


def test_several_partitions_share_one_limit(ann: Sharing, topic: str) -> None:
    ann.create(topic, 3)
    for partition in range(3):
        ann.produce(topic, batch_of(b"a", b"b"), partition=partition)
    topic_id = ann.begin(topic, 3)

    first = ann.take(topic_id, partitions=(0, 1, 2), max_records=3)
    second = ann.take(topic_id, partitions=(), max_records=3)

    assert len(ranges(first)) == 2
    assert sorted(ranges(first) + ranges(second)) == [(0, 1, 1)] * 3


def test_another_start_counts_once_nobody_reads(ann: Sharing, topic: str) -> None:
    topic_id = filled(ann, topic, 2, 2)
    ann.take(topic_id, max_records=2)
    ann.say(topic_id, [(0, 1, [ACCEPT])])
    ann.say(topic_id, [], epoch=-1)

    ann.begin(topic, start=0, state_epoch=2)

    ann.epoch = 0
    assert ranges(ann.take(topic_id)) == [(0, 3, 1)]


def test_a_leader_that_is_fenced_loads_again(ann: Sharing, topic: str) -> None:
    topic_id = filled(ann, topic, 2, 2)
    ann.take(topic_id, max_records=2)

    ann.begin(topic, start=1, state_epoch=2)

    late = ann.say(topic_id, [(0, 1, [ACCEPT])])
    assert late.error_code == ErrorCode.INVALID_RECORD_STATE
    assert ranges(ann.take(topic_id)) == [(1, 3, 1)]
