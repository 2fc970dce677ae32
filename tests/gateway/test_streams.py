"""What every answer that goes on has in common: flow, bounds, and an end."""

import asyncio
import gc
import json
import socket as socketlib
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import websockets
from websockets.asyncio.client import ClientConnection, connect

from waystation.gateway.app import App, HttpServer, serve_http
from waystation.gateway.bodies import Disconnected, Limits
from waystation.gateway.openapi import described
from waystation.gateway.problems import refusal
from waystation.gateway.protocol import BoundedProtocol
from waystation.gateway.routes import Call, Frames, Params, Route
from waystation.gateway.sockets import Conversation, ErrorFrame, Socket
from waystation.gateway.sockets_protocol import BoundedSocket
from waystation.gateway.streams import Stream

SMALL = Limits(
    body_bytes=1_000, connections=20, request_s=0.3, idle_s=1, streams=2, frame_bytes=4_000
)


LARGE = 48 << 20
GET_LARGE = (b"GET /large HTTP/1.1\r\nhost: localhost\r\n\r\n",)
SAY_LARGE = (
    b"GET /echo HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
    b'\x81\x87\0\0\0\0"large"',
)


class Watched:
    """A stream and a socket whose lives can be looked at."""

    def __init__(self) -> None:
        self.poured = 0
        self.ended = asyncio.Event()
        self.heard: list[bytes] = []

    async def _count(self) -> AsyncGenerator[bytes, None]:
        try:
            yield b"first\n"
            while True:
                await asyncio.sleep(0)
                self.poured += 1
                yield b"x" * 10_000
        finally:
            self.ended.set()

    async def _still(self) -> AsyncGenerator[bytes, None]:
        try:
            yield b"one\n"
            yield b""
            yield b"two\n"
            await asyncio.Event().wait()
        finally:
            self.ended.set()

    async def endless(self, _: Call[None, None]) -> Stream:
        return Stream(self._count(), "text/plain")

    async def still(self, _: Call[None, None]) -> Stream:
        return Stream(self._still(), "text/plain", ((b"x-more", b"1"),), b"bye\n")

    async def cut(self, _: Call[None, None]) -> Stream:
        return Stream(self._still(), "text/plain")

    async def short(self, _: Call[None, None]) -> Stream:
        async def pieces() -> AsyncGenerator[bytes, None]:
            for number in range(3):
                yield b"%d\n" % number

        return Stream(pieces())

    async def large(self, _: Call[None, None]) -> Stream:
        async def pieces() -> AsyncGenerator[bytes, None]:
            yield b"x" * LARGE

        return Stream(pieces())

    async def echo(self, call: Call["Wanted", None]) -> Conversation:
        if call.parameters.refuse:
            raise refusal(409, "unwilling", "not today", remedy="tomorrow")

        async def talk(socket: Socket) -> None:
            try:
                while True:
                    said = await socket.receive()
                    self.heard.append(said)
                    if said == b'"fail"':
                        raise LookupError("a bug")
                    if said == b'"refuse"':
                        raise refusal(409, "unwilling", "not now", field="f", remedy="later")
                    if said == b'"end"':
                        return
                    if said == b'"large"':
                        await socket.say("x" * LARGE)
                    if said == b'"flood"':
                        while socket.wire.is_open:
                            self.poured += 1
                            await socket.say("x" * 10_000)
                            await asyncio.sleep(0)
                    await socket.say(json.loads(said))
            except Disconnected:
                pass
            finally:
                self.ended.set()

        return Conversation(talk)


class Wanted(Params, frozen=True):
    refuse: bool = False


def routes(watched: Watched) -> list[Route]:
    def get(path: str, handler: Any, **more: Any) -> Route:
        return Route(
            method="GET", path=path, summary="Go on", tag="t", handler=handler, answer=str, **more
        )

    return [
        get("/endless", watched.endless),
        get("/still", watched.still),
        get("/cut", watched.cut),
        get("/short", watched.short),
        get("/large", watched.large),
        Route(
            method="GET",
            path="/echo",
            summary="Say it again",
            tag="t",
            handler=watched.echo,
            parameters=Wanted,
            status=101,
            frames=Frames(str, str | ErrorFrame),
        ),
    ]


class Served:
    def __init__(self, server: HttpServer, watched: Watched) -> None:
        self.server, self.watched, self.port = server, watched, server.port

    async def open(self, path: str, method: str = "GET") -> tuple[asyncio.StreamReader, Any]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(
            f"{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode()
        )
        return reader, writer

    async def whole(self, path: str, method: str = "GET") -> tuple[int, bytes]:
        reader, writer = await self.open(path, method)
        answer = await within(reader.read())
        writer.close()
        header, _, body = answer.partition(b"\r\n\r\n")
        return int(header.split()[1]), body

    def socket(self, path: str = "/echo", **more: Any) -> Any:
        return connect(f"ws://127.0.0.1:{self.port}{path}", **more)


