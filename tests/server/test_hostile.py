"""Clients that lie, dawdle and babble harm nobody but themselves."""

import asyncio
import random
import struct
from pathlib import Path

from tests.server.conftest import Log
from tests.server.kit import WAIT_S, Client, echo, frame, head, serving, settled, until
from tests.support.soak import count
from waystation.runtime.clock import ManualClock
from waystation.server.connection import Request, Respond

MEGABYTE = 1 << 20


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4_096


async def test_announcing_a_large_request_costs_nothing() -> None:
    async with serving(echo, queued_max_request_bytes=20 << 30) as server:
        clients = [await server.connect() for _ in range(100)]
        await until(lambda: len(server.listener.connections) == 100)
        before = resident_bytes()
        for client in clients:
            await client.send(struct.pack(">i", 100 * MEGABYTE) + b"\0" * 9)
        await until(lambda: server.count("received_bytes_total") == 13 * 100)

        assert resident_bytes() - before < 20 * MEGABYTE, "for a hundred lies of 10 GB"
        other = await server.connect()
        assert await other.ask(b"alive") == b"alive"


async def test_memory_for_large_requests_stays_within_its_limit() -> None:
    """A hundred clients send half of a megabyte each, and only some may keep it here."""
    async with serving(echo, queued_max_request_bytes=10 * MEGABYTE) as server:
        before = resident_bytes()
        clients = [await server.connect() for _ in range(100)]
        half = frame(bytes(MEGABYTE))[: MEGABYTE // 2]
        sending = [asyncio.create_task(client.send(half)) for client in clients]
        await until(lambda: server.count("received_bytes_total") > 4 * MEGABYTE)
        await settled()

        # Ten of a megabyte at most, the first read of the others, and what the clients hold.
        assert server.count("received_bytes_total") < 10 * MEGABYTE // 2 + 100 * (64 << 10)
        assert resident_bytes() - before < 80 * MEGABYTE
        for task in sending:
            task.cancel()


def large(number: int, nbytes: int) -> bytes:
    return frame(bytes(nbytes), number)


async def test_large_requests_wait_for_memory_in_the_order_of_asking() -> None:
    order: list[int] = []

    def handle(request: Request, respond: Respond) -> None:
        order.append(request.correlation_id)
        respond([head(request)])

    async with serving(handle, queued_max_request_bytes=MEGABYTE) as server:
        first, second, third, small = [await server.connect() for _ in range(4)]
        content = large(1, 900_000)
        await first.send(content[:500_000])
        await until(lambda: server.count("received_bytes_total") >= 500_000)
        sending = [
            asyncio.create_task(second.send(large(2, 800_000))),
        ]
        await settled()
        sending.append(asyncio.create_task(third.send(large(3, 700_000))))
        await settled()

        assert order == []
        await small.send(frame(b"", 4))
        assert await small.reply() == (4, b"")

        await first.send(content[500_000:])
        for client in (first, second, third):
            await client.reply()
        await asyncio.gather(*sending)

    assert order == [4, 1, 2, 3]


async def test_who_dawdles_while_others_wait_for_memory_is_put_out(log: Log) -> None:
    clock = ManualClock()
    async with serving(echo, clock=clock, queued_max_request_bytes=MEGABYTE) as server:
        dawdler, waiting = await server.connect(), await server.connect(limit=4 * MEGABYTE)
        await dawdler.send(large(1, 900_000)[:200_000])
        await until(lambda: server.count("received_bytes_total") >= 200_000)
        sending = asyncio.create_task(waiting.send(large(2, 800_000)))
        await settled()
        for _ in range(3):
            server.listener.sweep()
            clock.advance(1)

        assert await dawdler.is_cut()
        assert (await waiting.reply())[0] == 2
        await sending

    assert len(log.named("request.too_slow")) == 1


async def test_who_dawdles_while_nobody_waits_may() -> None:
    clock = ManualClock()
    async with serving(echo, clock=clock) as server:
        client = await server.connect(limit=4 * MEGABYTE)
        content = large(1, 900_000)
        for start in range(0, len(content), 100_000):
            await client.send(content[start : start + 100_000])
            server.listener.sweep()
            clock.advance(100)

        assert (await client.reply())[0] == 1


async def test_a_request_beyond_the_memory_is_still_read_when_alone() -> None:
    async with serving(echo, queued_max_request_bytes=MEGABYTE) as server:
        client = await server.connect(limit=16 * MEGABYTE)
        body = random.Random(5).randbytes(5 * MEGABYTE)

        assert await client.ask(body) == body


async def test_a_client_that_leaves_gives_its_memory_back() -> None:
    async with serving(echo, queued_max_request_bytes=MEGABYTE) as server:
        leaver, queued, waiting = [await server.connect(limit=4 * MEGABYTE) for _ in range(3)]
        await leaver.send(large(1, 900_000)[:200_000])
        await until(lambda: server.count("received_bytes_total") >= 200_000)
        await queued.send(large(2, 900_000)[:200_000])
        await settled()
        sending = asyncio.create_task(waiting.send(large(3, 800_000)))
        await settled()
        await queued.close()
        await leaver.close()

        assert (await waiting.reply())[0] == 3
        await sending


async def test_dawdlers_with_half_a_request_hold_up_nobody() -> None:
    async with serving(echo) as server:
        loris = [await server.connect() for _ in range(100)]
        whole = frame(b"slowly")
        good = await server.connect()
        for byte in whole[:-1]:
            for client in loris:
                client.writer.write(bytes((byte,)))
            assert await good.ask(b"quick") == b"quick"
        for number, client in enumerate(loris):
            await client.send(whole[-1:])
            assert await client.reply() == (1, b"slowly"), number


async def test_random_bytes_end_their_connection_and_nothing_else(log: Log) -> None:
    rng = random.Random(13)

    async def babble(server_port: int, noise: bytes) -> None:
        client = await Client.connect(server_port)
        try:
            client.writer.write(noise)
            client.writer.write_eof()
            await client.is_cut()
        except ConnectionError:
            pass
        await client.close()

    def handle(request: Request, respond: Respond) -> None:
        if len(request.body) % 3 == 0:
            raise ValueError("no such message")
        echo(request, respond)

    async with serving(handle) as server:
        for _ in range(count(20, 2_000)):
            noises = [mutated(rng) for _ in range(10)]
            await asyncio.wait_for(
                asyncio.gather(*(babble(server.port, noise) for noise in noises)), WAIT_S
            )
        await until(lambda: not server.listener.connections)
        good = await server.connect()

        assert await good.ask(b"alive") == b"alive"

    lines = len(log.stream.getvalue().splitlines())
    assert lines < count(1_000, 100_000)


def mutated(rng: random.Random) -> bytes:
    """Noise, or requests with some bytes changed and the end missing."""
    if rng.random() < 0.3:
        return rng.randbytes(rng.randrange(2_000))
    stream = bytearray(b"".join(frame(rng.randbytes(rng.randrange(200))) for _ in range(20)))
    for _ in range(rng.randrange(4)):
        stream[rng.randrange(len(stream))] = rng.randrange(256)
    return bytes(stream[: rng.randrange(len(stream))])
