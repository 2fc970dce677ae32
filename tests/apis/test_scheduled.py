"""The four requests about scheduled messages, also when they make no sense."""

import time
from typing import Any

import pytest

from tests.apis.asking import Asking
from tests.apis.clustering import ThreadedCluster
from waystation.messages.cancel_scheduled import CancelScheduledRequest
from waystation.messages.describe_scheduled import DescribeScheduledRequest
from waystation.messages.list_scheduled import ListScheduledRequest
from waystation.messages.retime_scheduled import RetimeScheduledRequest, RetimeWish
from waystation.model.errors import ErrorCode
from waystation.records.batch import BatchBuilder

HOUR_MS = 3_600_000
WITHIN_S = 15.0


def now_ms() -> int:
    return int(time.time() * 1_000)


def batch(*dues: int) -> bytes:
    builder = BatchBuilder()
    for due in dues:
        builder.append(b"k", b"v", (("deliver-at", b"%d" % due),), timestamp=now_ms())
    return builder.build()


@pytest.fixture
def orders(client: Asking, topic: str) -> str:
    """A topic for which two messages wait, in partition 0 of its companion."""
    client.create(topic, 1, schedule_enable="true")
    deadline = time.monotonic() + WITHIN_S
    due = now_ms() + HOUR_MS
    while client.produce(f"{topic}.delay", batch(due, due + 1)).error_code:
        assert time.monotonic() < deadline, "the companion does not come"
    while listed(client, topic).waiting != 2:
        assert time.monotonic() < deadline, "the leader does not know of them"
    return topic


def listed(client: Asking, topic: str, **asked: Any) -> Any:
    return client.ask(ListScheduledRequest(topic=topic, **asked), 0)


def test_a_page_says_where_the_next_one_begins(client: Asking, orders: str) -> None:
    first = listed(client, orders, limit=1)
    second = listed(
        client, orders, limit=1, from_ms=first.next_ms, from_offset=first.next_offset, details=True
    )

    assert (first.error_code, first.waiting) == (0, 2)
    assert [one.offset for one in first.messages] == [0]
    (one,) = second.messages
    assert (one.offset, one.key, one.value_bytes) == (1, b"k", 1)
    assert second.next_ms == -1
    assert listed(client, orders, key=b"other").messages == []


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"limit": 0}, "limit of 0"),
        ({"limit": -5}, "limit of -5"),
        ({"limit": 10_001}, "10000"),
        ({"limit": 1_001, "details": True}, "1000"),
        ({"from_ms": -1}, "negative"),
        ({"from_offset": -1}, "negative"),
        ({"until_ms": -2}, "until -2"),
    ],
)
def test_a_page_that_makes_no_sense_is_refused(
    client: Asking, orders: str, asked: dict[str, Any], said: str
) -> None:
    answer = listed(client, orders, **asked)

    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert said in answer.error_message


def test_extremes_are_answered(client: Asking, orders: str) -> None:
    largest = (1 << 63) - 1

    assert listed(client, orders, from_ms=largest, from_offset=largest).messages == []
    assert len(listed(client, orders, until_ms=largest).messages) == 2
    for offset in (-1, -largest - 1, largest):
        answer = client.ask(DescribeScheduledRequest(topic=orders, partition=0, offset=offset), 0)
        assert answer.error_code == ErrorCode.RESOURCE_NOT_FOUND, offset
        wish = RetimeScheduledRequest(
            topic=orders, partition=0, wishes=[RetimeWish(offset=offset, due_ms=now_ms())]
        )
        (result,) = client.ask(wish, 0).results
        assert result.error_code == ErrorCode.RESOURCE_NOT_FOUND, offset
    for due in (-largest - 1, -1, largest):
        wish = RetimeScheduledRequest(
            topic=orders, partition=0, wishes=[RetimeWish(offset=0, due_ms=due)]
        )
        (result,) = client.ask(wish, 0).results
        assert result.error_code == ErrorCode.INVALID_RECORD, due
    assert listed(client, orders).waiting == 2, "nothing was changed"


@pytest.mark.parametrize("topic_of", ["{}.nobody", "{}.delay", "__consumer_offsets", ""])
def test_topics_that_keep_nothing_are_refused(client: Asking, orders: str, topic_of: str) -> None:
    name = topic_of.format(orders)
    for request in (
        ListScheduledRequest(topic=name),
        DescribeScheduledRequest(topic=name),
        CancelScheduledRequest(topic=name, offsets=[0]),
        RetimeScheduledRequest(topic=name, wishes=[RetimeWish(offset=0, due_ms=now_ms())]),
    ):
        answer = client.ask(request, 0)

        assert answer.error_code in (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
        )
        assert answer.error_message


def test_the_same_wish_twice_in_a_request_is_granted_once(client: Asking, orders: str) -> None:
    request = CancelScheduledRequest(topic=orders, partition=0, offsets=[0, 0, 7])
    answer = client.ask(request, 0)
    assert answer.error_code == 0, answer
    first, second, third = answer.results

    assert first.error_code == 0
    assert second.error_code == third.error_code == ErrorCode.RESOURCE_NOT_FOUND
    assert "0-0 is not pending" in second.error_message
    assert listed(client, orders).waiting == 1


def test_only_the_leader_answers(cluster: ThreadedCluster, topic: str) -> None:
    cluster.create(topic, [1, 2], schedule_enable="true")
    cluster.until(lambda: f"{topic}.delay" in cluster.image.topics)
    cluster.settle()
    leader = cluster.partition(f"{topic}.delay", 0).leader
    assert leader is not None
    for node in (1, 2, 3):
        with cluster.client(node) as client:
            code = listed(client, topic).error_code

        assert code in ((0, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) if node == leader else (6,))
