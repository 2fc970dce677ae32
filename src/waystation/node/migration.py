"""Moves a single node's metadata from its SQLite file to a store that several nodes share.

1. The node must be stopped: its file is held for as long as this takes.
2. From the moment the other store may be used, the file may not: it is marked before, and says
   where its items went to whoever would start a node on it.  The items stay in it.
3. Killed at any point, it is done again with the same words, and ends the same.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from waystation.cluster.image import ClusterImage
from waystation.coordination.sqlite_items import SqliteItems, StoreMovedError
from waystation.coordination.store import CoordinationStore
from waystation.model.errors import WaystationError
from waystation.node.installing import StoreTakenError, install

STORE_FILE = "cluster.sqlite"


class NothingToMigrateError(WaystationError):
    """The directory is not that of a single node."""


class Migration(NamedTuple):
    """What moves, and how much that is; ``moved_to`` is set if it was done before."""

    items: dict[str, bytes]
    cluster_id: str
    topics: int
    partitions: int
    moved_to: str | None


@contextmanager
def opened(data_dir: Path) -> Iterator[SqliteItems]:
    """The stopped node's file."""
    path = data_dir / STORE_FILE
    if not path.is_file():
        raise NothingToMigrateError(
            f"{path} does not exist: --data-dir is the first data directory of a node that ran "
            "with --store sqlite"
        )
    items = SqliteItems(path, even_if_moved=True)
    try:
        yield items
    finally:
        items.close()


def planned(file: SqliteItems, data_dir: Path) -> Migration:
    """What the file holds."""
    snapshot = file.get("")
    image = ClusterImage.from_items(snapshot.items, snapshot.revision)
    if image.cluster_id is None:
        raise NothingToMigrateError(
            f"{data_dir} holds no cluster yet: start a new node with the other --store at once"
        )
    return Migration(
        {key: found.value for key, found in snapshot.items.items()},
        image.cluster_id,
        len(image.topics),
        sum(len(topic.partitions) for topic in image.topics.values()),
        file.moved_to,
    )


async def migrate(
    file: SqliteItems, path: Path, what: Migration, store: CoordinationStore, address: str
) -> bool:
    """Carry it out; false if nothing was left to do."""
    if what.moved_to not in (None, address):
        assert what.moved_to is not None
        raise StoreMovedError(path / STORE_FILE, what.moved_to)

    marked = False

    def mark() -> None:
        nonlocal marked
        if file.moved_to is None:
            file.mark_moved(address)
            marked = True

    try:
        return await install(store, what.items, before_last=mark)
    except StoreTakenError:
        if marked:
            file.unmark_moved()  # somebody else was first, so everything is still here
        raise


__all__ = ["Migration", "NothingToMigrateError", "migrate", "opened", "planned"]
