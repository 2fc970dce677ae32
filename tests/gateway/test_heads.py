"""Requests that somebody between caller and node could read in another way, byte by byte."""

import asyncio
import itertools
import json
import random
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.support.gateway_routes import ECHO_AND_WAIT, EVENTS, until
from tests.support.soak import count

from waystation.gateway import app
from waystation.gateway.app import App, HttpServer, serve_http
from waystation.gateway.bodies import Limits

HOST = b"host: localhost\r\n"
POST = b"POST /echo HTTP/1.1\r\n" + HOST + b"content-type: application/json\r\n"
BODY = b'{"text":"a"}'
CHUNKED = b"c\r\n" + BODY + b"\r\n0\r\n"
GET = b"GET /wait HTTP/1.1\r\n" + HOST + b"\r\n"
GARBAGE = b"\x01\x02\r\n\r\n"
SOCKET = b"GET /wait HTTP/1.1\r\n" + HOST + b"connection: Upgrade\r\nupgrade: websocket\r\n"
KEY = b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
VERSION = b"sec-websocket-version: 13\r\n"
WHOLE = (
    GET,
    GET.replace(b"GET", b"HEAD"),
    GET.replace(b"/wait", b"/nothing"),
    POST + b"content-length: 12\r\n\r\n" + BODY,
    POST + b"transfer-encoding: chunked\r\n\r\n" + CHUNKED + b"a: b\r\n\r\n",
    POST + b"connection: upgrade\r\nupgrade: h2c\r\ncontent-length: 12\r\n\r\n" + BODY,
    POST + b"content-length: 792\r\n\r\n" + b"\r\n\r\nGET / HTTP/1.1\r\n\r\n" * 36,
)


@asynccontextmanager
async def served() -> AsyncIterator[HttpServer]:
    EVENTS.clear()
    limits = Limits(body_bytes=1_000)
    server = await serve_http(App(ECHO_AND_WAIT, None, limits), "127.0.0.1", 0)
    try:
        yield server
    finally:
        EVENTS.append("go on")
        await server.aclose()


