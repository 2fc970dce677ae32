"""The gateway as an ASGI application: finds the route, checks what came, answers.

It is written without a framework because one message per request is a hot path: routing, checking
and answering take a few microseconds each (benchmarks/gateway/posts.py).

Whatever goes wrong, the caller gets a problem (``problems.py``), and the node goes on.
"""

import asyncio
from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import msgspec

from waystation.gateway.bodies import Disconnected, Limits, Receive, packed, read_body
from waystation.gateway.checking import Checked
from waystation.gateway.corking import Cork
from waystation.gateway.hosts import Hosts
from waystation.gateway.incoming import Incoming
from waystation.gateway.problems import (
    PROBLEM_JSON,
    Problem,
    ProblemError,
    problem_of,
    refusal,
)
from waystation.gateway.routes import Call, Reply, Route, Routes
from waystation.gateway.sockets import (
    BROKEN,
    GOING_AWAY,
    REFUSED,
    Conversation,
    Socket,
    check_origin,
    error_frame,
)
from waystation.gateway.streams import Pushed, Send, Stream, Streams, Wire
from waystation.gateway.suggesting import near_paths
from waystation.model.errors import WaystationError
from waystation.telemetry.logs import get_logger

if TYPE_CHECKING:
    from waystation.gateway.clients import Clients

__all__ = ["Gateway"]

Scope = Mapping[str, Any]

_events = get_logger("gateway")
_encode: Final = msgspec.json.Encoder().encode
_JSON: Final = (b"content-type", b"application/json")
_CLOSING: Final = frozenset({408, 413})
"""After these the rest of the request may still be on its way: the connection ends."""


