"""Webhooks of a real node, against a real receiver."""

import base64
import hashlib
import hmac
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.http_client import HttpClient
from tests.support.servers import free_ports
from tests.support.webhook_calls import LOOPBACK, make_topic, make_webhook, send, show, until
from tests.support.webhook_receiver import OK, Hook, Receiver, Reply

from waystation.testing.process import BrokerProcess


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A node that may push to loopback."""
    data_dir = tmp_path_factory.mktemp("webhooks") / "data"
    with BrokerProcess(data_dir, http="127.0.0.1:0", options=LOOPBACK).start() as one:
        yield one


@pytest.fixture
def http(node: BrokerProcess) -> Iterator[HttpClient]:
    with HttpClient(node.http) as client:
        yield client


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as one:
        yield one


def signatures(hook: Hook, *secrets: str) -> list[str]:
    """By each of the secrets, in their order."""
    signed = f"{hook.headers['webhook-id']}.{hook.headers['webhook-timestamp']}.".encode()
    keys = [base64.b64decode(one.removeprefix("whsec_")) for one in secrets]
    digests = [hmac.new(key, signed + hook.body, hashlib.sha256).digest() for key in keys]
    return [f"v1,{base64.b64encode(one).decode()}" for one in digests]


def fails(times: int, status: int = 500, **headers: str) -> Any:
    """Answers each message so often with a failure, then takes it."""
    tries: dict[str, int] = defaultdict(int)

    def answer(hook: Hook) -> Reply:
        message_id = hook.headers["webhook-id"]
        tries[message_id] += 1
        return Reply(status, headers) if tries[message_id] <= times else OK

    return answer


def test_a_message_is_pushed_as_it_is_read_and_signed(
    http: HttpClient, node: BrokerProcess, topic: str, receiver: Receiver
) -> None:
    make_topic(http, topic)
    send(http, topic, "before the webhook")
    made = make_webhook(http, topic, receiver.url, values="json")
    send(http, topic, '{"total": 3}', key="ann", headers={"kind": "order"})
    receiver.until(lambda: receiver.hooks)

    (hook,) = receiver.hooks
    assert hook.json == {
        "id": hook.headers["webhook-id"],
        "topic": topic,
        "partition": 0,
        "offset": 1,
        "timestamp_ms": hook.json["timestamp_ms"],
        "delivery": 1,
        "key": "ann",
        "value": {"total": 3},
        "headers": [{"name": "kind", "value": "order"}],
    }
    told = {name: hook.headers[f"waystation-{name}"] for name in ("topic", "partition", "offset")}
    assert told == {"topic": topic, "partition": "0", "offset": "1"}
    key = base64.b64decode(made["secret"].removeprefix("whsec_"))
    assert [hook.headers["webhook-signature"]] == signatures(hook, made["secret"])
    assert abs(int(hook.headers["webhook-timestamp"]) - time.time()) < 60

    until(lambda: show(http, topic)["state"]["delivered"] == 1)
    shown = show(http, topic)
    assert (shown["pending"], shown["dead_letters"], shown["state"]["status"]) == (
        0,
        0,
        "delivering",
    )
    assert shown["secret_fingerprint"] == hashlib.sha256(key).hexdigest()[:16]
    assert "secret" not in shown
    assert made["secret"] not in http.get("/v1/webhooks").body.decode()
    assert made["secret"].removeprefix("whsec_") not in node.log_path.read_text()
    metrics = http.get("/metrics").body.decode()
    assert f'waystation_webhook_delivered_total{{webhook="{made["name"]}"}} 1' in metrics


def test_a_secret_that_was_replaced_signs_too_for_a_while(
    http: HttpClient, node: BrokerProcess, topic: str, receiver: Receiver
) -> None:
    path = f"/v1/webhooks/{topic[-100:]}"
    make_topic(http, topic)
    made = make_webhook(http, topic, receiver.url)
    changed = http.post(path, {"secret": None, "secret_grace_ms": 3_600_000}, "PATCH").json
    assert changed["secret"] not in (None, made["secret"])
    (former,) = changed["former_secrets"]
    assert former["fingerprint"] == made["secret_fingerprint"]
    assert 3_500 < former["until_ms"] / 1_000 - time.time() <= 3_600
    send(http, topic, "both")
    receiver.until(lambda: receiver.values == ["both"])
    both = [changed["secret"], made["secret"]]
    assert receiver.hooks[0].headers["webhook-signature"].split() == signatures(
        receiver.hooks[0], *both
    )

    over = http.post(path, {"secret_grace_ms": 0}, "PATCH").json
    assert (over["former_secrets"], over["secret"]) == ([], None)
    assert over["secret_fingerprint"] == changed["secret_fingerprint"]
    send(http, topic, "new")
    receiver.until(lambda: receiver.values == ["both", "new"])
    assert receiver.hooks[1].headers["webhook-signature"].split() == signatures(
        receiver.hooks[1], changed["secret"]
    )

    statuses = [http.post(path, {"secret": None}, "PATCH").status for _ in range(4)]
    assert statuses == [200, 200, 200, 409]
    shown = http.get(path).body.decode() + node.log_path.read_text()
    assert not any(one.removeprefix("whsec_") in shown for one in both)


def test_what_fails_comes_again_later_each_time_under_the_same_id(
    http: HttpClient, topic: str, receiver: Receiver
) -> None:
    receiver.answer = fails(3)
    make_topic(http, topic)
    make_webhook(http, topic, receiver.url, backoff_ms=100, backoff_max_ms=10_000)
    send(http, topic, "once more")
    receiver.until(lambda: len(receiver.hooks) == 4)

    assert {hook.headers["webhook-id"] for hook in receiver.hooks} == {
        receiver.hooks[0].headers["webhook-id"]
    }
    assert [hook.headers["waystation-delivery"] for hook in receiver.hooks] == ["1", "2", "3", "4"]
    gaps = [b.at - a.at for a, b in zip(receiver.hooks, receiver.hooks[1:], strict=False)]
    assert all(gap >= least for gap, least in zip(gaps, (0.1, 0.2, 0.4), strict=True)), gaps
    until(lambda: show(http, topic)["pending"] == 0)
    state = show(http, topic)["state"]
    assert (state["delivered"], state["failed"], state["given_up"]) == (1, 3, 0)
    assert state["last_error"].startswith("answered 500")


def test_a_target_that_names_a_time_is_left_alone_until_then(
    http: HttpClient, topic: str, receiver: Receiver
) -> None:
    receiver.answer = fails(1, 429, **{"retry-after": "1"})
    make_topic(http, topic)
    make_webhook(http, topic, receiver.url, concurrency=1)
    send(http, topic, "patience")
    receiver.until(lambda: len(receiver.hooks) == 2)

    first, second = receiver.hooks
    assert 1.0 <= second.at - first.at < 15.0


def test_what_is_refused_too_often_or_for_good_is_a_dead_letter(
    http: HttpClient, topic: str, receiver: Receiver
) -> None:
    statuses = {"gone": 410, "wrong": 422}
    receiver.answer = lambda hook: Reply(statuses.get(hook.values[0], 200))
    make_topic(http, topic)
    make_webhook(http, topic, receiver.url, max_deliveries=3, dead_letter_topic=f"{topic}.dead")
    send(http, topic, "gone", "wrong", "fine")
    until(lambda: show(http, topic)["dead_letters"] == 2)

    assert sorted(receiver.values) == ["fine", "gone", "wrong", "wrong", "wrong"]
    read = http.get(f"/v1/topics/{topic}.dead/messages").json["messages"]
    dead = {one["value"]: {h["name"]: h["value"] for h in one["headers"]} for one in read}
    assert sorted(dead) == ["gone", "wrong"]
    assert dead["wrong"]["__dlq.errors.delivery.count"] == "3"
    assert dead["gone"]["__dlq.errors.topic"] == topic
    assert dead["gone"]["__dlq.errors.cause"] == "answered 410 Gone"
    assert dead["wrong"]["__dlq.errors.cause"].startswith("answered 422 ")
    shown = show(http, topic)
    assert (shown["pending"], shown["state"]["given_up"]) == (0, 2)
    assert {(one["offset"], one["error"].split()[1]) for one in shown["recently_given_up"]} == {
        (0, "410"),
        (1, "422"),
    }


def test_messages_of_one_key_go_in_order_and_hold_up_no_others(
    http: HttpClient, topic: str, receiver: Receiver
) -> None:
    tries: dict[str, int] = defaultdict(int)

    def answer(hook: Hook) -> Reply:
        tries[hook.values[0]] += 1
        return Reply(500 if hook.values[0] == "a0" and tries["a0"] < 4 else 200)

    receiver.answer = answer
    make_topic(http, topic)
    make_webhook(http, topic, receiver.url, order="key", backoff_ms=150)
    messages = [{"key": key, "value": f"{key}{n}"} for n in range(5) for key in "abc"]
    http.post(f"/v1/topics/{topic}/messages/batch", {"messages": messages})
    receiver.until(lambda: len(set(receiver.values)) == 15)

    for key in "abc":
        seen = dict.fromkeys(value for value in receiver.values if value[0] == key)
        assert list(seen) == [f"{key}{n}" for n in range(5)]
    assert receiver.values.index("c4") < receiver.values.index("a1"), "c waited for a"


def test_only_what_the_filter_means_is_pushed(
    http: HttpClient, topic: str, receiver: Receiver
) -> None:
    make_topic(http, topic)
    make_webhook(http, topic, receiver.url, where="value.total > 10")
    send(http, topic, *(f'{{"total": {n}}}' for n in (5, 50, 7, 70, 9)))
    until(lambda: show(http, topic)["pending"] == 0 and len(receiver.hooks) == 2)

    assert sorted(receiver.values) == ['{"total": 50}', '{"total": 70}']
    assert show(http, topic)["state"]["skipped"] == 3


def test_several_go_together_and_one_that_fails_goes_by_itself(
    http: HttpClient, topic: str, receiver: Receiver
) -> None:
    receiver.answer = lambda hook: Reply(422 if "bad" in hook.values else 200)
    make_topic(http, topic)
    send(http, topic, *(f"good{n}" for n in range(9)), "bad")
    make_webhook(
        http, topic, receiver.url, batch_size=10, max_deliveries=2, begin="earliest", concurrency=4
    )
    until(lambda: show(http, topic)["pending"] == 0)

    assert sorted(receiver.hooks[0].values) == ["bad", *(f"good{n}" for n in range(9))]
    assert {len(hook.values) for hook in receiver.hooks[1:]} == {1}
    assert receiver.most_at_once <= 4
    assert show(http, topic)["dead_letters"] == 1
    ids = [one["id"] for hook in receiver.hooks for one in hook.json["messages"]]
    assert len(set(ids)) == 10


def test_a_target_that_hangs_holds_up_no_other(
    http: HttpClient, topic: str, receiver: Receiver
) -> None:
    make_topic(http, topic)
    with Receiver() as hung:
        hung.answer = hung.hang
        make_webhook(http, topic, hung.url, name="hung", timeout_ms=300, concurrency=3)
        make_webhook(http, topic, receiver.url, name="brisk")
        send(http, topic, *map(str, range(50)))
        receiver.until(lambda: len(receiver.hooks) == 50)
        until(lambda: show(http, "hung")["state"]["failed"] >= 5)

        state = show(http, "hung")["state"]
        assert (state["status"], state["last_error"]) == ("failing", "no answer within 0.3 s")
        assert state["failing_since_ms"] > 0
        assert hung.most_at_once <= 2 * 3, "requests that were given up may linger there"
        assert show(http, "brisk")["state"]["status"] == "delivering"
    for name in ("hung", "brisk"):
        assert http.ask("DELETE", f"/v1/webhooks/{name}").status == 204


def test_an_answer_must_be_whole_in_time_and_may_be_long(
    http: HttpClient, topic: str, receiver: Receiver
) -> None:
    replies = {
        "drips": Reply(body=b"x" * 100, drip_s=0.1),
        "long": Reply(body=b"y" * (8 << 20)),
    }
    seen: dict[str, int] = defaultdict(int)

    def answer(hook: Hook) -> Reply:
        seen[hook.values[0]] += 1
        return replies[hook.values[0]] if seen[hook.values[0]] == 1 else OK

    receiver.answer = answer
    make_topic(http, topic)
    make_webhook(http, topic, receiver.url, timeout_ms=500)
    send(http, topic, "drips", "long")
    until(lambda: show(http, topic)["pending"] == 0)

    assert sorted(receiver.values) == ["drips", "drips", "long"]
    assert show(http, topic)["state"]["delivered"] == 2


def test_a_redirect_is_not_followed(http: HttpClient, topic: str, receiver: Receiver) -> None:
    with Receiver() as elsewhere:
        receiver.answer = lambda _: Reply(307, {"location": elsewhere.url})
        make_topic(http, topic)
        make_webhook(http, topic, receiver.url)
        send(http, topic, "stay")
        until(lambda: show(http, topic)["state"]["failed"] >= 2)

        assert elsewhere.hooks == []
    assert show(http, topic)["state"]["last_error"] == "answered 307: redirects are not followed"


def test_messages_wait_for_a_target_that_is_down_however_often_they_were_tried(
    http: HttpClient, topic: str, receiver: Receiver
) -> None:
    receiver.answer = lambda _: Reply(503)
    make_topic(http, topic)
    make_webhook(http, topic, receiver.url, max_deliveries=1, concurrency=2)
    values = [str(n) for n in range(20)]
    send(http, topic, *values)
    receiver.until(lambda: len(receiver.hooks) >= 7)
    receiver.answer = lambda _: OK
    until(lambda: show(http, topic)["pending"] == 0)

    shown = show(http, topic)
    assert (shown["dead_letters"], shown["state"]["given_up"]) == (0, 0)
    assert shown["state"]["delivered"] == 20
    assert set(receiver.values) == set(values)


def test_messages_die_of_a_target_that_is_down_if_they_are_to(http: HttpClient, topic: str) -> None:
    make_topic(http, topic)
    url = f"http://127.0.0.1:{free_ports(1)[0]}/hook"
    make_webhook(http, topic, url, max_deliveries=2, while_down="count")
    send(http, topic, "a", "b")
    until(lambda: show(http, topic)["dead_letters"] == 2)

    shown = show(http, topic)
    assert shown["pending"] == 0
    assert "Connect" in shown["state"]["last_error"]


def test_a_pause_keeps_messages_and_a_change_counts_at_once(
    http: HttpClient, topic: str, receiver: Receiver
) -> None:
    path = f"/v1/webhooks/{topic[-100:]}"
    make_topic(http, topic)
    make_webhook(http, topic, f"http://127.0.0.1:{free_ports(1)[0]}/hook", paused=True)
    send(http, topic, "kept")
    assert show(http, topic)["state"]["status"] == "paused"
    assert http.post(path, {"url": receiver.url, "where": None}, "PATCH").status == 200
    assert show(http, topic)["pending"] == 1
    assert http.ask("POST", f"{path}/resume").json["paused"] is False
    receiver.until(lambda: receiver.values == ["kept"])

    assert http.ask("POST", f"{path}/pause").json["state"]["status"] == "paused"
    send(http, topic, "later")
    assert http.ask("POST", f"{path}/resume").status == 200
    receiver.until(lambda: receiver.values == ["kept", "later"])


def test_one_that_was_deleted_delivers_nothing_and_its_namesake_begins_anew(
    http: HttpClient, topic: str, receiver: Receiver
) -> None:
    path = f"/v1/webhooks/{topic[-100:]}"
    make_topic(http, topic)
    make_webhook(http, topic, receiver.url)
    send(http, topic, "first")
    receiver.until(lambda: receiver.values == ["first"])
    assert http.ask("DELETE", path).status == 204
    assert http.get(path).status == http.ask("DELETE", path).status == 404
    groups = [one["group"] for one in http.get("/v1/groups").json["groups"]]
    assert f"webhook.{topic[-100:]}" not in groups

    send(http, topic, "between")
    make_webhook(http, topic, receiver.url)
    send(http, topic, "last")
    receiver.until(lambda: "last" in receiver.values)
    until(lambda: show(http, topic)["pending"] == 0)

    assert receiver.values == ["first", "last"]
    assert show(http, topic)["state"]["delivered"] == 1


def test_messages_of_a_topic_that_was_made_anew_have_ids_of_their_own(
    http: HttpClient, topic: str, receiver: Receiver
) -> None:
    make_topic(http, topic)
    make_webhook(http, topic, receiver.url)
    send(http, topic, "first life")
    receiver.until(lambda: len(receiver.hooks) == 1)
    assert http.ask("DELETE", f"/v1/topics/{topic}").status == 204
    make_topic(http, topic)
    send(http, topic, "second life")
    receiver.until(lambda: len(receiver.hooks) == 2)

    assert {hook.json["offset"] for hook in receiver.hooks} == {0}
    ids = [hook.headers["webhook-id"] for hook in receiver.hooks]
    assert len(set(ids)) == 2, "who drops ids that it has seen would lose a message"


def test_a_test_posts_a_sample_and_tells_what_came_of_it(
    http: HttpClient, topic: str, receiver: Receiver
) -> None:
    make_topic(http, topic)
    make_webhook(http, topic, receiver.url, paused=True)
    path = f"/v1/webhooks/{topic[-100:]}/test"

    told = http.ask("POST", path).json
    assert (told["delivered"], told["status"], told["error"]) == (True, 200, None)
    assert receiver.hooks[0].headers["waystation-test"] == "true"
    receiver.answer = lambda _: Reply(418)
    told = http.ask("POST", path).json
    assert (told["delivered"], told["status"]) == (False, 418)
    assert show(http, topic)["state"]["delivered"] == 0


@pytest.mark.parametrize(
    ("wish", "status", "field"),
    [
        ({"url": "http://10.0.0.1/hook"}, 400, "url"),
        ({"url": "http://169.254.169.254/latest/meta-data"}, 400, "url"),
        ({"url": "http://[::ffff:192.168.0.1]/"}, 400, "url"),
        ({"url": "http://no-such-host.invalid/"}, 400, "url"),
        ({"url": "ftp://127.0.0.1/"}, 400, "url"),
        ({"url": "http://ann:pw@127.0.0.1/"}, 400, "url"),
        ({"secret": "hunter2"}, 400, "secret"),
        ({"where": "value.total >"}, 400, "where"),
        ({"topic": "there-is-none"}, 404, "topic"),
        ({"dead_letter_topic": "refusals"}, 400, "dead_letter_topic"),
        ({"batch_size": 0}, 400, "batch_size"),
        ({"name": "a/b"}, 400, "name"),
        ({"name": ".."}, 400, "name"),
        ({"retries": 3}, 400, "retries"),
    ],
)
def test_a_wish_that_cannot_be_is_refused_with_the_field_to_blame(
    http: HttpClient, wish: dict[str, Any], status: int, field: str
) -> None:
    if http.get("/v1/topics/refusals").status == 404:
        make_topic(http, "refusals")
    good = {"name": "refused", "topic": "refusals", "url": "http://127.0.0.1:8/hook"}
    answer = http.post("/v1/webhooks", {**good, **wish})

    assert (answer.status, answer.json["field"]) == (status, field), answer
    assert "pw@" not in answer.body.decode()
    assert "hunter2" not in answer.body.decode()
    assert http.get("/v1/webhooks/refused").status == 404


def test_a_name_is_given_once_and_a_change_is_checked_too(
    http: HttpClient, topic: str, receiver: Receiver
) -> None:
    make_topic(http, topic)
    name = make_webhook(http, topic, receiver.url)["name"]
    again = http.post("/v1/webhooks", {"name": name, "topic": topic, "url": receiver.url})
    assert (again.status, again.json["field"]) == (409, "name")
    bad = http.post(f"/v1/webhooks/{name}", {"url": "http://10.0.0.1/"}, "PATCH")
    assert (bad.status, bad.json["field"]) == (400, "url")
    assert show(http, topic)["url"] == receiver.url
    for call in ("pause", "resume", "test"):
        assert http.ask("POST", f"/v1/webhooks/none/{call}").status == 404
