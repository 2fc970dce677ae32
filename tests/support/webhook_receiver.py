"""A real HTTP receiver of webhooks, which answers as it is told and remembers what came."""

import json
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self

WITHIN_S = 40.0


class Hook(NamedTuple):
    """One request that came."""

    path: str
    headers: Mapping[str, str]
    body: bytes
    at: float

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def values(self) -> list[str]:
        told = self.json
        return [one["value"] for one in told.get("messages", [told])]


class Reply(NamedTuple):
    """What to answer; ``drip_s`` sends the body byte by byte with such pauses."""

    status: int = 200
    headers: Mapping[str, str] = {}
    body: bytes = b""
    drip_s: float = 0.0


Answering = Callable[[Hook], Reply]
OK = Reply()


class Receiver:
    """Listens on loopback; ``answer`` decides, ``hooks`` are the requests in their order."""

    def __init__(self, answer: Answering = lambda _: OK, tls: ssl.SSLContext | None = None) -> None:
        self.answer = answer
        self.hooks: list[Hook] = []
        self.most_at_once = 0
        self._at_once = 0
        self._changed = threading.Condition()
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self._scheme = "http" if tls is None else "https"
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )
        self._released = threading.Event()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._released.set()
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._server.server_port}/hook"

    @property
    def values(self) -> list[str]:
        """The values that came, in the order they came."""
        return [value for hook in list(self.hooks) for value in hook.values]

    def hang(self, _: Hook) -> Reply:
        """An answer that does not come while the test lasts."""
        self._released.wait()
        return OK

    def until(self, true: Callable[[], object], what: str = "") -> None:
        """Wait for something that requests bring about."""
        ends_at = time.monotonic() + WITHIN_S
        with self._changed:
            while not true():
                left_s = ends_at - time.monotonic()
                assert left_s > 0, f"not within {WITHIN_S} s: {what}; came: {self.values}"
                self._changed.wait(min(left_s, 0.1))

    def came(self, hook: Hook) -> Reply:
        with self._changed:
            self.hooks.append(hook)
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
            self._changed.notify_all()
        try:
            return self.answer(hook)
        finally:
            with self._changed:
                self._at_once -= 1


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A node that was killed, or that hung up, is part of the test."""


def _handler(receiver: Receiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            reply = receiver.came(Hook(self.path, headers, body, time.monotonic()))
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(reply.body)))
            self.end_headers()
            for at in range(0, len(reply.body), 1 if reply.drip_s else len(reply.body) or 1):
                self.wfile.write(reply.body[at : at + 1] if reply.drip_s else reply.body)
                self.wfile.flush()
                time.sleep(reply.drip_s)

        def log_message(self, *_: object) -> None:
            pass

    return Handler
