"""Who gets in, who is put out, and how the last ones leave."""

import asyncio
import errno
import resource
import socket
import tracemalloc

import pytest

from tests.server.conftest import Log
from tests.server.kit import Client, Held, echo, frame, serving, settled, until
from waystation.runtime.clock import ManualClock, SystemClock
from waystation.server.listener import Listener
from waystation.server.settings import ServerSettings
from waystation.telemetry.metrics import Registry


def listener() -> Listener:
    return Listener(ServerSettings(), echo, SystemClock(), Registry())


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0"])
async def test_it_listens_where_it_is_told(host: str) -> None:
    async with serving(echo, host=host) as server:
        client = await server.connect()

        assert await client.ask(b"hello") == b"hello"
        (connection,) = server.listener.connections
        assert connection.peer.startswith("127.0.0.1:")


@pytest.mark.parametrize("host", ["::1", "::", ""])
async def test_it_listens_on_the_newer_internet_too(host: str) -> None:
    async with serving(echo, host=host) as server:
        client = await server.connect(host="::1")

        assert await client.ask(b"hello") == b"hello"
        (connection,) = server.listener.connections
        assert connection.peer.startswith("[::1]:")


async def test_any_address_means_both_internets_on_one_port() -> None:
    async with serving(echo, host="") as server:
        for host in ("127.0.0.1", "::1"):
            assert await (await server.connect(host=host)).ask(b"hello") == b"hello"


async def test_a_port_that_is_taken_is_said_to_be() -> None:
    async with serving(echo) as server:
        with pytest.raises(OSError, match="ddress already in use") as caught:
            await listener().start("127.0.0.1", server.port)

        assert caught.value.errno == errno.EADDRINUSE


async def test_a_port_is_free_again_after_the_drain() -> None:
    first = listener()
    port = await first.start("127.0.0.1", 0)
    client = await Client.connect(port)
    await client.ask(b"hello")
    await first.drain(1)
    second = listener()

    assert await second.start("127.0.0.1", port) == port
    await second.drain(1)


async def test_too_many_connections_are_refused_and_the_others_unharmed(log: Log) -> None:
    async with serving(echo, max_connections=3) as server:
        clients = [await server.connect() for _ in range(3)]
        assert await clients[0].ask(b"in") == b"in"
        late = await server.connect()

        assert await late.is_cut()
        assert server.count("connections_refused_total") == 1
        assert server.count("connections") == 3

        await clients[1].close()
        await until(lambda: server.count("connections") == 2)
        assert await (await server.connect()).ask(b"in") == b"in"

    assert log.named("connection.refused")[0]["limit"] == "max.connections"


async def test_one_address_may_have_only_so_many(log: Log) -> None:
    async with serving(echo, host="", max_connections_per_ip=2) as server:
        clients = [await server.connect() for _ in range(2)]
        for client in clients:
            assert await client.ask(b"in") == b"in"

        assert await (await server.connect()).is_cut()
        assert await (await server.connect(host="::1")).ask(b"other") == b"other"

    assert log.named("connection.refused")[0]["limit"] == "max.connections.per.ip"


async def test_a_limit_may_be_lowered_while_it_runs() -> None:
    async with serving(echo) as server:
        client = await server.connect()
        assert await client.ask(b"in") == b"in"
        server.listener.adopt(ServerSettings(max_connections=1))

        assert await (await server.connect()).is_cut()


async def test_a_connection_over_which_nothing_moves_is_closed(log: Log) -> None:
    clock = ManualClock()
    async with serving(echo, clock=clock, connections_max_idle_ms=60_000) as server:
        idle, busy = await server.connect(), await server.connect()
        await idle.ask(b"once")
        for _ in range(4):
            await busy.ask(b"again")
            server.listener.sweep()
            clock.advance(20)
        server.listener.sweep()

        assert await idle.is_cut()
        assert await busy.ask(b"alive") == b"alive"

    assert len(log.named("connection.idle")) == 1


async def test_a_client_that_waits_for_its_reply_is_not_idle() -> None:
    clock, held = ManualClock(), Held()
    async with serving(held, clock=clock, connections_max_idle_ms=60_000) as server:
        client = await server.connect()
        await client.send(frame(b"long poll", 1))
        await held.arrived(1)
        for _ in range(10):
            server.listener.sweep()
            clock.advance(60)
        held.answer(0, b"at last")

        assert await client.reply() == (1, b"at last")


