"""A connection's requests one at a time, and its answers in their order.

uvicorn reads ahead as far as the caller has sent, and answers what cannot be read at once.  Here:

1. what was sent ahead stays bytes until its turn comes, ``_AHEAD_BYTES`` of it and what one read
   brings; requests of one step of ``_STEP_BYTES`` may be parsed already, and no more;
2. reading goes on meanwhile, so that who goes is missed at once, or, if it may only have said all
   that it wants to say, after a moment; of who sent more than is held, the connection is looked
   at now and then (``has_gone``);
3. a refusal waits until everything before it is answered, and nothing comes behind it;
4. an upgrade that is not spoken here is none: the request is answered as if it had not asked;
5. what stands behind a chunked body is no header.
"""

import asyncio
import select
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final

import httptools
import msgspec
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from waystation.gateway.corking import Cork
from waystation.gateway.heads import absolute, check_framing, check_handshake, malformed
from waystation.gateway.problems import PROBLEM_JSON, ProblemError, refusal

__all__ = ["OrderedProtocol"]

_HEAD_END: Final = b"\r\n\r\n"
_STEP_BYTES: Final = 1 << 10
_AHEAD_BYTES: Final = 64 << 10
_LISTENING_S: Final = 0.5
_GONE: Final = getattr(select, "POLLRDHUP", 0x2000) | select.POLLHUP | select.POLLERR
_ALONGSIDE: Final = {
    405: b"allow: GET\r\n",
    426: b"sec-websocket-version: 13\r\nupgrade: websocket\r\nconnection: upgrade\r\n",
}


