"""The addresses a client begins with: ``host:port``, several separated by commas."""

from typing import NamedTuple

from waystation.model.errors import InvalidConfigError

__all__ = ["DEFAULT_BOOTSTRAP", "Address", "parse_bootstrap"]

DEFAULT_BOOTSTRAP = "localhost:9092"
_DEFAULT_PORT = 9092


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_bootstrap(text: str) -> tuple[Address, ...]:
    """Read ``a:9092,b:9093``; an address without a port has Kafka's, IPv6 stands in brackets."""
    addresses = tuple(_address(part.strip()) for part in text.split(",") if part.strip())
    if not addresses:
        raise InvalidConfigError("bootstrap names no address: give host:port, e.g. localhost:9092")
    return addresses


def _address(text: str) -> Address:
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(_DEFAULT_PORT)
    bracketed = host.startswith("[") and host.endswith("]")
    if not port.isdigit() or not 0 < int(port) < 1 << 16 or (":" in host and not bracketed):
        raise InvalidConfigError(f"{text!r} is no address: give host:port, e.g. localhost:9092")
    return Address(host.strip("[]") or "localhost", int(port))
