"""How a cluster's items lie in ZooKeeper.

Everything is under one folder, in nodes that are never nested further:

    items/<key>    a value, with the lease it hangs on; slashes of the key are colons
    changes/<name> the keys that one transaction changed; kept for a while
    leases/<n>     a lease, for as long as the session that holds it lives
    head           touched by every transaction that changed something
    graves         touched by every transaction that deleted something

All nodes that a transaction touches carry its zxid, ZooKeeper's own number of it.  That is the
store's revision, and the version of the keys it wrote: it grows, and is never given twice.

A transaction must fit into ZooKeeper's packet of 1 MiB (``jute.maxbuffer``): 900,000 bytes of
puts leave enough for the paths and for the list of keys, which is compressed.
"""

import zlib
from typing import NamedTuple

from waystation.coordination.store import LeaseId
from waystation.model.errors import MetadataFormatError

FORMAT = b"waystation 1"

_LEASE_BYTES = 8


class Layout:
    """The paths of one cluster."""

    __slots__ = ("changes", "graves", "head", "items", "leases", "root")

    def __init__(self, folder: str) -> None:
        self.root = f"/{folder}"
        self.items = f"{self.root}/items"
        self.changes = f"{self.root}/changes"
        self.leases = f"{self.root}/leases"
        self.head = f"{self.root}/head"
        self.graves = f"{self.root}/graves"

    @property
    def folders(self) -> tuple[str, ...]:
        """What must be there before anything else, below the root."""
        return self.items, self.changes, self.leases, self.head, self.graves

    def item(self, key: str) -> str:
        """The node that holds ``key``."""
        return f"{self.items}/{key.replace('/', ':')}"

    def change(self, name: str) -> str:
        """The node that tells of a transaction."""
        return f"{self.changes}/{name}"

    def lease(self, lease: LeaseId) -> str:
        """The node that is there while the lease is; its sequence number counts from 0."""
        return f"{self.leases}/{lease - 1:010}"


def key_of(node: str) -> str:
    """The key whose node has this name."""
    return node.replace(":", "/")


def lease_of(node: str) -> LeaseId:
    """The lease whose node has this name or path."""
    return LeaseId(int(node.rpartition("/")[2]) + 1)


class Item(NamedTuple):
    """What an item's node holds; lease 0 is none."""

    value: bytes
    lease: LeaseId


def encode_item(value: bytes, lease: LeaseId | None) -> bytes:
    """A node's data."""
    return (lease or 0).to_bytes(_LEASE_BYTES, "big") + value


def decode_item(key: str, data: bytes) -> Item:
    """What was encoded."""
    if len(data) < _LEASE_BYTES:
        raise MetadataFormatError(key, f"{len(data)} bytes, written by another program")
    return Item(data[_LEASE_BYTES:], LeaseId(int.from_bytes(data[:_LEASE_BYTES], "big")))


def encode_keys(keys: list[str]) -> bytes:
    """The data of a change's node."""
    return zlib.compress("\n".join(keys).encode())


def decode_keys(name: str, data: bytes) -> list[str]:
    """What was encoded."""
    try:
        return zlib.decompress(data).decode().split("\n")
    except (zlib.error, UnicodeDecodeError) as problem:
        raise MetadataFormatError(f"changes/{name}", str(problem)) from problem