class OrderedProtocol(HttpToolsProtocol):
    """One connection."""

    _running: RequestResponseCycle | None = None
    _refused = False
    _refusal: bytes | None = None
    _in_head = True
    _has_said_all = False
    on_lost: Callable[[], object] | None = None

    def __init__(self, *uvicorns: Any, **more: Any) -> None:
        super().__init__(*uvicorns, **more)
        self._ahead = bytearray()

    # --- bytes ----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A caller."""
        super().connection_made(transport)
        self.cork = Cork(transport)

    def data_received(self, data: bytes) -> None:
        """Bytes; none count any more once the caller was refused."""
        if self._refused:
            return
        if self._ahead or self._is_occupied:
            self._keep(data)
        else:
            self._take(data)

    def eof_received(self) -> bool:  # type: ignore[override]
        """The caller says no more; if it has asked something, it may still listen for a moment.

        Who has gone says the same, so that it is only a moment; and who waits for messages, so that
        ``on_lost`` is told, gets none any more: they would be lost to all others for a while.
        """
        if self._refused or self.on_lost or not (self._is_occupied or self._ahead):
            return False
        self._has_said_all = True
        self.loop.call_later(_LISTENING_S, self.transport.close)
        return True

    def has_gone(self) -> bool:
        """Whether the caller has hung up; for when nothing is read that would tell."""
        plain = self.transport.get_extra_info("socket")
        if plain is None or plain.fileno() < 0:
            return False
        looking = select.poll()
        looking.register(plain.fileno(), _GONE)
        return bool(looking.poll(0))

    def connection_lost(self, exc: Exception | None) -> None:
        """The caller is gone: so is whoever waits for its turn."""
        super().connection_lost(exc)
        self.pipeline.clear()
        self._ahead.clear()
        self._let_go_of_running()

    @property
    def _is_occupied(self) -> bool:
        """Whether a request is whole, and its answer is not."""
        cycle = self.cycle
        return cycle is not None and not (cycle.more_body or cycle.response_complete)

    def _keep(self, data: bytes) -> None:
        self._ahead += data
        if len(self._ahead) > _AHEAD_BYTES:
            self.flow.pause_reading()

    def _take(self, data: bytes) -> None:
        """Parse, up to the end of a request.  HOT: mostly ``data`` is one, head and body."""
        if len(data) <= _STEP_BYTES or data.count(_HEAD_END) <= 1:
            self._feed(data)
        else:
            for at in range(0, len(data), _STEP_BYTES):
                if self._is_occupied:
                    self._keep(data[at:])
                    break
                self._feed(data[at : at + _STEP_BYTES])
                if self._refused or self.transport.is_closing():
                    return
        if self.flow.read_paused and not self.transport.is_closing():
            self._read_on()

    def _read_on(self) -> None:
        """Unless enough is held: uvicorn stops whenever one request comes behind another."""
        held = len(self._ahead) + (0 if self.cycle is None else len(self.cycle.body))
        if held <= HIGH_WATER_LIMIT:
            self.flow.resume_reading()

    def _feed(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserCallbackError as error:
            why = error.__context__
            self.refuse(why if isinstance(why, ProblemError) else malformed(""))
        except httptools.HttpParserError as error:
            self.refuse(malformed(str(error)))

    # --- requests -------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._in_head = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header line; behind a body it is none, or it could say who the caller is."""
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self._in_head = False
        check_framing(self.parser.get_http_version(), self.headers)
        if not self.url.startswith(b"/") and self.url != b"*":
            self.url = absolute(self.url, self.headers)
        if self.parser.should_upgrade():
            self.scope["method"] = self.parser.get_method().decode("ascii")
        else:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A part of a body."""
        if not self.parser.should_upgrade():
            super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is whole."""
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """Whatever comes next has its turn."""
        self.cork.release()  # of an answer without a body the head is there still
        super().on_response_complete()
        if self.transport.is_closing() or self._is_occupied:
            return
        if self._refusal is not None:
            self._say_last(self._refusal)
        elif self._ahead:
            ahead = bytes(self._ahead)
            self._ahead.clear()
            self._take(ahead)
        elif self._has_said_all:
            self.transport.close()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        cycle.transport = self.cork  # type: ignore[assignment]  # all of it that answers need
        super()._start_asgi_task(cycle, app)

    # --- upgrades -------------------------------------------------------------------------------

    def _get_upgrade(self) -> bytes | None:
        """As uvicorn's, for ``Connection`` in any number of lines."""
        told = b",".join(value for name, value in self.headers if name == b"connection")
        if b"upgrade" not in [one.strip() for one in told.lower().split(b",")]:
            return None
        return next((value.lower() for name, value in self.headers if name == b"upgrade"), None)

    def _upgrade(self, rest: bytes) -> None:
        method, version = self.scope["method"], self.parser.get_http_version()
        if method == "CONNECT":
            self.refuse(refusal(501, "no-proxy", "nobody is called from here", remedy="use GET"))
        elif self._get_upgrade() == b"websocket":
            self._open_socket(method, version, rest)
        else:
            self._feed_without_upgrade(method, version, rest)

    def _open_socket(self, method: str, version: str, rest: bytes) -> None:
        try:
            if self._is_occupied or rest:
                raise refusal(
                    400,
                    "websocket-among-others",
                    "a WebSocket was asked for before an answer, or something was sent before its",
                    field="Upgrade",
                    remedy="open it on a connection of its own, and wait for the answer",
                )
            check_handshake(method, version, self.url, self.headers)
        except ProblemError as error:
            self.refuse(error)
            return
        self._refused = True  # nothing that comes is a request any more
        self.handle_websocket_upgrade()
        if not getattr(self.transport.get_protocol(), "handshake_initiated", True):
            self._say_last(_answer(malformed("the request for a WebSocket cannot be read")))

    def _feed_without_upgrade(self, method: str, version: str, rest: bytes) -> None:
        """Some clients offer HTTP/2 with their first request, and send it as HTTP/1.1."""
        head = [b"%s %s HTTP/%s\r\n" % (method.encode(), self.url, version.encode())]
        head += [b"%s: %s\r\n" % one for one in self.headers if one[0] != b"upgrade"]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._take(b"".join([*head, b"\r\n", rest]))

    # --- refusals -------------------------------------------------------------------------------

    def refuse(self, error: ProblemError) -> None:
        """Answer before, or instead of, the application, and end the connection."""
        if self._refused:
            return
        self._refused = True
        self._ahead.clear()
        answer, cycle = _answer(error), self.cycle
        if self.pipeline and cycle.more_body:
            self.pipeline.popleft()  # it is the one to blame, and has not begun
            self.cycle = self._last_before()
            self._refusal = answer
        elif self.pipeline or self._is_occupied:
            self._refusal = answer
        elif cycle is None or cycle.response_complete or not cycle.response_started:
            self._say_last(answer)
        else:
            self._say_last(b"")

    def _last_before(self) -> RequestResponseCycle:
        if self.pipeline:
            return self.pipeline[0][0]
        assert self._running is not None, "a request waits behind nothing"
        return self._running

    def send_400_response(self, msg: str) -> None:
        """What the parser cannot read is a problem as others are."""
        self.refuse(malformed(""))

    def _say_last(self, answer: bytes) -> None:
        self._let_go_of_running()
        self.transport.write(answer)
        self.transport.close()

    def _let_go_of_running(self) -> None:
        """Nobody hears what it would answer."""
        running = self._running
        if running is not None and not running.response_complete:
            running.disconnected = True
            running.message_event.set()


def _answer(error: ProblemError) -> bytes:
    body, status = msgspec.json.encode(error.problem), error.problem.status
    return (
        b"HTTP/1.1 %d %s\r\ncontent-type: %s\r\ncontent-length: %d\r\n%sconnection: close\r\n\r\n%s"
    ) % (
        status,
        HTTPStatus(status).phrase.encode(),
        PROBLEM_JSON,
        len(body),
        _ALONGSIDE.get(status, b""),
        body,
    )
