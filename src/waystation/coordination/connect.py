"""The store that an address means, ready to be opened.

What only one backend needs is imported when that backend is asked for: a single node runs
without the packages of the others.
"""

import ssl
from pathlib import Path
from typing import Protocol

from waystation.coordination.address import StoreAddress
from waystation.coordination.sqlite import SqliteStore
from waystation.coordination.store import CoordinationStore
from waystation.model.errors import InvalidConfigError
from waystation.runtime.clock import Clock


class OpenableStore(CoordinationStore, Protocol):
    """A store before its first use."""

    async def open(self) -> None:
        """Reach it; ``StoreUnavailableError`` says why it cannot be."""
        ...


def store_at(address: StoreAddress, sqlite_path: Path, clock: Clock) -> OpenableStore:
    """The store at ``address``; ``sqlite_path`` is the file of the embedded one."""
    try:
        match address.kind:
            case "etcd":
                return _etcd(address)
            case "zookeeper":
                return _zookeeper(address, clock)
            case _:
                return SqliteStore(sqlite_path, clock)
    except ModuleNotFoundError as missing:
        raise InvalidConfigError(
            f"{address.kind} needs {missing.name}: pip install 'waystation[cluster]'"
        ) from missing


def _etcd(address: StoreAddress) -> OpenableStore:
    from waystation.coordination.etcd import EtcdStore
    from waystation.coordination.etcd_gateway import Credentials

    credentials = Credentials(address.user, _password(address)) if address.user else None
    return EtcdStore(
        address.endpoints, address.folder, tls=_context(address), credentials=credentials
    )


def _zookeeper(address: StoreAddress, clock: Clock) -> OpenableStore:
    from waystation.coordination.zookeeper import ZookeeperStore
    from waystation.coordination.zookeeper_session import Access

    _context(address)  # says which file is wrong, which kazoo would not
    tls = address.tls
    access = Access(
        address.endpoints,
        user=address.user,
        password=_password(address) if address.user else "",
        tls=tls is not None,
        ca=tls.ca if tls else None,
        cert=tls.cert if tls else None,
        key=tls.key if tls else None,
    )
    return ZookeeperStore(access, address.folder, clock=clock)


def _password(address: StoreAddress) -> str:
    assert address.password_file is not None, "parse_address lets no user pass without"
    try:
        return Path(address.password_file).read_text().strip()
    except (OSError, UnicodeDecodeError) as problem:
        raise InvalidConfigError(
            f"the password of {address.user} for {address.kind} is not in "
            f"{address.password_file}: {problem}"
        ) from problem


def _context(address: StoreAddress) -> ssl.SSLContext | None:
    """What TLS is spoken by; a wrong file is named now and not at the first connection."""
    if (files := address.tls) is None:
        return None
    at = files.ca
    try:
        context = ssl.create_default_context(cafile=files.ca)
        if files.cert:
            at = files.cert if files.key is None else f"{files.cert} and {files.key}"
            context.load_cert_chain(files.cert, files.key)
    except (OSError, ssl.SSLError) as problem:
        raise InvalidConfigError(f"no TLS to {address.kind} by {at}: {problem}") from problem
    return context
