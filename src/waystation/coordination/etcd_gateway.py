"""Requests to an etcd cluster through its JSON gateway, at whichever server answers.

1. A request that certainly did nothing is asked again elsewhere: the connection was refused, or
   the server said that it has no leader.
2. A request whose answer was lost is asked again only if its maker said that it is repeatable.
   Any other ends in ``StoreUnavailableError``: it may have happened.
3. All answers come from one cluster.  A server of another is not believed, even if its address
   is in the list.

The server that answered last is asked first, so that one that is down costs one attempt and not
one per request.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import aiohttp
import msgspec

from waystation.coordination.etcd_messages import (
    Answer,
    RangeAnswer,
    TokenAnswer,
    decoder,
    problem_of,
)
from waystation.model.errors import StoreUnavailableError, TransactionTooLargeError

A = TypeVar("A", bound=Answer)

# gRPC's codes
_NOT_FOUND, _DENIED, _EXHAUSTED, _UNAVAILABLE, _UNAUTHENTICATED = 5, 7, 8, 14, 16
_PAUSE_S = 0.1
_READ_BYTES = 1 << 18
# A request to a server without leader is refused before it is proposed, and a watch is ended.
_NEEDS_LEADER = {"Grpc-Metadata-hasleader": "true"}


class NotDoneError(Exception):
    """The server did not do it and will not: another may be asked."""


class LostError(Exception):
    """No answer, or none that tells whether it was done."""


class NotFoundError(Exception):
    """The lease that was named does not exist."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who we are to the service."""

    user: str
    password: str


