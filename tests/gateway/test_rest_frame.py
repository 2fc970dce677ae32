"""What every call has in common: how it is found, refused, described and bounded."""

import asyncio
import gzip
import json
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import pytest
import zstandard
from tests.support.gateway_routes import ECHO_AND_WAIT, EVENTS, until
from tests.support.http_client import HttpClient

from waystation.gateway.app import App, HttpServer, serve_http
from waystation.gateway.bodies import Limits, read_body
from waystation.gateway.openapi import described
from waystation.gateway.problems import problem_of
from waystation.gateway.routes import Call, Reply, Route
from waystation.model.errors import ErrorCode, WaystationError
from waystation.testing.process import BrokerProcess

SMALL = Limits(body_bytes=1_000, header_bytes=2_000, connections=3, request_s=0.5, idle_s=1)


async def fail(_: Call[None, None]) -> None:
    raise LookupError("a bug")


async def pour(_: Call[None, None]) -> Reply:
    return Reply(b"x" * (64 << 20), media_type="text/plain")


ROUTES = [
    *ECHO_AND_WAIT,
    Route(method="GET", path="/fail", summary="Fail", tag="t", handler=fail),
    Route(method="GET", path="/pour", summary="Say much", tag="t", handler=pour, answer=str),
]


@asynccontextmanager
async def served(limits: Limits = SMALL) -> AsyncIterator[HttpServer]:
    server = await serve_http(App(ROUTES, None, limits), "127.0.0.1", 0)
    try:
        yield server
    finally:
        await server.aclose()


