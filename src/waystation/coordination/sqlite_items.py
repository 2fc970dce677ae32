"""The items of a coordination store in one SQLite file; synchronous, for one thread.

1. A transaction that was answered is on disk: a write-ahead journal, synced at every commit.
2. A process that dies in the middle leaves all of a transaction or nothing.
3. The file belongs to one process at a time; a second one is refused, and a dead one's hold
   ends with it.  Its leases end too: opening deletes what they held.
4. A file whose items moved to another store keeps them, and says so to whoever opens it: no node
   starts on what others have gone on from.

Versions are the revision of the write, so they never repeat.  Time and watching are in
``sqlite.py``.
"""

import sqlite3
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from waystation.coordination.store import (
    ABSENT,
    Change,
    LeaseId,
    Snapshot,
    TxnResult,
    Versioned,
)
from waystation.model.errors import StoreInUseError, StoreUnavailableError, WaystationError

FORMAT = 1
MOVED = 2
"""The format of a file whose items are elsewhere now; versions that do not know it refuse it."""

_SCHEMA = """
CREATE TABLE items (
    key TEXT PRIMARY KEY, value BLOB NOT NULL, version INTEGER NOT NULL, lease INTEGER
);
CREATE INDEX leased ON items (lease) WHERE lease IS NOT NULL;
CREATE TABLE store (revision INTEGER NOT NULL);
INSERT INTO store VALUES (0);
"""
_PUT = """
INSERT INTO items (key, value, version, lease) VALUES (?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE SET
    value = excluded.value, version = excluded.version, lease = excluded.lease
"""


class StoreMovedError(WaystationError):
    """The file's items are in another store now."""

    def __init__(self, path: Path, store: str) -> None:
        self.path, self.store = path, store
        super().__init__(
            f"{path}: this node's metadata moved to {store}. Remedy: start it with --store {store}"
        )


class SqliteItems:
    """An open file; every method is one transaction."""

    def __init__(self, path: Path, *, even_if_moved: bool = False) -> None:
        """``even_if_moved`` is for whoever moves the items, not for who would use them."""
        self._path = path
        self._even_if_moved = even_if_moved
        with self._reporting():
            self._db = sqlite3.connect(path, isolation_level=None, timeout=0)
            try:
                self.revision = self._open()
            except BaseException:
                self._db.close()
                raise

    def close(self) -> None:
        """Let go of the file."""
        with self._reporting():
            self._db.close()

    def get(self, prefix: str) -> Snapshot:
        """Everything under ``prefix``, now."""
        where, bounds = _range_of(prefix)
        with self._reporting():
            rows = self._db.execute(
                f"SELECT key, value, version FROM items {where} ORDER BY key", bounds
            )
            return Snapshot({k: Versioned(v, version) for k, v, version in rows}, self.revision)

    def txn(
        self,
        compares: Mapping[str, int],
        puts: Mapping[str, bytes],
        deletes: Collection[str],
        leases: Mapping[str, LeaseId],
    ) -> tuple[TxnResult, Change | None]:
        """The answer, and what changed if anything did."""
        with self._transaction():
            if any(self._version_of(key) != version for key, version in compares.items()):
                return TxnResult(False, self.revision, {}), None
            present = tuple(key for key in deletes if self._version_of(key) != ABSENT)
            if not puts and not present:
                return TxnResult(True, self.revision, {}), None
            revision = self._next_revision()
            rows = ((key, value, revision, leases.get(key)) for key, value in puts.items())
            self._db.executemany(_PUT, rows)
            self._db.executemany("DELETE FROM items WHERE key = ?", ((key,) for key in present))
        self.revision = revision
        put = {key: Versioned(value, revision) for key, value in puts.items()}
        versions = dict.fromkeys(puts, revision)
        return TxnResult(True, revision, versions), Change(revision, put, present)

    def end_lease(self, lease: LeaseId) -> Change | None:
        """Delete what ``lease`` holds; what changed if it held anything."""
        with self._transaction():
            rows = self._db.execute("SELECT key FROM items WHERE lease = ? ORDER BY key", (lease,))
            held = tuple(key for (key,) in rows)
            if not held:
                return None
            revision = self._next_revision()
            self._db.execute("DELETE FROM items WHERE lease = ?", (lease,))
        self.revision = revision
        return Change(revision, {}, held)

    @property
    def moved_to(self) -> str | None:
        """Where the items are now, if not here."""
        with self._reporting():
            if self._format() != MOVED:
                return None
            (store,) = self._db.execute("SELECT store FROM moved").fetchone()
        return str(store)

    def mark_moved(self, store: str) -> None:
        """Let nobody use the items here any more; they stay, to be looked at."""
        with self._transaction():
            self._db.execute("CREATE TABLE moved (store TEXT NOT NULL)")
            self._db.execute("INSERT INTO moved VALUES (?)", (store,))
            self._db.execute(f"PRAGMA user_version = {MOVED}")

    def unmark_moved(self) -> None:
        """Let the items be used again: they did not arrive."""
        with self._transaction():
            self._db.execute("DROP TABLE moved")
            self._db.execute(f"PRAGMA user_version = {FORMAT}")

    def _open(self) -> int:
        # Exclusive before anything is read: no shared-memory file, and the lock is kept.
        self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        with self._transaction():
            self._prepare()
            (revision,) = self._db.execute("SELECT revision FROM store").fetchone()
            if self._db.execute("DELETE FROM items WHERE lease IS NOT NULL").rowcount:
                revision += 1
                self._db.execute("UPDATE store SET revision = ?", (revision,))
        return int(revision)

    def _prepare(self) -> None:
        """Make a new file ours; refuse one that another program or a newer version made."""
        found = self._format()
        (tables,) = self._db.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if found == 0 and tables == 0:
            for statement in _SCHEMA.split(";"):
                self._db.execute(statement)
            self._db.execute(f"PRAGMA user_version = {FORMAT}")
        elif found == MOVED and self._even_if_moved:
            pass
        elif found == MOVED:
            (store,) = self._db.execute("SELECT store FROM moved").fetchone()
            raise StoreMovedError(self._path, str(store))
        elif found != FORMAT:
            raise StoreUnavailableError(
                f"{self._path} has format {found}, this version reads {FORMAT}: it belongs to "
                "another program or to a newer Waystation"
            )

    def _format(self) -> int:
        return int(self._db.execute("PRAGMA user_version").fetchone()[0])

    def _version_of(self, key: str) -> int:
        row = self._db.execute("SELECT version FROM items WHERE key = ?", (key,)).fetchone()
        return int(row[0]) if row else ABSENT

    def _next_revision(self) -> int:
        """One more than the file has, which is ahead of us if a failed commit happened."""
        self._db.execute("UPDATE store SET revision = revision + 1")
        (revision,) = self._db.execute("SELECT revision FROM store").fetchone()
        return int(revision)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._reporting():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                # A commit that failed for want of disk leaves the transaction open.
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        """Say which file SQLite could not work with, and why."""
        try:
            yield
        except sqlite3.Error as problem:
            if getattr(problem, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY:
                raise StoreInUseError(
                    f"{self._path} is in use by another process: stop it, or give this node a "
                    "data directory of its own"
                ) from problem
            raise StoreUnavailableError(f"{self._path}: {problem}") from problem


def _range_of(prefix: str) -> tuple[str, tuple[str, ...]]:
    if not prefix:
        return "", ()
    if prefix.endswith("/"):
        return "WHERE key > ? AND key < ?", (prefix, prefix[:-1] + chr(ord("/") + 1))
    return "WHERE key = ?", (prefix,)
