"""Bodies on their way in and out: bounded, unpacked, packed.

Whatever a caller sends, no more than the limit is ever held in memory, also not of what a small
packed body grows to.  Packing and unpacking what is large happens beside the loop.
"""

import asyncio
import zlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

from waystation.gateway.problems import ProblemError, refusal

__all__ = ["Disconnected", "Limits", "Receive", "discard", "packed", "read_body", "wanted_packing"]

Receive = Callable[[], Awaitable[Any]]
Headers = Mapping[bytes, bytes]

_GZIP: Final = 31  # zlib's number for a gzip wrapper
_ZSTD_WINDOW_BYTES: Final = 8 << 20  # what RFC 8878 asks everyone to take
_WORTH_PACKING_BYTES: Final = 1 << 10
_BESIDE_THE_LOOP_BYTES: Final = 64 << 10
_POLITE_BYTES: Final = 8 << 20


class Disconnected(Exception):  # noqa: N818 - nobody's mistake
    """The caller went away before the body was whole."""


class Limits(NamedTuple):
    """How much of anything a caller may ask for."""

    body_bytes: int = 16 << 20
    """The largest body, before and after it is unpacked."""
    header_bytes: int = 32 << 10
    """All header lines and the address together."""
    connections: int = 8_192
    request_s: float = 30.0
    """How long a request may take to arrive, and an answer to be taken."""
    idle_s: int = 75
    """How long a connection may rest between two requests."""
    waiting: int = 2_048
    """How many calls may wait for messages at once."""
    streams: int = 4_096
    """How many streams and WebSockets may be open at once."""
    frame_bytes: int = 1 << 20
    """The largest message that a WebSocket takes in."""
    ping_s: float = 20.0
    """A peer of a WebSocket that is silent for so long is pinged, and has as long to answer."""


async def read_body(headers: Headers, receive: Receive, limits: Limits) -> bytes:
    """The body as it was before it was packed; HOT: once per request, mostly one message."""
    declared = headers.get(b"content-length")
    if declared is not None and int(declared) > limits.body_bytes:
        if b"expect" not in headers:  # who waits to be asked for the body has not sent any
            await discard(receive)
        raise _too_large(limits.body_bytes)
    message = await receive()
    if message["type"] == "http.disconnect":
        raise Disconnected
    body: bytes = message.get("body", b"")
    if message.get("more_body", False):
        body = await _rest(body, receive, limits.body_bytes)
    elif len(body) > limits.body_bytes:
        raise _too_large(limits.body_bytes)
    encoding = headers.get(b"content-encoding")
    if encoding is None or encoding == b"identity":
        return body
    return await _unpacked(encoding.decode("latin-1").strip().lower(), body, limits.body_bytes)


async def packed(body: bytes, accepted: bytes) -> tuple[bytes, bytes | None]:
    """``body`` as the caller likes it best, and how it was packed."""
    if len(body) < _WORTH_PACKING_BYTES:
        return body, None
    name = wanted_packing(accepted)
    if name is None:
        return body, None
    pack = _zstd if name == b"zstd" else _gzip
    if len(body) > _BESIDE_THE_LOOP_BYTES:
        return await asyncio.to_thread(pack, body), name
    return pack(body), name


def wanted_packing(accepted: bytes) -> bytes | None:
    """How the caller likes an answer packed, by its ``Accept-Encoding``, if at all."""
    wanted = {part.split(b";")[0].strip(): part for part in accepted.lower().split(b",")}
    for name in (b"zstd", b"gzip"):
        if name in wanted and b"q=0" not in wanted[name].replace(b" ", b"").split(b";")[1:]:
            return name
    return None


async def _rest(begun: bytes, receive: Receive, limit_bytes: int) -> bytes:
    gathered = bytearray(begun)
    while True:
        if len(gathered) > limit_bytes:
            await discard(receive)
            raise _too_large(limit_bytes)
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Disconnected
        gathered += message.get("body", b"")
        if not message.get("more_body", False):
            break
    if len(gathered) > limit_bytes:
        raise _too_large(limit_bytes)
    return bytes(gathered)


async def discard(receive: Receive) -> None:
    """Take some more in: who is cut off while it writes would not see the answer."""
    left = _POLITE_BYTES
    while left > 0:
        message = await receive()
        left -= len(message.get("body", b"")) or 1
        if not message.get("more_body", False):
            return


async def _unpacked(encoding: str, body: bytes, limit_bytes: int) -> bytes:
    unpack = {"gzip": _gunzip, "x-gzip": _gunzip, "zstd": _unzstd}.get(encoding)
    if unpack is None:
        raise refusal(
            415,
            "unsupported-content-encoding",
            f"a body packed with {encoding!r} cannot be unpacked",
            field="Content-Encoding",
            remedy="gzip, zstd or nothing at all",
        )
    plain: bytes | None = None
    if len(body) <= _BESIDE_THE_LOOP_BYTES:
        plain = unpack(body, min(_BESIDE_THE_LOOP_BYTES, limit_bytes))
    if plain is None:  # a small one may become a large one
        plain = await asyncio.to_thread(unpack, body, limit_bytes)
    if plain is None:
        raise _too_large(limit_bytes)
    return plain


def _gunzip(body: bytes, limit_bytes: int) -> bytes | None:
    """What was packed; nothing if it is larger than the limit."""
    unpacking = zlib.decompressobj(_GZIP)
    try:
        plain = unpacking.decompress(body, limit_bytes + 1)
    except zlib.error as error:
        raise _not_packed("gzip", str(error)) from None
    if len(plain) > limit_bytes:
        return None
    if not unpacking.eof or unpacking.unused_data:
        raise _not_packed("gzip", "it is cut short, or something follows it")
    return plain


def _unzstd(body: bytes, limit_bytes: int) -> bytes | None:
    """As ``_gunzip``."""
    import zstandard

    # The window too is the sender's choice, and is taken before anything is unpacked.
    unpacking = zstandard.ZstdDecompressor(max_window_size=max(limit_bytes, _ZSTD_WINDOW_BYTES))
    whole = unpacking.decompressobj()
    try:
        # Only the reader can be bounded, only the other knows whether the frame was whole.
        with unpacking.stream_reader(body) as reader:
            if len(reader.read(limit_bytes + 1)) > limit_bytes:
                return None
        plain = whole.decompress(body)
    except zstandard.ZstdError as error:
        raise _not_packed("zstd", str(error)) from None
    if not whole.eof or whole.unused_data:
        raise _not_packed("zstd", "it is cut short, or something follows it")
    return plain


def _gzip(body: bytes) -> bytes:
    packing = zlib.compressobj(1, zlib.DEFLATED, _GZIP)
    return packing.compress(body) + packing.flush()


def _zstd(body: bytes) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor(level=1).compress(body)


def _too_large(limit_bytes: int) -> ProblemError:
    return refusal(
        413,
        "body-too-large",
        f"the body is larger than {limit_bytes} bytes",
        remedy="send it in several requests",
    )


def _not_packed(encoding: str, why: str) -> ProblemError:
    return refusal(
        400,
        "bad-content-encoding",
        f"the body is not {encoding}: {why}",
        field="Content-Encoding",
        remedy="send the body as it is, or packed as Content-Encoding says",
    )
