"""Topics and the cluster over real HTTP, on a real broker."""

from collections.abc import Iterator

import pytest
from tests.support.http_client import HttpClient

from waystation.testing.process import BrokerProcess


@pytest.fixture
def http(broker: BrokerProcess) -> Iterator[HttpClient]:
    with HttpClient(broker.http) as client:
        yield client


def test_a_topic_lives_over_http(http: HttpClient, topic: str) -> None:
    made = http.post("/v1/topics", {"name": topic, "partitions": 2, "config": {"segment.ms": "9"}})

    assert made.status == 201
    assert (made.json["name"], made.json["partitions"]) == (topic, 2)
    assert topic in [one["name"] for one in http.get("/v1/topics").json["topics"]]
    assert http.get(f"/v1/topics/{topic}").json["partitions"][1] == {
        "partition": 1,
        "leader": 1,
        "replicas": [1],
        "in_sync": [1],
        "start_offset": 0,
        "end_offset": 0,
    }
    assert http.get(f"/v1/topics/{topic}/config").json["config"]["segment.ms"]["value"] == "9"

    assert http.ask("DELETE", f"/v1/topics/{topic}").status == 204
    assert http.get(f"/v1/topics/{topic}").status == 404


def test_options_are_set_and_unset(http: HttpClient, topic: str) -> None:
    http.post("/v1/topics", {"name": topic, "config": {"segment.ms": "9"}})
    path = f"/v1/topics/{topic}/config"

    changed = http.post(path, {"set": {"retention.ms": "7"}, "unset": ["segment.ms"]}, "PATCH")

    config = changed.json["config"]
    assert (config["retention.ms"]["value"], config["retention.ms"]["source"]) == (
        "7",
        "dynamic_topic_config",
    )
    assert config["segment.ms"]["source"] == "default_config"
    refused = http.post(path, {"set": {"retention.ms": "soon"}}, "PATCH")
    assert (refused.status, refused.json["field"]) == (400, "config")
    assert "retention.ms" in refused.json["detail"]
    for wish in ({"unset": ["retention.mss"]}, {"set": {"segment.ms": 9}, "unset": ["segment.ms"]}):
        misspelt = http.post(path, wish, "PATCH")
        assert (misspelt.status, misspelt.json["field"]) == (400, "unset")
    assert http.post("/v1/topics/none/config", {}, "PATCH").status == 404


def test_a_topic_gets_more_partitions_and_never_fewer(http: HttpClient, topic: str) -> None:
    http.post("/v1/topics", {"name": topic, "partitions": 1})
    path = f"/v1/topics/{topic}"
    assert http.post(f"{path}/messages", {"value": "x", "partition": 2}).status == 404
    more = http.post(f"{path}/partitions", {"partitions": 3})

    assert (more.status, more.json["partitions"]) == (200, 3)
    assert http.post(f"{path}/messages", {"value": "x", "partition": 2}).status == 200
    assert len(http.get(path).json["partitions"]) == 3
    for count in (2, 3, 2**30):
        refused = http.post(f"{path}/partitions", {"partitions": count})
        assert (refused.status, refused.json["field"]) == (400, "partitions"), count
    assert http.post("/v1/topics/none/partitions", {"partitions": 2}).status == 404


def test_long_lists_come_in_pages(http: HttpClient, topic: str) -> None:
    names = [f"{topic}.{number}" for number in range(5)]
    for name in reversed(names):
        http.post("/v1/topics", {"name": name, "partitions": 1})
        reset = {"to": "latest", "partitions": [{"topic": name}]}
        assert http.post(f"/v1/groups/{name}/reset", reset).status == 200
    for what, field in (("topics", "name"), ("groups", "group")):
        found: list[str] = []
        after = ""
        while after is not None:
            page = http.get(f"/v1/{what}?prefix={topic}.&limit=2&after={after}").json
            found += [one[field] for one in page[what]]
            after = page["next"]
        assert found == names, what


