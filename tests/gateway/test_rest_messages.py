"""Messages over real HTTP: sent one by one and in bulk, read by offset, time and filter."""

import asyncio
import base64
import gzip
import json
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
import zstandard
from tests.support.http_client import Answer, HttpClient

from waystation.client.consumer import Consumer
from waystation.client.producer import Producer
from waystation.testing.process import BrokerProcess

LINES = {"content-type": "application/x-ndjson"}


@pytest.fixture
def http(broker: BrokerProcess) -> Iterator[HttpClient]:
    with HttpClient(broker.http) as client:
        yield client


@pytest.fixture
def path(http: HttpClient, topic: str) -> str:
    """Where the messages of a topic of two partitions are."""
    config = {"schedule.enable": "true"}
    assert http.post("/v1/topics", {"name": topic, "partitions": 2, "config": config}).status == 201
    return f"/v1/topics/{topic}/messages"


def read(http: HttpClient, path: str, query: str = "") -> Answer:
    return http.get(f"{path}?partition=0{query}")


def values(answer: Answer) -> list[object]:
    return [one.get("value") for one in answer.json["messages"]]


async def test_a_message_sent_over_http_is_read_by_a_kafka_client(
    http: HttpClient, path: str, topic: str, bootstrap: str
) -> None:
    message = {
        "key": "ä",
        "value": {"total": 3},
        "headers": {"kind": "order", "none": None},
        "timestamp_ms": 1_700_000_000_000,
    }
    place = await asyncio.to_thread(http.post, path, message)
    assert place.status == 200

    async with Consumer(None, [topic], bootstrap=bootstrap) as consumer:
        (got,) = await consumer.poll(10_000)
    assert (got.key, got.value) == ("ä".encode(), b'{"total": 3}')
    assert got.headers == (("kind", b"order"), ("none", None))
    assert (got.partition, got.offset, got.timestamp) == tuple(place.json.values())


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ({"value": "text"}, {"value": "text"}),
        ({"value": ""}, {"value": ""}),
        ({"value": None}, {"value": None}),
        ({"value": [1, "é"]}, {"value": '[1, "\\u00e9"]'}),
        ({"value": True}, {"value": "true"}),
        ({"value_base64": "/w=="}, {"value_base64": "/w=="}),
        ({"value": "x", "key_base64": "/w=="}, {"value": "x", "key_base64": "/w=="}),
        (
            {"value": "x", "headers": [{"name": "a", "value_base64": "/w=="}, {"name": "a"}]},
            {
                "value": "x",
                "headers": [{"name": "a", "value_base64": "/w=="}, {"name": "a", "value": None}],
            },
        ),
    ],
)
def test_what_is_sent_is_what_is_shown(
    http: HttpClient, path: str, message: dict[str, object], shown: dict[str, object]
) -> None:
    assert http.post(path, {**message, "partition": 0}).json["offset"] == 0

    (got,) = read(http, path).json["messages"]
    key = {} if "key_base64" in shown else {"key": None}
    assert {name: one for name, one in got.items() if name != "timestamp_ms"} == {
        "partition": 0,
        "offset": 0,
        "headers": [],
        **key,
        **shown,
    }


def test_values_are_shown_as_json_or_base64_on_request(http: HttpClient, path: str) -> None:
    for value in ({"a": 1}, "no json", "[1,\n2]"):
        http.post(path, {"value": value, "partition": 0})

    shown = read(http, path, "&values=json").json["messages"]
    assert shown[0]["value"] == {"a": 1}
    assert base64.b64decode(shown[1]["value_base64"]) == b"no json"
    assert shown[2]["value"] == [1, 2]
    first = read(http, path, "&values=base64").json["messages"][0]
    assert base64.b64decode(first["value_base64"]) == b'{"a": 1}'


def test_many_are_sent_at_once_and_keep_their_order(http: HttpClient, path: str) -> None:
    messages = [{"value": str(n), "partition": 0} for n in range(1_000)]

    told = http.post(f"{path}/batch", {"messages": messages})

    assert (told.status, told.json["sent"], told.json["failed"]) == (200, 1_000, 0)
    assert [one["place"]["offset"] for one in told.json["outcomes"]] == list(range(1_000))
    assert values(read(http, path, "&limit=1000")) == [str(n) for n in range(1_000)]


@pytest.mark.parametrize("encoding", ["identity", "gzip", "zstd"])
def test_many_are_sent_as_lines_and_read_as_lines(
    http: HttpClient, path: str, encoding: str
) -> None:
    lines = b"".join(b'{"value":%d,"partition":0}\n' % n for n in range(5_000))
    pack = {"gzip": gzip.compress, "zstd": zstandard.ZstdCompressor().compress}.get(encoding, bytes)

    told = http.ask("POST", f"{path}/batch", pack(lines), {**LINES, "content-encoding": encoding})
    assert told.json["sent"] == 5_000

    got = http.get(f"{path}?partition=0&limit=5000", accept="application/x-ndjson")
    assert got.headers["waystation-next-offset"] == "5000"
    assert [json.loads(line)["value"] for line in got.body.splitlines()] == [
        str(n) for n in range(5_000)
    ]