class Gateway:
    """One cluster's servers, as a single partner."""

    def __init__(
        self,
        endpoints: tuple[str, ...],
        ours: bytes,
        *,
        tls: ssl.SSLContext | None = None,
        credentials: Credentials | None = None,
        timeout_s: float = 5.0,
    ) -> None:
        """``ours`` is a key that we may read; ``timeout_s`` is how long a caller waits at most,
        over all servers.
        """
        scheme = "https" if tls else "http"
        self._bases = tuple(f"{scheme}://{endpoint}" for endpoint in endpoints)
        self._ours = ours
        self._tls = tls
        self._credentials = credentials
        self._timeout_s = timeout_s
        self._at = 0
        self._token = ""
        self._cluster_id = 0
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        """Begin to use connections; none is made before it is needed."""
        connector = aiohttp.TCPConnector(ssl=self._tls or True, limit=0, keepalive_timeout=60)
        self._session = aiohttp.ClientSession(connector=connector, read_bufsize=_READ_BYTES)

    async def close(self) -> None:
        """Let go of all connections."""
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()

    async def ask(self, path: str, body: Mapping[str, Any], kind: type[A], *, repeat: bool) -> A:
        """The answer of the first server that gives one; ``repeat``: asking twice does no harm."""
        ends_at = asyncio.get_running_loop().time() + self._timeout_s
        content = msgspec.json.encode(body)
        problems: dict[str, str] = {}
        while True:
            base = self._bases[self._at]
            try:
                async with asyncio.timeout_at(self._attempt_ends(ends_at, repeat)):
                    return await self._once(base, path, content, kind)
            except NotDoneError as problem:
                problems[base] = str(problem)
            except (LostError, TimeoutError) as problem:
                problems[base] = str(problem) or "no answer"
                if not repeat:
                    self.leave(base)
                    raise self._unavailable(problems, "it may have happened") from problem
            self.leave(base)
            await asyncio.sleep(_PAUSE_S if len(problems) == len(self._bases) else 0)
            if asyncio.get_running_loop().time() >= ends_at:
                raise self._unavailable(problems, "nothing was changed" if not repeat else "")

    async def ping(self, base: str) -> int:
        """The cluster's revision, as the server at ``base`` agrees with the others on it."""
        body = msgspec.json.encode({"key": self._ours, "count_only": True})
        try:
            async with asyncio.timeout(self._timeout_s / 2):
                return (await self._once(base, "kv/range", body, RangeAnswer)).header.revision
        except (NotDoneError, TimeoutError) as problem:
            raise LostError(str(problem) or "no answer") from problem

    @asynccontextmanager
    async def stream(
        self, path: str, body: Mapping[str, Any]
    ) -> AsyncIterator[tuple[str, aiohttp.StreamReader]]:
        """Where the stream comes from, and its bytes; ``LostError`` if it cannot begin."""
        base = self._bases[self._at]
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._authenticate(base)
                response = await self._post(base, path, msgspec.json.encode(body))
        except (
            aiohttp.ClientError,
            OSError,
            TimeoutError,
            LostError,
            NotDoneError,
            StoreUnavailableError,
        ) as problem:
            self.leave(base)
            raise LostError(f"{base}: {str(problem) or 'no answer'}") from problem
        try:
            if response.status != 200:
                code, text = problem_of(await response.read())
                self.forget_token(code, text)
                raise LostError(text)
            yield base, response.content
        except (aiohttp.ClientError, OSError, LostError) as problem:
            self.leave(base)
            raise LostError(f"{base}: {str(problem) or repr(problem)}") from problem
        finally:
            response.close()

    def leave(self, base: str) -> None:
        """Ask the next server first, if ``base`` is still the one."""
        if self._bases[self._at] == base:
            self._at = (self._at + 1) % len(self._bases)

    def check(self, base: str, answer: Answer) -> None:
        """``LostError`` if ``answer`` is another cluster's."""
        found = answer.header.cluster_id
        if found and self._cluster_id and found != self._cluster_id:
            raise LostError(
                f"belongs to another etcd cluster ({found:x}, the others to {self._cluster_id:x}): "
                "name servers of one cluster only"
            )
        self._cluster_id = self._cluster_id or found

    def forget_token(self, code: int, text: str) -> bool:
        """Whether a new token may help: the old one ended, or rights were changed since."""
        stale = code == _UNAUTHENTICATED or "auth token" in text or "auth store is old" in text
        had_one, self._token = bool(self._token), "" if stale else self._token
        return stale and had_one

    def _attempt_ends(self, ends_at: float, repeat: bool) -> float:
        """What may be repeated need not wait for a server that stands still."""
        if not repeat or len(self._bases) == 1:
            return ends_at
        return min(ends_at, asyncio.get_running_loop().time() + self._timeout_s / 4)

    async def _once(self, base: str, path: str, content: bytes, kind: type[A]) -> A:
        for attempt in range(2):
            try:
                await self._authenticate(base)
                async with await self._post(base, path, content) as response:
                    said = await response.read()
            except aiohttp.ClientConnectorError as problem:
                raise NotDoneError(_words(problem)) from problem
            except aiohttp.ConnectionTimeoutError as problem:
                raise NotDoneError("cannot be connected to in time") from problem
            except (aiohttp.ClientError, OSError) as problem:
                raise LostError(str(problem) or repr(problem)) from problem
            if response.status == 200:
                return self._read(base, said, kind)
            code, text = problem_of(said)
            if attempt == 0 and self.forget_token(code, text):
                continue
            _raise_refusal(response.status, code, text)
        raise AssertionError("refused twice without a reason")

    def _read(self, base: str, said: bytes, kind: type[A]) -> A:
        try:
            answer = decoder(kind).decode(said)
        except msgspec.DecodeError as problem:
            raise LostError(f"does not speak as etcd does: {problem}") from problem
        self.check(base, answer)
        return answer

    async def _post(self, base: str, path: str, content: bytes) -> aiohttp.ClientResponse:
        if self._session is None:
            raise StoreUnavailableError(f"the store at {base} is closed")
        headers = {"Content-Type": "application/json", **_NEEDS_LEADER}
        if self._token:
            headers["Authorization"] = self._token
        # Who asks has a clock of its own; a connection that is not made has done nothing.
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._timeout_s / 4)
        return await self._session.post(
            f"{base}/v3/{path}", data=content, headers=headers, timeout=timeout
        )

    async def _authenticate(self, base: str) -> None:
        if self._credentials is None or self._token:
            return
        body = {"name": self._credentials.user, "password": self._credentials.password}
        content = msgspec.json.encode(body)
        async with await self._post(base, "auth/authenticate", content) as response:
            said = await response.read()
        if response.status != 200:
            _, text = problem_of(said)
            if response.status >= 500:
                raise NotDoneError(text)
            raise StoreUnavailableError(
                f"etcd at {base} refuses user {self._credentials.user!r}: {text}. Nothing was "
                "changed; give the right user and password file"
            )
        self._token = self._read(base, said, TokenAnswer).token

    def _unavailable(self, problems: Mapping[str, str], outcome: str) -> StoreUnavailableError:
        each = "; ".join(f"{base}: {problem}" for base, problem in problems.items())
        within = f"within {self._timeout_s:g} s{outcome and f', {outcome}'}"
        return StoreUnavailableError(
            f"no answer from etcd {within}: {each}. "
            "See that most of its servers run and can be reached"
        )


def _words(problem: aiohttp.ClientConnectorError) -> str:
    """Why no connection came about, without what aiohttp adds to it."""
    if isinstance(problem, aiohttp.ClientSSLError):
        return str(problem)
    if isinstance(problem.os_error, ConnectionRefusedError):
        return "connection refused"
    return problem.os_error.strerror or str(problem)


def _raise_refusal(status: int, code: int, text: str) -> None:
    """What a refusal means for who asked."""
    if code == _NOT_FOUND:
        raise NotFoundError(text)
    if "too large" in text or "too many operations" in text:
        raise TransactionTooLargeError(
            f"{text}: raise --max-request-bytes or --max-txn-ops of etcd to their defaults"
        )
    if "space exceeded" in text:
        raise StoreUnavailableError(
            f"{text}, nothing was changed: compact and defragment etcd, or raise its "
            "--quota-backend-bytes, then etcdctl alarm disarm"
        )
    if "no leader" in text or code == _EXHAUSTED:
        raise NotDoneError(text)
    if code == _UNAVAILABLE or status >= 500:
        raise LostError(text)
    if code == _DENIED or "user name is empty" in text:
        raise StoreUnavailableError(
            f"etcd refuses: {text}. Nothing was changed; give a user who may read and write this "
            "cluster's folder by ?user=NAME&password-file=FILE"
        )
    raise NotDoneError(text or f"HTTP status {status}")
