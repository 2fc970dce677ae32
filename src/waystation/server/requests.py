"""One request and its place among the replies of its connection."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

from waystation.runtime.regions import Parts

if TYPE_CHECKING:
    from waystation.server.connection import Connection

Respond = Callable[[Parts | None], None]

PENDING: Final = cast(Parts, object())
"""The reply of a request that has none yet; ``None`` is a reply too: that nothing is sent."""


class Request:
    """What a client asks.

    ``body`` is a writable view into a buffer that is used again: it is valid until the handler
    returns.  A handler that waits copies what it still needs.
    """

    __slots__ = (
        "api_key",
        "api_version",
        "body",
        "client_id",
        "connection",
        "correlation_id",
        "reply",
    )

    def __init__(
        self,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        body: memoryview,
        connection: "Connection",
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.body = body
        self.connection = connection
        self.reply: Parts | None = PENDING

    def respond(self, parts: Parts | None) -> None:
        """Answer with ``parts``, or with nothing; exactly once, from the loop's thread.

        Views among the parts are of bytes, and of memory that stays as it is until they left.
        """
        self.connection.answer(self, parts)
