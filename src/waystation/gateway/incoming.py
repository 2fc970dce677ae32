"""Bodies of any length, taken in as they come: unpacked, and cut into whole lines.

Promises:

1. however long the body and however well it is packed, about ``SLICE_BYTES`` of it are held, or
   one line if that is longer, and no line is longer than ``Limits.body_bytes``;
2. who sends is read from no faster than what was sent is worked on;
3. who sends nothing for ``Limits.request_s`` is let go of; time that we take does not count.
"""

import asyncio
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from typing import Final, NamedTuple, Protocol

from waystation.gateway.bodies import Disconnected, Limits, Receive, discard
from waystation.gateway.problems import ProblemError, refusal

__all__ = ["SLICE_BYTES", "Incoming", "Slice"]

SLICE_BYTES: Final = 64 << 10
_GZIP: Final = 31  # zlib's number for a gzip wrapper
_STEP_BYTES: Final = 64 << 10
_ZSTD_WINDOW_BYTES: Final = 8 << 20  # what RFC 8878 asks everyone to take
_ZSTD_FEED_BYTES: Final = 256
"""Its decoder cannot be told to stop: so little becomes 8 MiB at most, 128 KiB from 4 bytes."""


class Patient(Protocol):
    """A connection that is closed some time after ``begun_at``."""

    begun_at: float | None


class Slice(NamedTuple):
    """Some whole lines; the first of them is line ``number`` of the body."""

    number: int
    content: bytes

    @property
    def lines(self) -> int:
        """How many, an unfinished last one among them."""
        return self.content.count(b"\n") + (not self.content.endswith(b"\n"))


class Incoming:
    """The body of one request, to be taken in once."""

    def __init__(
        self, headers: Mapping[bytes, bytes], receive: Receive, wire: Patient, limits: Limits
    ) -> None:
        encoding = headers.get(b"content-encoding", b"identity").decode("latin-1").strip().lower()
        self._unpacking = _unpacking(encoding)
        self._receive, self._wire, self._limits = receive, wire, limits
        self._is_whole = False

    async def slices(self) -> AsyncGenerator[Slice, None]:
        """The body, cut behind lines."""
        held, number, searched = bytearray(), 1, 0
        async for piece in self._pieces():
            held += piece
            if len(held) < SLICE_BYTES:
                continue
            end = held.rfind(b"\n", searched) + 1
            if end:
                content = bytes(held[:end])
                del held[:end]
                yield Slice(number, content)
                number += content.count(b"\n")
            searched = len(held)  # what is left has no end yet
            if searched > self._limits.body_bytes:
                raise _line_too_long(number, self._limits.body_bytes)
        if held:
            yield Slice(number, bytes(held))

    async def discard(self) -> None:
        """Take some of the rest in, so that who still sends sees the answer."""
        if not self._is_whole:
            self._wire.begun_at = asyncio.get_running_loop().time()
            await discard(self._receive)

    async def _pieces(self) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        while not self._is_whole:
            self._wire.begun_at = loop.time()
            message = await self._receive()
            self._wire.begun_at = None
            if message["type"] == "http.disconnect":
                raise Disconnected
            self._is_whole = not message.get("more_body", False)
            for piece in self._unpacking.fed(message.get("body", b"")):
                yield piece
                await asyncio.sleep(0)
        self._unpacking.check_whole()


# --- unpacking ----------------------------------------------------------------------------------


class _Plain:
    def fed(self, packed: bytes) -> Iterator[bytes]:
        """What follows, in pieces that are not too large."""
        yield packed

    def check_whole(self) -> None:
        """A problem if the end is missing."""


class _Gzip(_Plain):
    """One after the other, as ``cat a.gz b.gz`` makes them."""

    def __init__(self) -> None:
        self._one = zlib.decompressobj(_GZIP)
        self._is_between = True

    def fed(self, packed: bytes) -> Iterator[bytes]:
        try:
            while packed:
                if self._one.eof:
                    self._one = zlib.decompressobj(_GZIP)
                self._is_between = False
                yield self._one.decompress(packed, _STEP_BYTES)
                packed = self._one.unused_data if self._one.eof else self._one.unconsumed_tail
                self._is_between = self._one.eof
        except zlib.error as error:
            raise _not_packed("gzip", str(error)) from None

    def check_whole(self) -> None:
        if not self._is_between:
            raise _not_packed("gzip", "it is cut short")


class _Zstd(_Plain):
    """Frame after frame."""

    def __init__(self) -> None:
        import zstandard

        self._error = zstandard.ZstdError
        self._unpacker = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES)
        self._one = self._unpacker.decompressobj()
        self._is_between = True

    def fed(self, packed: bytes) -> Iterator[bytes]:
        gathered = bytearray()
        for at in range(0, len(packed), _ZSTD_FEED_BYTES):
            gathered += self._some(packed[at : at + _ZSTD_FEED_BYTES])
            if len(gathered) >= _STEP_BYTES:
                yield bytes(gathered)
                gathered.clear()
        yield bytes(gathered)

    def _some(self, packed: bytes) -> bytes:
        found = b""
        try:
            while packed:
                if self._one.eof:
                    self._one = self._unpacker.decompressobj()
                found += self._one.decompress(packed)
                packed = self._one.unused_data if self._one.eof else b""
                self._is_between = self._one.eof
        except self._error as error:
            raise _not_packed("zstd", str(error)) from None
        return found

    def check_whole(self) -> None:
        if not self._is_between:
            raise _not_packed("zstd", "it is cut short")


def _unpacking(encoding: str) -> _Plain:
    kinds = {"identity": _Plain, "gzip": _Gzip, "x-gzip": _Gzip, "zstd": _Zstd}
    if encoding not in kinds:
        raise refusal(
            415,
            "unsupported-content-encoding",
            f"a body packed with {encoding!r} cannot be unpacked",
            field="Content-Encoding",
            remedy="gzip, zstd or nothing at all",
        )
    return kinds[encoding]()


def _not_packed(encoding: str, why: str) -> ProblemError:
    return refusal(
        400,
        "bad-content-encoding",
        f"the body is not {encoding}: {why}",
        field="Content-Encoding",
        remedy="send the body as it is, or packed as Content-Encoding says",
    )


def _line_too_long(number: int, limit_bytes: int) -> ProblemError:
    return refusal(
        413,
        "line-too-long",
        f"line {number} is longer than {limit_bytes} bytes",
        field=f"line {number}",
        remedy="send smaller messages, one per line",
    )
