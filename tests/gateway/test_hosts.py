"""Names that lead to a node are not yet names it answers to."""

import asyncio
import http.client
import json
from pathlib import Path

import pytest

from waystation.gateway.app import HttpServer, build_app, serve_http
from waystation.gateway.hosts import Hosts
from waystation.gateway.problems import ProblemError
from waystation.gateway.settings import GatewaySettings
from waystation.telemetry.metrics import Registry
from waystation.testing.process import BrokerProcess

LOOPBACK = ["localhost", "localhost:8090", "LOCALHOST", "a.localhost:1", "127.0.0.1:8090"]
LOOPBACK += ["127.8.0.1", "[::1]:8090", "[::1]"]
NAMES = ["evil.example", "evil.example:8090", "localhost.evil.example", "127.0.0.1.evil.example"]
NAMES += ["evillocalhost", "", ":80", "[", "127.0.0.1@evil.example", "localhost:80@evil.example"]
NAMES += ["[::1]evil.example", "localhost:evil"]
ADDRESSES = ["192.168.0.7:8090", "[fe80::1]:8090"]


def answers(hosts: Hosts, host: str) -> bool:
    try:
        hosts.check(host.encode())
    except ProblemError:
        return False
    return True


@pytest.mark.parametrize("listening", ["127.0.0.1", "::1", "localhost"])
def test_on_loopback_only_loopback_is_answered_to(listening: str) -> None:
    hosts = Hosts()
    hosts.listens_on(listening)

    assert [one for one in (*LOOPBACK, *NAMES, *ADDRESSES) if answers(hosts, one)] == LOOPBACK
    assert [one for one in (*LOOPBACK, *NAMES) if answers(hosts, one)] == LOOPBACK


def test_names_that_it_was_told_of_are_answered_to() -> None:
    hosts = Hosts(["Queue.example"])
    hosts.listens_on("127.0.0.1")

    assert answers(hosts, "queue.example:8090")
    assert answers(hosts, "QUEUE.EXAMPLE")
    assert not answers(hosts, "other.example")


def test_beyond_loopback_names_count_once_some_are_told() -> None:
    either, some = Hosts(), Hosts(["queue.example"])
    for hosts in (either, some):
        hosts.listens_on("0.0.0.0")

    assert all(answers(either, one) for one in (*LOOPBACK, *NAMES, *ADDRESSES))
    assert all(answers(some, one) for one in (*LOOPBACK, *ADDRESSES, "queue.example"))
    assert not any(answers(some, one) for one in NAMES if one)


def test_who_thinks_up_names_fills_no_memory() -> None:
    hosts = Hosts()
    hosts.listens_on("127.0.0.1")

    assert all(answers(hosts, f"n{number}.localhost") for number in range(1_000))
    assert len(hosts._known) <= 256


def test_a_node_refuses_the_name_of_a_stranger(tmp_path: Path) -> None:
    broker = BrokerProcess(
        tmp_path / "data", http="127.0.0.1:0", options={"http.hosts": "queue.example"}
    )
    with broker.start():
        for path in ("/healthz", "/v1/topics", "/nothing"):
            assert asked(broker.http, path, "evil.example") == 421, path
            assert asked(broker.http, path, "queue.example") != 421
            assert asked(broker.http, path, broker.http) != 421


def asked(address: str, path: str, host: str) -> int:
    connection = http.client.HTTPConnection(address, timeout=20)
    connection.request("GET", path, headers={"host": host})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    if answer.status == 421:
        assert json.loads(body)["field"] == "Host"
    return answer.status


async def test_the_options_reach_the_listener() -> None:
    app = build_app(Registry(), list, settings=GatewaySettings(http_hosts=("queue.example",)))
    server: HttpServer = await serve_http(app, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.port}"
    try:
        assert await asyncio.to_thread(asked, address, "/healthz", "queue.example") == 200
        assert await asyncio.to_thread(asked, address, "/healthz", "evil.example") == 421
    finally:
        await server.aclose()
