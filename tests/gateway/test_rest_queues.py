"""Queues over real HTTP: sent, received under a lease, settled by receipts."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.http_client import HttpClient

from waystation.testing.process import BrokerProcess

CALLERS = 500
MANY = 100
WITHIN_S = 30.0


@pytest.fixture
def http(broker: BrokerProcess) -> Iterator[HttpClient]:
    with HttpClient(broker.http) as client:
        yield client


@pytest.fixture
def queue(http: HttpClient, topic: str) -> str:
    """The path of a queue of one partition."""
    made = http.post("/v1/queues", {"name": topic, "partitions": 1, "max_deliveries": 3})
    assert (made.status, made.json["topic_created"]) == (201, True)
    return f"/v1/queues/{topic}"


def send(http: HttpClient, queue: str, *values: str) -> None:
    messages = [{"value": value} for value in values]
    assert http.post(f"{queue}/messages/batch", {"messages": messages}).json["sent"] == len(values)


def receive(http: HttpClient, queue: str, **wanted: Any) -> list[dict[str, Any]]:
    answer = http.post(f"{queue}/receive", {"wait_ms": 10_000, **wanted})
    assert answer.status == 200, answer
    found: list[dict[str, Any]] = answer.json["messages"]
    return found


def receipts(messages: list[dict[str, Any]]) -> dict[str, list[str]]:
    return {"receipts": [one["receipt"] for one in messages]}


# --- receiving and settling ---------------------------------------------------------------------


def test_what_is_acknowledged_is_gone_and_the_rest_comes_again(
    http: HttpClient, queue: str
) -> None:
    send(http, queue, "a", "b", "c")
    held = receive(http, queue, max=3)
    assert [(one["value"], one["deliveries"]) for one in held] == [("a", 1), ("b", 1), ("c", 1)]
    assert receive(http, queue, wait_ms=0) == []

    assert http.post(f"{queue}/ack", receipts(held[:1])).json == {"settled": 1, "refused": []}
    assert http.post(f"{queue}/nack", receipts(held[1:2])).json["settled"] == 1
    assert http.post(f"{queue}/extend", {**receipts(held[2:]), "lease_ms": 200}).status == 200

    again = [*receive(http, queue), *receive(http, queue)]
    assert [(one["value"], one["deliveries"]) for one in again] == [("b", 2), ("c", 2)]
    told = http.get(queue).json
    assert (told["unsettled"], told["ready"], told["in_flight"]) == (2, 0, 2)


def test_a_caller_that_goes_between_receive_and_ack_gets_it_again_after_its_lease(
    broker: BrokerProcess, http: HttpClient, queue: str
) -> None:
    send(http, queue, "work")
    begun = time.monotonic()
    with HttpClient(broker.http) as gone:
        (held,) = receive(gone, queue, lease_ms=700)
    assert held["lease_ms"] == 700

    (again,) = receive(http, queue)

    assert time.monotonic() - begun >= 0.7
    assert (again["value"], again["deliveries"]) == ("work", 2)
    late = http.post(f"{queue}/ack", receipts([held]))
    assert (late.status, late.json["type"]) == (409, "urn:waystation:problem:not-held")
    assert held["receipt"] in late.json["detail"]
    assert late.json["field"] == "receipts[0]"
    assert http.post(f"{queue}/ack", receipts([again])).status == 200


def test_of_many_receipts_one_that_is_over_spoils_no_other(http: HttpClient, queue: str) -> None:
    send(http, queue, *map(str, range(6)))
    held = receive(http, queue, max=6)
    http.post(f"{queue}/ack", receipts(held[2:3]))

    told = http.post(f"{queue}/ack", receipts(held))

    assert (told.status, told.json["settled"]) == (207, 5)
    (refused,) = told.json["refused"]
    assert refused["receipt"] == held[2]["receipt"]
    assert (refused["problem"]["status"], refused["problem"]["field"]) == (409, "receipts[2]")
    assert http.get(queue).json["unsettled"] == 0


def test_what_is_given_back_with_a_delay_comes_then_and_not_before(
    http: HttpClient, queue: str
) -> None:
    send(http, queue, "later")
    held = receive(http, queue)
    begun = time.monotonic()
    assert http.post(f"{queue}/nack", {**receipts(held), "delay": "600ms"}).status == 200

    assert receive(http, queue, wait_ms=0) == []
    (again,) = receive(http, queue)

    assert 0.6 <= time.monotonic() - begun < WITHIN_S
    assert again["deliveries"] == 2


def test_two_consumers_never_hold_one_message(
    broker: BrokerProcess, http: HttpClient, topic: str
) -> None:
    http.post("/v1/queues", {"name": topic, "partitions": 4})
    queue = f"/v1/queues/{topic}"
    send(http, queue, *map(str, range(200)))
    held: list[dict[str, Any]] = []
    with HttpClient(broker.http) as other:
        while len(held) < 200:
            for one in (http, other):
                held += receive(one, queue, max=7, wait_ms=0)

    assert sorted(int(one["value"]) for one in held) == list(range(200))
    assert {one["deliveries"] for one in held} == {1}
    assert len({one["receipt"] for one in held}) == 200
    assert http.post(f"{queue}/ack", receipts(held)).json == {"settled": 200, "refused": []}


def test_no_partition_waits_for_another_to_be_empty(http: HttpClient, topic: str) -> None:
    http.post("/v1/queues", {"name": topic, "partitions": 4})
    path = f"/v1/queues/{topic}"
    for partition, count in ((0, 30), (3, 1)):
        messages = [{"value": str(partition), "partition": partition}] * count
        assert http.post(f"{path}/messages/batch", {"messages": messages}).json["sent"] == count

    first = [receive(http, path)[0]["value"] for _ in range(4)]

    assert "3" in first


# --- many at once -------------------------------------------------------------------------------


async def test_what_many_ask_and_say_at_once_goes_together_and_counts_by_itself(
    broker: BrokerProcess, http: HttpClient, queue: str
) -> None:
    receive(http, queue, wait_ms=0)
    send(http, queue, *map(str, range(MANY)))
    fetches, acks = _requests(http, "ShareFetch"), _requests(http, "ShareAcknowledge")

    took = await asyncio.gather(
        *(_call(broker.http, f"{queue}/receive", {"max": 2}) for _ in range(MANY))
    )
    held = [one for answer in took for one in answer["messages"]]
    assert sorted(int(one["value"]) for one in held) == list(range(MANY))
    partition, offset, member = held[0]["receipt"].split("-", 2)
    wrong = [f"{partition}-{offset}-forged", f"{partition}-{int(offset) + MANY}-{member}"]
    told = await asyncio.gather(
        *(
            _call(broker.http, f"{queue}/ack", {"receipts": [receipt]})
            for receipt in [*(one["receipt"] for one in held), *wrong, held[0]["receipt"]]
        )
    )

    right = [one["settled"] for one in told if "settled" in one]
    refused = [one["type"].rpartition(":")[2] for one in told if "type" in one]
    assert (right, refused) == ([1] * MANY, ["not-held"] * 3)
    assert http.get(queue).json["unsettled"] == 0
    assert 0 < _requests(http, "ShareFetch") - fetches < MANY / 2
    assert 0 < _requests(http, "ShareAcknowledge") - acks < MANY / 2


def _requests(http: HttpClient, api: str) -> float:
    lines = http.get("/metrics").body.decode().splitlines()
    return sum(
        float(line.split()[-1])
        for line in lines
        if line.startswith("waystation_api_seconds_count") and api in line
    )


# --- waiting ------------------------------------------------------------------------------------


async def test_hundreds_wait_at_once_as_one_consumer_and_each_gets_one(
    broker: BrokerProcess, http: HttpClient, topic: str
) -> None:
    http.post("/v1/queues", {"name": topic, "partitions": 1})
    path = f"/v1/queues/{topic}"
    assert receive(http, path, wait_ms=0) == []
    waiting = [
        asyncio.create_task(_call(broker.http, f"{path}/receive", {"wait_ms": 60_000}))
        for _ in range(CALLERS)
    ]
    await asyncio.to_thread(_until_members, http, path)
    assert _gauge(http, "waystation_queue_sessions") < 20

    await asyncio.to_thread(send, http, path, *map(str, range(CALLERS)))
    answers = await asyncio.gather(*waiting)

    got = Counter(one["value"] for answer in answers for one in answer["messages"])
    assert got == Counter(map(str, range(CALLERS)))
    assert {one["deliveries"] for answer in answers for one in answer["messages"]} == {1}


async def test_who_stops_waiting_takes_no_message_with_it(
    broker: BrokerProcess, http: HttpClient, queue: str
) -> None:
    receive(http, queue, wait_ms=0)
    gone = [
        asyncio.create_task(_call(broker.http, f"{queue}/receive", {"wait_ms": 60_000}))
        for _ in range(20)
    ]
    await asyncio.sleep(0.3)  # some of them wait by then; were it none, less would be proven
    for one in gone:
        one.cancel()
    await asyncio.gather(*gone, return_exceptions=True)
    await asyncio.to_thread(_until_idle, broker, queue)
    await asyncio.to_thread(send, http, queue, "for another")

    (got,) = await asyncio.to_thread(receive, http, queue)

    assert (got["value"], got["deliveries"]) == ("for another", 1)


async def _call(address: str, path: str, body: dict[str, Any]) -> Any:
    """One POST over a connection of its own, which ends with the task."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        content = json.dumps(body).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(content)}\r\nconnection: close\r\n\r\n"
        )
        writer.write(head.encode() + content)
        answer = await reader.read()
        return json.loads(answer.partition(b"\r\n\r\n")[2])
    finally:
        writer.close()


