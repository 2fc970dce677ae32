"""Requests and responses with one broker, over a transport.

A connection begins by asking the broker which versions it speaks; after that each request
goes out in the best version that both sides know.  Requests are pipelined: any number may be
under way, and the broker answers in order.  A request that is not answered in time ends the
connection, since whatever was sent behind it waits as well.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from struct import Struct
from typing import Any, Final, Protocol, TypeVar

from waystation.client.bootstrap import Address
from waystation.client.errors import ConnectionLostError, error_of
from waystation.client.transport import Connect, Transport
from waystation.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from waystation.model.errors import (
    ErrorCode,
    MalformedFrameError,
    RequestTimedOutError,
    UnsupportedVersionError,
    WaystationError,
)
from waystation.version import VERSION
from waystation.wire.headers import decode_response_header, encode_request_header
from waystation.wire.message import Message
from waystation.wire.schema import Part
from waystation.wire.versions import SPOKEN, ApiKey

__all__ = ["Connection", "common_versions"]

R = TypeVar("R", bound=Message)
A = TypeVar("A")

_SOFTWARE: Final = "waystation-python"
_ERROR_CODE = Struct(">h")
_OLDEST = 0


class Question(Protocol):
    """A request that knows its own bytes: a message, or one that is written by hand."""

    @property
    def api(self) -> ApiKey | None:
        """Of which API."""
        ...

    def encode_parts(self, version: int) -> list[Any]:
        """The bytes of ``version`` in order."""
        ...


class Connection:
    """A negotiated connection; ``open`` makes one."""

    def __init__(self, transport: Transport, address: Address, client_id: str) -> None:
        self.address = address
        self.in_flight = 0
        self._transport = transport
        self._client_id = client_id
        self._versions: Mapping[ApiKey, int] = {ApiKey.API_VERSIONS: _newest_we_speak()}
        self._levels: Mapping[str, int] = {}
        self._correlation_id = 0
        self._loop = asyncio.get_running_loop()
        # When the questions that were posed are to be answered, and one timer for all of them.
        self._due_s: deque[float] = deque()
        self._watch: asyncio.TimerHandle | None = None

    @classmethod
    async def open(
        cls, address: Address, connect: Connect, client_id: str, timeout_s: float
    ) -> "Connection":
        """Connect and agree on versions; ``OSError`` or ``ConnectionLostError`` if that fails."""
        try:
            async with asyncio.timeout(timeout_s):
                connection = cls(await connect(address), address, client_id)
                try:
                    await connection._agree_on_versions(timeout_s)
                except BaseException:
                    connection.close()
                    raise
        except TimeoutError:
            raise ConnectionLostError(f"{address} did not answer in {timeout_s:g} s") from None
        return connection

    @property
    def closed(self) -> bool:
        """True once nothing can be asked any more."""
        return self._transport.closed

    def close(self) -> None:
        """End it now; whoever waits for an answer gets ``ConnectionLostError``."""
        self._transport.close()
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    @property
    def congested(self) -> bool:
        """True while more waits to be written than the socket takes."""
        return self._transport.congested

    async def drained(self) -> None:
        """Return once the connection is not congested, or is closed."""
        await self._transport.drained()

    def speaks(self, api: ApiKey) -> bool:
        """Whether both sides know a version of ``api``."""
        return api in self._versions

    def version_of(self, api: ApiKey) -> int:
        """The version in which requests of ``api`` go out."""
        version = self._versions.get(api)
        if version is None:
            raise UnsupportedVersionError(
                f"the broker at {self.address} does not offer {api.name} in a version that "
                "this client speaks"
            )
        return version

    def level_of(self, feature: str) -> int:
        """The level at which the cluster has switched ``feature`` on; 0 if it has not."""
        return self._levels.get(feature, 0)

    async def ask(
        self, message: Message, expect: type[R], timeout_s: float, version: int | None = None
    ) -> R:
        """Send ``message`` and wait for the answer."""
        return await self.start(message, expect, timeout_s, version)

    def start(
        self, message: Message, expect: type[R], timeout_s: float, version: int | None = None
    ) -> asyncio.Future[R]:
        """Send ``message`` before this returns, so that calls keep their order on the wire."""
        api = _api_of(message)
        version = self.version_of(api) if version is None else version
        frame, correlation_id = self._frame(api, version, message)
        answer: asyncio.Future[R] = self._loop.create_future()
        deadline = self._loop.call_later(timeout_s, self._too_late, answer, api, timeout_s)
        self.in_flight += 1
        self._transport.request(frame).add_done_callback(
            partial(self._replied, answer, deadline, expect, api, version, correlation_id)
        )
        return answer

    def pose(
        self,
        question: Question,
        read: Callable[[memoryview, int], A],
        told: Callable[[A | WaystationError], None],
        timeout_s: float,
    ) -> None:
        """Like ``start``, without a future and a timer for each: for who asks all the time.

        ``read`` makes the answer of a reply's body and its version; what it keeps of the body
        may be gone once ``told``, which is never called before this returns, has returned.
        """
        api = _api_of(question)
        version = self.version_of(api)
        frame, correlation_id = self._frame(api, version, question)
        self.in_flight += 1
        self._due_s.append(self._loop.time() + timeout_s)
        if self._watch is None:
            self._watch = self._loop.call_later(timeout_s, self._look_at_the_time)
        self._transport.exchange(
            frame, partial(self._told, told, read, api, version, correlation_id)
        )

    def _told(
        self,
        told: Callable[[A | WaystationError], None],
        read: Callable[[memoryview, int], A],
        api: ApiKey,
        version: int,
        correlation_id: int,
        reply: memoryview | Exception,
    ) -> None:
        """HOT: once per answer to what was posed."""
        self.in_flight -= 1
        self._due_s.popleft()
        answer: A | WaystationError
        if isinstance(reply, WaystationError):
            answer = reply
        elif isinstance(reply, Exception):
            answer = ConnectionLostError(str(reply))
        else:
            try:
                answer = read(_body(reply, api, version, correlation_id), version)
            except WaystationError as error:
                answer = error
                self.close()
        told(answer)

    def _look_at_the_time(self) -> None:
        """End the connection if the oldest question is overdue; else look again when it may be."""
        self._watch = None
        if not self._due_s or self.closed:
            return
        left_s = self._due_s[0] - self._loop.time()
        if left_s > 0:
            self._watch = self._loop.call_later(left_s, self._look_at_the_time)
        else:
            self.close()

    def tell(self, message: Message, version: int) -> None:
        """Send a request that has no answer."""
        self._transport.send(self._frame(_api_of(message), version, message)[0])

    def _frame(self, api: ApiKey, version: int, message: Question) -> tuple[list[Part], int]:
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        header = encode_request_header(api, version, self._correlation_id, self._client_id)
        return [header, *message.encode_parts(version)], self._correlation_id

    def _replied(
        self,
        answer: asyncio.Future[R],
        deadline: asyncio.TimerHandle,
        expect: type[R],
        api: ApiKey,
        version: int,
        correlation_id: int,
        reply: asyncio.Future[memoryview],
    ) -> None:
        deadline.cancel()
        self.in_flight -= 1
        fault = reply.exception()
        if answer.done():
            return
        if fault is not None:
            answer.set_exception(fault)
            return
        try:
            answer.set_result(_decode(reply.result(), expect, api, version, correlation_id))
        except WaystationError as error:
            answer.set_exception(error)
            self.close()

    def _too_late(self, answer: asyncio.Future[R], api: ApiKey, timeout_s: float) -> None:
        if not answer.done():
            answer.set_exception(
                RequestTimedOutError(
                    f"{self.address} did not answer {api.name} within {timeout_s:g} s"
                )
            )
        self.close()

    async def _agree_on_versions(self, timeout_s: float) -> None:
        question = ApiVersionsRequest(
            client_software_name=_SOFTWARE, client_software_version=VERSION
        )
        answer = await self.ask(question, ApiVersionsResponse, timeout_s)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            answer = await self.ask(question, ApiVersionsResponse, timeout_s, _OLDEST)
        if answer.error_code:
            raise error_of(answer.error_code, f"the broker at {self.address}")
        self._versions = common_versions(answer)
        self._levels = {one.name: one.max_version_level for one in answer.finalized_features}


def common_versions(answer: ApiVersionsResponse) -> dict[ApiKey, int]:
    """The best version of each API that the broker offers and we speak."""
    best: dict[ApiKey, int] = {}
    for offered in answer.api_keys:
        if offered.api_key not in SPOKEN:
            continue
        api = ApiKey(offered.api_key)
        low, high = SPOKEN[api].versions
        if max(low, offered.min_version) <= min(high, offered.max_version):
            best[api] = min(high, offered.max_version)
    return best


def _decode(
    reply: memoryview, expect: type[R], api: ApiKey, version: int, correlation_id: int
) -> R:
    body = _body(reply, api, version, correlation_id)
    if api is ApiKey.API_VERSIONS and _says_unsupported(body):
        version = _OLDEST  # the broker cannot know which newer shape we would understand
    return expect.decode(body, version)


def _body(reply: memoryview, api: ApiKey, version: int, correlation_id: int) -> memoryview:
    found, at = decode_response_header(reply, api, version)
    if found != correlation_id:
        raise MalformedFrameError(f"reply {found} came where {correlation_id} was due")
    return reply[at:]


def _says_unsupported(body: memoryview) -> bool:
    if len(body) < _ERROR_CODE.size:
        return False
    return bool(_ERROR_CODE.unpack_from(body)[0] == ErrorCode.UNSUPPORTED_VERSION)


def _api_of(message: Question) -> ApiKey:
    assert message.api is not None, f"{message!r} is no request"
    return message.api


def _newest_we_speak() -> int:
    return SPOKEN[ApiKey.API_VERSIONS].versions.high
