"""The gateway as an ASGI application: finds the route, checks what came, answers.

It is written without a framework because one message per request is a hot path: routing, checking
and answering take a few microseconds each (benchmarks/gateway/posts.py).

Whatever goes wrong, the caller gets a problem (``problems.py``), and the node goes on.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import msgspec

from waystation.gateway.bodies import Disconnected, Limits, Receive, packed, read_body
from waystation.gateway.checking import Checked
from waystation.gateway.problems import (
    PROBLEM_JSON,
    Problem,
    ProblemError,
    problem_of,
    refusal,
)
from waystation.gateway.routes import Call, Reply, Route, Routes
from waystation.model.errors import WaystationError
from waystation.telemetry.logs import get_logger

if TYPE_CHECKING:
    from waystation.gateway.clients import Clients

__all__ = ["Gateway"]

Send = Callable[[Any], Awaitable[None]]
Scope = Mapping[str, Any]

_events = get_logger("gateway")
_encode: Final = msgspec.json.Encoder().encode
_JSON: Final = (b"content-type", b"application/json")
_CLOSING: Final = frozenset({408, 413})
"""After these the rest of the request may still be on its way: the connection ends."""


class Gateway:
    """Answers requests; ``clients`` is how it reaches the cluster."""

    def __init__(self, routes: Routes, clients: "Clients", limits: Limits) -> None:
        self._routes = routes
        self._clients = clients
        self._limits = limits
        self._checked = {id(route): Checked(route) for route in routes.all}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1000})
            return
        headers = dict(scope["headers"])
        try:
            reply = await self._reply(scope, headers, receive)
        except Disconnected:
            return
        except ProblemError as error:
            reply = problem_reply(error.problem)
        except WaystationError as error:
            reply = problem_reply(problem_of(error))
        except Exception as error:  # a request's outermost frame
            _events.error("request.failed", path=scope["path"], exc_info=error)
            reply = problem_reply(_broken(error))
        await _send(reply, headers, send)

    async def _reply(self, scope: Scope, headers: Mapping[bytes, bytes], receive: Receive) -> Reply:
        route, values = self._found(scope)
        checked = self._checked[id(route)]
        parameters = checked.parameters(values, scope["query_string"])
        body = None
        if route.body is not None:
            read = await read_body(headers, receive, self._limits)
            body = await checked.body(read, headers)
        answer = await route.handler(Call(self._clients, parameters, body, headers))
        if isinstance(answer, Reply):
            return answer
        return Reply(b"" if answer is None else _encode(answer), route.status)

    def _found(self, scope: Scope) -> tuple[Route, list[str]]:
        raw: bytes = scope["raw_path"]
        try:
            parts = raw.decode("ascii").split("/")[1:]
            if b"%" in raw:
                parts = [unquote(part, errors="strict") for part in parts]
        except UnicodeError:
            raise refusal(
                400, "malformed-path", "the path is not UTF-8", remedy="percent-encode UTF-8"
            ) from None
        found = self._routes.find(parts)
        if found is None:
            raise refusal(
                404,
                "no-such-path",
                f"there is nothing at {scope['path']}",
                remedy="GET /openapi.json lists every call, GET /docs shows them",
            )
        methods, values = found
        method = scope["method"]
        route = methods.get("GET" if method == "HEAD" else method)
        if route is None:
            raise _not_allowed(method, scope["path"], methods)
        return route, values


def problem_reply(problem: Problem) -> Reply:
    """A problem as an answer."""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    if problem.status in _CLOSING:
        headers = ((b"connection", b"close"),)
    elif problem.status in (429, 503):
        headers = ((b"retry-after", b"1"),)
    elif problem.status == 405:
        headers = ((b"allow", (problem.remedy or "").removeprefix("use ").encode()),)
    return Reply(_encode(problem), problem.status, PROBLEM_JSON.decode(), headers)


async def _send(reply: Reply, headers: Mapping[bytes, bytes], send: Send) -> None:
    body, accepted = reply.body, headers.get(b"accept-encoding")
    kind = _JSON if reply.media_type == "application/json" else _content_type(reply.media_type)
    told = [kind, (b"content-length", b"%d" % len(body)), *reply.headers]
    if accepted is not None and len(body) > 1_024:
        body, packing = await packed(body, accepted)
        told[1] = (b"content-length", b"%d" % len(body))
        told.append((b"vary", b"accept-encoding"))
        if packing is not None:
            told.append((b"content-encoding", packing))
    await send({"type": "http.response.start", "status": reply.status, "headers": told})
    await send({"type": "http.response.body", "body": body})


def _content_type(media_type: str) -> tuple[bytes, bytes]:
    return b"content-type", media_type.encode()


def _not_allowed(method: str, path: str, methods: Mapping[str, Route]) -> ProblemError:
    allowed = sorted({*methods, *(("HEAD",) if "GET" in methods else ())})
    return refusal(
        405,
        "method-not-allowed",
        f"{method} is not for {path}",
        remedy=f"use {', '.join(allowed)}",
    )


def _broken(error: Exception) -> Problem:
    if isinstance(error, TimeoutError):
        return refusal(
            504,
            "timed-out",
            "the cluster did not answer in time",
            remedy="whether it was done is not known: look, or try again",
        ).problem
    return refusal(
        500,
        "internal-error",
        f"the gateway failed: {type(error).__name__}",
        remedy="look into the log of the node, and report what you find there",
    ).problem