def _until_members(http: HttpClient, path: str) -> None:
    """All calls are one member of the group."""
    assert http.get(path).json["members"] == 1


def _gauge(http: HttpClient, name: str) -> float:
    lines = http.get("/metrics").body.decode().splitlines()
    return float(next(line.split()[-1] for line in lines if line.startswith(name)))


def _until_idle(broker: BrokerProcess, queue: str) -> None:
    """The node has noticed that the callers went, and so has the queue."""
    deadline = time.monotonic() + WITHIN_S
    with HttpClient(broker.http) as http:
        while time.monotonic() < deadline:
            if http.get(queue).json["in_flight"] == 0:
                return
    raise AssertionError("somebody still holds something")


# --- sending, looking, deleting -----------------------------------------------------------------


def test_a_queue_obeys_priorities_and_keeps_every_kind_of_message(
    http: HttpClient, topic: str
) -> None:
    http.post("/v1/queues", {"name": topic, "partitions": 1, "priority": True})
    queue = f"/v1/queues/{topic}"
    for message in (
        {"value": "low", "priority": 1},
        {"value_base64": "//79", "key": "k", "priority": 9},
        {"value": {"total": 3}, "headers": {"a": "b"}, "priority": 5},
    ):
        assert http.post(f"{queue}/messages", message).status == 200

    held = receive(http, queue, max=1, values="json")
    held += receive(http, queue, max=1, values="json")
    held += receive(http, queue, max=1)

    assert [one.get("value", one.get("value_base64")) for one in held] == [
        "//79",
        {"total": 3},
        "low",
    ]
    assert held[1]["headers"][0] == {"name": "a", "value": "b"}


