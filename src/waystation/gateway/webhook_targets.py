"""Where webhooks may go: which addresses are refused, and what a target's URL may look like.

A webhook makes a node connect to where its caller says.  Without care that reaches what only the
node can reach: its own services, its neighbours, the metadata of its cloud.  Two promises:

1. an address that is not public is refused, in whatever form it is written or wrapped, unless an
   operator has allowed its network (``webhook.allow``);
2. the rule is about addresses, never about names: whoever connects asks for the very address that
   it is about to connect to, so that a name that changes its mind gains nothing.
"""

from collections.abc import Iterable
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import Final, NamedTuple
from urllib.parse import urlsplit

__all__ = ["AllowedNetworks", "Target", "TargetRefusedError", "parse_networks", "parse_target"]

IpAddress = IPv4Address | IPv6Address

_NOT_PUBLIC: Final = tuple(
    ip_network(one)
    for one in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
        "::/96",
        "64:ff9b:1::/48",
        "100::/64",
        "2001:db8::/32",
        "3fff::/20",
        "5f00::/16",
        "fc00::/7",
        "fe80::/10",
        "fec0::/10",
        "ff00::/8",
    )
)
"""By their numbers, not by ``is_global``: what that means differs between versions of Python."""

_NAT64: Final = IPv6Network("64:ff9b::/96")
_COMPATIBLE: Final = IPv6Network("::/96")
_LOW_32: Final = (1 << 32) - 1
_ISATAP: Final = (0x00005EFE, 0x02005EFE)
_URL_CHARACTERS: Final = 2_048
_HOST_CHARACTERS: Final = 253
_PORTS: Final = {"http": 80, "https": 443}
_OTHER_SERVICES: Final = frozenset(
    {
        *(1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95),
        *(101, 102, 103, 104, 109, 110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161),
        *(179, 389, 427, 465, 512, 513, 514, 515, 526, 530, 531, 532, 540, 548, 554, 556, 563),
        *(587, 601, 636, 989, 990, 993, 995, 1719, 1720, 1723, 2049, 3659, 4045, 5060, 5061),
        *(6000, 6379, 6566, 6665, 6666, 6667, 6668, 6669, 6697, 11211),
    }
)
"""Ports of services that would take a request for commands of their own; browsers refuse them."""


class TargetRefusedError(OSError):
    """A webhook may not go there; an ``OSError``, as everything else that keeps one from it."""


class Target(NamedTuple):
    """Where a webhook goes."""

    scheme: str
    host: str
    port: int


class AllowedNetworks:
    """Decides about addresses; ``networks`` are those that an operator trusts."""

    def __init__(self, networks: Iterable[IPv4Network | IPv6Network] = ()) -> None:
        self._networks = tuple(networks)

    def check(self, text: str) -> None:
        """Raise ``TargetRefusedError`` unless one may connect to the address ``text``."""
        # A zone says by which interface, not where to.
        address = ip_address(text.partition("%")[0])
        for one in _meanings(address):
            if self._is_allowed(one):
                continue
            for network in _NOT_PUBLIC:
                if one.version == network.version and one in network:
                    raise TargetRefusedError(_refused(address, one, network))

    def _is_allowed(self, address: IpAddress) -> bool:
        return any(address.version == one.version and address in one for one in self._networks)


def parse_networks(texts: Iterable[str]) -> AllowedNetworks:
    """Networks as ``10.1.0.0/16`` or ``fd00::/8``; ``ValueError`` for what is none."""
    return AllowedNetworks(ip_network(one.strip()) for one in texts if one.strip())


def parse_target(url: str) -> Target:
    """The target of a URL; ``ValueError`` says what is wrong with it."""
    if len(url) > _URL_CHARACTERS:
        raise ValueError(f"has {len(url)} characters, at most {_URL_CHARACTERS} may be")
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        raise ValueError("has characters that a URL must write in percent-encoding")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"is no URL: {error}") from None
    if parts.scheme not in _PORTS:
        raise ValueError("must begin with https:// or http://")
    if "@" in parts.netloc:
        raise ValueError("must not hold a name and password: the signature says who calls")
    if parts.fragment:
        raise ValueError("must not have a fragment (#...): it would not be sent")
    host = (parts.hostname or "").removesuffix(".")
    if not host or len(host) > _HOST_CHARACTERS:
        raise ValueError("names no host")
    port = _PORTS[parts.scheme] if port is None else port
    if port == 0 or port in _OTHER_SERVICES:
        raise ValueError(f"has port {port}, which is not one of HTTP servers")
    return Target(parts.scheme, host, port)


def _meanings(address: IpAddress) -> tuple[IpAddress, ...]:
    """Where packets may end: at the address itself, and at IPv4 addresses that it wraps."""
    if isinstance(address, IPv4Address):
        return (address,)
    if address.ipv4_mapped is not None:
        return (address.ipv4_mapped,)
    number = int(address)
    low = IPv4Address(number & _LOW_32)
    if address in _NAT64:
        return (low,)
    if address in _COMPATIBLE:
        return (address,) if number <= 1 else (address, low)
    if address.sixtofour is not None:
        return (address, address.sixtofour)
    if address.teredo is not None:
        return (address, *address.teredo)
    if (number >> 32) & _LOW_32 in _ISATAP:
        return (address, low)
    return (address,)


def _refused(address: IpAddress, meant: IpAddress, network: IPv4Network | IPv6Network) -> str:
    wraps = "" if address == meant else f", which stands for {meant},"
    return f"{address}{wraps} is not public: it is in {network}, which webhook.allow does not name"
