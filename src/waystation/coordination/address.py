"""Where the cluster's coordination store is, as people write it.

``sqlite``, or a service with all its servers:

    etcd://10.0.0.1:2379,10.0.0.2:2379,10.0.0.3:2379/waystation
    etcd://db1,db2,db3?ca=/etc/ca.pem&cert=/etc/node.pem&key=/etc/node.key
    zookeeper://zk1:2181,zk2:2181/queues/eu?user=waystation&password-file=/etc/waystation.pw

The path is the folder in the service that belongs to this cluster: two clusters share a service
by two folders.  Passwords are in files, since everybody can read a command line.  Nothing is
opened or looked up here; ``connect.py`` does that.
"""

import re
from dataclasses import dataclass
from difflib import get_close_matches
from urllib.parse import parse_qsl, urlsplit

from waystation.model.errors import InvalidConfigError

DEFAULT_FOLDER = "waystation"

_PORTS = {"etcd": 2379, "zookeeper": 2181}
_PARAMETERS = ("ca", "cert", "key", "password-file", "tls", "user")
_FOLDER = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(?:/[A-Za-z0-9_-][A-Za-z0-9._-]*)*")
_HOST = re.compile(r"[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]")


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Paths of PEM files; without ``ca`` the system's authorities are believed."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """``kind`` is sqlite, etcd or zookeeper; the rest means nothing for sqlite."""

    kind: str
    endpoints: tuple[str, ...] = ()
    folder: str = DEFAULT_FOLDER
    tls: TlsFiles | None = None
    user: str | None = None
    password_file: str | None = None


def parse_address(text: str) -> StoreAddress:
    """What ``text`` means; ``InvalidConfigError`` says what is wrong and how it would be right."""
    if text == "sqlite":
        return StoreAddress("sqlite")
    kind, separator, _ = text.partition("://")
    if kind not in _PORTS or not separator:
        raise _wrong(text, "a store is sqlite, etcd://HOST:PORT,... or zookeeper://HOST:PORT,...")
    try:
        parts = urlsplit(text)
    except ValueError as problem:
        raise _wrong(text, f"{problem}: an IPv6 address is written as [::1]") from problem
    if "@" in parts.netloc:
        raise _wrong(
            text.replace(parts.netloc.rpartition("@")[0], "***"),
            "names and passwords go after the servers: ?user=NAME&password-file=FILE",
        )
    parameters = _parameters(text, parts.query)
    folder = parts.path.strip("/") or DEFAULT_FOLDER
    if not _FOLDER.fullmatch(folder) or parts.fragment:
        raise _wrong(text, f"{folder!r} is no folder: letters, digits, '.', '_', '-' between '/'")
    return StoreAddress(
        kind,
        tuple(_endpoint(text, server, _PORTS[kind]) for server in parts.netloc.split(",")),
        folder,
        _tls(text, parameters),
        parameters.get("user"),
        _password_file(text, parameters),
    )


def _endpoint(text: str, server: str, default_port: int) -> str:
    found = re.fullmatch(rf"({_HOST.pattern})(?::(\d{{1,5}}))?", server)
    if not found or not 0 < int(found[2] or default_port) < 65_536:
        raise _wrong(text, f"{server!r} is no HOST or HOST:PORT")
    return f"{found[1]}:{found[2] or default_port}"


def _parameters(text: str, query: str) -> dict[str, str]:
    pairs = parse_qsl(query, keep_blank_values=True)
    parameters = dict(pairs)
    if len(parameters) < len(pairs):
        raise _wrong(text, "a parameter is given twice")
    for name, value in pairs:
        if name not in _PARAMETERS:
            close = get_close_matches(name, _PARAMETERS, 1)
            meant = f"did you mean {close[0]}?" if close else f"there are {', '.join(_PARAMETERS)}"
            raise _wrong(text, f"{name!r} is no parameter: {meant}")
        if not value:
            raise _wrong(text, f"{name} has no value")
    return parameters


def _tls(text: str, parameters: dict[str, str]) -> TlsFiles | None:
    files = TlsFiles(parameters.get("ca"), parameters.get("cert"), parameters.get("key"))
    wanted = parameters.get("tls", "true" if files != TlsFiles() else "false")
    if wanted not in ("true", "false"):
        raise _wrong(text, f"tls is true or false, not {wanted!r}")
    if wanted == "false" and files != TlsFiles():
        raise _wrong(text, "ca, cert and key mean nothing with tls=false")
    if files.key and not files.cert:
        raise _wrong(text, "a key needs its certificate: cert=FILE")
    return files if wanted == "true" else None


def _password_file(text: str, parameters: dict[str, str]) -> str | None:
    if ("user" in parameters) != ("password-file" in parameters):
        raise _wrong(text, "user and password-file belong together")
    return parameters.get("password-file")


def _wrong(text: str, remedy: str) -> InvalidConfigError:
    return InvalidConfigError(f"{text!r} is no coordination store: {remedy}")
