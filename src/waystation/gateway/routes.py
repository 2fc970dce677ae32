"""A call of the HTTP interface, declared once.

A ``Route`` says everything about a call: where it is found, what it takes, what it answers and how
it may fail.  The table of routes (``Routes``) finds it, ``checking.py`` checks against it what
comes in, and ``openapi.py`` tells the world about it, so that none can disagree with another.

Parameters are the fields of one struct: those that the path names in braces come from there, the
others from the query.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

import msgspec

if TYPE_CHECKING:
    from waystation.gateway.clients import Clients

__all__ = [
    "JSON",
    "NDJSON",
    "Call",
    "Frames",
    "Handler",
    "HeaderField",
    "Params",
    "Reply",
    "Route",
    "Routes",
]

JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"

P = TypeVar("P")
B = TypeVar("B")


class Params(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What parameters and bodies inherit: a misspelt name is a mistake, not a wish ignored."""


class Reply(NamedTuple):
    """An answer that is not simply a struct with the route's own status."""

    body: bytes
    status: int = 200
    media_type: str = JSON
    headers: tuple[tuple[bytes, bytes], ...] = ()


class Call(Generic[P, B]):
    """What a handler is given: checked parameters and body, and the clients to answer with."""

    __slots__ = ("body", "clients", "headers", "parameters")

    def __init__(
        self, clients: "Clients", parameters: P, body: B, headers: Mapping[bytes, bytes]
    ) -> None:
        self.clients = clients
        self.parameters = parameters
        self.body = body
        self.headers = headers

    def accepts(self, media_type: str) -> bool:
        """Whether the caller named ``media_type`` among those it wants."""
        return media_type.encode() in self.headers.get(b"accept", b"")


Handler = Callable[[Call[Any, Any]], Awaitable[object]]
"""Answers with what ``Route.answer`` says, or with a ``Reply``; or with what goes on for longer,
a ``Stream`` (``streams.py``) or, if the route has frames, a ``Conversation`` (``sockets.py``)."""


class HeaderField(NamedTuple):
    """A line of a request's header that the call heeds; none has to be there."""

    name: str
    description: str
    pattern: str


class Frames(NamedTuple):
    """The types of the messages of a WebSocket."""

    client: Any
    server: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One call; everything that is known about it."""

    method: str
    path: str
    summary: str
    tag: str
    handler: Handler
    parameters: type[msgspec.Struct] | None = None
    body: Any = None
    """The type of the body; ``None`` if the call takes none."""
    lines: Any = None
    """The type of one line of an NDJSON body, which then comes as a list, if one is taken too."""
    streamed: bool = False
    """The body is handed over as it comes (``incoming.py``); ``body`` is the type of a line."""
    many: str = ""
    """The path where many at once go, if a caller might try it here."""
    body_optional: bool = False
    """An empty body counts as ``{}``."""
    media_types: tuple[str, ...] = (JSON,)
    """Which content types mean JSON; ``*/*`` lets all, and none at all, pass for it."""
    answer: Any = None
    """The type of the answer; ``None`` if the answer has no body."""
    answer_types: tuple[str, ...] = (JSON,)
    status: int = 200
    others: Mapping[int, Any] = field(default_factory=dict)
    """Other statuses that are no errors, and the types of their answers."""
    frames: "Frames | None" = None
    """What is said over the WebSocket that the call becomes; ``None`` if it becomes none."""
    waits: bool = False
    """Whether a call that may wait is given up when its caller has gone, as every GET is."""
    header_fields: tuple[HeaderField, ...] = ()
    errors: tuple[int, ...] = ()
    """The statuses of problems beside those that the frame itself answers with."""

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters in the path."""
        return tuple(part[1:-1] for part in self.path.split("/") if part.startswith("{"))


class _Fork:
    """What may follow after a part of a path."""

    __slots__ = ("any", "methods", "named")

    def __init__(self) -> None:
        self.methods: dict[str, Route] = {}
        self.named: dict[str, _Fork] = {}
        self.any: _Fork | None = None


class Routes:
    """All routes; finds those of a path in as many steps as it has parts."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self.all: list[Route] = []
        self._root = _Fork()
        for route in routes:
            self.add(route)

    def add(self, route: Route) -> None:
        """Declare ``route``; two for one method and path are a mistake."""
        at = self._root
        for part in route.path.split("/")[1:]:
            if part.startswith("{"):
                at.any = at.any or _Fork()
                at = at.any
            else:
                at = at.named.setdefault(part, _Fork())
        assert route.method not in at.methods, f"{route.method} {route.path} is declared twice"
        at.methods[route.method] = route
        self.all.append(route)

    def find(self, parts: list[str]) -> tuple[Mapping[str, Route], list[str]] | None:
        """The routes of a path given as its parts, and the parts that stand for parameters."""
        at, values = self._root, []
        for part in parts:
            following = at.named.get(part)
            if following is None:
                following = at.any
                if following is None or not part:
                    return None
                values.append(part)
            at = following
        return (at.methods, values) if at.methods else None
