"""The inbox over real HTTP: send, receive, go on where one stopped."""

import json
import os
import random
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode
from uuid import UUID, uuid4

import pytest
from tests.support.http_client import Answer, HttpClient
from tests.support.soak import count
from tests.support.turns import turns_watched

from waystation.client.admin import Admin
from waystation.client.inbox_ids import Place, decode, encode
from waystation.client.partitioner import partition_of_key
from waystation.client.producer import Producer
from waystation.client.transport import connect_tcp
from waystation.gateway.clients import Clients
from waystation.gateway.inbox import Inbox, ReceiveBody, ReceiveParams
from waystation.gateway.routes import Call
from waystation.gateway.settings import GatewaySettings
from waystation.testing.process import BrokerProcess

FROM = (("from_user", b"ann"),)


def broker_cpu_s(broker: BrokerProcess) -> float:
    times = Path(f"/proc/{broker.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK")


@pytest.fixture
def http(broker: BrokerProcess) -> Iterator[HttpClient]:
    with HttpClient(broker.http) as client:
        yield client


@pytest.fixture
def user() -> str:
    """Somebody whom no other test writes to."""
    return f"user-{uuid4()}"


def send(http: HttpClient, to: str, message: str, sender: str = "ann") -> str:
    told = http.post("/send", {"from_user": sender, "to_user": to, "message": message})
    assert told.status == 200, told
    assert told.json["status"] == "success"
    return str(told.json["message_id"])


def receive(http: HttpClient, user: str, after: str | None = None, **more: int) -> Any:
    told = ask(http, user_id=user, last_message_id=after, **more)
    assert told.status == 200, told
    return told.json["messages"]


def ask(http: HttpClient, **parameters: Any) -> Answer:
    given = {name: value for name, value in parameters.items() if value is not None}
    return http.get(f"/receive?{urlencode(given)}")


def test_the_example_of_the_documents(http: HttpClient) -> None:
    began = datetime.now(UTC)
    body = {"from_user": "user123", "to_user": "user456", "message": "Hello!"}

    sent = http.post("/send", body)
    assert sent.status == 200
    assert set(sent.json) == {"status", "message_id"}
    assert sent.json["status"] == "success"

    got = http.get("/receive?user_id=user456")
    assert set(got.json) == {"messages"}
    (message,) = got.json["messages"]
    moment = datetime.fromisoformat(message.pop("timestamp"))
    assert message == {"message_id": sent.json["message_id"], **body}
    assert abs((moment - began).total_seconds()) < 60

    asked = {"user_id": "user456", "last_message_id": sent.json["message_id"]}
    assert http.post("/receive", asked, method="GET").json == {"messages": []}


def test_the_next_ones_come_in_order_behind_the_last(http: HttpClient, user: str) -> None:
    ids = [send(http, user, str(n)) for n in range(7)]
    assert len(set(ids)) == 7

    assert [one["message_id"] for one in receive(http, user)] == ids
    assert [one["message"] for one in receive(http, user, ids[2])] == ["3", "4", "5", "6"]
    assert [one["message"] for one in receive(http, user, ids[2], limit=2)] == ["3", "4"]
    assert receive(http, user, ids[6]) == []
    assert [one["message"] for one in receive(http, user, "", limit=1)] == ["0"]


def test_a_body_and_the_address_say_the_same(http: HttpClient, user: str) -> None:
    ids = [send(http, user, str(n)) for n in range(3)]

    def by_body(path: str, body: Any) -> Answer:
        return http.post(path, body, method="GET")

    whole = by_body("/receive", {"user_id": user}).json
    assert whole == ask(http, user_id=user).json
    rest = {"last_message_id": ids[0], "limit": 1, "wait_ms": 0}
    assert by_body(f"/receive?user_id={user}", rest).json["messages"] == whole["messages"][1:2]
    for kind in ({}, {"content-type": "application/x-www-form-urlencoded"}):  # what curl -d says
        asked = json.dumps({"user_id": user}).encode()
        assert http.ask("GET", "/receive", asked, kind).json == whole
    both = by_body(f"/receive?user_id={user}", {"user_id": "someone else"})
    assert (both.status, both.json["field"]) == (400, "user_id")


def test_a_hundred_users_get_their_own_and_nothing_else(http: HttpClient, user: str) -> None:
    chance = random.Random(9)
    users = [f"{user}-{n}" for n in range(100)]
    sent: dict[str, list[tuple[str, str, str]]] = defaultdict(list)
    for n in range(count(300, 20_000)):
        to, sender = chance.choice(users), chance.choice(users)
        sent[to].append((send(http, to, f"message {n}", sender), sender, f"message {n}"))

    for one in users:
        got: list[dict[str, str]] = []
        while page := receive(http, one, got[-1]["message_id"] if got else None, limit=3):
            got += page
        told = [(each["message_id"], each["from_user"], each["message"]) for each in got]
        assert told == sent[one]
        assert {each["to_user"] for each in got} <= {one}