async def within(waiting: Any, seconds: float = 10) -> Any:
    async with asyncio.timeout(seconds):
        return await waiting


@asynccontextmanager
async def serving(limits: Limits = SMALL) -> AsyncIterator[Served]:
    watched = Watched()
    server = await serve_http(App(routes(watched), None, limits), "127.0.0.1", 0)
    try:
        yield Served(server, watched)
    finally:
        await server.aclose()


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    async with serving() as one:
        yield one


async def test_connections_that_are_over_are_gone_without_a_collection() -> None:
    """On a busy node garbage that has lived for a while is collected after hours."""

    def left() -> list[object]:
        return [one for one in gc.get_objects() if isinstance(one, BoundedProtocol | BoundedSocket)]

    async def talk(served: Served) -> None:
        await served.whole("/short")
        reader, writer = await served.open("/still")
        await within(reader.readuntil(b"two\n"))
        writer.transport.abort()
        async with served.socket() as socket:
            await socket.send('"hello"')
            await socket.recv()
        with pytest.raises(websockets.InvalidStatus):
            async with served.socket("/nowhere"):
                pass

    async with serving(Limits()) as served:
        gc.collect()
        gc.disable()
        try:
            for _ in range(3):
                await talk(served)
            async with asyncio.timeout(10):
                while left():
                    await asyncio.sleep(0.01)
        finally:
            gc.enable()


# --- streams --------------------------------------------------------------------------------------


async def test_a_stream_comes_in_pieces_and_ends_in_order(served: Served) -> None:
    assert await served.whole("/short") == (200, b"2\r\n0\n\r\n2\r\n1\n\r\n2\r\n2\n\r\n0\r\n\r\n")
    assert await served.whole("/short", "HEAD") == (200, b"")


async def test_a_stream_is_cancelled_when_its_caller_goes(served: Served) -> None:
    reader, writer = await served.open("/still")
    await within(reader.readuntil(b"two\n"))

    writer.close()

    await within(served.watched.ended.wait())


async def test_a_caller_that_does_not_read_holds_the_stream_up_and_is_let_go(
    served: Served,
) -> None:
    _, writer = await served.open("/endless")

    await within(served.watched.ended.wait())

    assert served.watched.poured < 2_000, "it went on though nobody read"
    writer.close()


@pytest.mark.parametrize("asked", [GET_LARGE, SAY_LARGE], ids=["stream", "socket"])
async def test_who_reads_slowly_is_not_cut_off(served: Served, asked: tuple[bytes, ...]) -> None:
    """Over a slow line a large message may take longer than a peer may be idle."""
    slow = socketlib.socket()
    slow.setsockopt(socketlib.SOL_SOCKET, socketlib.SO_RCVBUF, 32 << 10)
    slow.setblocking(False)
    loop = asyncio.get_running_loop()
    with slow:
        await loop.sock_connect(slow, ("127.0.0.1", served.port))
        for one in asked:
            await loop.sock_sendall(slow, one)
            await within(loop.sock_recv(slow, 1 << 10))
        got, until = 0, loop.time() + 2.3
        while loop.time() < until:
            more = await within(loop.sock_recv(slow, 32 << 10))
            assert more, f"cut off after {got} bytes"
            got += len(more)
            await asyncio.sleep(0.002)
        assert got < LARGE, "there was more to take"


async def test_streams_and_sockets_are_bounded_together(served: Served) -> None:
    _, one = await served.open("/still")
    async with served.socket() as socket:
        await socket.send('"hello"')
        await within(socket.recv())

        status, body = await served.whole("/still")

        assert status == 503
        assert json.loads(body)["type"].endswith("too-many-streams")
        with pytest.raises(websockets.InvalidStatus) as refused:
            await served.socket()
        assert refused.value.response.status_code == 503
    one.close()


async def test_a_node_that_stops_ends_streams_with_a_farewell_or_cuts_them() -> None:
    async with serving() as served:
        still, one = await served.open("/still")
        cut, other = await served.open("/cut")
        await within(still.readuntil(b"two\n"))
        await within(cut.readuntil(b"two\n"))

        await within(served.server.aclose())

        assert await within(still.read()) == b"\r\n4\r\nbye\n\r\n0\r\n\r\n"
        assert await within(cut.read()) == b"\r\n", "cut short, which a client can tell"
        one.close()
        other.close()


# --- sockets --------------------------------------------------------------------------------------


async def test_a_socket_talks_in_text_and_closes(served: Served) -> None:
    long = "y" * 3_000
    async with served.socket() as socket:
        for said in ("a", "b" * 200, long):
            await socket.send(json.dumps(said))
            assert await within(socket.recv()) == json.dumps(said)
        await socket.send('"end"')
        await within(socket.wait_closed())

    assert socket.close_code == 1000


