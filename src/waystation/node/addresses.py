"""HOST:PORT, as people and Kafka's configuration files write it."""

import errno
import ipaddress
from typing import NamedTuple

from waystation.model.errors import InvalidSettingsError


class Address(NamedTuple):
    """A place to listen on or connect to."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Only this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def is_wildcard(self) -> bool:
        """Every interface: fit to listen on, no place to connect to."""
        return self.host in ("", "0.0.0.0", "::")


def parse_address(option: str, text: str) -> Address:
    """``HOST:PORT``, ``[IPV6]:PORT`` or Kafka's ``PLAINTEXT://HOST:PORT``."""
    bare = text.removeprefix("PLAINTEXT://")
    if "://" in bare:
        raise InvalidSettingsError(
            [f"{option} is {text!r}: only PLAINTEXT listeners are supported; write HOST:PORT"]
        )
    if "," in bare:
        raise InvalidSettingsError([f"{option} is {text!r}: one listener, HOST:PORT, is supported"])
    host, colon, port = bare.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65_535:
        raise InvalidSettingsError(
            [f"{option} is {text!r}, must be HOST:PORT, e.g. 127.0.0.1:9092"]
        )
    return Address(host.removeprefix("[").removesuffix("]"), int(port))


def cannot_listen(option: str, address: Address, error: OSError) -> InvalidSettingsError:
    """What to tell whoever chose ``address``: whose fault it is, and what to do."""
    other = f"choose another with {option} HOST:PORT"
    match error.errno:
        case errno.EADDRINUSE:
            why = "another process has that port, perhaps another broker"
            remedy = f"stop it, or {other}"
        case errno.EACCES:
            why, remedy = "ports below 1024 are the administrator's", other
        case _:
            why, remedy = error.strerror or str(error), f"{other}, where HOST is this machine"
    return InvalidSettingsError([f"cannot listen on {address}: {why}. Remedy: {remedy}"])