async def raw(server: HttpServer, sent: bytes, within_s: float = 10) -> tuple[int, bytes]:
    """Send bytes, then read until the other side closes; status and what followed the header."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(sent)
    async with asyncio.timeout(within_s):
        answer = await reader.read()
    writer.close()
    header, _, body = answer.partition(b"\r\n\r\n")
    return int(header.split()[1]), body


def request(body: bytes, *headers: str) -> bytes:
    lines = [
        "POST /echo HTTP/1.1",
        "host: localhost",
        "connection: close",
        "content-type: application/json",
        f"content-length: {len(body)}",
        *headers,
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@pytest.fixture
def http(broker: BrokerProcess) -> Iterator[HttpClient]:
    with HttpClient(broker.http) as client:
        yield client


# --- refusals -----------------------------------------------------------------------------------


def test_what_is_not_there_is_not_found(http: HttpClient) -> None:
    for path in ("/", "/v1", "/v1/nothing", "/v1/topics/", "//v1/topics", "/v1/topics/a/b/c"):
        assert http.get(path).status == 404, path


def test_a_method_that_is_not_for_a_path_is_refused_and_others_named(http: HttpClient) -> None:
    refused = http.ask("PUT", "/v1/topics", b"{}")

    assert (refused.status, refused.headers["allow"]) == (405, "GET, HEAD, POST")
    assert http.ask("OPTIONS", "/v1/topics").status == 405


def test_head_answers_without_a_body(http: HttpClient) -> None:
    answer = http.ask("HEAD", "/v1/topics")

    assert (answer.status, answer.body) == (200, b"")


def test_a_path_that_is_not_text_is_refused(http: HttpClient) -> None:
    assert http.get("/v1/topics/%ff").status == 400
    assert http.get("/v1/topics?internal=%ff").status == 400


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", "malformed-json"),
        (b"{", "malformed-json"),
        (b'{"text": "\xff"}', "malformed-json"),
        (b'{"text": "a"} b', "malformed-json"),
        (b"[]", "invalid-field"),
        (b'{"text": 1}', "invalid-field"),
        (b'{"text": "a", "more": 1}', "invalid-field"),
    ],
)
async def test_a_body_that_does_not_fit_is_refused(body: bytes, kind: str) -> None:
    async with served() as server:
        status, told = await raw(server, request(body))

    problem = json.loads(told)
    assert (status, problem["type"]) == (400, f"urn:waystation:problem:{kind}"), problem


async def test_a_body_of_another_type_is_refused() -> None:
    """Browsers may send some types across sites without asking; JSON is not among them."""
    async with served() as server:
        for kind in (b"text/plain", b"application/json; Charset=latin1"):
            sent = request(b'{"text":"a"}').replace(b"application/json", kind)
            status, told = await raw(server, sent)
            assert (status, json.loads(told)["field"]) == (415, "Content-Type")
        sent = request(b'{"text":"a"}').replace(b"json", b'json;charset="UTF-8"')
        assert (await raw(server, sent))[0] == 200


async def test_a_bug_is_a_problem_too() -> None:
    async with served() as server:
        status, told = await raw(server, b"GET /fail HTTP/1.1\r\nconnection: close\r\n\r\n")

    assert status == 500
    assert "a bug" not in json.loads(told)["detail"]


async def test_what_is_not_http_is_refused() -> None:
    async with served() as server:
        status, told = await raw(server, b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n")

    assert (status, json.loads(told)["status"]) == (400, 400)


# --- bounds -------------------------------------------------------------------------------------


async def test_a_body_over_the_limit_is_refused() -> None:
    async with served() as server:
        status, told = await raw(server, request(json.dumps({"text": "x" * 2_000}).encode()))

    assert (status, json.loads(told)["status"]) == (413, 413)


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
async def test_a_body_that_grows_over_the_limit_is_refused(encoding: str) -> None:
    pack = gzip.compress if encoding == "gzip" else zstandard.ZstdCompressor().compress
    async with served() as server:
        bomb = pack(b'{"text": "' + b"x" * 200_000 + b'"}')
        assert len(bomb) < SMALL.body_bytes
        sent = request(bomb, f"content-encoding: {encoding}")
        status, told = await raw(server, sent)
        good = request(pack(b'{"text": "a"}'), f"content-encoding: {encoding}")
        assert await raw(server, good) == (200, b'{"text":"a"}')
        cut = request(pack(b'{"text": "a"}')[:-3], f"content-encoding: {encoding}")
        assert (await raw(server, cut))[0] == 400
        more = request(pack(b'{"text": "a"}') + b"x", f"content-encoding: {encoding}")
        assert (await raw(server, more))[0] == 400
        strange = request(b"x", "content-encoding: br")
        assert (await raw(server, strange))[0] == 415

    assert status == 413, told


@pytest.mark.parametrize("pack", [partial(gzip.compress, mtime=0), zstandard.compress])
async def test_a_small_body_that_becomes_a_large_one_does_not_hold_up_the_loop(
    pack: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []
    beside = asyncio.to_thread

    async def noted(work: Callable[..., Any], *arguments: Any) -> Any:
        threads.append(work.__name__)
        return await beside(work, *arguments)

    monkeypatch.setattr(asyncio, "to_thread", noted)
    headers = {b"content-encoding": b"zstd" if pack is zstandard.compress else b"gzip"}
    for size_bytes, times in ((7_000_000, 1), (7_000, 0)):
        threads.clear()
        content = b" " * size_bytes

        async def receive(packed: bytes = pack(content)) -> dict[str, Any]:
            assert len(packed) < 8_000
            return {"type": "http.request", "body": packed}

        assert await read_body(headers, receive, Limits()) == content
        assert len(threads) == times


async def test_a_body_without_a_length_is_bounded() -> None:
    head = request(b"").replace(b"content-length: 0", b"transfer-encoding: chunked")
    chunks = b"".join(b"64\r\n" + b"x" * 100 + b"\r\n" for _ in range(50)) + b"0\r\n\r\n"
    async with served() as server:
        status, _ = await raw(server, head + chunks)

    assert status == 413


async def test_a_long_header_is_refused() -> None:
    async with served() as server:
        status, told = await raw(server, request(b"{}", f"cookie: {'x' * 3_000}"))
        long_address = b"GET /" + b"x" * 3_000 + b" HTTP/1.1\r\n\r\n"

        assert (status, json.loads(told)["status"]) == (431, 431)
        assert (await raw(server, long_address))[0] == 431


@pytest.mark.parametrize(
    "begun",
    [
        b"GET /fail HT",
        b"GET /fail HTTP/1.1\r\nhost: localhost\r\n",
        request(b'{"text":"a"}')[:-3],
    ],
)
async def test_who_sends_too_slowly_is_told_and_let_go(begun: bytes) -> None:
    async with served() as server:
        status, told = await raw(server, begun)

    assert (status, json.loads(told)["status"]) == (408, 408)


async def test_who_never_says_anything_is_let_go_without_a_word() -> None:
    async with served() as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        began = time.monotonic()
        async with asyncio.timeout(10):
            said = await reader.read()
        writer.close()

    assert said == b""
    assert time.monotonic() - began >= SMALL.idle_s


async def test_who_trickles_is_let_go_too() -> None:
    async with served() as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        began = time.monotonic()
        writer.write(b"GET / HTTP/1.1\r\n")
        while not reader.at_eof() and time.monotonic() - began < 10:
            writer.write(b"a: b\r\n")
            try:
                async with asyncio.timeout(0.1):
                    await reader.read(1_000)
            except TimeoutError:
                continue
            except ConnectionError:
                break
        writer.close()

    assert time.monotonic() - began < 8


async def test_who_rests_between_requests_is_let_go() -> None:
    async with served() as server:
        sent = b"GET /fail HTTP/1.1\r\nhost: localhost\r\n\r\n"

        assert (await raw(server, sent, within_s=8))[0] == 500


@pytest.mark.parametrize("connection", ["keep-alive", "close"])
async def test_who_does_not_read_is_let_go(connection: str) -> None:
    async with served() as server:
        plain = socket.create_connection(("127.0.0.1", server.port))
        plain.sendall(
            f"GET /pour HTTP/1.1\r\nhost: localhost\r\nconnection: {connection}\r\n\r\n".encode()
        )
        connections = server._server.server_state.connections
        await asyncio.sleep(0.2)
        assert len(connections) == 1
        async with asyncio.timeout(30):
            while connections:
                await asyncio.sleep(0.05)
        plain.close()


async def test_who_only_asks_and_goes_is_not_waited_for() -> None:
    """What changes something goes on: it may have been asked for the answer's sake or not."""
    async with served() as server:
        for method, ends in (("POST", 0), ("GET", 1)):
            EVENTS.clear()
            _, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(f"{method} /wait HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
            await until(lambda: EVENTS == ["began"])
            writer.close()
            await until(lambda: not server._server.server_state.connections)
            await until(lambda ends=ends: EVENTS.count("ended") == ends)
            EVENTS.append("go on")


async def test_of_requests_sent_ahead_one_is_answered_after_the_other() -> None:
    """Pipelined ones wait in line; those behind a slow one are bounded by what is read ahead."""
    async with served(SMALL._replace(request_s=30)) as server:
        good = request(b'{"text":"a"}').replace(b"connection: close\r\n", b"")
        status, told = await raw(server, good * 50 + request(b'{"text":"b"}'))

        assert status == 200
        assert told.count(b'{"text":"a"}') == 50
        assert told.endswith(b'{"text":"b"}')


async def test_who_sends_ahead_without_end_is_not_read_without_end() -> None:
    async with served(SMALL._replace(request_s=30)) as server:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        EVENTS.clear()
        ahead = b"GET /wait HTTP/1.1\r\nhost: localhost\r\n\r\n"
        writer.write(ahead)
        await until(lambda: EVENTS == ["began"])
        with suppress(TimeoutError):
            for _ in range(2_000):
                writer.write(ahead * 1_000)
                async with asyncio.timeout(1):
                    await writer.drain()
            raise AssertionError("80 MB were taken in")
        assert EVENTS == ["began"]
        EVENTS.append("go on")
        writer.transport.abort()


@pytest.mark.parametrize(
    "chunk",
    [b"ffffffffffffffff", b"7fffffffffffffff", b"-1", b"g", b"1" * 40, b"5;" + b"x" * 9_000],
)
async def test_absurd_chunks_are_refused(chunk: bytes) -> None:
    head = request(b"").replace(b"content-length: 0", b"transfer-encoding: chunked")
    async with served() as server:
        status, told = await raw(server, head + chunk + b"\r\n" + b"x" * 5_000)

    assert status in (400, 408, 413, 431), (status, told)


@pytest.mark.parametrize("length", [b"-1", b"1e3", b"99999999999999999999999", b"0x10", b"1, 1"])
async def test_absurd_lengths_are_refused(length: bytes) -> None:
    sent = request(b"").replace(b"content-length: 0", b"content-length: " + length)
    async with served() as server:
        status, told = await raw(server, sent)

    assert status in (400, 413), (status, told)


async def test_a_flood_of_header_lines_is_refused() -> None:
    async with served() as server:
        flood = b"".join(b"a%d: b\r\n" % number for number in range(1_000))
        status, _ = await raw(server, b"GET /fail HTTP/1.1\r\n" + flood)

    assert status == 431


async def test_there_are_only_so_many_connections() -> None:
    async with served(SMALL._replace(request_s=30)) as server:
        open_ones = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(3)]
        await asyncio.sleep(0.1)
        status, told = await raw(server, request(b'{"text":"a"}'))
        for _, writer in open_ones:
            writer.close()

    assert (status, json.loads(told)["status"]) == (503, 503)