@asynccontextmanager
async def connected(
    server: HttpServer,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        async with asyncio.timeout(20):
            yield reader, writer
    finally:
        writer.transport.abort()


async def told(server: HttpServer, sent: bytes) -> bytes:
    """Everything that is answered until the node closes."""
    async with connected(server) as (reader, writer):
        writer.write(sent)
        return await reader.read()


def statuses(answers: bytes) -> list[int]:
    return [int(one) for one in re.findall(rb"HTTP/1.1 (\d+) ", answers)]


def problem(answer: bytes) -> Any:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"application/problem+json" in head, answer
    return json.loads(body)


@pytest.mark.parametrize(
    ("sent", "status", "field"),
    [
        (
            POST + b"content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n",
            400,
            "Transfer-Encoding",
        ),
        (POST + b"content-length: 12\r\ncontent-length: 12\r\n\r\n", 400, "Content-Length"),
        (POST + b"transfer-encoding: gzip, chunked\r\n\r\n", 501, "Transfer-Encoding"),
        (POST.replace(b"1.1", b"1.0") + b"transfer-encoding: chunked\r\n\r\n", 501, None),
        (POST + b"a: b\r\n c\r\n\r\n", 400, None),
        (b"GET /wait HTTP/1.1\nhost: localhost\n\n", 400, None),
        (b"GET /wait HTTP/1.1\r\n" + HOST + HOST + b"\r\n", 400, "Host"),
        (POST + b"content-type: text/plain\r\n\r\n", 400, "Content-Type"),
        (b"GET /wait HTTP/2.0\r\n" + HOST + b"\r\n", 505, None),
        (b"GET /wait\r\n\r\n", 505, None),
        (b"CONNECT localhost:80 HTTP/1.1\r\n" + HOST + b"\r\n", 400, "address"),
    ],
)
async def test_what_can_be_read_in_two_ways_is_refused(
    sent: bytes, status: int, field: str | None
) -> None:
    async with served() as server:
        answer = await told(server, sent)

    assert statuses(answer) == [status], answer
    assert problem(answer)["remedy"]
    assert field is None or problem(answer)["field"] == field, answer


async def test_an_address_with_a_host_means_that_host() -> None:
    closing = b" HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    async with served() as server:
        assert statuses(await told(server, b"GET http://evil.example/x" + closing)) == [421]
        assert statuses(await told(server, b"GET http://localhost/healthz" + closing)) == [404]
        assert statuses(await told(server, b"GET http://localhost" + closing)) == [404]


async def test_what_stands_behind_a_body_is_no_header() -> None:
    trailers = b"host: evil.example\r\ncontent-encoding: br\r\ncontent-type: text/plain\r\n\r\n"
    sent = POST + b"connection: close\r\ntransfer-encoding: chunked\r\n\r\n" + CHUNKED + trailers
    async with served() as server:
        assert (await told(server, sent)).endswith(BODY)


async def test_who_offers_another_protocol_is_answered_in_this_one() -> None:
    """As the HTTP client of Java does with its first request."""
    offer = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n"
    length = b"content-length: 12\r\n"
    async with served() as server:
        sent = POST + offer + length + b"\r\n" + BODY
        answer = await told(server, sent * 2 + POST + length + b"connection: close\r\n\r\n" + BODY)

    assert statuses(answer) == [200, 200, 200]
    assert answer.count(BODY) == 3


async def test_who_asks_before_it_sends_a_body_is_not_asked_for_too_large_a_one() -> None:
    async with served() as server:
        ask = POST + b"expect: 100-continue\r\ncontent-length: 5000\r\n\r\n"
        assert statuses(await told(server, ask)) == [413]


@pytest.mark.parametrize(
    ("sent", "status", "field"),
    [
        (SOCKET + VERSION, 400, "Sec-WebSocket-Key"),
        (SOCKET + VERSION + KEY + KEY, 400, "Sec-WebSocket-Key"),
        (SOCKET + VERSION + b"sec-websocket-key: abc\r\n", 400, "Sec-WebSocket-Key"),
        (SOCKET + KEY, 426, "Sec-WebSocket-Version"),
        (SOCKET + KEY + b"sec-websocket-version: 8\r\n", 426, "Sec-WebSocket-Version"),
        (SOCKET.replace(b"GET", b"POST") + KEY + VERSION, 405, "Upgrade"),
        (SOCKET.replace(b"1.1", b"1.0") + KEY + VERSION, 505, "Upgrade"),
        (SOCKET + KEY + VERSION + b"origin: http://a\r\n" * 2, 400, "Origin"),
        (SOCKET + KEY + VERSION + b"content-length: 3\r\n", 400, "Content-Length"),
        (SOCKET + KEY + VERSION + b"\r\n\x81\x80", 400, "Upgrade"),
        (SOCKET + KEY + VERSION + b"\r\n" + GET * 50, 400, "Upgrade"),
        (SOCKET + KEY + VERSION + b"a: b\r\n" * 200, 431, None),
        (SOCKET + KEY + VERSION + b"a: " + b"b" * 9_000 + b"\r\n", 431, None),
    ],
)
async def test_a_handshake_that_is_not_whole_is_refused_as_a_problem(
    sent: bytes, status: int, field: str | None
) -> None:
    async with served() as server:
        answer = await told(server, sent + b"\r\n")

    assert statuses(answer) == [status], answer
    assert problem(answer)["remedy"]
    assert field is None or problem(answer)["field"] == field, answer


async def test_a_handshake_may_say_more_than_is_asked_for() -> None:
    """Its path is for no WebSocket, which the application says; the library had no objection."""
    more = b"connection: kee\xfb-alive\r\nsec-websocket-protocol: a b;c\r\nx: \xe9\r\n\r\n"
    async with served() as server:
        answer = await told(server, SOCKET + KEY + VERSION + more)

    assert problem(answer)["type"].endswith("no-websocket")


@pytest.mark.parametrize(
    "behind",
    [
        GARBAGE,
        POST + b"transfer-encoding: chunked\r\n\r\nzz\r\n",
        SOCKET + KEY + VERSION + b"\r\n",
        b"GET /wait HTTP/1.1\r\n" + HOST + HOST + b"\r\n",
    ],
)
async def test_a_refusal_waits_for_the_answers_before_it(behind: bytes) -> None:
    async with served() as server, connected(server) as (reader, writer):
        writer.write(GET + GET.replace(b"GET", b"HEAD") + behind)
        await until(lambda: EVENTS == ["began"])
        EVENTS.append("go on")

        assert statuses(await reader.read()) == [200, 200, 400]


@pytest.mark.parametrize("ahead", [1, 5_000])
async def test_who_sent_ahead_and_went_is_missed_at_once(ahead: int) -> None:
    """Of what was sent ahead little is parsed; the rest waits as bytes, and not all of those."""
    async with served() as server:
        async with connected(server) as (_, writer):
            writer.write(GET)
            await until(lambda: EVENTS == ["began"])
            writer.write(GET * ahead)
            (connection,) = server._server.server_state.connections
            await until(lambda: len(connection._ahead) >= min(len(GET) * ahead, 60_000))

            assert len(connection.pipeline) < 30
        await until(lambda: EVENTS == ["began", "ended"])
        await until(lambda: not server._server.server_state.connections)


async def test_who_says_no_more_still_gets_its_answers() -> None:
    async with served() as server, connected(server) as (reader, writer):
        writer.write((POST + b"content-length: 12\r\n\r\n" + BODY) * 20)
        writer.write_eof()

        assert statuses(await reader.read()) == [200] * 20


@pytest.mark.parametrize("method", [b"GET", b"POST"])
async def test_who_waits_for_a_node_that_stops_is_told(
    method: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "_GRACE_S", 1)
    async with served() as server, connected(server) as (reader, writer):
        writer.write(GET.replace(b"GET", method))
        await until(lambda: EVENTS == ["began"])
        await server.aclose()
        answer = await reader.read()

    assert statuses(answer) == [503]
    assert problem(answer)["remedy"]


async def test_what_was_sent_ahead_at_once_is_parsed_in_its_turn() -> None:
    async with served() as server:
        EVENTS.append("go on")
        async with connected(server) as (reader, writer):
            writer.write(GET * 3_000 + GARBAGE)

            assert statuses(await reader.read()) == [200] * 3_000 + [400]


@pytest.mark.parametrize("seed", range(count(6, 300)))
async def test_however_it_is_cut_what_was_sent_means_the_same(seed: int) -> None:
    chance = random.Random(seed)
    length = b"content-length: 12\r\n"
    sent = b"".join(chance.choices(WHOLE, k=chance.randint(1, 40)))
    sent += b"POST /echo HTTP/1.1\r\n" + length + b"connection: close\r\n\r\n" + BODY
    async with served() as server:
        EVENTS.append("go on")
        together = statuses(await told(server, sent))
        async with connected(server) as (reader, writer):
            cuts = sorted(chance.sample(range(len(sent)), min(len(sent), chance.randint(1, 30))))
            for begin, end in itertools.pairwise([0, *cuts, len(sent)]):
                writer.write(sent[begin:end])
                await asyncio.sleep(chance.choice((0, 0, 0.001)))
            apart = statuses(await reader.read())

    assert together == apart
    assert together[-1] == 415