class Gateway:
    """Answers requests; ``clients`` is how it reaches the cluster."""

    def __init__(
        self, routes: Routes, clients: "Clients", limits: Limits, streams: Streams, hosts: Hosts
    ) -> None:
        self._routes = routes
        self._clients = clients
        self._limits = limits
        self._streams = streams
        self._hosts = hosts
        self._checked = {id(route): Checked(route) for route in routes.all}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._talk(scope, receive, send)
            return
        headers = dict(scope["headers"])
        try:
            self._hosts.check(headers.get(b"host"))
            reply = await self._reply(scope, headers, receive)
            if not isinstance(reply, Reply):
                await self._streams.answer(
                    reply, scope["state"]["wire"], send, head_only=scope["method"] == "HEAD"
                )
                return
        except Disconnected:
            return
        except asyncio.CancelledError:
            reply = problem_reply(_cut_short())
        except Exception as error:  # a request's outermost frame
            reply = problem_reply(_problem(error, scope))
        await _send(reply, headers, send, scope["state"]["wire"].cork)

    async def _reply(
        self, scope: Scope, headers: Mapping[bytes, bytes], receive: Receive
    ) -> Reply | Stream | Pushed:
        route, values = self._found(scope, scope["method"])
        if route.frames is not None:
            raise _not_upgraded(scope["path"])
        checked = self._checked[id(route)]
        parameters = checked.parameters(values, scope["query_string"])
        body: Any = None
        if route.streamed:
            checked.check_media_type(headers)
            body = Incoming(headers, receive, scope["state"]["wire"], self._limits)
        elif route.body is not None:
            read = await read_body(headers, receive, self._limits)
            body = await checked.body(read, headers)
        call = Call(self._clients, parameters, body, headers)
        if route.method == "GET" or route.waits:
            answer = await _while_wanted(route.handler(call), scope["state"]["wire"])
        else:
            answer = await route.handler(call)
        if isinstance(answer, Reply | Stream | Pushed):
            return answer
        return Reply(b"" if answer is None else _encode(answer), route.status)

    async def _talk(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Become a WebSocket, if the caller may, for as long as there is something to say."""
        headers = dict(scope["headers"])
        await receive()  # that it wants to be connected
        try:
            conversation = await self._conversation(scope, headers)
        except Exception as error:  # a request's outermost frame
            await _send_refusal(problem_reply(_problem(error, scope)), send)
            return
        await send({"type": "websocket.accept"})
        socket = Socket(scope["state"]["wire"], receive, send)
        failure = await self._streams.run(conversation.talk(socket), socket.wire)
        if socket.wire.is_open:
            await self._ended(socket, failure, scope)

    async def _conversation(self, scope: Scope, headers: Mapping[bytes, bytes]) -> "Conversation":
        self._hosts.check(headers.get(b"host"))
        route, values = self._found(scope, "GET")
        if route.frames is None:
            raise _not_a_socket(scope["path"])
        check_origin(headers)
        parameters = self._checked[id(route)].parameters(values, scope["query_string"])
        self._streams.check_room()
        answer = await route.handler(Call(self._clients, parameters, None, headers))
        assert isinstance(answer, Conversation), f"{route.path} answers with {type(answer)}"
        return answer

    async def _ended(self, socket: Socket, error: BaseException | None, scope: Scope) -> None:
        """Say why it is over."""
        if error is None or isinstance(error, Disconnected):
            await socket.close()
        elif isinstance(error, asyncio.CancelledError):
            await socket.close(GOING_AWAY, "this node is about to stop")
        else:
            problem = _problem(error, scope)
            await socket.say(error_frame(problem))
            code = BROKEN if problem.status >= 500 else REFUSED
            await socket.close(code, problem.detail)

    def _found(self, scope: Scope, method: str) -> tuple[Route, list[str]]:
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
            near = near_paths(parts, {route.path for route in self._routes.all})
            meant = f"did you mean {' or '.join(near)}? " if near else ""
            raise refusal(
                404,
                "no-such-path",
                f"there is nothing at {scope['path']}",
                remedy=f"{meant}GET /openapi.json lists every call, GET /docs shows them",
            )
        methods, values = found
        route = methods.get("GET" if method == "HEAD" else method)
        if route is None:
            raise _not_allowed(method, scope["path"], methods)
        return route, values


async def _while_wanted(answering: Awaitable[object], wire: Wire) -> object:
    """What is answered; who asks only, and went, is not waited for any more."""
    task = asyncio.current_task()
    assert task is not None, "a request outside of any task"
    wire.on_lost = task.cancel
    try:
        return await answering
    except asyncio.CancelledError:
        if wire.is_open:
            raise
        raise Disconnected from None
    finally:
        wire.on_lost = None


def problem_reply(problem: Problem) -> Reply:
    """A problem as an answer."""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    if problem.status in _CLOSING:
        headers = ((b"connection", b"close"),)
    elif problem.status in (429, 503):
        headers = ((b"retry-after", b"1"),)
    elif problem.status == 405:
        headers = ((b"allow", (problem.remedy or "").removeprefix("use ").encode()),)
    elif problem.status == 426:
        headers = ((b"upgrade", b"websocket"), (b"connection", b"upgrade"))
    return Reply(_encode(problem), problem.status, PROBLEM_JSON.decode(), headers)


async def _send(reply: Reply, headers: Mapping[bytes, bytes], send: Send, cork: Cork) -> None:
    body, accepted = reply.body, headers.get(b"accept-encoding")
    kind = _JSON if reply.media_type == "application/json" else _content_type(reply.media_type)
    told = [kind, (b"content-length", b"%d" % len(body)), *reply.headers]
    if accepted is not None and len(body) > 1_024:
        body, packing = await packed(body, accepted)
        told[1] = (b"content-length", b"%d" % len(body))
        told.append((b"vary", b"accept-encoding"))
        if packing is not None:
            told.append((b"content-encoding", packing))
    cork.hold()
    await send({"type": "http.response.start", "status": reply.status, "headers": told})
    await send({"type": "http.response.body", "body": body})
    cork.release()


async def _send_refusal(reply: Reply, send: Send) -> None:
    """Answer who wanted a WebSocket as any other caller."""
    told = [_content_type(reply.media_type), *reply.headers]
    start = {"type": "websocket.http.response.start", "status": reply.status, "headers": told}
    await send(start)
    await send({"type": "websocket.http.response.body", "body": reply.body})


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


def _not_upgraded(path: str) -> ProblemError:
    return refusal(
        426,
        "not-a-websocket",
        f"{path} is for WebSockets",
        field="Upgrade",
        remedy="use a WebSocket client: Upgrade: websocket, Sec-WebSocket-Version: 13",
    )


def _not_a_socket(path: str) -> ProblemError:
    return refusal(
        400,
        "no-websocket",
        f"{path} does not become a WebSocket",
        field="Upgrade",
        remedy="call it as plain HTTP; GET /openapi.json says which calls become WebSockets",
    )


def _problem(error: BaseException, scope: Scope) -> Problem:
    if isinstance(error, ProblemError):
        return error.problem
    if isinstance(error, WaystationError):
        return problem_of(error)
    _events.error("request.failed", path=scope["path"], exc_info=error)
    return _broken(error)


def _cut_short() -> Problem:
    return refusal(
        503,
        "stopping",
        "this node stops, and could not wait for the answer",
        remedy="whether it was done is not known: ask another node",
    ).problem


def _broken(error: BaseException) -> Problem:
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
