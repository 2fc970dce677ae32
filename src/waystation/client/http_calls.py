"""Calls of the nodes' HTTP interface, for what no request of the Kafka protocol does.

Any node answers any call, so that several addresses mean: the first that can be connected to.
After that nothing is tried again by itself, for a call that got no answer may have been done.
"""

from typing import TYPE_CHECKING, Any, Final

from waystation.client.errors import BrokerUnreachableError, ClosedError
from waystation.model.errors import ErrorCode, RequestTimedOutError, WaystationError

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession

__all__ = ["CallRefusedError", "HttpCalls"]

_CONNECT_S: Final = 5.0
_CODES: Final = {
    404: ErrorCode.RESOURCE_NOT_FOUND,
    409: ErrorCode.DUPLICATE_RESOURCE,
    503: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    504: ErrorCode.REQUEST_TIMED_OUT,
}


class CallRefusedError(WaystationError):
    """A node has answered with a problem; ``field`` and ``remedy`` are what it says of it."""

    def __init__(self, status: int, kind: str, detail: str, field: str | None, remedy: str) -> None:
        self.status, self.kind, self.field, self.remedy = status, kind, field, remedy
        other = ErrorCode.INVALID_REQUEST if status < 500 else ErrorCode.UNKNOWN_SERVER_ERROR
        self.code = _CODES.get(status, other)
        super().__init__(f"{detail}; {remedy}" if remedy else detail)


class HttpCalls:
    """Asks nodes; ``addresses`` are ``host:port``, or whole ``https://`` URLs, comma-separated."""

    def __init__(self, addresses: str, timeout_ms: int) -> None:
        self._bases = [_base(one.strip()) for one in addresses.split(",") if one.strip()]
        self._timeout_s = timeout_ms / 1_000
        self._session: ClientSession | None = None
        self._is_closed = False

    async def ask(self, method: str, path: str, body: object = None) -> bytes:
        """The body of the answer; a problem is raised."""
        import msgspec
        from aiohttp import ClientConnectorError, ClientError, ConnectionTimeoutError

        if self._is_closed:
            raise ClosedError("this client was closed: make another")
        content = None if body is None else msgspec.json.encode(body)
        headers = {} if body is None else {"content-type": "application/json"}
        causes: dict[str, str] = {}
        for base in self._bases:
            try:
                async with self._open().request(
                    method, base + path, data=content, headers=headers
                ) as answer:
                    return await _told(answer)
            except (ClientConnectorError, ConnectionTimeoutError) as error:
                causes[base] = str(error)
            except (TimeoutError, ClientError) as error:
                why = str(error) or f"not within {self._timeout_s:g} s"
                raise RequestTimedOutError(
                    f"{base} has not answered {method} {path} ({why}), and may have done it: look "
                    "first, then try again"
                ) from None
        raise BrokerUnreachableError(causes)

    async def close(self) -> None:
        """Close all connections."""
        self._is_closed = True
        if self._session is not None:
            await self._session.close()

    def _open(self) -> "ClientSession":
        if self._session is None:
            from aiohttp import ClientSession, ClientTimeout

            timeout = ClientTimeout(total=self._timeout_s, sock_connect=_CONNECT_S)
            self._session = ClientSession(timeout=timeout)
        return self._session


async def _told(answer: "ClientResponse") -> bytes:
    content = await answer.read()
    if answer.status < 400:
        return content
    told = _problem(content)
    raise CallRefusedError(
        answer.status,
        str(told.get("type", "")).rpartition(":")[2],
        str(told.get("detail") or f"the node answered {answer.status}"),
        told.get("field"),
        str(told.get("remedy") or ""),
    )


def _problem(content: bytes) -> dict[str, Any]:
    import msgspec

    try:
        return msgspec.json.decode(content, type=dict[str, Any])
    except msgspec.DecodeError:
        return {}


def _base(address: str) -> str:
    return (address if "://" in address else f"http://{address}").rstrip("/")
