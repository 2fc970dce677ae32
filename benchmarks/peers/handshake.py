"""Whether a broker serves, asked in Kafka's protocol: the same question to every broker.

A broker is ready when it answers Metadata with at least one broker in it, one of a cluster when
it names all of them.  Log lines and open ports come earlier or later than that and differ between
products, so we ignore them.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable

_METADATA, _METADATA_VERSION = 3, 4  # the oldest version that every broker measured here speaks
_API_VERSIONS = 18
_POLL_S = 0.005


class NotReadyError(Exception):
    """The broker did not answer in time, or ended."""


def wait_until_ready(
    port: int, timeout_s: float, alive: Callable[[], bool], brokers: int = 1
) -> None:
    """Return as soon as the broker at ``port`` answers and knows as many ``brokers``.

    Raises if it ends or takes too long.
    """
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if not alive():
            raise NotReadyError("the broker ended while starting")
        try:
            if _broker_count(port) >= brokers:
                return
        except (OSError, struct.error):
            pass  # not listening yet, or closed on us while starting
        time.sleep(_POLL_S)
    raise NotReadyError(f"no answer on port {port} within {timeout_s:.0f} s")


def advertised_apis(port: int) -> dict[int, tuple[int, int]]:
    """Which requests the broker takes: API key to (lowest, highest) version."""
    reply = _ask(port, _API_VERSIONS, 0, b"")
    _, count = struct.unpack_from(">hi", reply)
    return {
        key: (low, high) for key, low, high in struct.iter_unpack(">hhh", reply[6 : 6 + 6 * count])
    }


def _broker_count(port: int) -> int:
    no_topics_no_creation = struct.pack(">ib", 0, 0)
    reply = _ask(port, _METADATA, _METADATA_VERSION, no_topics_no_creation)
    _throttle_ms, brokers = struct.unpack_from(">ii", reply)
    return int(brokers)


def _ask(port: int, api_key: int, version: int, body: bytes) -> bytes:
    """One request on its own connection; the reply without its length and correlation id."""
    client_id = b"bench"
    header = struct.pack(">hhih", api_key, version, 1, len(client_id)) + client_id
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(struct.pack(">i", len(header) + len(body)) + header + body)
        (nbytes,) = struct.unpack(">i", _read(connection, 4))
        return _read(connection, nbytes)[4:]


def _read(connection: socket.socket, nbytes: int) -> bytes:
    read = bytearray()
    while len(read) < nbytes:
        part = connection.recv(nbytes - len(read))
        if not part:
            raise ConnectionError("the broker closed the connection")
        read += part
    return bytes(read)
