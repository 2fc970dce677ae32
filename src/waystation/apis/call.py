"""One request on its way through its handler."""

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from waystation.server.connection import Connection, Request, Respond
from waystation.telemetry.logs import get_logger
from waystation.telemetry.metrics import Histogram
from waystation.wire.headers import encode_response_header
from waystation.wire.versions import ApiKey

Q = TypeVar("Q")


class Reply(Protocol):
    """A message, or what else knows its own bytes."""

    def encode_parts(self, version: int) -> list[Any]:
        """The bytes of ``version`` in order."""
        ...


events = get_logger("apis")


class Call(Generic[Q]):
    """The decoded message, who sent it, and the way back.

    Views inside ``message`` point into the receive buffer: a handler that waits must have
    copied what it still needs.
    """

    __slots__ = (
        "_duration",
        "_key",
        "_now",
        "_respond",
        "_started",
        "client_id",
        "connection",
        "correlation_id",
        "message",
        "version",
    )

    def __init__(
        self,
        key: ApiKey,
        message: Q,
        request: Request,
        respond: Respond,
        duration: Histogram,
        now: Callable[[], float],
    ) -> None:
        self._key = key
        self._respond = respond
        self._duration, self._now = duration, now
        self._started = now()
        self.message = message
        self.version = request.api_version
        self.correlation_id = request.correlation_id
        self.client_id = request.client_id
        self.connection: Connection = request.connection

    def reply(self, response: Reply) -> None:
        """Send ``response``; exactly one of ``reply`` and ``no_reply`` is called, once."""
        parts = response.encode_parts(self.version)
        header = encode_response_header(self._key, self.version, self.correlation_id)
        if type(parts[0]) is bytes:
            parts[0] = header + parts[0]
        else:
            parts.insert(0, header)
        self._respond(parts)
        self._duration.observe(self._now() - self._started)

    def no_reply(self) -> None:
        """The client asked not to be answered."""
        self._respond(None)
        self._duration.observe(self._now() - self._started)

    def fail(self, error: Exception) -> None:
        """Something of ours went wrong: it costs this client its connection, and no other."""
        events.error(
            "request.failed", client=self.client_id, peer=self.connection.peer, exc_info=error
        )
        self.connection.close(f"the request failed: {error}")
