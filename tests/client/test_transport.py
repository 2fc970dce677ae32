"""Frames over a real socket, however the network cuts them."""

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from waystation.client.bootstrap import Address
from waystation.client.errors import ConnectionLostError
from waystation.client.transport import TcpTransport, Transport, connect_tcp

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Open = Callable[[Serve], Awaitable[Transport]]


@pytest.fixture
async def opened() -> AsyncIterator[Open]:
    """Opens a transport to a server that behaves as it is told."""
    servers, transports = [], []

    async def open_to(serve: Serve) -> Transport:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        servers.append(server)
        transport = await connect_tcp(Address(*server.sockets[0].getsockname()[:2]))
        transports.append(transport)
        return transport

    yield open_to
    for transport in transports:
        transport.close()
    for server in servers:
        server.close()


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    (length,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(length)


async def test_replies_come_back_in_the_order_of_the_requests(opened: Open) -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(3):
            writer.write(framed(b"re: " + await read_frame(reader)))

    transport = await opened(echo)
    replies = [transport.request([b"one", name]) for name in (b"a", b"b", b"c")]

    assert [bytes(await reply) for reply in replies] == [b"re: onea", b"re: oneb", b"re: onec"]


@pytest.mark.parametrize("size", [0, 1, 65_531, 65_532, 65_533, 200_000, 3_000_000])
async def test_a_reply_of_any_size_arrives_whole_between_others(opened: Open, size: int) -> None:
    large = bytes(range(256)) * (size // 256) + b"x" * (size % 256)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(framed(b"first") + framed(large) + framed(b"last"))
        await read_frame(reader)

    transport = await opened(serve)
    replies = [transport.request([b"?"]) for _ in range(3)]

    assert [bytes(await reply) for reply in replies] == [b"first", large, b"last"]


async def test_a_reply_in_single_bytes_arrives_whole(opened: Open) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_frame(reader)
        for byte in framed(b"hello") + framed(b"again"):
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)

    transport = await opened(serve)
    replies = [transport.request([b"?"]), transport.request([b"?"])]

    assert [bytes(await reply) for reply in replies] == [b"hello", b"again"]


async def test_a_lost_connection_fails_whoever_waits_and_whoever_comes(opened: Open) -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_frame(reader)
        writer.close()

    transport = await opened(hang_up)
    waiting = transport.request([b"?"])

    with pytest.raises(ConnectionLostError):
        await waiting
    assert transport.closed
    with pytest.raises(ConnectionLostError):
        await transport.request([b"?"])


async def test_a_length_over_the_limit_ends_the_connection(opened: Open) -> None:
    async def lie(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(struct.pack(">i", 0x7FFFFFFF))
        await read_frame(reader)

    transport = await opened(lie)

    with pytest.raises(ConnectionLostError, match="2147483647 bytes"):
        await transport.request([b"?"])


async def test_a_reply_that_nobody_asked_for_ends_the_connection(opened: Open) -> None:
    async def chatter(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_frame(reader)
        writer.write(framed(b"answer") + framed(b"and another thing"))

    transport = await opened(chatter)

    assert bytes(await transport.request([b"?"])) == b"answer"
    with pytest.raises(ConnectionLostError):
        await transport.request([b"?"])


async def test_a_reader_that_does_not_read_makes_the_transport_congested(opened: Open) -> None:
    release = asyncio.Event()

    async def dawdle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await release.wait()
        while await reader.read(1 << 20):
            pass

    transport = await opened(dawdle)
    assert isinstance(transport, TcpTransport)
    while not transport.congested:
        transport.send([bytes(1 << 20)])
    release.set()
    await transport.drained()

    assert not transport.congested


@pytest.mark.parametrize("size", [5, 65_531, 200_000])
async def test_who_exchanges_hears_of_replies_between_those_who_wait(
    opened: Open, size: int
) -> None:
    """One that is lent its reply has it while it is told, and the next one is not mixed in."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(3):
            writer.write(framed((await read_frame(reader)) * size))

    transport = await opened(echo)
    heard: list[bytes] = []
    first = transport.request([b"a"])
    transport.exchange([b"b"], lambda reply: heard.append(bytes(_told(reply))))
    last = transport.request([b"c"])

    assert (await first, await last) == (b"a" * size, b"c" * size)
    assert heard == [b"b" * size]


async def test_who_exchanges_is_told_of_a_lost_connection_later(opened: Open) -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_frame(reader)
        writer.close()

    transport = await opened(hang_up)
    heard: list[memoryview | Exception] = []
    transport.exchange([b"?"], heard.append)
    with pytest.raises(ConnectionLostError):
        await transport.request([b"?"])
    transport.exchange([b"?"], heard.append)
    assert len(heard) <= 1, "nobody is told before it has asked"
    await asyncio.sleep(0)

    assert [type(one) for one in heard] == [ConnectionLostError] * 2


def _told(reply: memoryview | Exception) -> memoryview:
    assert isinstance(reply, memoryview), reply
    return reply
