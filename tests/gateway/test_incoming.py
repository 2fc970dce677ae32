"""Bodies that come for as long as they like: patience, bombs, and lines that never end."""

import asyncio
import time
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import zstandard

from waystation.gateway.app import App, HttpServer, serve_http
from waystation.gateway.bodies import Limits
from waystation.gateway.incoming import SLICE_BYTES, Incoming
from waystation.gateway.problems import ProblemError
from waystation.gateway.routes import NDJSON, Call, Params, Route

SMALL = Limits(body_bytes=1 << 20, request_s=0.6, idle_s=1)


class Counted(Params, frozen=True):
    lines: int
    most_bytes: int


async def count(call: Call[None, Incoming]) -> Counted:
    lines = most = 0
    try:
        async for some in call.body.slices():
            assert some.number == lines + 1
            lines += some.lines
            most = max(most, len(some.content))
    except ProblemError:
        await call.body.discard()
        raise
    return Counted(lines, most)


ROUTE = Route(
    method="POST",
    path="/count",
    summary="Count lines",
    tag="t",
    handler=count,
    body=Counted,
    streamed=True,
    media_types=(NDJSON,),
    answer=Counted,
)
HEAD = (
    b"POST /count HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n"
    b"content-type: application/x-ndjson\r\nconnection: close\r\n"
)


@asynccontextmanager
async def served() -> AsyncIterator[HttpServer]:
    server = await serve_http(App([ROUTE], None, SMALL), "127.0.0.1", 0)
    try:
        yield server
    finally:
        await server.aclose()


def chunk(content: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(content), content)


async def test_who_sends_now_and_then_may_take_long() -> None:
    async with served() as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        began = time.monotonic()
        writer.write(HEAD + b"\r\n")
        sent = 0
        while time.monotonic() - began < 2:
            writer.write(chunk(b"1\n2\n"))
            sent += 2
            await asyncio.sleep(0.1)
        writer.write(chunk(b""))
        async with asyncio.timeout(10):
            answer = await reader.read()
        writer.close()

    assert answer.startswith(b"HTTP/1.1 200")
    assert b'{"lines":%d,' % sent in answer


async def test_who_sends_nothing_more_is_let_go() -> None:
    async with served() as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(HEAD + b"\r\n" + chunk(b"1\n"))
        async with asyncio.timeout(10):
            answer = await reader.read()
        writer.close()

    assert answer.startswith(b"HTTP/1.1 408")


@pytest.mark.parametrize("packing", [b"gzip", b"zstd"])
async def test_a_bomb_is_taken_in_small_pieces(packing: bytes) -> None:
    """Fifty megabytes from a few kilobytes, and a line of that length."""
    lines = (b"x" * 99 + b"\n") * 10_000
    for content, wanted in (
        (lines, b'{"lines":500000,'),
        (b"x" * len(lines), b"line 1 is longer"),
    ):
        packed = _packed(packing, content, 50)
        assert len(packed) < 300_000
        async with served() as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(HEAD + b"content-encoding: " + packing + b"\r\n\r\n")
            writer.write(chunk(packed) + chunk(b""))
            async with asyncio.timeout(60):
                answer = await reader.read()
            writer.close()
        assert wanted in answer, answer
        if wanted.startswith(b"{"):
            most = int(answer.rpartition(b":")[2].rstrip(b"}"))
            assert most <= SLICE_BYTES + (8 << 20)


def _packed(packing: bytes, content: bytes, times: int) -> bytes:
    if packing == b"gzip":
        gzip = zlib.compressobj(9, zlib.DEFLATED, 31)
        return b"".join(gzip.compress(content) for _ in range(times)) + gzip.flush()
    zstd = zstandard.ZstdCompressor().compressobj()
    return b"".join(zstd.compress(content) for _ in range(times)) + zstd.flush()


class Wire:
    begun_at: float | None = None


async def test_slices_hold_whole_lines_however_the_pieces_come() -> None:
    body = b"".join(b"%d\n" % number * (number % 50) for number in range(3_000)) + b"last"
    for size in (1_000, 99_991, len(body)):
        pieces = [body[at : at + size] for at in range(0, len(body), size)]

        async def receive(left: list[bytes] = pieces) -> dict[str, object]:
            return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

        found = [one async for one in Incoming({}, receive, Wire(), SMALL).slices()]

        assert b"".join(one.content for one in found) == body
        assert all(one.content.endswith(b"\n") for one in found[:-1])
        lines = 1
        for one in found:
            assert one.number == lines
            lines += one.lines


def test_what_nobody_can_unpack_is_refused() -> None:
    async def receive() -> None: ...

    with pytest.raises(ProblemError) as refused:
        Incoming({b"content-encoding": b"br"}, receive, Wire(), SMALL)
    assert refused.value.problem.status == 415
