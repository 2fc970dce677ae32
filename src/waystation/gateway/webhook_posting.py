"""One POST to a target: where it may go, how long it may take, how much of the answer is read.

1. The address is checked when the socket for it is made, so that nothing is between the check and
   the connection; the operating system's proxies are not used.
2. A request ends within its time-out, however slowly the target takes or answers.
3. Redirects are not followed: they would be another target.  Of an answer's body at most a few
   kilobytes are read; a connection with more than that is closed, not read to its end.
4. Certificates are verified, against the system's authorities and those of ``webhook.ca.file``.

Connections are kept and used again.  aiohttp does the talking; it takes 14 MB and a tenth of a
second to import, so that this module is imported by nodes that have a webhook, in a thread.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from email.utils import parsedate_to_datetime
from typing import Any, Final, NamedTuple

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from waystation.gateway.webhook_targets import AllowedNetworks, TargetRefusedError
from waystation.runtime.clock import Clock
from waystation.version import VERSION

__all__ = ["Outcome", "Poster", "Resolver"]

_CONNECT_S: Final = 5.0
_ANSWER_BYTES: Final = 4 << 10
_UNDER_WAY: Final = 512
_LOOKUPS: Final = 16
_IDLE_S: Final = 30.0
_LINE_BYTES: Final = 8 << 10
_AGENT: Final = f"waystation/{VERSION}"


class Outcome(NamedTuple):
    """What became of a request: a status, or why there is none."""

    status: int | None
    error: str | None
    retry_after_s: float | None
    took_s: float


class Resolver(AbstractResolver):
    """Asks the system's name service in threads of its own.

    It may take long to answer; the threads that the rest of the node shares must not wait for it.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_LOOKUPS, thread_name_prefix="webhook-names")

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """The addresses of a name."""
        found = await asyncio.get_running_loop().run_in_executor(
            self._threads, _looked_up, host, port, family
        )
        return [
            ResolveResult(
                hostname=host,
                host=str(where[0]) if len(where) < 4 or not where[3] else f"{where[0]}%{where[3]}",
                port=port,
                family=kind,
                proto=protocol,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for kind, _, protocol, _, where in found
        ]

    async def close(self) -> None:
        """Wait for nobody."""
        self._threads.shutdown(wait=False, cancel_futures=True)


class Poster:
    """The HTTP client of one node, shared by all its webhooks."""

    def __init__(
        self,
        allowed: AllowedNetworks,
        *,
        clock: Clock,
        ca_file: str = "",
        resolver: AbstractResolver | None = None,
        under_way: int = _UNDER_WAY,
    ) -> None:
        """Made within the loop; reads the certificates, so that a thread should do it."""
        self._allowed, self._clock = allowed, clock
        self._ssl = ssl.create_default_context()
        if ca_file:
            self._ssl.load_verify_locations(ca_file)
        self._resolver = resolver or Resolver()
        self._session: aiohttp.ClientSession | None = None
        self._room = asyncio.Semaphore(under_way)

    async def post(
        self, url: str, body: bytes, headers: Mapping[str, str], timeout_s: float
    ) -> Outcome:
        """Send, and tell what became of it; raises nothing because of the target."""
        began = asyncio.get_running_loop().time()
        status, error, after = await self._tried(url, body, headers, timeout_s)
        return Outcome(status, error, after, asyncio.get_running_loop().time() - began)

    @asynccontextmanager
    async def room(self, *, is_first: bool) -> AsyncIterator[None]:
        """Room for one request; the first of a webhook always has some, whoever hangs."""
        if is_first:
            yield
            return
        async with self._room:
            yield

    async def check(self, host: str, port: int) -> None:
        """Raise ``OSError`` unless the name has addresses, all of which may be connected to."""
        async with asyncio.timeout(_CONNECT_S):
            for one in await self._resolver.resolve(host, port, socket.AF_UNSPEC):
                self._allowed.check(one["host"])

    async def aclose(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
        await self._resolver.close()

    async def _tried(
        self, url: str, body: bytes, headers: Mapping[str, str], timeout_s: float
    ) -> tuple[int | None, str | None, float | None]:
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._open().post(url, data=body, headers=headers, allow_redirects=False) as answer,
            ):
                await _read_some(answer)
                after = _retry_after_s(answer.headers.get("retry-after"), self._clock.now())
                return answer.status, _told(answer), after
        except TimeoutError:
            return None, f"no answer within {timeout_s:g} s", None
        except aiohttp.ClientError as error:
            return None, _reason(error), None
        except (OSError, ValueError) as error:
            return None, _shortened(str(error)), None

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(
                ssl=self._ssl,
                limit=0,
                use_dns_cache=False,
                keepalive_timeout=_IDLE_S,
                resolver=self._resolver,
                socket_factory=self._socket,
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S),
                auto_decompress=False,
                trust_env=False,
                max_line_size=_LINE_BYTES,
                max_field_size=_LINE_BYTES,
                headers={"user-agent": _AGENT},
            )
        return self._session

    def _socket(self, address: Any) -> socket.socket:
        """A socket for the very address that is connected to next."""
        family, kind, protocol, _, where = address
        self._allowed.check(where[0])
        return socket.socket(family=family, type=kind, proto=protocol)


def _looked_up(host: str, port: int, family: int) -> list[Any]:
    return socket.getaddrinfo(host, port, family, socket.SOCK_STREAM)


async def _read_some(answer: aiohttp.ClientResponse) -> None:
    """Read a short body, so that its connection can be used again; let go of any other."""
    left = _ANSWER_BYTES
    while left > 0:
        part = await answer.content.read(left)
        if not part:
            return
        left -= len(part)
    answer.close()


def _told(answer: aiohttp.ClientResponse) -> str | None:
    if 200 <= answer.status < 300:
        return None
    if 300 <= answer.status < 400:
        return f"answered {answer.status}: redirects are not followed"
    return _shortened(f"answered {answer.status} {answer.reason or ''}".rstrip())


def _reason(error: aiohttp.ClientError) -> str:
    """Why there was no answer; a refused target is told as such."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, TargetRefusedError):
            return _shortened(f"refused to connect: {cause}")
        cause = getattr(cause, "os_error", None) or cause.__cause__
    if isinstance(error, aiohttp.ServerTimeoutError):
        return f"no connection within {_CONNECT_S:g} s"
    return _shortened(str(error) or type(error).__name__)


def _shortened(text: str) -> str:
    plain = "".join(one if one.isprintable() else " " for one in text)
    return plain if len(plain) <= 300 else plain[:299] + "…"


def _retry_after_s(text: str | None, now: int) -> float | None:
    """Seconds from now; ``None`` if the answer says nothing that makes sense."""
    if text is None:
        return None
    if text.isascii() and text.strip().isdigit() and len(text) < 12:
        return float(text)
    try:
        return max(parsedate_to_datetime(text).timestamp() - now / 1_000, 0.0)
    except (TypeError, ValueError, OverflowError):
        return None