def test_those_that_fail_among_many_are_told_one_by_one(http: HttpClient, path: str) -> None:
    messages = [{"value": "a", "partition": 0}, {"value": "b", "partition": 9}]

    told = http.post(f"{path}/batch", {"messages": messages})

    assert (told.status, told.json["sent"], told.json["failed"]) == (207, 1, 1)
    assert told.json["outcomes"][1]["problem"]["status"] == 404


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ({}, "value"),
        ({"value": 1, "value_base64": ""}, "value"),
        ({"value": 1, "key": "a", "key_base64": ""}, "key"),
        ({"value": 1, "key": 1}, "key"),
        ({"value": 1, "partition": -1}, "partition"),
        ({"value": 1, "value_": 1}, "value_"),
        ({"value_base64": "?"}, "value_base64"),
        ({"value": 1, "headers": [{"name": "a", "value": "", "value_base64": ""}]}, "headers"),
        ({"value": 1, "deliver_after": "soon"}, "deliver_after"),
        ({"value": 1, "deliver_at": "2020-01-01", "deliver_after": "1m"}, "deliver_at"),
        ({"value": 1, "deliver_zone": "Europe/Berlin"}, "deliver_zone"),
    ],
)
def test_a_message_that_is_wrong_is_refused_with_its_field(
    http: HttpClient, path: str, message: dict[str, object], field: str
) -> None:
    refused = http.post(path, message)
    assert refused.status == 400
    assert refused.json["field"].startswith(field)

    many = http.post(f"{path}/batch", {"messages": [{"value": "good"}, message]})
    assert many.status == 400
    assert http.get(path + "?partition=0").json["end_offset"] == 0


def test_a_time_that_cannot_be_is_told_with_its_field(
    http: HttpClient, path: str, topic: str
) -> None:
    plain = f"{topic}-plain"
    assert http.post("/v1/topics", {"name": plain}).status == 201
    for where, due, remedy in (
        (path, "2020-01-01T00:00:00Z", "another time"),
        (f"/v1/topics/{plain}/messages", "2033-01-01T00:00:00Z", "schedule.enable"),
    ):
        message = {"value": 1, "deliver_at": due}
        told = http.post(where, message)
        assert (told.status, told.json["field"]) == (400, "deliver_at"), told
        assert remedy in told.json["remedy"]
        many = http.post(f"{where}/batch", {"messages": [{"value": "good"}, message]})
        assert [one.get("problem", {}).get("field") for one in many.json["outcomes"]] == [
            None,
            "deliver_at",
        ]


def test_a_partition_that_is_not_there_is_not_found(http: HttpClient, path: str) -> None:
    for missing in (
        http.post(path, {"value": 1, "partition": 9}),
        http.get(f"{path}?partition=9"),
    ):
        assert (missing.status, missing.json["field"]) == (404, "partition")


def test_a_message_larger_than_the_topic_allows_is_refused(http: HttpClient, path: str) -> None:
    refused = http.post(path, {"value": "x" * 1_200_000})

    assert (refused.status, refused.json["field"]) == (413, "value")


@pytest.mark.parametrize(
    ("line", "field"),
    [(b'{"valu":1}', "line 2: valu"), (b"{", "line 2"), (b'{"value":"\xff"}', "messages[1].value")],
)
def test_a_line_that_is_wrong_is_named(
    http: HttpClient, path: str, line: bytes, field: str
) -> None:
    refused = http.ask("POST", f"{path}/batch", b'{"value":1}\n' + line, LINES)

    assert (refused.status, refused.json["field"]) == (400, field)


def test_pages_lead_from_one_to_the_next(http: HttpClient, path: str) -> None:
    messages = [{"value": str(n), "partition": 0} for n in range(10)]
    http.post(f"{path}/batch", {"messages": messages})

    got, offset = [], 0
    while offset < 10:
        page = read(http, path, f"&offset={offset}&limit=4").json
        got += [one["value"] for one in page["messages"]]
        offset = page["next_offset"]
    assert got == [str(n) for n in range(10)]
    assert read(http, path, "&offset=10").json == {
        "messages": [],
        "next_offset": 10,
        "end_offset": 10,
    }
    assert values(read(http, path, "&max_bytes=1&limit=1")) == ["0"]


async def test_a_page_of_packed_messages_is_as_large_as_asked_for(
    http: HttpClient, path: str, topic: str, bootstrap: str
) -> None:
    async with Producer(bootstrap, compression="zstd", linger_ms=50) as producer:
        sending = [producer.send(topic, b"x" * 10_000, partition=0) for _ in range(40)]
        await asyncio.gather(*sending)

    page = read(http, path, "&max_bytes=25000").json

    assert (len(page["messages"]), page["next_offset"]) == (3, 3)
    assert len(read(http, path, "&offset=3").json["messages"]) == 37