def test_a_queue_is_listed_configured_and_forgotten(http: HttpClient, queue: str) -> None:
    name = queue.rpartition("/")[2]
    send(http, queue, "a", "b")
    held = receive(http, queue, max=2)
    http.post(f"{queue}/ack", receipts(held))

    listed = http.get("/v1/queues").json["queues"]
    assert [one["topics"] for one in listed if one["group"] == name] == [[name]]
    options = http.get(f"{queue}/config").json["config"]
    assert options["max.deliveries"]["value"] == "3"
    changed = http.post(f"{queue}/config", {"set": {"max.deliveries": "7"}}, method="PATCH")
    assert changed.json["config"]["max.deliveries"]["value"] == "7"
    more = {"name": name, "max_deliveries": 4}
    assert http.post("/v1/queues", more).status == 200
    assert http.get(f"{queue}/config").json["config"]["max.deliveries"]["value"] == "4"

    assert http.ask("DELETE", queue).status == 204

    assert [one["value"] for one in receive(http, queue, max=2)] == ["a", "b"]


def test_two_groups_each_get_everything(http: HttpClient, queue: str) -> None:
    name = queue.rpartition("/")[2]
    http.post("/v1/queues", {"name": name, "group": f"{name}-audit"})
    send(http, queue, "x")

    (mine,) = receive(http, queue)
    theirs = http.post(f"{queue}/receive?group={name}-audit", {"wait_ms": 10_000}).json["messages"]

    assert mine["value"] == theirs[0]["value"] == "x"
    assert http.post(f"{queue}/ack", receipts(theirs)).status == 409
    assert http.post(f"{queue}/ack?group={name}-audit", receipts(theirs)).status == 200


