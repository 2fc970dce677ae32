"""Tells systemd how far a service is, in the one datagram that takes; elsewhere it does nothing."""

import contextlib
import os
import socket

_VARIABLE = "NOTIFY_SOCKET"


def notify(state: str) -> None:
    """Say ``READY=1`` or ``STOPPING=1`` to whoever started the service, if they want to know."""
    address = os.environ.get(_VARIABLE, "")
    if not address.startswith(("/", "@")):
        return
    # A name in the abstract name space begins with a zero byte, which no variable can hold.
    address = "\0" + address[1:] if address.startswith("@") else address
    # Who cannot be told is not waiting.
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as way:
        way.sendto(state.encode(), address)


def deaf(environment: dict[str, str]) -> dict[str, str]:
    """The environment of a child that is not the service itself."""
    return {name: value for name, value in environment.items() if name != _VARIABLE}
