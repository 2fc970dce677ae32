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

from waystation.client.webhook_descriptions import GivenUp
from waystation.coordination.sqlite import SqliteStore
from waystation.gateway.webhook_definitions import Claim
from waystation.gateway.webhook_figures import Figures
from waystation.gateway.webhook_store import WEBHOOKS_MOST, WebhookStore
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
            make_topic(http, "brief", 3, replication_factor=3)
            make_webhook(http, "brief", receiver.url)
        for number in cluster.ids:
            with HttpClient(cluster.brokers[number].http) as http:
                until(lambda http=http: show(http, "orders")["state"]["status"] == "delivering")
        for name in ("orders", "brief"):
            until(lambda name=name: len(_members(cluster, name)) == 3, "every node has joined")
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
            receiver.until(lambda: cluster.running == {1, 2})
            assert http.ask("DELETE", "/v1/webhooks/brief").status == 204
            assert http.get("/v1/webhooks/brief").status == 404
            wanted = {f"second-{n}" for n in range(COUNT)}
            receiver.until(lambda: wanted <= set(receiver.values), "the others go on")
            until(lambda: show(http, "orders")["pending"] == 0)
            changed = http.post(f"/v1/webhooks/{made['name']}", {"concurrency": 2}, "PATCH")
            assert changed.status == 200
        with HttpClient(cluster.brokers[2].http) as http:
            assert show(http, "orders")["concurrency"] == 2
            until(lambda: len(_members(cluster, "brief")) <= 1, "nobody is left but the dead")
            until(lambda: http.get("/v1/groups/webhook.brief").status == 404, "its group goes too")
            make_webhook(http, "brief", receiver.url, begin="earliest")
        cluster.brokers[3].kill()


def _partitions(http: HttpClient, topic: str) -> list[dict[str, int]]:
    found: list[dict[str, int]] = http.get(f"/v1/topics/{topic}").json["partitions"]
    return found


def _members(cluster: ProcessCluster, name: str) -> list[object]:
    with HttpClient(cluster.brokers[1].http) as http:
        answer = http.get(f"/v1/groups/webhook.{name}")
        found: list[object] = answer.json["members"] if answer.status == 200 else []
        return found


async def test_what_a_node_that_is_gone_began_to_delete_is_deleted_by_another(
    tmp_path: Path,
) -> None:
    broker = BrokerProcess(tmp_path / "data", http="127.0.0.1:0", options=LOOPBACK)
    with Receiver() as receiver, broker.start():
        with HttpClient(broker.http) as http:
            make_topic(http, "orders")
            make_webhook(http, "orders", receiver.url)
            send(http, "orders", "one")
            until(lambda: show(http, "orders")["state"]["delivered"] == 1)
            assert http.ask("POST", "/v1/webhooks/orders/pause").status == 200
        broker.stop()
        broker.start()
        with HttpClient(broker.http) as http:
            assert show(http, "orders")["state"]["delivered"] == 1, "figures outlive their node"
        broker.stop()

        async with SqliteStore(tmp_path / "data" / "cluster.sqlite") as store:
            await WebhookStore(store, 99).delete("orders", Claim(99, until_ms=0))
            kept = b"".join(one.value for one in (await store.get("")).items.values())
            assert b"whsec_" not in kept, "secrets are the first to go"

        broker.start()
        with HttpClient(broker.http) as http:
            until(lambda: http.get("/v1/groups/webhook.orders").status == 404)
            make_webhook(http, "orders", receiver.url, begin="earliest")
            send(http, "orders", "two")
            receiver.until(lambda: receiver.values == ["one", "one", "two"])
        broker.stop()


async def test_figures_of_many_webhooks_with_long_errors_fit_into_any_store(
    tmp_path: Path,
) -> None:
    figures = Figures()
    figures.gave_up([GivenUp(2**31, 2**62, 50, "\U0001f4a5" * 300, 2**42) for _ in range(20)])
    figures.went_wrong(1, "\U0001f4a5" * 300, 2**42)
    async with SqliteStore(tmp_path / "store.sqlite") as store:
        here = WebhookStore(store, 1)
        await here.publish({f"w{n}": figures for n in range(WEBHOOKS_MOST)})

        assert set(await here.own_figures()) == {f"w{n}" for n in range(WEBHOOKS_MOST)}
        assert (await WebhookStore(store, 2).figures("w7"))["w7"]["1"].dead == 20