async def test_problems_before_a_socket_is_accepted_are_those_of_http(served: Served) -> None:
    for path, headers, status in (
        ("/echo?refuse=true", {}, 409),
        ("/echo?nonsense=1", {}, 400),
        ("/nowhere", {}, 404),
        ("/short", {}, 400),
        ("/echo", {"origin": "https://elsewhere.example"}, 403),
    ):
        with pytest.raises(websockets.InvalidStatus) as refused:
            await served.socket(path, additional_headers=headers)
        response = refused.value.response
        assert response.status_code == status, path
        assert json.loads(response.body)["remedy"]


async def test_a_plain_call_of_a_socket_is_told_to_upgrade(served: Served) -> None:
    status, body = await served.whole("/echo")

    assert (status, json.loads(body)["field"]) == (426, "Upgrade")


@pytest.mark.parametrize(("said", "code"), [("refuse", 1008), ("fail", 1011)])
async def test_a_conversation_that_fails_says_so_and_closes(
    served: Served, said: str, code: int
) -> None:
    async with served.socket() as socket:
        await socket.send(json.dumps(said))
        told = json.loads(await within(socket.recv()))
        await within(socket.wait_closed())

    assert told["type"] == "error"
    assert told["remedy"]
    assert socket.close_code == code


async def test_messages_that_are_too_large_or_in_too_many_parts_close_the_socket(
    served: Served,
) -> None:
    async def parts(count: int, part: str) -> AsyncIterator[str]:
        for _ in range(count):
            yield part

    for sent in ("z" * 5_000, parts(20, "z" * 1_000), parts(2_000, "")):
        async with served.socket() as socket:
            with suppress(websockets.ConnectionClosed):
                await socket.send(sent)
            await within(socket.wait_closed())
            assert socket.close_code == 1009
    assert served.watched.heard == []


async def test_garbage_closes_a_socket_and_nothing_else(served: Served) -> None:
    socket: ClientConnection
    async with served.socket() as socket:
        socket.transport.write(b"\xff" * 100)
        await within(socket.wait_closed())
        assert socket.close_code == 1002
    async with served.socket() as socket:
        await socket.send(b"\xff", text=True)
        await within(socket.wait_closed())
        assert socket.close_code == 1007
    async with served.socket() as socket:
        await socket.send('"still there"')
        assert await within(socket.recv()) == '"still there"'


async def test_mistakes_of_peers_are_nothing_for_the_log(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(websockets.InvalidStatus):
        async with served.socket("/nowhere"):
            pass
    async with served.socket() as socket:
        await socket.send([b'"\xc3', b'\xa9\xff"'], text=True)
        await within(socket.wait_closed())
        assert (socket.close_code, socket.close_reason) == (1007, "what is sent as text is UTF-8")
    async with served.socket() as socket:
        await socket.send([b'"\xc3', b'\xa9"'], text=True)
        assert await within(socket.recv()) == '"\xe9"'

    assert caplog.records == []


async def test_a_peer_that_does_not_read_costs_its_buffer_and_is_let_go(served: Served) -> None:
    async with served.socket(max_queue=1, compression=None) as socket:
        socket.transport.pause_reading()
        await socket.send('"flood"')

        await within(served.watched.ended.wait())

        assert served.watched.poured < 2_000
        socket.transport.abort()


async def test_a_half_open_peer_is_found_by_its_silence() -> None:
    async with serving(SMALL._replace(ping_s=0.2)) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(
            b"GET /echo HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\n"
            b"connection: upgrade\r\nsec-websocket-version: 13\r\n"
            b"sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        )
        await within(reader.readuntil(b"\r\n\r\n"))

        await within(served.watched.ended.wait())

        writer.close()


async def test_a_peer_that_answers_pings_stays() -> None:
    async with serving(SMALL._replace(ping_s=0.1)) as served, served.socket() as socket:
        pinged = asyncio.get_running_loop().time() + 1
        while asyncio.get_running_loop().time() < pinged:
            await socket.send('"there?"')
            assert await within(socket.recv()) == '"there?"'
            await within(await socket.ping())

    assert socket.close_code == 1000


async def test_a_node_that_stops_closes_sockets() -> None:
    async with serving() as served, served.socket() as socket:
        await socket.send('"hello"')
        await within(socket.recv())

        await within(served.server.aclose())
        await within(socket.wait_closed())

        assert socket.close_code == 1001


def test_sockets_are_described_with_their_messages() -> None:
    told = described(routes(Watched()))["paths"]["/echo"]["get"]

    assert {"101", "403", "426"} <= set(told["responses"])
    assert set(told["x-websocket"]) == {"client-message", "server-message"}
