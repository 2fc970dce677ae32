"""Queues over HTTP on three nodes: received at one, settled at another, while nodes die."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.cluster import ProcessCluster
from tests.support.http_client import HttpClient

LEASE_MS = 60_000
SENT = 24
WITHIN_S = 60.0
SOON_S = 6.0
"""Clients that are not told otherwise wait ten."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    """Three nodes; the last test kills one."""
    with ProcessCluster(tmp_path_factory.mktemp("queues"), 3, http="127.0.0.1:0") as started:
        yield started


def receive(http: HttpClient, queue: str = "jobs", **wanted: Any) -> list[dict[str, Any]]:
    answer = http.post(f"/v1/queues/{queue}/receive", {"wait_ms": 10_000, **wanted})
    assert answer.status == 200, answer
    return list(answer.json["messages"])


def ack(http: HttpClient, messages: list[dict[str, Any]]) -> Any:
    return http.post("/v1/queues/jobs/ack", {"receipts": [one["receipt"] for one in messages]})


@pytest.mark.timeout(120)
def test_a_deleted_topic_is_not_found_at_other_nodes(cluster: ProcessCluster) -> None:
    here, there = (cluster.brokers[number].http for number in cluster.ids[:2])
    with HttpClient(here) as one, HttpClient(there) as two:
        one.post("/v1/queues", {"name": "gone", "partitions": 2, "replication_factor": 3})
        sent = two.post("/v1/topics/gone/messages", {"value": "x", "partition": 0})
        assert sent.status == 200
        assert len(receive(two, "gone")) == 1
        assert one.ask("DELETE", "/v1/topics/gone").status == 204

        for call in (
            lambda: two.post("/v1/topics/gone/messages", {"value": "y", "partition": 0}),
            lambda: two.get("/v1/topics/gone/messages?partition=0"),
            lambda: two.get("/v1/topics/gone"),
            lambda: two.post("/v1/queues/gone/receive", {}),
            lambda: two.post("/v1/queues/gone/ack", {"receipts": ["0-0-x"]}),
        ):
            begun = time.monotonic()
            answer = call()
            assert answer.status == 404, answer
            assert time.monotonic() - begun < SOON_S, answer
        one.post("/v1/topics", {"name": "other", "partitions": 1, "replication_factor": 3})
        assert two.post("/v1/topics/other/messages", {"value": "x"}).status == 200
        one.ask("DELETE", "/v1/topics/other")
        begun = time.monotonic()
        assert two.get("/v1/topics/other/messages").status == 404
        assert time.monotonic() - begun < SOON_S


@pytest.mark.timeout(120)
def test_who_waits_hears_of_messages_at_every_leader(cluster: ProcessCluster) -> None:
    """One call stands at one leader at a time, and goes round."""
    with HttpClient(cluster.brokers[1].http) as http:
        http.post("/v1/queues", {"name": "rounds", "partitions": 3, "replication_factor": 3})
        receive(http, "rounds", wait_ms=0)
        led_by = {one.leader for one in cluster.topic("rounds").partitions}
        assert len(led_by) == 3
        for partition in range(3):
            got: list[list[dict[str, Any]]] = []

            def wait(into: list[list[dict[str, Any]]] = got) -> None:
                with HttpClient(cluster.brokers[2].http) as own:
                    into.append(receive(own, "rounds", wait_ms=30_000))

            waiting = threading.Thread(target=wait)
            waiting.start()
            message = {"value": str(partition), "partition": partition}
            assert http.post("/v1/queues/rounds/messages", message).status == 200
            waiting.join(WITHIN_S)
            ((found,),) = got
            assert (found["value"], found["deliveries"]) == (str(partition), 1)
            done = http.post("/v1/queues/rounds/ack", {"receipts": [found["receipt"]]})
            assert done.json["settled"] == 1


@pytest.mark.timeout(180)
def test_any_node_settles_what_another_gave_and_a_kill_loses_nothing(
    cluster: ProcessCluster,
) -> None:
    """A node dies that has given messages away, as their leader and for others."""
    addresses = {number: cluster.brokers[number].http for number in cluster.ids}
    with HttpClient(addresses[1]) as http:
        made = {"name": "jobs", "partitions": 3, "replication_factor": 3}
        assert http.post("/v1/queues", {**made, "lease_ms": LEASE_MS}).status == 201
        messages = [{"value": str(n), "partition": n % 3} for n in range(SENT)]
        path = "/v1/queues/jobs/messages/batch"
        assert http.post(path, {"messages": messages}).json["sent"] == SENT
    leaders = [one.leader for one in cluster.topic("jobs").partitions]
    doomed = leaders[0]
    others = [number for number in cluster.ids if number != doomed]

    with HttpClient(addresses[others[0]]) as one, HttpClient(addresses[others[1]]) as two:
        held = receive(one, max=SENT // 3)
        with HttpClient(addresses[doomed]) as dying:
            held += receive(dying, max=SENT // 3)
        held += receive(two, max=SENT // 4, wait_ms=0)
        assert len({message["value"] for message in held}) == len(held)
        crossed = ack(two, held[:3])
        assert (crossed.status, crossed.json["settled"]) == (200, 3)
        done = {message["value"] for message in held[:3]}

        lost = [message for message in held[3:] if leaders[message["partition"]] == doomed]
        kept = [message for message in held[3:] if leaders[message["partition"]] != doomed]
        cluster.kill(doomed)
        for http, some in ((one, kept[::2]), (two, kept[1::2])):
            if some:
                assert ack(http, some).json["settled"] == len(some)
                done |= {message["value"] for message in some}
        if lost:
            refused = ack(two, lost)
            assert refused.status == 409, refused
            assert lost[0]["receipt"] in refused.json["detail"]

        deadline = time.monotonic() + WITHIN_S
        turn = 0
        while len(done) < SENT and time.monotonic() < deadline:
            taker, settler = ((one, two), (two, one))[turn % 2]
            turn += 1
            some = receive(taker, max=5, wait_ms=2_000)
            assert not {message["value"] for message in some} & done, "settled, and came again"
            if some:
                assert ack(settler, some).json["settled"] == len(some)
                done |= {message["value"] for message in some}

    assert done == {str(n) for n in range(SENT)}
