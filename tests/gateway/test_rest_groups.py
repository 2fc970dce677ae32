"""Consumer groups over real HTTP."""

import asyncio
from collections.abc import Iterator

import pytest
from tests.support.http_client import HttpClient

from waystation.client.consumer import Consumer
from waystation.testing.process import BrokerProcess


@pytest.fixture
def http(broker: BrokerProcess) -> Iterator[HttpClient]:
    with HttpClient(broker.http) as client:
        yield client


@pytest.fixture
def sent(http: HttpClient, topic: str) -> str:
    """A topic of one partition with five messages."""
    http.post("/v1/topics", {"name": topic, "partitions": 1})
    messages = [{"value": str(n)} for n in range(5)]
    http.post(f"/v1/topics/{topic}/messages/batch", {"messages": messages})
    return topic


async def test_a_group_is_described_with_its_lag_and_reset(
    http: HttpClient, sent: str, bootstrap: str
) -> None:
    ask = asyncio.to_thread
    async with Consumer(sent, [sent], bootstrap=bootstrap, auto_commit=False) as consumer:
        await consumer.poll(20_000, 2)
        await consumer.commit({(sent, 0): 2})
        told = (await ask(http.get, f"/v1/groups/{sent}")).json
        busy = await ask(http.post, f"/v1/groups/{sent}/reset", {"to": "earliest"})

    assert (told["state"], len(told["members"])) == ("Stable", 1)
    assert told["members"][0]["assignment"] == [{"topic": sent, "partition": 0}]
    (lag,) = told["lag"]
    assert (lag["committed_offset"], lag["end_offset"], lag["messages"]) == (2, 5, 3)
    assert (busy.status, busy.json["field"]) == (409, "group")

    names = [one["group"] for one in http.get("/v1/groups").json["groups"]]
    assert sent in names
    plan = http.post(f"/v1/groups/{sent}/reset", {"by": -1, "dry_run": True}).json["moves"]
    assert plan == [{"topic": sent, "partition": 0, "before": 2, "after": 1}]
    moved = http.post(f"/v1/groups/{sent}/reset", {"to": "latest"}).json["moves"]
    assert [(one["before"], one["after"]) for one in moved] == [(2, 5)]
    assert http.ask("DELETE", f"/v1/groups/{sent}").status == 204
    assert http.get(f"/v1/groups/{sent}").status == 404


def test_a_group_begins_where_a_reset_puts_it(http: HttpClient, sent: str) -> None:
    path = f"/v1/groups/{sent}/reset"
    there = [{"topic": sent}]

    assert http.post(path, {"offset": 3, "partitions": there}).json["moves"][0]["after"] == 3
    since = {"since": "2020-01-01T00:00:00Z", "partitions": [{"topic": sent, "partition": 0}]}
    assert http.post(path, since).json["moves"][0]["after"] == 0
    late = {**since, "since": 4_000_000_000_000}
    assert http.post(path, late).json["moves"][0]["after"] == 5


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({}, 400, "to"),
        ({"to": "earliest", "offset": 1}, 400, "offset"),
        ({"to": "nowhere"}, 400, "to"),
        ({"since": "once"}, 400, "since"),
        ({"to": "latest", "partitions": [{"topic": "nobody-made-this"}]}, 404, "topic"),
        ({"to": "latest"}, 404, "group"),
    ],
)
def test_a_reset_that_cannot_be_is_refused(
    http: HttpClient, topic: str, body: object, status: int, field: str
) -> None:
    refused = http.post(f"/v1/groups/{topic}/reset", body)

    assert (refused.status, refused.json["field"]) == (status, field)


def test_a_partition_that_is_not_there_is_not_reset(http: HttpClient, sent: str) -> None:
    body = {"to": "latest", "partitions": [{"topic": sent, "partition": 4}]}

    refused = http.post(f"/v1/groups/{sent}/reset", body)
    assert (refused.status, refused.json["field"]) == (400, "partitions")


def test_a_group_that_is_not_there_is_not_found(http: HttpClient) -> None:
    assert http.get("/v1/groups/nobody").status == 404
    assert http.ask("DELETE", "/v1/groups/nobody").status == 404