def test_a_share_group_shows_its_lag_among_the_groups(http: HttpClient, queue: str) -> None:
    name = queue.rpartition("/")[2]
    send(http, queue, "a", "b", "c")
    http.post(f"{queue}/ack", receipts(receive(http, queue)))

    told = http.get(f"/v1/groups/{name}").json

    assert (told["kind"], told["state"]) == ("share", "Stable")
    (lag,) = told["lag"]
    assert (lag["topic"], lag["end_offset"], lag["messages"]) == (name, 3, 2)
    busy = http.post(f"/v1/groups/{name}/reset", {"to": "earliest"})
    assert (busy.status, busy.json["field"]) == (409, "group")


# --- mistakes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "body", "status", "field"),
    [
        ("receive", {"max": 0}, 400, "max"),
        ("receive", {"max": 1_001}, 400, "max"),
        ("receive", {"wait_ms": 60_001}, 400, "wait_ms"),
        ("receive", {"lease_ms": 99}, 400, "lease_ms"),
        ("receive", {"lease": 1}, 400, "lease"),
        ("ack", {}, 400, "receipts"),
        ("ack", {"receipts": []}, 400, "receipts"),
        ("ack", {"receipts": ["0-1-x", "garbage"]}, 400, "receipts[1]"),
        ("ack", {"receipts": ["0-1-nobody"]}, 409, "receipts[0]"),
        ("ack", {"receipts": ["9-1-nobody"]}, 404, "receipts[0]"),
        ("extend", {"receipts": ["0-0-x"], "lease_ms": 12 * 3_600_001}, 400, "lease_ms"),
        ("nack", {"receipts": ["0-0-x"], "delay": "soon"}, 400, "delay"),
        ("nack", {"receipts": ["0-0-x"], "delay": "2d"}, 400, "delay"),
        ("nack", {"receipts": ["0-0-x"], "delay": "1s", "requeue": False}, 400, "delay"),
        ("nack", {"receipts": ["0-0-x"], "why": "for nothing"}, 400, "why"),
        ("messages", {"value": "x", "priority": 10}, 400, "priority"),
    ],
)
def test_a_mistake_names_its_field(
    http: HttpClient, queue: str, call: str, body: object, status: int, field: str
) -> None:
    answer = http.post(f"{queue}/{call}", body)

    assert (answer.status, answer.json["field"]) == (status, field)


@pytest.mark.parametrize("call", ["messages", "receive", "ack", "nack", "extend"])
def test_a_queue_that_is_not_there_is_404(http: HttpClient, call: str) -> None:
    bodies = {"messages": {"value": "x"}, "receive": {}}

    answer = http.post(f"/v1/queues/nowhere/{call}", bodies.get(call, {"receipts": ["0-0-x"]}))

    assert (answer.status, answer.json["field"]) == (404, "queue")


def test_a_name_that_belongs_to_a_consumer_group_is_refused(http: HttpClient, queue: str) -> None:
    name = queue.rpartition("/")[2]
    body = {"to": "earliest", "partitions": [{"topic": name}]}
    assert http.post(f"/v1/groups/{name}-readers/reset", body).status == 200

    answer = http.post(f"{queue}/receive?group={name}-readers", {})

    assert answer.status == 400
    assert "consumer group" in answer.json["detail"]
