"""The inbox outlives its brokers: what was answered is kept, and ids stay what they are."""

import http.client
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.support.cluster import ProcessCluster
from tests.support.http_client import HttpClient
from tests.support.soak import count

from waystation.client.admin import Admin
from waystation.testing.process import BrokerProcess

OPTIONS = {"inbox.topic": "letters", "inbox.partitions": "4"}


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker to be killed."""
    data_dir = tmp_path_factory.mktemp("inbox") / "data"
    with BrokerProcess(data_dir, http="127.0.0.1:0", options=OPTIONS).start() as one:
        yield one


@pytest.fixture
def own(mortal: BrokerProcess) -> BrokerProcess:
    """The same, without an inbox."""
    with HttpClient(mortal.http) as client:
        assert client.ask("DELETE", "/v1/topics/letters").status in (204, 404)
    return mortal


def send(http: HttpClient, to: str, message: str) -> str:
    told = http.post("/send", {"from_user": "ann", "to_user": to, "message": message})
    assert told.status == 200, told
    return str(told.json["message_id"])


def receive(http: HttpClient, user: str, more: str = "") -> Any:
    told = http.get(f"/receive?user_id={user}{more}")
    assert told.status == 200, told
    return told.json["messages"]


def test_kill_minus_nine_loses_no_success_and_ids_stay(own: BrokerProcess) -> None:
    answered: dict[str, list[tuple[str, str]]] = {f"user-{n}": [] for n in range(4)}

    def write(user: str) -> None:
        sent = answered[user]
        try:
            with HttpClient(own.http) as client:
                while True:
                    message = f"message {len(sent)}"
                    sent.append((send(client, user, message), message))
        except (OSError, http.client.HTTPException):
            return  # killed; the last one was not answered

    writing = [threading.Thread(target=write, args=(user,)) for user in answered]
    for one in writing:
        one.start()
    while min(map(len, answered.values())) < count(25, 2_000):
        writing[0].join(0.01)
    own.kill()
    for one in writing:
        one.join()
    own.start()

    with HttpClient(own.http) as client:
        for user, sent in answered.items():
            got = [
                (one["message_id"], one["message"]) for one in receive(client, user, "&limit=9999")
            ]
            assert got[: len(sent)] == sent
            assert len(got) <= len(sent) + 1
            after = receive(client, user, f"&last_message_id={sent[10][0]}&limit=9999")
            assert [(one["message_id"], one["message"]) for one in after] == got[11:]


async def test_partitions_that_are_added_are_left_alone(own: BrokerProcess) -> None:
    users = [f"user-{n}" for n in range(12)]
    with HttpClient(own.http) as client:
        first = {user: send(client, user, "before") for user in users}
        async with Admin(own.bootstrap) as admin:
            topic = await admin.describe_topic("letters")
            assert len(topic.partitions) == 4
            await admin.create_partitions("letters", 7)
        own.kill()  # and with it what it remembers of the topic
        own.start()
    with HttpClient(own.http) as client:
        for user in users:
            second = send(client, user, "after")
            assert [one["message_id"] for one in receive(client, user)] == [first[user], second]


async def test_a_topic_of_someone_else_is_not_taken_for_an_inbox(own: BrokerProcess) -> None:
    body = {"from_user": "a", "to_user": "b", "message": "c"}
    async with Admin(own.bootstrap) as admin:
        with HttpClient(own.http) as client:
            await admin.create_topic("letters", 4)
            for told in (client.post("/send", body), client.get("/receive?user_id=b")):
                assert told.status == 409
                assert "index.keys=true" in told.json["remedy"]
            await admin.alter_configs("letters", set={"index.keys": "true"})
            assert client.post("/send", body).status == 200


async def test_an_inbox_of_too_few_partitions_is_told(own: BrokerProcess) -> None:
    async with Admin(own.bootstrap) as admin:
        await admin.create_topic("letters", 3, configs={"index.keys": "true"})
    with HttpClient(own.http) as client:
        told = client.get("/receive?user_id=b")
    assert told.status == 409
    assert "inbox.partitions=3" in told.json["remedy"]


def test_ids_of_an_inbox_that_was_deleted_are_gone(own: BrokerProcess) -> None:
    with HttpClient(own.http) as client:
        old = send(client, "bob", "old")
        assert client.ask("DELETE", "/v1/topics/letters").status == 204
        new = send(client, "bob", "new")
        assert [one["message_id"] for one in receive(client, "bob")] == [new]
        told = client.get(f"/receive?user_id=bob&last_message_id={old}")
    assert (told.status, told.json["field"]) == (410, "last_message_id")


async def test_a_topic_that_would_keep_only_the_last_message_is_no_inbox(
    own: BrokerProcess,
) -> None:
    body = {"from_user": "a", "to_user": "b", "message": "c"}
    async with Admin(own.bootstrap) as admin:
        with HttpClient(own.http) as client:
            options = {"index.keys": "true", "cleanup.policy": "compact,delete"}
            await admin.create_topic("letters", 4, configs=options)
            for told in (client.post("/send", body), client.get("/receive?user_id=b")):
                assert told.status == 409
                assert "cleanup.policy=delete" in told.json["remedy"]
            await admin.alter_configs("letters", set={"cleanup.policy": "delete"})
            assert client.post("/send", body).status == 200


def test_an_inbox_that_is_spoilt_later_is_told_too(own: BrokerProcess) -> None:
    body = {"from_user": "a", "to_user": "b", "message": "c"}
    with HttpClient(own.http) as client:
        assert client.post("/send", body).status == 200
        set_option(client, "index.keys", "false")
        told = client.get("/receive?user_id=b")
        assert (told.status, told.json["type"]) == (409, "urn:waystation:problem:unfit-inbox-topic")
        set_option(client, "index.keys", "true")
        assert len(receive(client, "b")) == 1
        set_option(client, "cleanup.policy", "compact")
        until(lambda: client.post("/send", body).status == 409)
        set_option(client, "cleanup.policy", "delete")
        assert client.post("/send", body).status == 200


def searches(client: HttpClient) -> float:
    """How many searches by key the node has begun."""
    lines = client.get("/metrics").body.decode().splitlines()
    (one,) = (line for line in lines if line.startswith("waystation_key_searches_total "))
    return float(one.split()[1])


def set_option(client: HttpClient, name: str, value: str) -> None:
    told = client.post("/v1/topics/letters/config", {"set": {name: value}}, method="PATCH")
    assert told.status == 200, told


def until(is_so: Callable[[], bool], within_s: float = 30.0) -> None:
    deadline = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    folder = tmp_path_factory.mktemp("inboxes")
    with ProcessCluster(folder, 3, http="127.0.0.1:0", options=OPTIONS) as running:
        yield running


def at_once(cluster: ProcessCluster, user: str) -> dict[int, str]:
    """A message to ``user`` by each node, at the same moment; their ids."""
    together = threading.Barrier(len(cluster.ids))

    def one(number: int) -> str:
        with HttpClient(cluster.brokers[number].http) as client:
            together.wait()
            return send(client, user, f"by {number}")

    with ThreadPoolExecutor(len(cluster.ids)) as threads:
        return dict(zip(cluster.ids, threads.map(one, cluster.ids), strict=True))


def test_who_waits_while_its_topic_goes_is_answered_in_time(own: BrokerProcess) -> None:
    """At the latest when it asked to be: clients wait longer for topics that may come back."""
    with HttpClient(own.http) as client:
        last = send(client, "bob", "the last")
        client.post("/v1/topics", {"name": "keyed", "config": {"index.keys": "true"}})
        paths = {
            f"/receive?user_id=bob&last_message_id={last}": 410,
            "/receive?user_id=nobody": 200,
            "/v1/topics/keyed/messages?key=a": 404,
            "/v1/topics/keyed/messages?partition=0": 404,
        }

        def wait(path: str) -> tuple[int, float]:
            with HttpClient(own.http) as mine:
                began_s = time.monotonic()
                together.wait()
                told = mine.get(f"{path}&wait_ms=1000")
                return told.status, time.monotonic() - began_s

        together, before = threading.Barrier(len(paths) + 1), searches(client)
        with ThreadPoolExecutor(len(paths)) as threads:
            waiting = [threads.submit(wait, path) for path in paths]
            together.wait()
            until(lambda: searches(client) >= before + 6)  # a look, and another that waits
            for name in ("letters", "keyed"):
                assert client.ask("DELETE", f"/v1/topics/{name}").status == 204
            told = [one.result() for one in waiting]

    assert [status for status, _ in told] == list(paths.values())
    assert max(waited_s for _, waited_s in told) < 6


@pytest.mark.timeout(120)
def test_ids_are_those_of_the_inbox_whichever_node_made_it(cluster: ProcessCluster) -> None:
    """Whoever still believes in an inbox that was deleted, and in its ids, learns better."""
    ever: set[str] = set()
    for _ in range(3):
        sent = at_once(cluster, "bob")
        assert not ever & set(sent.values())
        ever |= set(sent.values())
        for number in cluster.ids:
            with HttpClient(cluster.brokers[number].http) as client:
                got = receive(client, "bob")
                assert {one["message_id"] for one in got} == set(sent.values())
                last = got[0]["message_id"]
                assert receive(client, "bob", f"&last_message_id={last}") == got[1:]
        with HttpClient(cluster.brokers[1].http) as client:
            assert client.ask("DELETE", "/v1/topics/letters").status == 204


@pytest.mark.timeout(120)
def test_ids_stay_when_a_leader_dies(cluster: ProcessCluster) -> None:
    users = [f"user-{n}" for n in range(6)]
    sent: dict[str, list[str]] = {user: [] for user in users}
    for number in cluster.ids:
        with HttpClient(cluster.brokers[number].http) as client:
            for user in users:
                sent[user].append(send(client, user, f"by {number}"))
    topic = cluster.topic("letters")
    assert {len(one.replicas) for one in topic.partitions} == {3}
    leader = topic.partitions[0].leader
    cluster.kill(leader)
    survivor = next(number for number in cluster.ids if number != leader)
    with HttpClient(cluster.brokers[survivor].http) as client:
        for user in users:
            sent[user].append(send(client, user, "after"))
            got = [one["message_id"] for one in receive(client, user)]
            assert got == sent[user]
            assert len(receive(client, user, f"&last_message_id={got[1]}")) == 2
