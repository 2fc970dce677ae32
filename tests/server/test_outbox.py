"""Bytes and files leave in order, exactly, and cost nothing while nobody takes them."""

import asyncio
import hashlib
import os
import random
import socket
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.conftest import Log
from tests.server.kit import DiskFile, Serving, echo, frame, head, serving, settled, until
from waystation.server.connection import Request, Respond

MEGABYTE = 1 << 20
FILE_BYTES = 50 * MEGABYTE


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("files") / "big"
    path.write_bytes(random.Random(3).randbytes(MEGABYTE) * (FILE_BYTES // MEGABYTE))
    yield path
    path.unlink()


class Slices:
    """Answers a request for ``position,nbytes`` with that stretch between two words."""

    def __init__(self, path: Path, *, has_descriptor: bool = True) -> None:
        self.file = DiskFile(path, has_descriptor=has_descriptor)

    def __call__(self, request: Request, respond: Respond) -> None:
        if not request.body:
            echo(request, respond)
            return
        position, nbytes = map(int, bytes(request.body).split(b","))
        respond([head(request), b"begin", self.file.region(position, nbytes), b"end"])


async def digest_of(reader: asyncio.StreamReader, nbytes: int) -> str:
    digest = hashlib.sha256()
    while nbytes:
        chunk = await reader.read(min(nbytes, 1 << 18))
        digest.update(chunk)
        nbytes -= len(chunk)
    return digest.hexdigest()


@pytest.mark.parametrize("has_descriptor", [True, False])
async def test_a_large_file_arrives_byte_for_byte_between_small_replies(
    big: Path, has_descriptor: bool
) -> None:
    async with serving(Slices(big, has_descriptor=has_descriptor)) as server:
        client = await server.connect(limit=1 << 20)
        await client.send(frame(b"", 1), frame(b"0,%d" % FILE_BYTES, 2), frame(b"", 3))

        assert await client.reply() == (1, b"")
        prefix = await client.reader.readexactly(4 + 4 + 5)
        assert int.from_bytes(prefix[:4]) == 4 + 5 + FILE_BYTES + 3
        content = big.read_bytes()
        assert await digest_of(client.reader, FILE_BYTES) == hashlib.sha256(content).hexdigest()
        assert await client.reader.readexactly(3) == b"end"
        assert await client.reply() == (3, b"")

        sent = server.count("sent_by_sendfile_bytes_total")
        assert sent > FILE_BYTES - (64 << 10) if has_descriptor else sent == 0
        assert server.count("sent_bytes_total") == FILE_BYTES + 8 + 8 + 8 + 8


async def test_stretches_of_every_size_arrive_byte_for_byte(big: Path) -> None:
    content, rng = big.read_bytes(), random.Random(11)
    sizes = (0, 1, 999, 65_535, 65_536, 65_537, 262_144, 1_500_000)
    wanted = [(rng.randrange(FILE_BYTES - 2 * MEGABYTE), rng.choice(sizes)) for _ in range(150)]

    async with serving(Slices(big)) as server:
        client = await server.connect(limit=8 << 20)

        async def ask() -> None:
            for number, (position, nbytes) in enumerate(wanted):
                await client.send(frame(b"%d,%d" % (position, nbytes), number))

        asking = asyncio.create_task(ask())
        for number, (position, nbytes) in enumerate(wanted):
            stretch = content[position : position + nbytes]
            assert await client.reply() == (number, b"begin" + stretch + b"end")
        await asking


async def test_small_stretches_are_read_and_joined(big: Path) -> None:
    slices = Slices(big)
    async with serving(slices) as server:
        client = await server.connect()
        await client.send(frame(b"0,1000", 1))

        assert await client.reply() == (1, b"begin" + big.read_bytes()[:1000] + b"end")
        assert server.count("sent_by_sendfile_bytes_total") == 0
        assert slices.file.bytes_read == 1000


@pytest.mark.parametrize("nbytes", [1_000, 5 * MEGABYTE])
async def test_a_file_that_ends_too_soon_ends_the_connection(
    tmp_path: Path, log: Log, nbytes: int
) -> None:
    short = tmp_path / "short"
    short.write_bytes(os.urandom(nbytes - 1))
    async with serving(Slices(short)) as server:
        client, other = await server.connect(), await server.connect()
        await client.send(frame(b"0,%d" % nbytes))

        assert await client.is_cut()
        assert await other.ask(b"") == b""

    (event,) = log.named("reply.broken")
    assert "the file ends 1 bytes short" in str(event["problem"])


async def test_an_unlinked_file_is_sent_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "gone"
    content = os.urandom(8 * MEGABYTE)
    path.write_bytes(content)
    slices = Slices(path)
    path.unlink()
    async with serving(slices) as server:
        client = await server.connect(limit=16 << 20)
        await client.send(frame(b"0,%d" % len(content), 5))

        assert await client.reply() == (5, b"begin" + content + b"end")


def slow_socket(server: Serving) -> socket.socket:
    """A client whose side of the network holds next to nothing."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    sock.connect(("127.0.0.1", server.port))
    sock.setblocking(False)
    return sock


async def receive(sock: socket.socket, nbytes: int) -> bytes:
    loop, parts = asyncio.get_running_loop(), []
    while nbytes:
        parts.append(await asyncio.wait_for(loop.sock_recv(sock, min(nbytes, 1 << 20)), 20))
        assert parts[-1], "the server closed the connection"
        nbytes -= len(parts[-1])
    return b"".join(parts)


@pytest.mark.parametrize("has_descriptor", [True, False])
async def test_readers_that_do_not_read_cost_no_memory_for_files(
    big: Path, has_descriptor: bool
) -> None:
    slices = Slices(big, has_descriptor=has_descriptor)
    async with serving(slices, socket_send_buffer_bytes=1 << 16) as server:
        socks = [slow_socket(server) for _ in range(5)]
        tracemalloc.start()
        for sock in socks:
            sock.send(frame(b"0,%d" % FILE_BYTES, 1) * 20)
        await until(lambda: server.count("requests_total") >= 5)
        await settled()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()

        assert peak < 5 * MEGABYTE, f"{peak} bytes for five clients that asked for 5 GB"
        assert slices.file.bytes_read < 5 * MEGABYTE
        for sock in socks:
            sock.close()


async def test_a_reader_that_does_not_read_is_not_read_from(log: Log) -> None:
    handled = 0
    reply = bytes(10_000)

    def handle(request: Request, respond: Respond) -> None:
        nonlocal handled
        handled += 1
        respond([head(request), reply])

    async with serving(handle, socket_send_buffer_bytes=1 << 16) as server:
        sock = slow_socket(server)
        await asyncio.get_running_loop().sock_sendall(sock, frame(b"", 1) * 2_000)
        await settled()

        assert handled < 500

        received = await receive(sock, 2_000 * 10_008)
        assert received == (b"\0\0\x27\x14\0\0\0\x01" + reply) * 2_000
        assert handled == 2_000
        sock.close()


async def test_large_replies_in_memory_do_not_pile_up(big: Path) -> None:
    """Each of the requests of one read makes a megabyte: they must not all be made at once."""
    made = 0

    def handle(request: Request, respond: Respond) -> None:
        nonlocal made
        made += 1
        respond([head(request), bytes(MEGABYTE)])

    async with serving(handle, socket_send_buffer_bytes=1 << 16) as server:
        sock = slow_socket(server)
        sock.send(frame(b"", 1) * 30)
        await until(lambda: made > 0)
        await settled()

        assert made <= 3

        await receive(sock, 30 * (MEGABYTE + 8))
        sock.close()


async def test_a_reader_that_vanishes_while_owed_is_forgotten(big: Path, log: Log) -> None:
    async with serving(Slices(big), socket_send_buffer_bytes=1 << 16) as server:
        sock = slow_socket(server)
        sock.send(frame(b"0,%d" % FILE_BYTES, 1))
        await until(lambda: server.count("requests_total") == 1)
        sock.close()

        await until(lambda: not server.listener.connections)

    assert "error" not in log.stream.getvalue()
