"""FindMessages on the wire: bounds, and clients that leave while they wait."""

from typing import Any

import pytest

from tests.apis.asking import Asking
from tests.apis.kit import ThreadedNode, batch_of
from waystation.messages.find_messages import FindMessagesRequest, FindMessagesResponse
from waystation.model.errors import ErrorCode

INVALID = ErrorCode.INVALID_REQUEST


@pytest.fixture
def indexed(client: Asking, topic: str) -> str:
    client.create(topic, index_keys="true")
    client.produce(topic, batch_of(b"1", b"2", b"3", keys=[b"ann", b"bob", b"ann"]))
    return topic


def asked(client: Asking, topic: str, **more: Any) -> FindMessagesResponse:
    request = FindMessagesRequest(topic=topic, **{"key": b"ann", **more})
    told: FindMessagesResponse = client.ask(request, 0)
    return told


def test_a_page_says_what_is_there_and_where_to_go_on(client: Asking, indexed: str) -> None:
    first = asked(client, indexed, limit=1)
    rest = asked(client, indexed, offset=first.next_offset)

    assert [(one.offset, one.value) for one in first.messages] == [(0, b"1")]
    assert [(one.offset, one.value) for one in rest.messages] == [(2, b"3")]
    assert (rest.next_offset, rest.end) == (3, 3)
    assert asked(client, indexed, key=b"").messages == []


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"limit": 0}, INVALID),
        ({"limit": 10_001}, INVALID),
        ({"offset": -1}, INVALID),
        ({"max_bytes": 0}, INVALID),
        ({"max_wait_ms": 60_001}, INVALID),
        ({"max_wait_ms": -1}, INVALID),
        ({"offset": 4}, ErrorCode.OFFSET_OUT_OF_RANGE),
        ({"partition": 1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partition": -1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_what_is_out_of_bounds_is_refused(
    client: Asking, indexed: str, wrong: dict[str, int], code: ErrorCode
) -> None:
    told = asked(client, indexed, **wrong)

    assert told.error_code == code
    assert told.error_message


def test_who_leaves_while_waiting_costs_nothing_any_more(node: ThreadedNode, indexed: str) -> None:
    keys = node.node.broker.keys
    with Asking(*node.address) as leaving:
        request = FindMessagesRequest(topic=indexed, key=b"nobody", max_wait_ms=60_000)
        leaving.send(request, 0)
        node.until(lambda: keys.waiting == 1)

    node.until(lambda: keys.waiting == 0)
