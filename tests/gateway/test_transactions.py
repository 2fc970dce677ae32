"""Transactions over HTTP: all or nothing, at whatever node."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import Consumer
from tests.support.http_client import Answer, HttpClient

from waystation.client.admin import Admin
from waystation.runtime.loops import run
from waystation.testing.process import BrokerProcess


@pytest.fixture
def http(broker: BrokerProcess) -> Iterator[HttpClient]:
    with HttpClient(broker.http) as client:
        yield client


@pytest.fixture
def topics(http: HttpClient, topic: str) -> list[str]:
    names = [f"{topic}-{letter}" for letter in "ab"]
    for name in names:
        assert http.post("/v1/topics", {"name": name, "partitions": 3}).status == 201
    return names


def begin(http: HttpClient, **options: int) -> str:
    answer = http.post("/v1/transactions", options)
    assert answer.status == 201, answer
    return f"/v1/transactions/{answer.json['transaction']}"


def add(http: HttpClient, transaction: str, *messages: dict[str, object]) -> Answer:
    return http.post(f"{transaction}/messages", {"messages": messages})


def read(broker: BrokerProcess, topics: list[str], level: str = "read_committed") -> list[str]:
    """What a consumer of another kind is shown of the topics, up to their ends."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": f"reader-{time.monotonic_ns()}",
            "auto.offset.reset": "earliest",
            "isolation.level": level,
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe(topics)
    found, ends, deadline = [], set(), time.monotonic() + 30
    while len(ends) < 3 * len(topics) and time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is None:
            continue
        if message.error():
            ends.add((message.topic(), message.partition()))
        else:
            found.append(message.value().decode())
    consumer.close()
    assert len(ends) == 3 * len(topics)
    return sorted(found)


def test_what_is_committed_is_seen_all_at_once(
    http: HttpClient, broker: BrokerProcess, topics: list[str]
) -> None:
    transaction = begin(http)
    added = add(
        http,
        transaction,
        {"topic": topics[0], "value": "1", "key": "k", "partition": 0},
        {"topic": topics[1], "value": "2", "headers": {"a": "b"}},
        {"topic": topics[0], "value": "3", "partition": 2, "timestamp_ms": 5},
        {"topic": topics[0], "value": "4", "partition": 2},
    )
    assert added.status == 200, added
    places = [(one["topic"], one["partition"], one["offset"]) for one in added.json["messages"]]
    assert places[2:] == [(topics[0], 2, 0), (topics[0], 2, 1)]
    assert add(http, transaction, {"topic": topics[0], "value": "5", "partition": 2}).status == 200

    assert read(broker, topics) == []
    assert read(broker, topics, "read_uncommitted") == ["1", "2", "3", "4", "5"]
    state = http.get(transaction).json
    assert state["state"] == "open"
    assert [one["topic"] for one in state["topics"]] == topics

    assert http.ask("POST", f"{transaction}/commit").json["state"] == "committed"
    assert read(broker, topics) == ["1", "2", "3", "4", "5"]
    assert http.get(transaction).json["state"] == "committed"


def test_what_is_aborted_is_never_seen(
    http: HttpClient, broker: BrokerProcess, topics: list[str]
) -> None:
    transaction = begin(http)
    assert add(http, transaction, {"topic": topics[0], "value": "1"}).status == 200

    assert http.ask("POST", f"{transaction}/abort").json["state"] == "aborted"
    assert read(broker, topics) == []


def test_an_end_may_be_asked_for_again_but_not_the_other_end(
    http: HttpClient, topics: list[str]
) -> None:
    for end, other in (("commit", "abort"), ("abort", "commit")):
        transaction = begin(http)
        assert add(http, transaction, {"topic": topics[0], "value": "1"}).status == 200
        for _ in range(3):
            assert http.ask("POST", f"{transaction}/{end}").status == 200
        refused = http.ask("POST", f"{transaction}/{other}")
        late = add(http, transaction, {"topic": topics[0], "value": "2"})

        assert (refused.status, late.status) == (409, 409)
        assert refused.json["type"].endswith("transaction-ended")
        assert end in refused.json["detail"]
        assert late.json["type"].endswith("transaction-ended")


def test_nothing_cannot_be_committed_but_aborted(http: HttpClient) -> None:
    transaction = begin(http)

    refused = http.ask("POST", f"{transaction}/commit")
    assert (refused.status, refused.json["type"].rpartition(":")[2]) == (409, "empty-transaction")
    assert http.get(transaction).json["state"] == "open"
    assert http.ask("POST", f"{transaction}/abort").json["state"] == "aborted"


def test_who_takes_too_long_is_told_so(
    http: HttpClient, broker: BrokerProcess, topics: list[str]
) -> None:
    transaction = begin(http, timeout_ms=1_000)
    assert add(http, transaction, {"topic": topics[0], "value": "1"}).status == 200
    deadline = time.monotonic() + 20
    while http.get(transaction).json["state"] == "open" and time.monotonic() < deadline:
        time.sleep(0.05)

    for late in (
        add(http, transaction, {"topic": topics[0], "value": "2"}),
        http.ask("POST", f"{transaction}/commit"),
    ):
        assert (late.status, late.json["type"].rpartition(":")[2]) == (410, "transaction-timed-out")
    assert http.ask("POST", f"{transaction}/abort").status == 200
    assert read(broker, topics) == []


@pytest.mark.parametrize("name", ["x", "%20", "a" * 46, "_" * 46, "A" * 45 + "!", "é"])
def test_names_that_no_node_made_are_unknown(http: HttpClient, name: str) -> None:
    quoted = "".join(f"%{byte:02x}" for byte in name.encode())
    for call in ("commit", "abort"):
        assert http.ask("POST", f"/v1/transactions/{quoted}/{call}").status == 404
    assert http.get(f"/v1/transactions/{quoted}").status == 404


