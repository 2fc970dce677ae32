"""The port through which the cluster agrees: a few thousand small items, changed atomically.

Every backend keeps these promises; ``tests/conformance/store_suite.py`` holds them to it.

*Items.*  A key is a path such as ``topics/orders``; a value is bytes.  ``get`` and ``watch``
take a prefix: one that is empty or ends in ``/`` means everything below it, any other means
exactly that key, so that ``brokers/1`` is never mistaken for ``brokers/10``.

*Revisions.*  The store as a whole has a revision that grows with every transaction that
changed something.  A snapshot is one revision's state, never a mixture of two.

*Versions.*  Every write gives its key a new version, and no two writes of a key ever share
one, even across deletion: comparing versions cannot mistake a recreated key for the old one.
Version 0 is the absent key.  Versions are compared for equality only.

*Transactions.*  All compares hold and all operations happen, or nothing does.  A failed
compare is an answer, not an error.  Limits hold for every backend, so that what works on a
laptop works on a cluster; larger changes are split by whoever makes them.

*Ambiguity.*  ``StoreUnavailableError``, or a cancelled call, means that the transaction may
have happened.  Repeat only what compares versions, and only after reading again.

*Leases.*  A key put under a lease is deleted when the lease ends: revoked, or not kept alive
for its time.  A lease says nothing about a paused process, which may believe in it long after
it ended; that is why writers compare epochs.

*Watches.*  A watch yields what changed after a revision, in order of revision.  It may
coalesce: intermediate states may be left out, the last one never.  A watch of everything reaches
every revision that a snapshot or a transaction told of; a change without keys may say just that.
When changes were dropped that it would have to yield, it raises ``CompactedError`` once and its
owner lists again.
"""

import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final, NamedTuple, NewType, Protocol, runtime_checkable

from waystation.model.errors import TransactionTooLargeError

LeaseId = NewType("LeaseId", int)

ABSENT = 0
OPERATIONS_MAX = 100
BYTES_MAX = 900_000
KEY_CHARACTERS_MAX = 512

_SEGMENT = r"(?!\.{1,2}(?:/|\Z))[A-Za-z0-9._~-]+"
_KEY = re.compile(rf"{_SEGMENT}(?:/{_SEGMENT})*")
NO_LEASES: Final[dict[str, LeaseId]] = {}
"""What a transaction binds unless it is told; never changed."""


class Versioned(NamedTuple):
    """A value and the version that its write gave the key."""

    value: bytes
    version: int


class Snapshot(NamedTuple):
    """All items under a prefix, as they were at one revision, sorted by key."""

    items: dict[str, Versioned]
    revision: int


class TxnResult(NamedTuple):
    """Whether the transaction happened, and the revision it made, or that refused it.

    ``versions`` holds what the puts gave their keys: the next compare needs no read.
    """

    succeeded: bool
    revision: int
    versions: dict[str, int]


class Change(NamedTuple):
    """What became of some keys up to ``revision``: their last state, or their absence."""

    revision: int
    puts: dict[str, Versioned]
    deletes: tuple[str, ...]


class Lease(Protocol):
    """The right to keys that vanish with their owner."""

    @property
    def id(self) -> LeaseId:
        """What a transaction binds puts to."""
        ...

    async def keep_alive(self) -> None:
        """Let the lease's time start anew; ``LeaseExpiredError`` if it ended before."""
        ...

    async def revoke(self) -> None:
        """End the lease and delete its keys now; ending an ended lease is no error."""
        ...


@runtime_checkable
class DetachableLease(Lease, Protocol):
    """A lease that another thread's loop can renew while its own is busy."""

    def detached(self) -> AbstractAsyncContextManager[Callable[[], Awaitable[None]]]:
        """``keep_alive``, for the loop that enters this."""
        ...


class Watch(Protocol):
    """An endless iteration over changes, until it or the store is closed."""

    def __aiter__(self) -> "Watch": ...

    async def __anext__(self) -> Change: ...

    def close(self) -> None:
        """Stop; whoever waits for the next change sees the iteration end."""
        ...


class CoordinationStore(Protocol):
    """The port; the module's docstring says what it promises."""

    async def get(self, prefix: str) -> Snapshot:
        """Everything under ``prefix``, at the newest revision."""
        ...

    async def txn(
        self,
        compares: Mapping[str, int],
        puts: Mapping[str, bytes],
        deletes: Collection[str] = (),
        *,
        leases: Mapping[str, LeaseId] = NO_LEASES,
    ) -> TxnResult:
        """If every key has the version it is compared with, do all of ``puts`` and ``deletes``.

        ``leases`` binds some of the puts; a put without one makes the key permanent.
        Deleting an absent key is no change.  ``LeaseExpiredError``: nothing happened.
        """
        ...

    async def lease(self, ttl_ms: int) -> Lease:
        """A new lease that ends ``ttl_ms`` after its last keep-alive."""
        ...

    def watch(self, prefix: str, from_revision: int) -> Watch:
        """Changes under ``prefix`` after ``from_revision``, as a snapshot gave it."""
        ...

    async def close(self) -> None:
        """Let go of the store; watches end."""
        ...


def check_txn(
    compares: Mapping[str, int],
    puts: Mapping[str, bytes],
    deletes: Collection[str],
    leases: Mapping[str, LeaseId],
) -> None:
    """Refuse what some backend could not do; every backend calls this first."""
    for key in (*compares, *puts, *deletes):
        check_key(key)
    twice = [key for key in deletes if key in puts]
    assert not twice, f"both put and deleted: {twice}"
    assert leases.keys() <= puts.keys(), f"leases bind {leases.keys() - puts.keys()}, not put"
    operations = max(len(compares), len(puts) + len(deletes))
    if operations > OPERATIONS_MAX:
        raise TransactionTooLargeError(f"{operations} operations, at most {OPERATIONS_MAX} may be")
    nbytes = sum(len(key) + len(value) for key, value in puts.items())
    if nbytes > BYTES_MAX:
        raise TransactionTooLargeError(f"{nbytes} bytes to put, at most {BYTES_MAX} may be")


def check_key(key: str) -> None:
    """Assert that every backend can hold ``key``: keys are made by us, never by clients."""
    assert len(key) <= KEY_CHARACTERS_MAX, f"a key of {len(key)} characters: {key[:80]}..."
    assert _KEY.fullmatch(key), f"not a key: {key!r}"


def check_prefix(prefix: str) -> None:
    """Assert that ``prefix`` is one that ``get`` and ``watch`` take."""
    if prefix:
        check_key(prefix.removesuffix("/"))


def under(prefix: str, key: str) -> bool:
    """Whether ``prefix`` means ``key``."""
    return key.startswith(prefix) if prefix.endswith("/") or not prefix else key == prefix