def test_what_stands_in_the_way_is_named_with_the_remedy(http: HttpClient, topic: str) -> None:
    http.post("/v1/topics", {"name": topic, "partitions": 1})
    view = {"name": f"{topic}.v", "on": topic, "where": "key = 'a'"}
    assert http.post("/v1/views", view).status == 201
    path = f"/v1/topics/{topic}"
    for method, call, body, field, remedy in (
        ("DELETE", path, None, "topic", "DELETE /v1/views/{view}"),
        ("POST", f"{path}.v/messages", {"value": "x"}, "topic", "another topic"),
        ("POST", f"{path}.v/truncate", {}, "topic", "another topic"),
        ("POST", "/v1/views", {**view, "name": "w", "on": f"{topic}.v"}, "on", "name a topic"),
        ("POST", "/v1/views", {**view, "name": ".."}, "name", "another name"),
    ):
        told = http.ask(method, call) if body is None else http.post(call, body, method)
        assert (told.status, told.json["field"]) == (400, field), told
        assert remedy in told.json["remedy"], told
    assert http.ask("DELETE", f"/v1/views/{topic}.v").status == 204


def test_what_was_sent_is_truncated(http: HttpClient, topic: str) -> None:
    http.post("/v1/topics", {"name": topic, "partitions": 2})
    for value in range(3):
        http.post(f"/v1/topics/{topic}/messages", {"value": value, "partition": 0})

    cut = http.post(f"/v1/topics/{topic}/truncate", {"before": {"0": 2}})
    assert cut.json == {"start_offsets": {"0": 2}}
    gone = http.get(f"/v1/topics/{topic}/messages?partition=0&offset=1")
    assert (gone.status, gone.json["field"]) == (416, "offset")

    every = http.ask("POST", f"/v1/topics/{topic}/truncate")
    assert every.json == {"start_offsets": {"0": 3, "1": 0}}


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({"name": "a topic"}, 400, "name"),
        ({"name": ".."}, 400, "name"),
        ({"name": "x", "partitions": 2**30}, 400, "partitions"),
        ({"name": "x", "partitions": 0}, 400, "partitions"),
        ({"name": "x", "replication_factor": 9}, 400, "replication_factor"),
        ({"name": "x", "config": {"no.such.option": "1"}}, 400, "config"),
        ({"name": "x", "colour": "red"}, 400, "colour"),
        ({}, 400, "name"),
    ],
)
def test_a_topic_that_cannot_be_is_refused(
    http: HttpClient, body: object, status: int, field: str
) -> None:
    refused = http.post("/v1/topics", body)

    assert (refused.status, refused.json["field"]) == (status, field)


def test_a_second_topic_of_one_name_is_refused(http: HttpClient, topic: str) -> None:
    http.post("/v1/topics", {"name": topic})

    assert http.post("/v1/topics", {"name": topic}).status == 409


@pytest.mark.parametrize(
    ("before", "status", "field"),
    [({"7": 1}, 400, "before.7"), ({"x": 1}, 400, "before.x"), ({"0": 99}, 416, "before.0")],
)
def test_what_is_not_there_is_not_truncated(
    http: HttpClient, topic: str, before: dict[str, int], status: int, field: str
) -> None:
    http.post("/v1/topics", {"name": topic, "partitions": 1})

    refused = http.post(f"/v1/topics/{topic}/truncate", {"before": before})

    assert (refused.status, refused.json["field"]) == (status, field)


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", ""), ("DELETE", ""), ("GET", "/config"), ("POST", "/truncate"), ("GET", "/messages")],
)
def test_a_topic_that_is_not_there_is_not_found_soon(
    http: HttpClient, method: str, path: str
) -> None:
    missing = http.ask(method, f"/v1/topics/nobody-made-this{path}")

    assert (missing.status, missing.json["field"]) == (404, "topic")


def test_the_cluster_tells_its_brokers(http: HttpClient, broker: BrokerProcess) -> None:
    (only,) = http.get("/v1/cluster").json["brokers"]

    assert f"{only['host']}:{only['port']}" == broker.bootstrap