def test_a_mistake_is_told_before_anything_is_added(
    http: HttpClient, broker: BrokerProcess, topics: list[str]
) -> None:
    transaction = begin(http)
    good: dict[str, object] = {"topic": topics[0], "value": "good"}
    for bad, status, field in (
        ({"topic": "not-there", "value": "x"}, 404, "topic"),
        ({"topic": topics[0], "value": "x", "partition": 3}, 404, "messages[1].partition"),
        ({"topic": topics[0]}, 400, "messages[1].value"),
        ({"topic": topics[0], "value": "x", "deliver_after": "1s"}, 400, "messages[1].deliver_at"),
        (
            {"topic": topics[0], "value": "x", "idempotency_key": "1"},
            400,
            "messages[1].idempotency_key",
        ),
        ({"value": "x"}, 400, "messages[1].topic"),
    ):
        refused = add(http, transaction, good, bad)
        assert (refused.status, refused.json["field"]) == (status, field), refused
    assert http.get(transaction).json["state"] == "open"
    assert add(http, transaction, good).status == 200
    assert http.ask("POST", f"{transaction}/commit").status == 200
    assert read(broker, topics) == ["good"]


def test_partitions_that_are_new_are_there_at_once(
    http: HttpClient, bootstrap: str, topics: list[str]
) -> None:
    async def widen(partitions: int) -> None:
        async with Admin(bootstrap) as admin:
            await admin.create_partitions(name, partitions)

    name, transaction = topics[0], begin(http)
    assert add(http, transaction, {"topic": name, "value": "", "partition": 2}).status == 200

    run(widen(5))
    offset = {"topic": name, "partition": 4, "offset": 0}
    told = http.post(f"{transaction}/offsets", {"group": name, "offsets": [offset]})
    assert told.status == 200, told
    run(widen(6))
    told = add(http, transaction, {"topic": name, "value": "", "partition": 5})
    assert told.status == 200, told
    assert http.ask("POST", f"{transaction}/abort").status == 200


def test_offsets_of_what_is_not_there_are_refused_at_once(
    http: HttpClient, topics: list[str]
) -> None:
    transaction, begun = begin(http), time.monotonic()
    good: dict[str, object] = {"topic": topics[0], "partition": 2, "offset": 0}
    for bad, field in (
        ({"topic": "not-there", "partition": 0, "offset": 1}, "topic"),
        ({"topic": topics[0], "partition": 3, "offset": 1}, "offsets[1].partition"),
    ):
        wanted = {"group": f"{topics[0]}-readers", "offsets": [good, bad]}
        refused = http.post(f"{transaction}/offsets", wanted)
        assert (refused.status, refused.json["field"]) == (404, field), refused
    assert time.monotonic() - begun < 10, "nobody waits for a partition to appear"
    assert http.get(transaction).json["state"] == "open"
    assert http.ask("POST", f"{transaction}/abort").status == 200


def test_a_message_that_cannot_be_stored_ends_the_transaction(
    http: HttpClient, broker: BrokerProcess, topics: list[str]
) -> None:
    transaction = begin(http)
    assert add(http, transaction, {"topic": topics[0], "value": "1"}).status == 200
    refused = add(
        http,
        transaction,
        {"topic": topics[0], "value": "2"},
        {"topic": topics[1], "value": "x" * 2_000_000},
    )

    assert (refused.status, "aborted" in refused.json["detail"]) == (413, True)
    assert http.ask("POST", f"{transaction}/commit").status == 409
    assert read(broker, topics) == []


def test_offsets_of_a_group_count_with_the_transaction(
    http: HttpClient, broker: BrokerProcess, topics: list[str], topic: str
) -> None:
    group = f"{topic}-group"
    offsets = {"group": group, "offsets": [{"topic": topics[0], "partition": 1, "offset": 7}]}
    for end, kept in (("abort", None), ("commit", 7)):
        transaction = begin(http)
        assert add(http, transaction, {"topic": topics[0], "value": "1"}).status == 200
        answer = http.post(f"{transaction}/offsets", offsets)
        assert (answer.status, answer.json) == (200, {"group": group, "offsets": 1})
        assert http.ask("POST", f"{transaction}/{end}").status == 200
        found = http.get(f"/v1/groups/{group}")
        if kept is None:
            assert found.status == 404
        else:
            assert str(kept) in json.dumps(found.json)


def test_many_who_add_at_once_lose_and_double_nothing(
    http: HttpClient, broker: BrokerProcess, topics: list[str]
) -> None:
    transaction = begin(http)

    def one(number: int) -> int:
        with HttpClient(broker.http) as mine:
            return add(
                mine, transaction, {"topic": topics[0], "value": str(number), "partition": 0}
            ).status

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(one, range(40))) == {200}
    assert http.ask("POST", f"{transaction}/commit").status == 200
    assert read(broker, topics) == sorted(map(str, range(40)))


def test_lines_may_be_added_too(http: HttpClient, broker: BrokerProcess, topics: list[str]) -> None:
    transaction = begin(http)
    lines = b"".join(
        json.dumps({"topic": topics[0], "value": str(number)}).encode() + b"\n"
        for number in range(1_000)
    )
    answer = http.ask(
        "POST", f"{transaction}/messages", lines, {"content-type": "application/x-ndjson"}
    )
    assert (answer.status, len(answer.json["messages"])) == (200, 1_000)
    assert http.ask("POST", f"{transaction}/commit").status == 200
    assert len(read(broker, topics)) == 1_000
