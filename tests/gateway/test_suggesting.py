"""A wrong guess leads to the right name."""

from collections.abc import Iterator
from typing import Literal

import msgspec
import pytest
from tests.support.http_client import HttpClient

from waystation.gateway.suggesting import choices_at, did_you_mean, fields_at, near_paths
from waystation.testing.process import BrokerProcess

PATHS = [
    "/healthz",
    "/v1/topics",
    "/v1/topics/{topic}",
    "/v1/topics/{topic}/messages",
    "/v1/groups",
]


class Inner(msgspec.Struct):
    name: str
    value: int = 0


class Said(msgspec.Struct, tag_field="type", tag="said"):
    loud: Literal["yes", "no"] | None = None


class Asked(msgspec.Struct, tag_field="type", tag="asked"):
    """Another of the same kind."""


class Outer(msgspec.Struct):
    one: Inner | None
    many: list[Inner]
    named: dict[str, Inner] | list[str]
    plain: str


@pytest.fixture
def http(broker: BrokerProcess) -> Iterator[HttpClient]:
    with HttpClient(broker.http) as client:
        yield client


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("/health", "/healthz"),
        ("/v1/health", "/healthz"),
        ("/topics", "/v1/topics"),
        ("/V1/Topics", "/v1/topics"),
        ("/v1/topics/", "/v1/topics"),
        ("/v1/consumer-groups", "/v1/groups"),
        ("/v1/topics/orders/message", "/v1/topics/{topic}/messages"),
    ],
)
def test_a_path_leads_to_a_near_one(asked: str, meant: str) -> None:
    assert near_paths(asked.split("/")[1:], PATHS)[0] == meant


@pytest.mark.parametrize("asked", ["/", "/swagger", "/v1/topics/" + "topics/" * 1000])
def test_what_is_near_nothing_leads_nowhere(asked: str) -> None:
    assert near_paths(asked.split("/")[1:], PATHS) == []


def test_names_are_told_the_nearest_first() -> None:
    assert did_you_mean("vlaue", ["key", "value"]) == "did you mean value? there are key, value"
    assert did_you_mean("payload", ["key", "value"]) == "there are key, value"
    assert did_you_mean("k" * 100_000, ["k" * 100]).startswith("there are k")


@pytest.mark.parametrize(
    ("where", "fields"),
    [
        ("", ("one", "many", "named", "plain")),
        ("one", ("name", "value")),
        ("many[3]", ("name", "value")),
        ("named[...]", ("name", "value")),
        ("plain", ()),
        ("nowhere.at.all", ()),
    ],
)
def test_the_fields_of_an_object_are_found_by_its_path(where: str, fields: tuple[str, ...]) -> None:
    assert fields_at(Outer, where) == fields


def test_words_to_choose_from_are_found() -> None:
    assert choices_at(Said, "loud") == ("no", "yes"), "by name"
    assert choices_at(Said | Asked, "type") == ("said", "asked")
    assert choices_at(list[Said | Asked], "[3].type") == ("said", "asked")
    assert choices_at(Outer, "plain") == ()


def test_wrong_guesses_are_answered_with_the_right_names(http: HttpClient, topic: str) -> None:
    http.post("/v1/topics", {"name": topic, "partitions": 1})
    messages = f"/v1/topics/{topic}/messages"

    assert "did you mean /healthz?" in http.get("/health").json["remedy"]
    assert "did you mean partitions?" in http.post("/v1/topics", {"partition": 3}).json["remedy"]
    assert "did you mean offset?" in http.get(f"{messages}?ofset=3").json["remedy"]
    assert "there are base64, json, text" in http.get(f"{messages}?values=yaml").json["remedy"]
    assert http.get("/v1/cluster?verbose=1").json["remedy"] == "leave it away: the call has none"
    assert http.post("/v1/views", {"name": "v"}).json["remedy"].startswith("add on")
    wrong = http.post(f"{messages}/batch", {"messages": [{"value": 1}, {"vlaue": 2}]}).json
    assert wrong["field"] == "messages[1].vlaue"
    assert "did you mean value" in wrong["remedy"]


@pytest.mark.parametrize("body", [b'{"messages": [{"value": 1}]}', b' [{"value": 1}]'])
def test_many_are_told_where_they_go(http: HttpClient, body: bytes) -> None:
    for path in ("/v1/topics/{topic}/messages", "/v1/queues/{queue}/messages"):
        asked = path.format(topic="any", queue="any")
        for kind in ("application/json", "application/x-ndjson"):
            told = http.ask("POST", asked, body, {"content-type": kind})
            assert told.status in (400, 415)
            assert f"many at once go to POST {path}/batch" in told.json["remedy"]


def test_options_may_be_numbers_and_booleans(http: HttpClient, topic: str) -> None:
    config = {"index.keys": True, "retention.ms": 86_400_000, "min.cleanable.dirty.ratio": 0.25}

    assert http.post("/v1/topics", {"name": topic, "config": config}).status == 201
    kept = http.get(f"/v1/topics/{topic}/config").json["config"]
    assert [kept[name]["value"] for name in config] == ["true", "86400000", "0.25"]

    wanted = {"set": {"index.keys": False}}
    changed = http.post(f"/v1/topics/{topic}/config", wanted, "PATCH").json["config"]
    assert changed["index.keys"]["value"] == "false"
    made = {"name": f"{topic}.q", "config": {"share.record.lock.duration.ms": 20_000}}
    assert http.post("/v1/queues", {**made, "topic_config": {"segment.ms": 9}}).status == 201