async def test_half_a_request_does_not_keep_a_connection_alive() -> None:
    clock = ManualClock()
    async with serving(echo, clock=clock, connections_max_idle_ms=60_000) as server:
        client = await server.connect()
        await client.send(frame(b"cut off")[:-3])
        await until(lambda: server.count("received_bytes_total") > 0)
        server.listener.sweep()
        clock.advance(61)
        server.listener.sweep()

        assert await client.is_cut()


async def test_a_drain_answers_what_is_in_flight() -> None:
    held = Held()
    async with serving(held) as server:
        clients = [await server.connect() for _ in range(10)]
        idle = await server.connect()
        for client in clients:
            await client.send(frame(b"", 1), frame(b"", 2))
        await held.arrived(20)
        draining = asyncio.create_task(server.listener.drain(20))
        await settled()

        with pytest.raises(ConnectionRefusedError):
            await server.connect()
        assert not draining.done()

        for number in range(20):
            held.answer(number, b"done")
        for client in clients:
            assert [await client.reply(), await client.reply()] == [(1, b"done"), (2, b"done")]
            assert await client.is_cut()
            await client.close()
        assert await idle.is_cut()
        await asyncio.wait_for(draining, 10)


async def test_a_drain_under_load_loses_no_reply() -> None:
    """Whatever was handled is answered, although more requests lie unread in the socket."""
    async with serving(echo) as server:
        clients = [await server.connect() for _ in range(4)]

        async def send(client: Client) -> None:
            while True:
                await client.send(frame(bytes(1_000)) * 100)

        async def count_replies(client: Client) -> int:
            received = 0
            while chunk := await client.reader.read(1 << 16):
                received += len(chunk)
            assert received % 1_008 == 0
            return received // 1_008

        sending = [asyncio.create_task(send(client)) for client in clients]
        counting = [asyncio.create_task(count_replies(client)) for client in clients]
        await until(lambda: server.count("requests_total") > 2_000)
        draining = asyncio.create_task(server.listener.drain(20))
        replies = await asyncio.wait_for(asyncio.gather(*counting), 20)
        for task in sending:
            task.cancel()
        for client in clients:
            await client.close()
        await asyncio.wait_for(draining, 10)

        assert sum(replies) == server.count("requests_total")


async def test_a_drain_does_not_wait_longer_than_told(log: Log) -> None:
    held = Held()
    async with serving(held) as server:
        client = await server.connect()
        await client.send(frame(b""))
        await held.arrived(1)
        await asyncio.wait_for(server.listener.drain(0.05), 10)

        assert await client.is_cut()
        assert not server.listener.connections

    assert log.named("connection.cut")[0]["pending"] == 1


async def test_running_out_of_descriptors_harms_only_who_comes_too_late() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with serving(echo) as server:
        first = await server.connect()
        assert await first.ask(b"early") == b"early"
        socks = [socket.socket() for _ in range(10)]
        resource.setrlimit(resource.RLIMIT_NOFILE, (socks[-1].fileno() + 4, hard))
        try:
            for sock in socks:
                sock.connect(("127.0.0.1", server.port))
            assert await first.ask(b"still here") == b"still here"
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for sock in socks:
                sock.close()

        assert await (await server.connect()).ask(b"late") == b"late"


async def test_a_thousand_connections_at_once_are_served_and_cheap() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    async with serving(echo) as server:
        socks = []
        for _ in range(1_000):
            sock = socket.socket()
            sock.connect(("127.0.0.1", server.port))
            socks.append(sock)
            if len(socks) == 100:
                # The first ones pay for what all share.
                await until(lambda: len(server.listener.connections) == 100)
                tracemalloc.start()
        await until(lambda: len(server.listener.connections) == 1_000)
        taken, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()

        assert taken / 900 < 8_000, "bytes per connection"

        for sock in socks:
            sock.send(frame(b"all at once", 5))
        await until(lambda: server.count("requests_total") == 1_000)
        for sock in socks:
            sock.settimeout(10)
            assert sock.recv(100) == b"\0\0\0\x0f\0\0\0\x05all at once"
            sock.close()
        await until(lambda: not server.listener.connections)
