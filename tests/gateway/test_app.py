"""Health, readiness and metrics over real HTTP, on a port of their own."""

import asyncio
import errno
import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import uvloop
from prometheus_client.parser import text_string_to_metric_families

from waystation.gateway.app import HttpServer, build_app, serve_http
from waystation.telemetry.metrics import Registry


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "factory" in metafunc.fixturenames:
        metafunc.parametrize("factory", [uvloop.new_event_loop, asyncio.new_event_loop])


@asynccontextmanager
async def http(waiting_for: list[str], registry: Registry) -> AsyncIterator[HttpServer]:
    server = await serve_http(build_app(registry, lambda: waiting_for), "127.0.0.1", 0)
    try:
        yield server
    finally:
        await server.aclose()


def fetch(port: int, path: str) -> tuple[int, str, bytes]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as response:
            return response.status, response.headers["content-type"], response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers["content-type"], error.read()


async def get(port: int, path: str) -> tuple[int, str, bytes]:
    return await asyncio.to_thread(fetch, port, path)


LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def test_a_node_is_healthy_and_becomes_ready(factory: LoopFactory) -> None:
    async def scenario() -> None:
        waiting_for = ["recovery of orders-0"]
        async with http(waiting_for, Registry()) as server:
            status, _, body = await get(server.port, "/healthz")
            assert (status, json.loads(body)["healthy"]) == (200, True)

            status, _, body = await get(server.port, "/readyz")
            assert status == 503
            assert json.loads(body) == {"ready": False, "waiting_for": ["recovery of orders-0"]}

            waiting_for.clear()
            status, _, body = await get(server.port, "/readyz")
            assert (status, json.loads(body)["ready"]) == (200, True)

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(scenario())


async def test_metrics_are_what_prometheus_reads() -> None:
    registry = Registry()
    registry.counter("waystation_requests_total", "Requests.").add(3)
    async with http([], registry) as server:
        status, kind, body = await get(server.port, "/metrics")

    (family,) = text_string_to_metric_families(body.decode())
    assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert [(s.name, s.value) for s in family.samples] == [("waystation_requests_total", 3)]


async def test_an_unknown_path_is_not_found() -> None:
    async with http([], Registry()) as server:
        assert (await get(server.port, "/nothing"))[0] == 404


async def test_a_port_that_is_taken_is_said_to_be() -> None:
    async with http([], Registry()) as server:
        with pytest.raises(OSError, match="ddress already in use") as caught:
            await serve_http(build_app(Registry(), list), "127.0.0.1", server.port)

    assert caught.value.errno == errno.EADDRINUSE


async def test_nobody_is_let_in_after_the_close() -> None:
    async with http([], Registry()) as server:
        pass

    with pytest.raises(urllib.error.URLError):
        await get(server.port, "/healthz")


async def test_signals_stay_the_nodes_affair() -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    async with http([], Registry()):
        assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def test_a_node_without_http_imports_none_of_it() -> None:
    script = (
        "import sys, waystation.gateway.app\n"
        "sys.exit(any(m in sys.modules for m in ('starlette', 'uvicorn', 'prometheus_client')))"
    )

    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
