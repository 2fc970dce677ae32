"""A broker of four answers, so that librdkafka shows its batches and reads ours.

It knows one topic of one partition, keeps what is produced and serves what it was given.
Written from the protocol's description with nothing of the project, whose own codec is
what the tests put to the proof.
"""

import socketserver
import struct
from threading import Thread
from typing import Self

TOPIC = "captured"
PRODUCE, FETCH, METADATA, FIND_COORDINATOR, API_VERSIONS, INIT_PRODUCER_ID = 0, 1, 3, 10, 18, 22
VERSIONS = [(0, 3, 7), (1, 4, 10), (2, 1, 1), (3, 1, 1), (10, 0, 0), (18, 0, 0), (22, 0, 0)]
PRODUCER_ID, PRODUCER_EPOCH = 4711, 3


def string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


class CaptureBroker:
    """Listens on a port of its own while entered."""

    def __init__(self, to_serve: bytes = b"") -> None:
        self.produced: list[bytes] = []
        self.to_serve = to_serve
        outer = self

        class Connection(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                while size := self.rfile.read(4):
                    reply = outer._answer(self.rfile.read(*struct.unpack(">i", size)))
                    self.wfile.write(struct.pack(">i", len(reply)) + reply)

        socketserver.ThreadingTCPServer.daemon_threads = True
        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Connection)
        self.port = self._server.server_address[1]

    def __enter__(self) -> Self:
        Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, request: bytes) -> bytes:
        api, version, correlation = struct.unpack_from(">hhi", request)
        (client_length,) = struct.unpack_from(">h", request, 8)
        body = request[10 + max(client_length, 0) :]
        return struct.pack(">i", correlation) + {
            PRODUCE: self._produce,
            FETCH: self._fetch,
            METADATA: self._metadata,
            FIND_COORDINATOR: lambda *_: struct.pack(">hihi", 15, -1, 0, -1),
            API_VERSIONS: self._api_versions,
            INIT_PRODUCER_ID: lambda *_: struct.pack(">ihqh", 0, 0, PRODUCER_ID, PRODUCER_EPOCH),
        }[api](body, version)

    def _api_versions(self, _: bytes, version: int) -> bytes:
        unsupported = 35
        rows = b"".join(struct.pack(">hhh", *row) for row in VERSIONS)
        return struct.pack(">hi", unsupported if version else 0, len(VERSIONS)) + rows

    def _metadata(self, *_: object) -> bytes:
        broker = struct.pack(">ii", 1, 0) + string("127.0.0.1") + struct.pack(">ih", self.port, -1)
        partition = struct.pack(">hiiiiii", 0, 0, 0, 1, 0, 1, 0)
        topic = struct.pack(">ih", 1, 0) + string(TOPIC) + struct.pack(">?i", False, 1)
        return broker + struct.pack(">i", 0) + topic + partition

    def _produce(self, body: bytes, _: int) -> bytes:
        at = 2 + 2 + 4 + 4 + len(string(TOPIC)) + 4 + 4
        (size,) = struct.unpack_from(">i", body, at)
        self.produced.append(body[at + 4 : at + 4 + size])
        partition = struct.pack(">iihqqq", 1, 0, 0, len(self.produced), -1, 0)
        return struct.pack(">i", 1) + string(TOPIC) + partition + struct.pack(">i", 0)

    def _fetch(self, *_: object) -> bytes:
        head = struct.pack(">ihi", 0, 0, 0) + struct.pack(">i", 1) + string(TOPIC)
        partition = struct.pack(">iihqqqi", 1, 0, 0, 1 << 40, 1 << 40, 0, 0)
        return head + partition + struct.pack(">i", len(self.to_serve)) + self.to_serve
