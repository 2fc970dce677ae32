"""Which names a node answers to: a defence against DNS rebinding.

A page of a stranger may have its own name lead to 127.0.0.1, and the browser then takes the node
for the page's own server.  The name is still the stranger's, and stands in ``Host``:

1. on loopback a node answers to names and addresses of loopback, and to those it was told of;
2. beyond it, once it was told of names, to those, to addresses and to names of loopback;
3. to any name beyond loopback if it was told of none: there it needs ``--insecure`` anyway.

A browser always names the host: who names none is no browser, and is answered.
"""

import ipaddress
import re
from collections.abc import Iterable
from typing import Final

from waystation.gateway.problems import ProblemError, refusal

__all__ = ["Hosts"]

_HOST: Final = re.compile(r"(?:\[([^\]]*)\]|([^:\[]*))(?::\d*)?")
_KNOWN_MOST: Final = 256
_LOOPBACK_NAMES: Final = ("localhost", ".localhost")


class Hosts:
    """The names that a listener answers to, ``names`` among them."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = frozenset(one.lower() for one in names)
        self._known: set[bytes] = set()
        self.listens_on("")

    def listens_on(self, host: str) -> None:
        """Where the listener is bound."""
        self._on_loopback = _is_loopback(host)
        self._any = not self._names and not self._on_loopback

    def check(self, host: bytes | None) -> None:
        """Raise a problem unless ``host``, as it stands in the header, may be answered to.

        HOT: once per request, mostly with a host that was seen before.
        """
        if self._any or host is None or host in self._known:
            return
        name = _without_port(host.decode("latin-1").strip().lower())
        if not self._answers_to(name):
            raise _misdirected(name)
        if len(self._known) < _KNOWN_MOST:  # beyond that there is somebody who thinks names up
            self._known.add(host)

    def _answers_to(self, name: str) -> bool:
        if name in self._names or _is_loopback(name):
            return True
        # Nobody can have an address lead elsewhere.
        return not self._on_loopback and _address(name) is not None


def _without_port(host: str) -> str:
    """The name or address; what has something else where the port should be is left as it is."""
    found = _HOST.fullmatch(host)
    return host if found is None else found[1] or found[2]


def _is_loopback(name: str) -> bool:
    if name == _LOOPBACK_NAMES[0] or name.endswith(_LOOPBACK_NAMES[1]):
        return True
    address = _address(name)
    return address is not None and address.is_loopback


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


def _misdirected(name: str) -> ProblemError:
    return refusal(
        421,
        "unknown-host",
        f"this node does not answer to the name {name!r}",
        field="Host",
        remedy="use its address or localhost; for other names start it with "
        "--set http.hosts=NAME,NAME",
    )