async def test_a_hundred_thousand_users_are_told_apart(
    http: HttpClient, broker: BrokerProcess, user: str
) -> None:
    users = count(100_000, 1_000_000)
    send(http, user, "so that there is an inbox")
    async with Producer(broker.bootstrap) as producer:
        for n in range(users):
            key = f"{user}-{n}".encode()
            where = partition_of_key(key, 16)
            producer.submit("inbox", key, key=key, partition=where, headers=FROM)
            if n % 256 == 255:
                await producer.drain()
        await producer.flush()

    began_s = broker_cpu_s(broker)
    for n in range(0, users, users // 200):
        (got,) = receive(http, f"{user}-{n}")
        assert (got["message"], got["from_user"]) == (f"{user}-{n}", "ann")
    # The whole call, HTTP included: some 2 ms, however many others there are.
    assert (broker_cpu_s(broker) - began_s) / 200 < 0.01


@pytest.mark.parametrize("text", ["", "ä ö\n\x00 \U0001f600", "{}", "x" * 100_000])
def test_any_text_comes_as_it_was_sent(http: HttpClient, user: str, text: str) -> None:
    send(http, user, text, sender="Zoë & \U0001f600")
    (got,) = receive(http, user)
    assert (got["message"], got["from_user"]) == (text, "Zoë & \U0001f600")


def test_users_may_be_called_anything(http: HttpClient, user: str) -> None:
    for name in (f"{user} ä/?&=#%", f"{user}\n", f"{user}{'é' * 200}"):
        send(http, name, "hello")
        assert [one["to_user"] for one in receive(http, name)] == [name]
        assert http.get(f"/receive?user_id={quote(name)}").status == 200


def test_who_waits_gets_the_message_when_it_comes(
    http: HttpClient, broker: BrokerProcess, user: str
) -> None:
    first = send(http, user, "first")
    assert receive(http, user, first, wait_ms=50) == []

    def later() -> None:
        with HttpClient(broker.http) as other:
            send(other, f"{user}-other", "not for them")
            time.sleep(0.2)
            send(other, user, "second")

    sending = threading.Thread(target=later)
    sending.start()
    began = time.monotonic()
    (got,) = receive(http, user, first, wait_ms=20_000)
    sending.join()

    assert got["message"] == "second"
    assert time.monotonic() - began < 15


def test_many_wait_at_once(http: HttpClient, broker: BrokerProcess, user: str) -> None:
    """None of them holds another up, or those who send."""
    got: list[str] = []

    def wait(name: str) -> None:
        with HttpClient(broker.http) as own:
            got.extend(one["message"] for one in receive(own, name, wait_ms=20_000))

    names = [f"{user}-{n}" for n in range(10)]
    waiting = [threading.Thread(target=wait, args=(name,)) for name in names]
    for one in waiting:
        one.start()
    for name in reversed(names):
        send(http, name, name)
    for one in waiting:
        one.join(30)
    assert sorted(got) == sorted(names)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"to_user": "b", "message": "c"}, "from_user"),
        ({"from_user": "a", "message": "c"}, "to_user"),
        ({"from_user": "a", "to_user": "b"}, "message"),
        ({"from_user": "", "to_user": "b", "message": "c"}, "from_user"),
        ({"from_user": "a", "to_user": "", "message": "c"}, "to_user"),
        ({"from_user": "a", "to_user": "b" * 257, "message": "c"}, "to_user"),
        ({"from_user": "a", "to_user": "b", "message": None}, "message"),
        ({"from_user": "a", "to_user": "b", "message": 3}, "message"),
        ({"from_user": "a", "to_user": "b", "message": "c", "urgent": True}, "urgent"),
    ],
)
def test_a_mistake_in_a_message_is_told(http: HttpClient, body: Any, field: str) -> None:
    told = http.post("/send", body)
    assert (told.status, told.json["field"]) == (400, field)


