"""Dead letters, schedules, views and keys over real HTTP."""

import asyncio
import base64
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from tests.support.http_client import Answer, HttpClient

from waystation.client.schedule_descriptions import Scheduled
from waystation.gateway.problems import ProblemError
from waystation.gateway.schedules import found_in_time
from waystation.model.offsets import Millis, Offset
from waystation.testing.process import BrokerProcess

WITHIN_S = 30.0


@pytest.fixture
def http(broker: BrokerProcess) -> Iterator[HttpClient]:
    with HttpClient(broker.http) as client:
        yield client


def until(look: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + WITHIN_S
    while time.monotonic() < deadline:
        if found := look():
            return found
        time.sleep(0.02)
    raise AssertionError(f"{what}: not within {WITHIN_S} s")


def asked(http: HttpClient, path: str, **parameters: object) -> Answer:
    return http.get(f"{path}?{urlencode(parameters, quote_via=quote)}")


# --- dead letters -------------------------------------------------------------------------------


@pytest.fixture
def dead(http: HttpClient, topic: str) -> str:
    """The path of a queue with four dead letters, of which two are rejected."""
    queue = f"/v1/queues/{topic}"
    policy = {"max_deliveries": 1, "dead_letter_topic": f"{topic}.dead"}
    http.post("/v1/queues", {"name": topic, "partitions": 1, **policy})
    messages = [{"key": f"k{n}", "value": {"n": n}} for n in range(4)]
    http.post(f"{queue}/messages/batch", {"messages": messages})
    held = http.post(f"{queue}/receive", {"max": 4, "wait_ms": 10_000}).json["messages"]
    names = [one["receipt"] for one in held]
    given_up = {"receipts": names[:2], "requeue": False, "why": "no such customer"}
    assert http.post(f"{queue}/nack", given_up).status == 200
    assert http.post(f"{queue}/nack", {"receipts": names[2:]}).status == 200
    until(lambda: len(letters(http, queue)) == 4, "four dead letters")
    return queue


def letters(http: HttpClient, queue: str, **chosen: object) -> list[Any]:
    answer = asked(http, f"{queue}/dead-letters", **chosen)
    assert answer.status == 200, answer
    return list(answer.json["letters"])


def test_dead_letters_are_listed_chosen_and_shown(http: HttpClient, dead: str) -> None:
    found = letters(http, dead)
    assert [(one["key"], one["death"]["reason"]) for one in found] == [
        ("k0", "rejected"),
        ("k1", "rejected"),
        ("k2", "deliveries-exhausted"),
        ("k3", "deliveries-exhausted"),
    ]
    name = dead.rpartition("/")[2]
    assert (found[3]["death"]["topic"], found[3]["death"]["offset"]) == (name, 3)
    assert [one["death"]["cause"] for one in found] == ["no such customer"] * 2 + ["", ""]

    assert [one["key"] for one in letters(http, dead, where="value.n > 1")] == ["k2", "k3"]
    assert letters(http, dead, before="2020-01-01T00:00:00Z") == []
    assert len(letters(http, dead, since="2020-01-01T00:00:00Z")) == 4
    page = asked(http, f"{dead}/dead-letters", limit=3).json
    rest = asked(http, f"{dead}/dead-letters", limit=3, after=page["next"]).json
    assert [len(page["letters"]), len(rest["letters"]), rest["next"]] == [3, 1, None]
    one = asked(http, f"{dead}/dead-letters/{found[1]['id']}", values="json").json
    assert (one["id"], one["key"], one["value"], one["redriven"]) == ("0-1", "k1", {"n": 1}, False)


def test_dead_letters_go_back_once(http: HttpClient, dead: str) -> None:
    order = {"where": "value.n < 3", "from_offset": 1, "rate": 1_000, "id": "monday"}
    begun = http.post(f"{dead}/redrives", order)
    assert [one["ended_ms"] for one in begun.json["redrives"] if one["state"] == "running"] in (
        [],
        [None],
    )
    assert (begun.status, begun.json["id"]) == (202, "monday")

    def is_done() -> bool:
        redrives = http.get(f"{dead}/redrives").json["redrives"]
        return [one["state"] for one in redrives] == ["done"]

    until(is_done, "the redrive is done")
    (told,) = http.get(f"{dead}/redrives").json["redrives"]
    assert (told["id"], told["sent_back"], told["refused"]) == ("monday", 2, 0)

    again = http.post(f"{dead}/receive", {"max": 10, "wait_ms": 10_000}).json["messages"]
    assert sorted(one["key"] for one in again) == ["k1", "k2"]
    assert [one["key"] for one in letters(http, dead)] == ["k0", "k3"]
    assert [one["redriven"] for one in letters(http, dead, redriven="true")] == [
        False,
        True,
        True,
        False,
    ]
    stopped = http.ask("DELETE", f"{dead}/redrives/monday")
    assert (stopped.status, stopped.json["redrives"][0]["state"]) == (200, "done")
    assert http.ask("DELETE", f"{dead}/redrives/tuesday").status == 404


def test_mistakes_about_dead_letters_name_their_field(http: HttpClient, dead: str) -> None:
    for path, field in (
        ("dead-letters?where=value.n%20%3E", "where"),
        ("dead-letters?since=yesterday", "since"),
        ("dead-letters?before=x", "before"),
        ("dead-letters?after=x", "after"),
        ("dead-letters/nothing", "letter"),
    ):
        answer = http.get(f"{dead}/{path}")
        assert (answer.status, answer.json["field"]) == (400, field), path
    assert http.get(f"{dead}/dead-letters/0-99").status == 404
    assert http.get(f"{dead}/dead-letters/7-0").status == 404
    assert http.get(f"{dead}/dead-letters?partition=7").status == 404
    bad = http.post(f"{dead}/redrives", {"where": "n >"})
    assert (bad.status, bad.json["field"]) == (400, "where")
    assert http.post(f"{dead}/redrives", {"rate": -1}).json["field"] == "rate"
    assert http.post(f"{dead}/redrives", {"partition": 7}).status == 404


def test_a_queue_without_a_dead_letter_topic_says_how_to_get_one(
    http: HttpClient, topic: str
) -> None:
    http.post("/v1/queues", {"name": topic, "partitions": 1})

    answer = http.get(f"/v1/queues/{topic}/dead-letters")

    assert (answer.status, answer.json["field"]) == (409, "queue")
    assert "share.dead.letter.topic" in answer.json["remedy"]
    http.post("/v1/queues", {"name": topic, "dead_letter_topic": f"{topic}.dead"})
    assert http.get(f"/v1/queues/{topic}/dead-letters").json["letters"] == []
    assert http.post(f"/v1/queues/{topic}/redrives", {}).json["redrives"] == []
    assert http.get(f"/v1/queues/{topic}/dead-letters/0-0").status == 404


# --- schedules ----------------------------------------------------------------------------------


@pytest.fixture
def scheduled(http: HttpClient, topic: str) -> str:
    """The path of a topic whose messages may wait."""
    config = {"schedule.enable": "true"}
    http.post("/v1/topics", {"name": topic, "partitions": 1, "config": config})
    return f"/v1/topics/{topic}"


def later(http: HttpClient, topic: str, **message: object) -> str:
    answer = http.post(f"{topic}/messages", {"value": "x", **message})
    assert answer.status == 200, answer
    return str(answer.json["schedule_id"])


def test_what_waits_is_listed_shown_and_recurs(http: HttpClient, scheduled: str) -> None:
    first = later(http, scheduled, deliver_after="1h", key="a", value="one")
    second = later(http, scheduled, deliver_at="2033-01-01T00:00:00Z", key="b")
    third = later(http, scheduled, deliver_cron="0 9 * * 1", deliver_zone="Europe/Berlin")
    path = f"{scheduled}/schedules"

    listed = until(lambda: _all(http, path, 3), "three wait")
    by_id = {one["id"]: one for one in listed}
    assert (by_id[third]["cron"], by_id[third]["zone"]) == ("0 9 * * 1", "Europe/Berlin")
    assert by_id[second]["due_ms"] == 1_988_150_400_000
    assert [one["id"] for one in asked(http, path, key="a").json["schedules"]] == [first]
    far = asked(http, path, since="2032-01-01T00:00:00Z").json["schedules"]
    assert [one["id"] for one in far] == [second]
    page = asked(http, path, limit=2).json
    rest = asked(http, path, limit=2, after=page["next"]).json
    assert [one["id"] for one in page["schedules"] + rest["schedules"]] == [
        one["id"] for one in listed
    ]
    assert rest["next"] is None
    shown = http.get(f"{path}/{first}").json
    assert (shown["id"], shown["key"], shown["value"], shown["cron"]) == (first, "a", "one", None)


def _all(http: HttpClient, path: str, count: int) -> list[Any] | None:
    found = http.get(path).json["schedules"]
    return list(found) if len(found) == count else None


def test_what_is_cancelled_is_never_delivered_and_what_is_retimed_goes_then(
    http: HttpClient, scheduled: str
) -> None:
    never = later(http, scheduled, deliver_after="1h", value="never")
    soon = later(http, scheduled, deliver_after="1h", value="soon")
    path = f"{scheduled}/schedules"
    until(lambda: _all(http, path, 2), "both wait")

    assert http.ask("DELETE", f"{path}/{never}").status == 204
    moved = http.post(f"{path}/{soon}", {"deliver_after": "200ms"}, method="PATCH")
    assert moved.status == 200
    assert moved.json["due_ms"] < time.time() * 1_000 + 3_000

    got = asked(http, f"{scheduled}/messages", wait_ms=20_000).json["messages"]
    assert [one["value"] for one in got] == ["soon"]
    for gone, change in ((never, "cancelled"), (soon, "delivered")):
        again = http.ask("DELETE", f"{path}/{gone}")
        assert (again.status, again.json["field"]) == (410, "schedule")
        assert change in again.json["detail"]
        late = http.post(f"{path}/{gone}", {"deliver_after": "1h"}, method="PATCH")
        assert late.status == 410
    assert http.get(f"{path}/{soon}").status == 404


def test_many_are_cancelled_or_retimed_in_one_call_and_each_has_its_outcome(
    http: HttpClient, scheduled: str
) -> None:
    path = f"{scheduled}/schedules"
    ids = [later(http, scheduled, deliver_after="1h", key="ab"[n % 2]) for n in range(8)]
    far = later(http, scheduled, deliver_at="2033-01-01T00:00:00Z", key="a")
    until(lambda: _all(http, path, 9), "all wait")

    moved = http.post(f"{path}/retime", {"ids": [*ids[:2], "0-999"], "deliver_after": "2h"}).json
    assert (moved["retimed"], [one["id"] for one in moved["refused"]]) == (2, ["0-999"])
    assert http.get(f"{path}/{ids[1]}").json["due_ms"] == moved["due_ms"]
    told = http.post(f"{path}/cancel", {"ids": [ids[0], ids[0], "7-0"]}).json
    assert (told["cancelled"], told["more"]) == (1, False)
    assert told["refused"] == [
        {"id": "7-0", "why": "7-0 is not pending: there is no such partition"}
    ]
    some = {"key": "a", "before": "2032-01-01T00:00:00Z", "limit": 2}
    first, second = (http.post(f"{path}/cancel", some).json for _ in range(2))
    assert (first["cancelled"], first["more"]) == (2, True)
    assert (second["cancelled"], second["more"]) == (1, False)
    left = {one["id"] for one in http.get(path).json["schedules"]}
    assert left == {*ids[1::2], far}
    rest = http.post(f"{path}/cancel", {"since": 0}).json
    assert rest == {"cancelled": 5, "refused": [], "more": False}
    assert http.get(path).json["schedules"] == []
    again = http.post(f"{path}/cancel", {"ids": [far]}).json
    assert "cancelled" in again["refused"][0]["why"]


async def test_a_search_that_takes_too_long_tells_what_it_found_or_how_to_find_more() -> None:
    async def waiting(*found: int) -> AsyncIterator[Scheduled]:
        for offset in found:
            yield Scheduled("orders", 0, Offset(offset), Millis(0))
        await asyncio.Event().wait()

    some, is_complete = await found_in_time(waiting(1, 2), within_s=0.05)
    assert ([one.offset for one in some], is_complete) == ([1, 2], False)
    with pytest.raises(ProblemError) as told:
        await found_in_time(waiting(), within_s=0.05)
    assert (told.value.problem.status, told.value.problem.field) == (504, "key")


def test_mistakes_about_schedules_name_their_field(
    http: HttpClient, scheduled: str, topic: str
) -> None:
    path = f"{scheduled}/schedules"
    name = later(http, scheduled, deliver_after="1h")
    until(lambda: _all(http, path, 1), "it waits")
    for query, field in (
        ("since=soon", "since"),
        ("before=x", "before"),
        ("after=x", "after"),
        ("limit=0", "limit"),
        ("key=a&key_base64=YQ==", "key_base64"),
    ):
        answer = http.get(f"{path}?{query}")
        assert (answer.status, answer.json["field"]) == (400, field), query
    for body, field in (
        ({}, "deliver_at"),
        ({"deliver_at": "soon"}, "deliver_at"),
        ({"deliver_at": "2033-01-01T00:00:00Z", "deliver_after": "1h"}, "deliver_after"),
        ({"deliver_after": "x"}, "deliver_after"),
        ({"deliver_at": "2933-01-01T00:00:00Z"}, "deliver_at"),
        ({"deliver_at": 2**63 - 1}, "deliver_at"),
        ({"deliver_after": 2**63 - 1}, "deliver_after"),
    ):
        answer = http.post(f"{path}/{name}", body, method="PATCH")
        assert (answer.status, answer.json["field"]) == (400, field), body
    for call, body, field in (
        ("cancel", {}, "ids"),
        ("cancel", {"limit": 5}, "ids"),
        ("cancel", {"ids": [name], "key": "a"}, "ids"),
        ("cancel", {"ids": []}, "ids"),
        ("cancel", {"ids": ["nothing"]}, "ids"),
        ("cancel", {"ids": ["0-1"] * 1_001}, "ids"),
        ("cancel", {"since": "soon"}, "since"),
        ("cancel", {"before": 2**63}, "before"),
        ("cancel", {"key": "a", "key_base64": "YQ=="}, "key_base64"),
        ("retime", {"ids": [name]}, "deliver_at"),
        ("retime", {"ids": [name], "deliver_at": "2933-01-01T00:00:00Z"}, "deliver_at"),
        ("retime", {"deliver_after": "1h"}, "ids"),
    ):
        answer = http.post(f"{path}/{call}", body)
        assert (answer.status, answer.json["field"]) == (400, field), (call, body)
    assert http.post(f"{path}/cancel", {"partition": 9}).status == 404
    assert http.get(f"{path}/nothing").json["field"] == "schedule"
    assert http.get(f"{path}/0-999").status == 404
    assert http.ask("DELETE", f"{path}/9-0").status == 404
    http.post("/v1/topics", {"name": f"{topic}-plain", "partitions": 1})
    plain = http.get(f"/v1/topics/{topic}-plain/schedules")
    assert (plain.status, plain.json["field"]) == (409, "topic")
    assert "schedule.enable" in plain.json["remedy"]
    assert http.get("/v1/topics/nowhere/schedules").status == 404


# --- views --------------------------------------------------------------------------------------


def test_a_view_shows_what_matches_and_is_deleted(http: HttpClient, topic: str) -> None:
    http.post("/v1/topics", {"name": topic, "partitions": 1})
    view = {"name": f"{topic}-de", "on": topic, "where": "value.country = 'DE'"}
    made = http.post("/v1/views", view)
    assert (made.status, made.json["partitions"]) == (201, 1)
    for country in ("DE", "FR", "DE"):
        http.post(f"/v1/topics/{topic}/messages", {"value": {"country": country}})

    shown = until(lambda: _two(http, f"{topic}-de"), "two messages match")
    assert [one["offset"] for one in shown] == [0, 2]
    told = http.get(f"/v1/views/{topic}-de").json
    assert (told["name"], told["on"], told["where"]) == tuple(view.values())
    assert told in http.get("/v1/views").json["views"]
    assert http.post("/v1/views", view).status == 409

    assert http.ask("DELETE", f"/v1/views/{topic}-de").status == 204

    assert http.get(f"/v1/views/{topic}-de").status == 404
    gone = http.ask("DELETE", f"/v1/views/{topic}")
    assert (gone.status, gone.json["field"]) == (404, "view")
    assert http.get(f"/v1/topics/{topic}").status == 200


def _two(http: HttpClient, view: str) -> list[Any] | None:
    found = http.get(f"/v1/topics/{view}/messages").json.get("messages", [])
    return list(found) if len(found) == 2 else None


def test_an_expression_that_is_wrong_is_told_with_the_place(http: HttpClient, topic: str) -> None:
    http.post("/v1/topics", {"name": topic, "partitions": 1})
    for where in ("value.n >", "value.n = 'a' AND", "key = 7", "nonsense(1)", "("):
        view = {"name": f"{topic}-v", "on": topic, "where": where}
        answer = http.post("/v1/views", view)
        assert (answer.status, answer.json["field"]) == (400, "where"), where
        assert "^" in answer.json["detail"], answer.json
    for body, status, field in (
        ({"name": "v", "on": "nowhere", "where": "key = 'a'"}, 404, "on"),
        ({"name": "a/b", "on": topic, "where": "key = 'a'"}, 400, "name"),
        ({"name": "v", "on": topic}, 400, "where"),
        ({"name": "v", "on": topic, "where": "x" * 8_193}, 400, "where"),
    ):
        answer = http.post("/v1/views", body)
        assert (answer.status, answer.json["field"]) == (status, field), body


# --- by key -------------------------------------------------------------------------------------


@pytest.fixture
def keyed(http: HttpClient, topic: str) -> str:
    """Where the messages of a topic with an index of keys are."""
    config = {"index.keys": "true"}
    http.post("/v1/topics", {"name": topic, "partitions": 4, "config": config})
    path = f"/v1/topics/{topic}/messages"
    messages = [{"key": f"user-{n % 10}", "value": str(n)} for n in range(100)]
    assert http.post(f"{path}/batch", {"messages": messages}).status == 200
    return path


def test_messages_of_a_key_are_found_page_by_page(http: HttpClient, keyed: str) -> None:
    page = asked(http, keyed, key="user-3", limit=4).json
    rest = asked(http, keyed, key="user-3", offset=page["next_offset"]).json

    values = [one["value"] for one in page["messages"] + rest["messages"]]
    assert values == [str(n) for n in range(3, 100, 10)]
    last = rest["messages"][-1]
    behind = asked(http, keyed, key="user-3", after=page["messages"][-1]["offset"]).json
    assert behind["messages"] == rest["messages"]
    assert asked(http, keyed, key="user-3", after=last["offset"]).json["messages"] == []
    assert rest["next_offset"] == rest["end_offset"]
    assert asked(http, keyed, key="nobody").json["messages"] == []
    name = base64.b64encode(b"user-3").decode()
    assert len(asked(http, keyed, key_base64=name).json["messages"]) == 10
    lines = http.get(f"{keyed}?key=user-3", accept="application/x-ndjson")
    assert len(lines.body.splitlines()) == 10
    elsewhere = (last["partition"] + 1) % 4
    assert asked(http, keyed, key="user-3", partition=elsewhere).json["messages"] == []


def test_a_page_of_a_key_is_as_large_as_asked_for(http: HttpClient, keyed: str) -> None:
    messages = [{"key": "large", "value": "x" * 995} for _ in range(700)]
    assert http.post(f"{keyed}/batch", {"messages": messages}).status == 200

    small = asked(http, keyed, key="large", max_bytes=2_500).json
    one = asked(http, keyed, key="large", max_bytes=1).json
    most = asked(http, keyed, key="large", limit=600).json

    assert (len(small["messages"]), len(one["messages"]), len(most["messages"])) == (3, 1, 600)
    rest = asked(http, keyed, key="large", limit=600, offset=most["next_offset"]).json
    assert len(rest["messages"]) == 100
    assert rest["next_offset"] == rest["end_offset"]


def test_who_waits_for_a_key_hears_of_it(
    broker: BrokerProcess, http: HttpClient, keyed: str
) -> None:
    found: list[Answer] = []
    end = asked(http, keyed, key="user-3").json["next_offset"]

    def wait() -> None:
        with HttpClient(broker.http) as own:
            found.append(asked(own, keyed, key="user-3", offset=end, wait_ms=20_000))

    waiting = threading.Thread(target=wait)
    waiting.start()
    http.post(keyed, {"key": "user-4", "value": "for another"})
    http.post(keyed, {"key": "user-3", "value": "at last"})
    waiting.join(WITHIN_S)

    assert [one["value"] for one in found[0].json["messages"]] == ["at last"]


def test_mistakes_about_keys_name_their_field(http: HttpClient, keyed: str, topic: str) -> None:
    for parameters, field in (
        ({"key": "a", "key_base64": "YQ=="}, "key_base64"),
        ({"key_base64": "%%"}, "key_base64"),
        ({"key": "a", "where": "key = 'a'"}, "where"),
        ({"key": "a", "since": "0"}, "since"),
        ({"key": "a", "offset": 1, "after": 1}, "after"),
        ({"key": "a", "after": -1}, "after"),
    ):
        answer = asked(http, keyed, **parameters)
        assert (answer.status, answer.json["field"]) == (400, field), parameters
    assert asked(http, keyed, key="a", partition=99).status == 404
    beyond = asked(http, keyed, key="a", offset=2**62)
    assert (beyond.status, beyond.json["field"]) == (416, "offset")
    http.post("/v1/topics", {"name": f"{topic}-plain", "partitions": 1})
    plain = asked(http, f"/v1/topics/{topic}-plain/messages", key="a")
    assert (plain.status, plain.json["field"]) == (409, "key")
    assert "index.keys" in plain.json["remedy"]
    assert asked(http, "/v1/topics/nowhere/messages", key="a").status == 404
