"""A node in a thread of this process, and a client that speaks its protocol by hand.

Tests of APIs say exactly what is sent in which version, and look at every field that comes
back; real clients would hide both.
"""

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Self, TypeVar

from waystation.apis.registry import APIS
from waystation.messages.catalog import response_type
from waystation.model.errors import WaystationError
from waystation.model.ids import ProducerEpoch, ProducerId
from waystation.node.node import Node
from waystation.node.settings import load
from waystation.records.batch import BatchBuilder
from waystation.records.compression import Codec
from waystation.runtime.chance import Chance
from waystation.runtime.clock import SystemClock
from waystation.wire.headers import decode_response_header, encode_request_header
from waystation.wire.message import Message
from waystation.wire.versions import ApiKey

T = TypeVar("T")

NOW_MS = 1_800_000_000_000
_LENGTH = struct.Struct(">i")
_WITHIN_S = 20.0


class ThreadedNode:
    """A whole node on a loop of its own; use it as a context."""

    def __init__(self, data_dir: Path, chance: Chance | None = None, **options: str) -> None:
        given = {
            "listen": "127.0.0.1:0",
            "http": "none",
            "log.dirs": str(data_dir),
            **{name.replace("_", "."): value for name, value in options.items()},
        }
        self.settings = load([("test", given)])
        self._chance = chance
        self._ready: Future[Node] = Future()
        self._stopping: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self.node = self._ready.result(_WITHIN_S)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Shut it down cleanly; harmless if it was."""
        if not self._thread.is_alive():
            return
        assert self._loop is not None, "not started"
        assert self._stopping is not None, "not started"
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(_WITHIN_S)
        assert not self._thread.is_alive(), "the node does not stop"

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        return self.node.address

    def client(self) -> "Wire":
        """A new connection to it."""
        return Wire(*self.address)

    def call(self, run: Callable[[], T]) -> T:
        """What ``run`` returns on the node's loop."""

        async def there() -> T:
            return run()

        return self.wait_for(there())

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """What ``work`` gives on the node's loop."""
        assert self._loop is not None, "not started"
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_WITHIN_S)

    def until(self, true: Callable[[], bool]) -> None:
        """Wait until something that the loop brings about is so."""

        async def look() -> None:
            async with asyncio.timeout(_WITHIN_S):
                while not true():
                    await asyncio.sleep(0.002)

        self.wait_for(look())

    def _run(self) -> None:
        asyncio.run(self._live())

    async def _live(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        try:
            node = Node(self.settings, chance=self._chance)
        except WaystationError as error:
            self._ready.set_exception(error)
            return
        try:
            await node.start()
            self._ready.set_result(node)
            await self._stopping.wait()
        except WaystationError as error:
            self._ready.set_exception(error)
        finally:
            await node.stop()


class HungUpError(Exception):
    """The broker closed the connection."""


class Wire:
    """One connection; requests go out as told, replies are read when asked for."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), timeout=_WITHIN_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def send_frame(self, frame: bytes) -> None:
        """Send bytes with their length in front."""
        self._socket.sendall(_LENGTH.pack(len(frame)) + frame)

    def send(self, request: Message, version: int, correlation_id: int = 7) -> None:
        """Send a request and do not wait."""
        assert request.api is not None, "a request has an API key"
        head = encode_request_header(request.api, version, correlation_id, "kit")
        self.send_frame(head + request.encode(version))

    def receive_frame(self) -> bytes:
        """The next reply's bytes."""
        (nbytes,) = _LENGTH.unpack(self._receive(_LENGTH.size))
        return self._receive(nbytes)

    def receive(self, api: ApiKey, version: int, correlation_id: int = 7) -> Any:
        """The next reply, decoded."""
        view = memoryview(self.receive_frame())
        found, at = decode_response_header(view, api, version)
        assert found == correlation_id, f"reply to {found}, expected {correlation_id}"
        return response_type(api).decode(view[at:], version)

    def ask(self, request: Message, version: int) -> Any:
        """The reply to one request."""
        assert request.api is not None, "a request has an API key"
        self.send(request, version)
        return self.receive(request.api, version)

    def has_reply(self, within_s: float = 0.0) -> bool:
        """Whether something can be read already."""
        self._socket.settimeout(max(within_s, 0.001))
        try:
            return bool(self._socket.recv(1, socket.MSG_PEEK))
        except TimeoutError:
            return False
        finally:
            self._socket.settimeout(_WITHIN_S)

    def is_hung_up(self) -> bool:
        """Whether the broker closes the connection, and sends nothing before."""
        try:
            return not self._socket.recv(1)
        except ConnectionError:
            return True

    def _receive(self, nbytes: int) -> bytes:
        got = bytearray()
        while len(got) < nbytes:
            try:
                some = self._socket.recv(nbytes - len(got))
            except ConnectionError as error:
                raise HungUpError from error
            if not some:
                raise HungUpError
            got += some
        return bytes(got)


def versions(api: ApiKey) -> range:
    """Every version of ``api`` that is answered."""
    spoken = APIS[api].spoken
    return range(spoken.low, spoken.high + 1)


def newest(api: ApiKey) -> int:
    """The newest version of ``api`` that is answered."""
    return APIS[api].spoken.high


def batch_of(
    *values: bytes | None,
    timestamp: int | Iterable[int] | None = None,
    codec: Codec = Codec.NONE,
    producer: tuple[int, int, int] | None = None,
    transactional: bool = False,
    keys: Sequence[bytes | None] = (),
) -> bytes:
    """A batch; ``producer`` is id, epoch and first sequence of an idempotent one."""
    identity, epoch, sequence = producer or (-1, -1, -1)
    builder = BatchBuilder(
        codec,
        ProducerId(identity),
        ProducerEpoch(epoch),
        sequence,
        is_transactional=transactional,
        limit_bytes=64 << 20,
    )
    if timestamp is None:
        timestamp = SystemClock().now()
    times = [timestamp] * len(values) if isinstance(timestamp, int) else list(timestamp)
    for key, value, at in zip(keys or [None] * len(values), values, times, strict=True):
        assert builder.append(key, value, (), timestamp=at), "the batch is full"
    return builder.build()