def test_half_a_character_is_refused(http: HttpClient) -> None:
    body = b'{"from_user": "a", "to_user": "b\\ud800", "message": "c"}'
    told = http.ask("POST", "/send", body, {"content-type": "application/json"})
    assert told.status == 400


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("", "user_id"),
        ("user_id=", "user_id"),
        ("user_id=a&limit=0", "limit"),
        ("user_id=a&limit=10001", "limit"),
        ("user_id=a&wait_ms=60001", "wait_ms"),
        ("user_id=a&last_id=3", "last_id"),
        ("user_id=a&last_message_id=garbage", "last_message_id"),
        ("user_id=a&last_message_id=17", "last_message_id"),
    ],
)
def test_a_mistake_in_a_question_is_told(http: HttpClient, query: str, field: str) -> None:
    told = http.get(f"/receive?{query}")
    assert (told.status, told.json["field"]) == (400, field)


def test_a_message_larger_than_the_topic_allows_is_refused(http: HttpClient, user: str) -> None:
    told = http.post("/send", {"from_user": "a", "to_user": user, "message": "x" * 1_200_000})
    assert (told.status, told.json["field"]) == (413, "message")
    assert receive(http, user) == []


def test_the_id_of_another_users_message_is_refused(http: HttpClient, user: str) -> None:
    send(http, user, "mine")
    others = send(http, f"{user}-other", "theirs")

    told = ask(http, user_id=user, last_message_id=others)
    assert (told.status, told.json["field"]) == (400, "last_message_id")
    assert told.json["type"].endswith(":message-of-another-user")


def test_ids_of_what_was_never_there_are_gone(http: HttpClient, user: str) -> None:
    name = user.encode()
    place, _ = decode(send(http, user, "mine"), name)
    wrong = [
        Place(UUID(int=5), place.partition, place.offset),
        Place(place.topic_id, (place.partition + 1) % 16, place.offset),
        Place(place.topic_id, place.partition, place.offset + 1_000_000),
    ]
    for one in wrong:
        told = ask(http, user_id=user, last_message_id=encode(one, name))
        assert (told.status, told.json["field"]) == (410, "last_message_id")


async def test_behind_a_truncated_log_one_goes_on_with_what_is_there(
    http: HttpClient, bootstrap: str, user: str
) -> None:
    ids = [send(http, user, str(n)) for n in range(4)]
    place, _ = decode(ids[2], user.encode())
    async with Admin(bootstrap) as admin:
        await admin.delete_records({("inbox", place.partition): place.offset})

    assert [one["message"] for one in receive(http, user)] == ["2", "3"]
    assert [one["message_id"] for one in receive(http, user, ids[0])] == ids[2:]


async def test_messages_of_kafka_clients_are_shown_as_they_can_be(
    http: HttpClient, bootstrap: str, user: str
) -> None:
    first = send(http, user, "by HTTP")
    place, _ = decode(first, user.encode())
    async with Producer(bootstrap) as producer:
        for value in (b"plain", b"\xff", None):
            await producer.send("inbox", value, key=user, partition=place.partition)
        await producer.send("inbox", b"", key=user, partition=place.partition, timestamp=1)

    got = receive(http, user, first)
    assert [one["message"] for one in got] == ["plain", "\ufffd", None, ""]
    assert {one["from_user"] for one in got} == {None}
    assert got[3]["timestamp"] == "1970-01-01T00:00:00.001Z"


async def test_very_many_messages_are_shown_in_short_turns(
    http: HttpClient, bootstrap: str, user: str
) -> None:
    first = send(http, user, "the first")
    where = decode(first, user.encode())[0].partition
    async with Producer(bootstrap) as producer:
        for number in range(3_000):
            producer.submit("inbox", b"%d" % number, key=user, partition=where, headers=FROM)
        await producer.flush()
    clients = Clients(bootstrap, connect_tcp, waiting=10, message_bytes=1 << 20)
    wanted = ReceiveParams(user_id=user, last_message_id=first, limit=10_000)
    inbox = Inbox(GatewaySettings())
    try:
        await inbox.receive(Call(clients, wanted, ReceiveBody(limit=10_000), {}))
        async with turns_watched() as turns_s:
            got = await inbox.receive(Call(clients, wanted, ReceiveBody(), {}))
    finally:
        await clients.close()

    assert [one.message for one in got.messages] == [str(number) for number in range(3_000)]
    assert len({one.message_id for one in got.messages}) == 3_000
    # All at once took 45 ms.
    assert max(turns_s) < 0.01


def test_the_calls_are_described(http: HttpClient) -> None:
    paths = http.openapi["paths"]
    assert "410" in paths["/receive"]["get"]["responses"]
    names = {one["name"] for one in paths["/receive"]["get"]["parameters"]}
    assert names == {"user_id", "last_message_id", "limit", "wait_ms"}
    assert "requestBody" in paths["/receive"]["get"]
    assert json.dumps(paths["/send"]["post"]).count("NewInboxMessage") == 1
