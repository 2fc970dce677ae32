"""One client: order, framing, back-pressure, and whose fault it is."""

import asyncio
import random
import struct

import pytest

from tests.server.conftest import Log
from tests.server.kit import Client, Held, echo, frame, head, serving, settled, until
from waystation.server.connection import Request, Respond
from waystation.server.gate import GATHERING

METADATA_FROM_THE_FUTURE = 99


async def test_replies_leave_in_the_order_of_their_requests() -> None:
    held = Held()
    async with serving(held) as server:
        client = await server.connect()
        await client.send(*(frame(b"", number) for number in range(5)))
        await held.arrived(5)
        for number in (3, 1, 4, 2, 0):
            held.answer(number, b"%d" % number)

        replies = [await client.reply() for _ in range(5)]

    assert replies == [(number, b"%d" % number) for number in range(5)]


async def test_a_request_is_begun_while_an_earlier_one_waits() -> None:
    waiting: list[Respond] = []

    def handle(request: Request, respond: Respond) -> None:
        if request.correlation_id == 0:
            waiting.append(lambda _: respond([head(request)]))
        else:
            waiting.pop()(None)
            echo(request, respond)

    async with serving(handle) as server:
        client = await server.connect()
        await client.send(frame(b"first", 0), frame(b"second", 1))

        assert await client.reply() == (0, b"")
        assert await client.reply() == (1, b"second")


async def test_a_reply_of_nothing_leaves_nothing_and_holds_nobody_up() -> None:
    def handle(request: Request, respond: Respond) -> None:
        if request.correlation_id % 2:
            respond(None)
        else:
            echo(request, respond)

    async with serving(handle) as server:
        client = await server.connect()
        await client.send(*(frame(b"x", number) for number in range(6)))

        assert [(await client.reply())[0] for _ in range(3)] == [0, 2, 4]


async def test_a_request_that_comes_byte_by_byte_is_whole() -> None:
    async with serving(echo) as server:
        client = await server.connect()
        for byte in frame(b"slowly", 9):
            await client.send(bytes((byte,)))
            await asyncio.sleep(0)

        assert await client.reply() == (9, b"slowly")


SIZES = (0, 1, 100, 4_095, 32_767, 65_536, 131_060, 131_072, 131_090, 300_000, 3_000_000)


async def test_frames_of_every_size_arrive_byte_for_byte_however_they_are_cut() -> None:
    rng = random.Random(7)
    bodies = [rng.randbytes(rng.choice(SIZES)) for _ in range(60)]
    stream = b"".join(frame(body, number) for number, body in enumerate(bodies))

    async def send(client: Client) -> None:
        at = 0
        while at < len(stream):
            cut = at + rng.choice((1, 3, 700, 5_000, 70_000, 400_000))
            await client.send(stream[at:cut])
            at = cut

    async with serving(echo) as server:
        client = await server.connect(limit=8 << 20)
        sending = asyncio.create_task(send(client))
        for number, body in enumerate(bodies):
            assert await client.reply() == (number, body)
        await sending

        assert server.count("requests_total") == len(bodies)
        assert server.count("received_bytes_total") == len(stream)


async def test_the_body_is_gone_once_the_handler_returned() -> None:
    kept: list[memoryview] = []
    slices: list[memoryview] = []

    def handle(request: Request, respond: Respond) -> None:
        kept.append(request.body)
        slices.append(request.body[:4])
        respond([head(request)])

    async with serving(handle) as server:
        client = await server.connect()
        await client.ask(b"body")

    with pytest.raises(ValueError, match="released"):
        bytes(kept[0])
    assert bytes(slices[0]) == b"\xdd" * 4, "a slice that outlives the handler must not look right"


async def test_the_body_may_be_changed_in_place() -> None:
    def handle(request: Request, respond: Respond) -> None:
        request.body[:3] = b"new"
        echo(request, respond)

    async with serving(handle) as server:
        client = await server.connect()

        assert await client.ask(b"old body") == b"new body"


async def test_a_handler_that_raises_costs_its_own_connection_only(log: Log) -> None:
    def handle(request: Request, respond: Respond) -> None:
        if bytes(request.body) == b"bad":
            raise RuntimeError("boom")
        echo(request, respond)

    async with serving(handle) as server:
        good, bad = await server.connect(), await server.connect()
        await bad.send(frame(b"bad", 77), frame(b"never seen", 78))

        assert await bad.is_cut()
        assert await good.ask(b"alive") == b"alive"
        assert server.count("requests_failed_total") == 1

    (event,) = log.named("request.failed")
    assert (event["correlation_id"], event["client_id"], event["api_key"]) == (77, "test", 3)
    assert "boom" in str(event["exception"])


async def test_a_second_reply_is_told_and_ignored(log: Log) -> None:
    def handle(request: Request, respond: Respond) -> None:
        respond([head(request), b"one"])
        respond([head(request), b"two"])

    async with serving(handle) as server:
        client = await server.connect()

        assert await client.ask(b"", 1) == b"one"
        assert await client.ask(b"", 2) == b"one"

    assert len(log.named("reply.repeated")) == 2