def test_an_offset_that_is_not_there_is_told_with_those_that_are(
    http: HttpClient, path: str, topic: str
) -> None:
    http.post(f"{path}/batch", {"messages": [{"value": "x", "partition": 0}] * 5})
    http.post(f"/v1/topics/{topic}/truncate", {"before": {"0": 2}})

    for query, field in (("&offset=1", "offset"), ("&after=0", "after"), ("&after=5", "after")):
        told = read(http, path, query)
        assert (told.status, told.json["field"]) == (416, field)
        assert "2 to 5" in told.json["detail"]
        assert "seek" not in told.json["detail"]


def test_messages_are_read_from_a_time_on(http: HttpClient, path: str) -> None:
    for at in (1_000, 2_000, 3_000):
        http.post(path, {"value": str(at), "partition": 0, "timestamp_ms": at})

    assert values(read(http, path, "&since=1500")) == ["2000", "3000"]
    assert values(read(http, path, "&since=1970-01-01T00:00:03Z")) == ["3000"]
    assert values(read(http, path, "&since=3001")) == []


def test_messages_are_filtered(http: HttpClient, path: str) -> None:
    messages = [{"value": {"n": n}, "partition": 0} for n in range(500)]
    http.post(f"{path}/batch", {"messages": messages})

    got = read(http, path, "&where=value.n%20%3E%20497&values=json").json

    assert [one["value"]["n"] for one in got["messages"]] == [498, 499]
    assert got["next_offset"] == 500


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("where=value.n%20%3E", "where"),
        ("since=yesterday", "since"),
        ("since=1&offset=1", "since"),
        ("limit=0", "limit"),
        ("limit=many", "limit"),
        ("wait_ms=-1", "wait_ms"),
        ("values=xml", "values"),
        ("of=1", "of"),
        ("topic=other", "topic"),
        ("limit=1&limit=2", "limit"),
    ],
)
def test_a_parameter_that_is_wrong_is_named(
    http: HttpClient, path: str, query: str, field: str
) -> None:
    refused = http.get(f"{path}?partition=0&{query}")

    assert (refused.status, refused.json["field"]) == (400, field)


def test_a_partition_must_be_named_where_there_are_several(http: HttpClient, path: str) -> None:
    refused = http.get(path)

    assert (refused.status, refused.json["field"]) == (400, "partition")


def test_a_reader_waits_for_the_first_message(
    http: HttpClient, path: str, broker: BrokerProcess
) -> None:
    def send() -> None:
        with HttpClient(broker.http) as other:
            other.post(path, {"value": "at last", "partition": 0})

    sending = threading.Timer(0.3, send)
    sending.start()
    began = time.monotonic()
    got = read(http, path, "&wait_ms=20000")
    sending.join()

    assert values(got) == ["at last"]
    assert time.monotonic() - began < 15


def test_who_waits_holds_nobody_up(http: HttpClient, path: str, broker: BrokerProcess) -> None:
    """Brokers answer one connection in order: a second reader must not stand behind the first."""
    done = threading.Event()

    def wait() -> None:
        with HttpClient(broker.http) as other:
            other.get(f"{path}?partition=1&wait_ms=4000")
        done.set()

    waiting = threading.Thread(target=wait)
    waiting.start()
    time.sleep(0.3)
    sending = threading.Timer(0.2, http.post, [path, {"value": "x", "partition": 0}])
    sending.start()
    with HttpClient(broker.http) as another:
        got = another.get(f"{path}?partition=0&wait_ms=10000")

    assert not done.is_set(), "it stood behind the other"
    assert values(got) == ["x"]
    waiting.join()
    sending.join()


def test_a_message_for_later_waits_and_comes(http: HttpClient, path: str) -> None:
    place = http.post(path, {"value": "later", "partition": 0, "deliver_after": 500})
    assert place.json["schedule_id"] == f"0-{place.json['offset']}"

    assert values(read(http, path, "&wait_ms=10000")) == ["later"]


def test_a_topic_that_keeps_nothing_for_later_says_so(http: HttpClient, topic: str) -> None:
    http.post("/v1/topics", {"name": topic})

    refused = http.post(f"/v1/topics/{topic}/messages", {"value": 1, "deliver_after": "1m"})
    assert refused.status == 400
    assert "schedule.enable" in refused.json["detail"]


async def test_what_a_transaction_took_back_is_not_shown(
    http: HttpClient, path: str, topic: str, bootstrap: str
) -> None:
    async with Producer(bootstrap, transactional_id=topic) as producer:
        with suppress(KeyError):
            async with producer.transaction():
                await producer.send(topic, "taken back", partition=0)
                raise KeyError
        async with producer.transaction():
            await producer.send(topic, "kept", partition=0)

    got = await asyncio.to_thread(read, http, path, "&wait_ms=5000")
    assert values(got) == ["kept"]


def test_large_answers_are_packed_if_that_is_liked(http: HttpClient, path: str) -> None:
    http.post(path, {"value": "x" * 100_000, "partition": 0})

    plain = http.get(f"{path}?partition=0")
    for name, unpack in (("gzip", gzip.decompress), ("zstd", zstandard.decompress)):
        got = http.ask("GET", f"{path}?partition=0", headers={"accept-encoding": name})
        assert (got.headers["content-encoding"], got.headers["vary"]) == (name, "accept-encoding")
        assert len(got.body) < 2_000
        assert json.loads(unpack(got.body)) == plain.json
