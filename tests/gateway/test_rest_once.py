"""Idempotency keys over real HTTP: a call that is made twice has the effect of one."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.support.http_client import Answer, HttpClient

from waystation.client.partitioner import partition_of_key
from waystation.testing.process import BrokerProcess

AT_ONCE = 8


@pytest.fixture
def http(broker: BrokerProcess) -> Iterator[HttpClient]:
    with HttpClient(broker.http) as client:
        yield client


@pytest.fixture
def path(http: HttpClient, topic: str) -> str:
    """Where the messages of a topic of four partitions are."""
    config = {"schedule.enable": "true"}
    assert http.post("/v1/topics", {"name": topic, "partitions": 4, "config": config}).status == 201
    return f"/v1/topics/{topic}/messages"


def send(http: HttpClient, path: str, body: Any, key: str | None = None) -> Answer:
    headers = {"content-type": "application/json"}
    if key is not None:
        headers["idempotency-key"] = key
    return http.ask("POST", path, json.dumps(body).encode(), headers)


def stored(http: HttpClient, path: str, partitions: int = 4) -> list[tuple[int, int, str]]:
    """Everything in the topic: partition, offset, value."""
    return [
        (partition, one["offset"], one["value"])
        for partition in range(partitions)
        for one in http.get(f"{path}?partition={partition}&limit=1000").json["messages"]
    ]


def test_the_second_call_is_answered_with_the_place_of_the_first(
    http: HttpClient, path: str
) -> None:
    first = send(http, path, {"value": "pay 3"}, "order-1")
    again = send(http, path, {"value": "pay 3"}, "order-1")
    by_field = send(http, path, {"value": "pay 3", "idempotency_key": "order-1"})

    assert first.status == again.status == by_field.status == 200
    assert first.json == {**again.json, "replayed": False}
    assert again.json["replayed"] is by_field.json["replayed"] is True
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    where = partition_of_key(b"order-1", 4)
    assert stored(http, path) == [(where, 0, "pay 3")]


def test_calls_at_the_same_moment_store_one_message(
    broker: BrokerProcess, http: HttpClient, path: str
) -> None:
    together = threading.Barrier(AT_ONCE)

    def one(_: int) -> Answer:
        with HttpClient(broker.http) as own:
            together.wait(20)
            return send(own, path, {"value": "once"}, "at-once")

    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = list(pool.map(one, range(AT_ONCE)))

    assert {one.status for one in answers} == {200}
    assert len({(one.json["partition"], one.json["offset"]) for one in answers}) == 1
    assert sorted(one.json["replayed"] for one in answers) == [False] + [True] * (AT_ONCE - 1)
    assert len(stored(http, path)) == 1


def test_other_content_under_the_same_key_is_refused(http: HttpClient, path: str) -> None:
    send(http, path, {"value": "pay 3"}, "k")

    for other in (
        {"value": "pay 4"},
        {"value": None},
        {"value": "pay 3", "headers": {"a": "b"}},
    ):
        refused = send(http, path, other, "k")
        assert refused.status == 422
        assert refused.json["type"] == "urn:waystation:problem:idempotency-conflict"
        assert refused.json["field"] == "idempotency_key"
    assert [value for _, _, value in stored(http, path)] == ["pay 3"]


def test_a_message_goes_where_it_says_or_its_key_says(http: HttpClient, path: str) -> None:
    by_key = send(http, path, {"value": "a", "key": "ann"}, "one")
    by_number = send(http, path, {"value": "a", "key": "ann", "partition": 3}, "two")

    assert by_key.json["partition"] == partition_of_key(b"ann", 4)
    assert by_number.json["partition"] == 3
    assert send(http, path, {"value": "a", "key": "ann"}, "one").json["replayed"]
    assert send(http, path, {"value": "a", "key": "ann", "partition": 3}, "two").json["replayed"]


def test_a_batch_may_repeat_itself_and_others(http: HttpClient, path: str) -> None:
    send(http, path, {"value": "a", "partition": 0, "idempotency_key": "a"})
    batch = [
        {"value": value, "partition": 0, "idempotency_key": key}
        for key, value in [("b", "b"), ("a", "a"), ("b", "b"), ("c", "c"), ("b", "other")]
    ]
    told = send(http, f"{path}/batch", {"messages": batch})

    assert (told.status, told.json["sent"], told.json["failed"]) == (207, 4, 1)
    places = [one["place"] for one in told.json["outcomes"]]
    assert [(one["offset"], one["replayed"]) for one in places[:4]] == [
        (1, False),
        (0, True),
        (1, True),
        (2, False),
    ]
    assert told.json["outcomes"][4]["problem"]["status"] == 422
    assert [value for _, _, value in stored(http, path)] == ["a", "b", "c"]


@pytest.mark.parametrize("lines", [True, False])
def test_one_key_is_enough_for_a_batch(http: HttpClient, path: str, lines: bool) -> None:
    messages = [{"value": f"{number}", "partition": 1} for number in range(300)]
    content = "\n".join(map(json.dumps, messages)) if lines else json.dumps({"messages": messages})
    kind = "application/x-ndjson" if lines else "application/json"

    def post() -> Answer:
        headers = {"content-type": kind, "idempotency-key": "night"}
        return http.ask("POST", f"{path}/batch", content.encode(), headers)

    first, again = post(), post()

    assert first.json["sent"] == again.json["sent"] == 300
    offsets = [[one["place"]["offset"] for one in told.json["outcomes"]] for told in (first, again)]
    assert offsets == [list(range(300))] * 2
    assert all(one["place"]["replayed"] for one in again.json["outcomes"])


def stream(http: HttpClient, path: str, messages: list[dict[str, Any]], key: str) -> Answer:
    content = "\n".join(map(json.dumps, messages)).encode()
    headers = {"content-type": "application/x-ndjson", "idempotency-key": key}
    return http.ask("POST", f"{path}/stream", content, headers)


def test_one_key_is_enough_for_a_stream_that_is_sent_again_from_its_beginning(
    http: HttpClient, path: str
) -> None:
    messages = [{"value": f"{number}".ljust(400), "partition": 1} for number in range(900)]

    cut_short = stream(http, path, messages[:700], "night")
    whole = stream(http, path, messages, "night")

    assert (cut_short.json["stored"], whole.json["stored"]) == (700, 900)
    assert [int(value) for _, _, value in stored(http, path)] == list(range(900))
    changed = stream(http, path, [messages[0], {"value": "x", "partition": 1}], "night")
    assert (changed.status, changed.json["stored"]) == (207, 1)
    assert changed.json["ended"]["line"] == 2
    assert changed.json["ended"]["problem"]["status"] == 422


def test_a_stream_with_bad_keys_is_refused(http: HttpClient, path: str) -> None:
    assert stream(http, path, [{"value": "x"}], "with space").status == 400
    both = stream(http, path, [{"value": "x", "idempotency_key": "own"}], "a")
    assert (both.status, stored(http, path)) == (400, [])


@pytest.mark.parametrize(
    ("body", "key", "field"),
    [
        ({"value": "x"}, "with space", "Idempotency-Key"),
        ({"value": "x"}, "x" * 256, "Idempotency-Key"),
        ({"value": "x"}, "caf\xe9", "Idempotency-Key"),
        ({"value": "x"}, "", "Idempotency-Key"),
        ({"value": "x", "idempotency_key": "a b"}, None, "idempotency_key"),
        ({"value": "x", "idempotency_key": ""}, None, "idempotency_key"),
        ({"value": "x", "idempotency_key": 3}, None, "idempotency_key"),
        ({"value": "x", "idempotency_key": "a"}, "a", "idempotency_key"),
        ({"value": "x", "headers": {"idempotency-key": "a"}}, "a", None),
    ],
)
def test_a_bad_key_is_told_and_nothing_sent(
    http: HttpClient, path: str, body: Any, key: str | None, field: str | None
) -> None:
    refused = send(http, path, body, key)

    assert refused.status == 400
    assert refused.json.get("field") == field
    assert stored(http, path) == []


@pytest.mark.parametrize(
    ("messages", "key"),
    [
        ([{"value": "x", "idempotency_key": "a"}, {"value": "y"}], None),
        ([{"value": "x", "idempotency_key": "a"}], "b"),
        ([{"value": "x", "idempotency_key": "a b"}], None),
        ([{"value": "x"}], "x" * 254),
    ],
)
def test_a_batch_with_bad_keys_is_refused_whole(
    http: HttpClient, path: str, messages: list[Any], key: str | None
) -> None:
    assert send(http, f"{path}/batch", {"messages": messages}, key).status == 400
    assert stored(http, path) == []


def test_no_key_is_forgotten_for_want_of_room(http: HttpClient, topic: str) -> None:
    config = {"idempotency.keys.max": "2"}
    http.post("/v1/topics", {"name": topic, "partitions": 1, "config": config})
    path = f"/v1/topics/{topic}/messages"
    assert [send(http, path, {"value": "x"}, key).status for key in "ab"] == [200, 200]

    refused = send(http, path, {"value": "x"}, "c")

    assert refused.status == 429
    assert int(refused.headers["retry-after"]) > 0
    assert send(http, path, {"value": "x"}, "a").json["replayed"]
    assert send(http, path, {"value": "no key, no limit"}).status == 200


def test_a_message_for_later_waits_once(http: HttpClient, path: str) -> None:
    body = {"value": "later", "key": "ann", "deliver_after": "1h"}
    first = send(http, path, body, "later-1")
    again = send(http, path, body, "later-1")

    assert first.json["schedule_id"] == again.json["schedule_id"]
    assert (first.json["replayed"], again.json["replayed"]) == (False, True)


def test_queues_take_keys_as_well(http: HttpClient, topic: str) -> None:
    assert http.post("/v1/queues", {"name": topic}).status == 201
    path = f"/v1/queues/{topic}/messages"
    first = send(http, path, {"value": "job", "priority": 7}, "job-1")
    again = send(http, path, {"value": "job", "priority": 7}, "job-1")

    assert (first.status, again.status) == (200, 200)
    assert again.json["replayed"]
    assert send(http, path, {"value": "job", "priority": 1}, "job-1").status == 422


def test_a_key_for_what_is_added_to_a_transaction_is_refused(
    http: HttpClient, path: str, topic: str
) -> None:
    begun = http.post("/v1/transactions", {}).json["transaction"]
    body = {"messages": [{"topic": topic, "value": "x", "partition": 0}]}
    refused = send(http, f"/v1/transactions/{begun}/messages", body, "a")

    assert (refused.status, refused.json["field"]) == (400, "Idempotency-Key")
    assert http.ask("POST", f"/v1/transactions/{begun}/abort").status == 200


def test_kafka_clients_read_such_messages_as_any_other(
    http: HttpClient, path: str, topic: str, bootstrap: str
) -> None:
    message = {"value": "v", "key": "k", "timestamp_ms": 1_700_000_000_000, "partition": 0}
    send(http, path, {**message, "headers": {"a": "b"}}, "key-1")
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "check.crcs": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    got = consumer.poll(20)
    consumer.close()

    assert got is not None
    assert (got.key(), got.value()) == (b"k", b"v")
    assert got.timestamp()[1] == 1_700_000_000_000
    assert got.headers() == [("a", b"b"), ("idempotency-key", b"key-1")]


@pytest.mark.timeout(120)
def test_keys_outlive_kills_and_restarts(tmp_path: Path) -> None:
    """Some are in files beside a snapshot, some only in the log behind it."""
    options = {"log.flush.offset.checkpoint.interval.ms": "200", "recovery.bytes.max": "0"}
    process = BrokerProcess(tmp_path / "data", http="127.0.0.1:0", options=options)
    path = "/v1/topics/orders/messages"
    with process.start(), HttpClient(process.http) as http:
        assert http.post("/v1/topics", {"name": "orders", "partitions": 1}).status == 201
    places = {}
    for life in range(4):
        with process.start(), HttpClient(process.http) as http:
            for key, place in places.items():
                again = send(http, path, {"value": key}, key)
                assert again.json == {**place, "replayed": True}, f"life {life}"
            for number in range(20):
                key = f"{life}-{number}"
                places[key] = send(http, path, {"value": key}, key).json
            if life % 2:
                process.kill()
            assert len(places) == 20 * (life + 1)
    with process.start(), HttpClient(process.http) as http:
        assert [value for _, _, value in stored(http, path, 1)] == list(places)
    assert list((tmp_path / "data" / "orders-0").glob("*.once"))
