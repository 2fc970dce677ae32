"""Addresses to listen on."""

import asyncio
import socket


async def bind(host: str, port: int, receive_buffer_bytes: int = -1) -> list[socket.socket]:
    """A socket bound to each address of ``host``, all to the same port; any address if empty.

    Port 0 takes a free one.  Binding before serving lets a node know its port, and fail if it is
    taken, before anything else is started.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    addresses = list(dict.fromkeys((family, address) for family, _, _, _, address in found))
    both = any(family == socket.AF_INET for family, _ in addresses)
    sockets: list[socket.socket] = []
    try:
        for family, address in addresses:
            sock = socket.socket(family, socket.SOCK_STREAM)
            sockets.append(sock)
            _set_up(sock, receive_buffer_bytes, only_ipv6=both)
            taken = sockets[0].getsockname()[1] if len(sockets) > 1 else port
            sock.bind((address[0], taken, *address[2:]))
    except BaseException:
        for sock in sockets:
            sock.close()
        raise
    return sockets


def _set_up(sock: socket.socket, receive_buffer_bytes: int, *, only_ipv6: bool) -> None:
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if receive_buffer_bytes >= 0:
        # Accepted sockets inherit it; set later it would not widen the window any more.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
    if sock.family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, only_ipv6)
