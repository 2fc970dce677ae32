"""Webhooks outlive their nodes: definitions stay, and nothing that was sent is forgotten."""

import os
import signal
import ssl
from collections import Counter
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path

import pytest
import trustme
from tests.support.cluster import ProcessCluster
from tests.support.http_client import HttpClient
from tests.support.soak import count
from tests.support.webhook_calls import LOOPBACK, make_topic, make_webhook, send, show, until
from tests.support.webhook_receiver import OK, Hook, Receiver, Reply

from waystation.testing.process import BrokerProcess

COUNT = count(60, 5_000)


def test_a_kill_in_the_middle_loses_nothing_and_keeps_definitions_and_ids(
    tmp_path: Path,
) -> None:
    authority = trustme.CA()
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(served)
    pem = tmp_path / "authority.pem"
    authority.cert_pem.write_to_path(str(pem))
    options = {**LOOPBACK, "webhook.ca.file": str(pem)}
    broker = BrokerProcess(tmp_path / "data", http="127.0.0.1:0", options=options)
    killed = False

    def answer(hook: Hook) -> Reply:
        nonlocal killed
        if len(receiver.hooks) >= COUNT // 2 and not killed:
            killed = True
            os.kill(broker.pid, signal.SIGKILL)  # before this one is answered
        return OK

    with Receiver(answer, tls=served) as receiver, broker.start():
        with HttpClient(broker.http) as http:
            make_topic(http, "orders", 2)
            made = make_webhook(http, "orders", receiver.url)
            with suppress(OSError, HTTPException):  # killed; the last one was not answered
                for n in range(COUNT):
                    send(http, "orders", str(n), key=str(n))
        receiver.until(lambda: killed)
        broker.kill()
        broker.start()
        with HttpClient(broker.http) as http:
            shown = show(http, "orders")
            assert shown["secret_fingerprint"] == made["secret_fingerprint"]
            assert shown["created_ms"] == made["created_ms"]
            end = sum(one["end_offset"] for one in _partitions(http, "orders"))
            until(lambda: show(http, "orders")["pending"] == 0)
        places = {(hook.json["partition"], hook.json["offset"]) for hook in receiver.hooks}
        ids = {hook.headers["webhook-id"] for hook in receiver.hooks}
        assert len(places) == len(ids) == end >= COUNT // 2
        broker.stop()


@pytest.mark.timeout(180)
def test_nodes_share_the_work_and_the_rest_goes_on_when_one_dies(tmp_path: Path) -> None:
    with (
        Receiver() as receiver,
        ProcessCluster(tmp_path, 3, http="127.0.0.1:0", options=LOOPBACK) as cluster,
    ):
        with HttpClient(cluster.brokers[1].http) as http:
            make_topic(http, "orders", 3, replication_factor=3)
            made = make_webhook(http, "orders", receiver.url)
        for number in cluster.ids:
            with HttpClient(cluster.brokers[number].http) as http:
                until(lambda http=http: show(http, "orders")["state"]["status"] == "delivering")
        until(lambda: len(_members(cluster)) == 3, "every node has joined")
        with HttpClient(cluster.brokers[2].http) as http:
            send(http, "orders", *(f"first-{n}" for n in range(COUNT)))
            receiver.until(lambda: len(receiver.hooks) >= COUNT)
            until(lambda: show(http, "orders")["pending"] == 0)
        assert Counter(receiver.values).most_common(1)[0][1] == 1, "nothing came twice"
        for number in cluster.ids:
            with HttpClient(cluster.brokers[number].http) as http:
                until(
                    lambda http=http: show(http, "orders")["state"]["delivered"] == COUNT,
                    "every node tells of all",
                )

        def dying(hook: Hook) -> Reply:
            if cluster.running == {1, 2, 3} and "second-5" in hook.values:
                cluster.running.discard(3)
                os.kill(cluster.brokers[3].pid, signal.SIGKILL)
            return OK

        receiver.answer = dying
        with HttpClient(cluster.brokers[1].http) as http:
            send(http, "orders", *(f"second-{n}" for n in range(COUNT)))
            wanted = {f"second-{n}" for n in range(COUNT)}
            receiver.until(lambda: wanted <= set(receiver.values), "the others go on")
            until(lambda: show(http, "orders")["pending"] == 0)
            changed = http.post(f"/v1/webhooks/{made['name']}", {"concurrency": 2}, "PATCH")
            assert changed.status == 200
        with HttpClient(cluster.brokers[2].http) as http:
            assert show(http, "orders")["concurrency"] == 2
        cluster.brokers[3].kill()


def _partitions(http: HttpClient, topic: str) -> list[dict[str, int]]:
    found: list[dict[str, int]] = http.get(f"/v1/topics/{topic}").json["partitions"]
    return found


def _members(cluster: ProcessCluster) -> list[object]:
    with HttpClient(cluster.brokers[1].http) as http:
        answer = http.get("/v1/groups/webhook.orders")
        found: list[object] = answer.json["members"] if answer.status == 200 else []
        return found