# --- the description ----------------------------------------------------------------------------


def test_every_call_is_described(http: HttpClient) -> None:
    spec = http.openapi

    assert spec["openapi"] == "3.1.0"
    operations = [one for path in spec["paths"].values() for one in path.values()]
    names = [one["operationId"] for one in operations]
    assert len(names) == len(set(names))
    assert all(one["summary"] and one["tags"] for one in operations)
    assert all("500" in one["responses"] for one in operations)


def test_every_reference_of_the_description_leads_somewhere(http: HttpClient) -> None:
    schemas = http.openapi["components"]["schemas"]

    def references(node: Any) -> Iterator[str]:
        if isinstance(node, dict):
            if isinstance(node.get("$ref"), str):
                yield node["$ref"]
            for one in node.values():
                yield from references(one)
        elif isinstance(node, list):
            for one in node:
                yield from references(one)

    used = {one.removeprefix("#/components/schemas/") for one in references(http.openapi)}
    assert used <= set(schemas)
    assert "Problem" in used


def test_the_description_tells_what_a_route_declares() -> None:
    told = described(ROUTES)["paths"]["/echo"]["post"]

    assert told["requestBody"]["content"]["application/json"]["schema"]["$ref"].endswith("Echoed")
    assert {"200", "400", "413", "415"} <= set(told["responses"])


def test_the_page_needs_nobody_else(http: HttpClient) -> None:
    page = http.get("/docs")

    assert page.headers["content-type"].startswith("text/html")
    assert b"openapi.json" in page.body
    assert b"http://" not in page.body
    assert b"https://" not in page.body


def test_every_error_of_the_queue_has_a_status() -> None:
    for code in ErrorCode:
        error = WaystationError("it went wrong")
        error.code = code
        problem = problem_of(error)
        assert 400 <= problem.status < 600
        assert problem.remedy
