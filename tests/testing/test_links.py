"""The network between the processes of a cluster does what tests tell it to."""

import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest
from tests.support.links import CLIENTS, Links

SOON_S, NEVER_S = 5.0, 0.15


@pytest.fixture
def echo() -> Iterator[str]:
    """A server that says what it is told."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=repeat, args=(connection,), daemon=True).start()

    def repeat(connection: socket.socket) -> None:
        with connection:
            while said := connection.recv(1 << 16):
                connection.sendall(said)

    threading.Thread(target=serve, daemon=True).start()
    yield f"127.0.0.1:{server.getsockname()[1]}"
    server.shutdown(socket.SHUT_RDWR)
    server.close()


def first_words(client_id: str) -> bytes:
    """How a Kafka client begins."""
    name = client_id.encode()
    return struct.pack(">ihhih", 10 + len(name), 18, 0, 1, len(name)) + name


def dial(address: str, client_id: str) -> socket.socket:
    host, port = address.split(":")
    connection = socket.create_connection((host, int(port)), timeout=SOON_S)
    words = first_words(client_id)
    connection.sendall(words)
    return connection


def heard(connection: socket.socket, within_s: float = SOON_S) -> bytes:
    connection.settimeout(within_s)
    try:
        return connection.recv(1 << 16)
    except TimeoutError:
        return b"nothing"


def test_a_cut_holds_up_one_source_and_loses_nothing(echo: str) -> None:
    with Links() as links:
        address = links.relay(2, echo)
        with dial(address, "waystation-broker-1") as broker, dial(address, "anybody") as client:
            assert heard(broker) == first_words("waystation-broker-1")
            assert heard(client) == first_words("anybody")
            links.cut(1, 2)
            broker.sendall(b"late")
            client.sendall(b"at once")

            assert heard(client) == b"at once"
            assert heard(broker, NEVER_S) == b"nothing"

            links.mend()

            assert heard(broker) == b"late"


def test_a_cut_of_one_way_lets_the_other_pass(echo: str) -> None:
    with Links() as links:
        address = links.relay(2, echo, source=1)
        with dial(address, "x") as one:
            heard(one)
            links.cut(1, 2, ["answers"])
            one.sendall(b"heard, and answered in vain")

            assert heard(one, NEVER_S) == b"nothing"


def test_a_slow_link_delivers_late(echo: str) -> None:
    with Links() as links, dial(links.relay(2, echo), "x") as one:
        heard(one)
        links.slow(CLIENTS, 2, delay_s=0.1)
        began = time.monotonic()
        one.sendall(b"there and back")

        assert heard(one) == b"there and back"
        assert time.monotonic() - began > 0.19


def test_a_reset_ends_connections_and_takes_new_ones(echo: str) -> None:
    with Links() as links:
        address = links.relay(2, echo)
        with dial(address, "x") as one:
            heard(one)
            links.reset(CLIENTS, 2)

            assert heard(one) == b""
        with dial(address, "x") as another:
            assert heard(another) == first_words("x")


def test_who_asks_for_nobody_is_told_at_once() -> None:
    with Links() as links, dial(links.relay(2, "127.0.0.1:1"), "x") as one:
        assert heard(one) == b""