async def test_a_reply_to_a_client_that_left_goes_nowhere(log: Log) -> None:
    held = Held()
    async with serving(held) as server:
        client = await server.connect()
        closed: list[bool] = []
        await client.send(frame(b""))
        await held.arrived(1)
        held.requests[0][0].connection.when_closed(lambda: closed.append(True))
        await client.close()
        await until(lambda: not server.listener.connections)
        held.answer(0)

        assert closed == [True]
        assert held.requests[0][0].connection.closed

    assert "error" not in log.stream.getvalue()


async def test_a_reply_that_cannot_be_framed_costs_its_own_connection_only() -> None:
    def handle(request: Request, respond: Respond) -> None:
        respond([head(request), 5])  # type: ignore[list-item]  # on purpose

    async with serving(handle) as server:
        client = await server.connect()
        await client.send(frame(b""))

        assert await client.is_cut()


async def test_an_api_that_is_not_spoken_still_reaches_the_handler() -> None:
    seen: list[tuple[int, int, int]] = []

    def handle(request: Request, respond: Respond) -> None:
        seen.append((request.api_key, request.api_version, len(request.body)))
        echo(request, respond)

    async with serving(handle) as server:
        client = await server.connect()
        await client.send(frame(b"whatever", 5, version=METADATA_FROM_THE_FUTURE))

        assert await client.reply() == (5, b"")

    assert seen == [(3, METADATA_FROM_THE_FUTURE, 0)]


@pytest.mark.parametrize("length", [-1, -(1 << 31), 0, 7, (1 << 20) + 1, (1 << 31) - 1])
async def test_a_length_that_cannot_be_is_refused_at_once(length: int, log: Log) -> None:
    async with serving(echo, socket_request_max_bytes=1 << 20) as server:
        client = await server.connect()
        await client.send(frame(b"fine", 1), struct.pack(">i", length))

        assert await client.reply() == (1, b"fine")
        assert await client.is_cut()
        assert server.count("requests_malformed_total") == 1

    (event,) = log.named("request.malformed")
    assert f"a request of {length} bytes" in str(event["problem"])


async def test_a_header_that_is_cut_short_is_refused(log: Log) -> None:
    async with serving(echo) as server:
        client = await server.connect()
        await client.send(struct.pack(">ihhih", 10, 3, 4, 1, 500))

        assert await client.is_cut()

    assert len(log.named("request.malformed")) == 1


async def test_reading_stops_while_too_many_replies_are_owed() -> None:
    held = Held()
    async with serving(held, max_inflight_requests_per_connection=4) as server:
        client = await server.connect()
        await client.send(*(frame(b"%d" % number, number) for number in range(50)))
        await held.arrived(4)
        await settled()

        assert len(held.requests) == 4

        for number in range(50):
            await held.arrived(number + 1)
            held.answer(number)
            assert (await client.reply())[0] == number


async def test_a_client_that_only_stops_sending_gets_the_replies_that_are_there() -> None:
    async with serving(echo) as server:
        client = await server.connect()
        await client.send(*(frame(bytes(50_000), number) for number in range(100)))
        client.writer.write_eof()

        assert [(await client.reply())[0] for _ in range(100)] == list(range(100))
        assert await client.is_cut()


async def test_a_finished_connection_answers_what_it_has_read_and_ends() -> None:
    held = Held()
    async with serving(held) as server:
        client = await server.connect()
        await client.send(frame(b"", 0), frame(b"", 1))
        await held.arrived(2)
        held.requests[0][0].connection.finish()
        await client.send(frame(b"too late", 2))
        held.answer(1)
        held.answer(0)

        assert [(await client.reply())[0] for _ in range(2)] == [0, 1]
        assert await client.is_cut()
        assert len(held.requests) == 2


async def test_what_the_apis_remember_of_a_client_lasts_as_long_as_it_does() -> None:
    def handle(request: Request, respond: Respond) -> None:
        session = request.connection.session
        session["seen"] = session.get("seen", 0) + 1
        respond([head(request), b"%d" % session["seen"]])

    async with serving(handle) as server:
        one, other = await server.connect(), await server.connect()

        assert [await one.ask(b""), await one.ask(b""), await other.ask(b"")] == [b"1", b"2", b"1"]


async def test_a_client_that_is_owed_replies_and_sends_on_in_drops_is_still_heard() -> None:
    held = Held()
    async with serving(held) as server:
        client = await server.connect()
        for number in range(80):
            await client.send(frame(b"", number))
            await asyncio.sleep(0)
        await held.arrived(80)
        for number in range(80):
            held.answer(number)

        assert [(await client.reply())[0] for _ in range(80)] == list(range(80))


@pytest.mark.parametrize(("linger_ms", "rests"), [(0, False), (20, True)])
async def test_a_client_that_sends_in_drops_is_read_less_often_if_told(
    linger_ms: int, rests: bool
) -> None:
    held = Held()
    async with serving(held, socket_read_linger_ms=linger_ms) as server:
        client = await server.connect()
        for number in range(41):
            await client.send(frame(b"", number))
            await held.arrived(number + 1)
        (connection,) = server.listener.connections

        assert bool(connection._gate.reasons & GATHERING) == rests
        await client.send(frame(b"", 41))
        await held.arrived(42)


async def test_a_client_that_goes_while_it_is_read_less_often_leaves_nothing_behind() -> None:
    held = Held()
    async with serving(held) as server:
        client = await server.connect()
        await client.send(*(frame(b"", number) for number in range(60)))
        await held.arrived(60)
        await client.close()
        await until(lambda: server.count("connections") == 0)
