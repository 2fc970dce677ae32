"""What every kind of table can do, and how the kind at a place is found.

A table is a list of immutable files and a log of commits.  Three promises, whichever kind:

1. a commit shows all of its files at once, or none;
2. a batch of a sink is committed at most once, however often and by however many drivers
   it is tried, dead ones that are not dead included;
3. a snapshot, once opened, names the same files for as long as nobody vacuums them.

One file per kind: ``table_delta.py``, ``table_parquet.py``, ``table_iceberg.py``.
"""

import hashlib
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any, Final, NamedTuple, Protocol, cast

import pyarrow as pa
from pyspark.sql.types import StructType

from waystation.spark.table_errors import MissingPackageError, TableError
from waystation.spark.table_files import WrittenFile
from waystation.spark.table_location import Location
from waystation.spark.table_ranges import CommittedRanges, Ranges

__all__ = ["BatchKey", "Kind", "Piece", "Table", "existing_kind", "find_kind", "kind_called"]


class BatchKey(NamedTuple):
    """Which batch of which sink; ``query`` tells one checkpoint from another."""

    sink: str
    query: str
    batch: int

    @property
    def stem(self) -> str:
        """How the batch's files begin, so that its leftovers can be told from other files."""
        sink = hashlib.sha256(f"{self.sink}/{self.query}".encode()).hexdigest()[:8]
        return f"ws-{sink}-{self.batch:010d}"


class Piece(NamedTuple):
    """What a task reads of one file: the row groups that begin in ``[start, end)``."""

    path: str
    size_bytes: int
    start: int
    end: int
    partition: tuple[tuple[str, Any], ...] = ()
    # The name it may still have, if its commit was just made.
    hidden_path: str | None = None
    # Whatever else the kind needs to read it.
    extra: Any = None


class Table(Protocol):
    """One snapshot of one table."""

    version: int
    schema: StructType
    partition_by: tuple[str, ...]

    def pieces(self) -> list[Piece]:
        """The files of this snapshot."""

    def check_appendable(self) -> None:
        """Refuse a table whose rules for new rows we would not keep."""

    def is_decided(self, key: BatchKey) -> bool:
        """Whether the batch is committed; an error if the sink belongs to another checkpoint."""

    def append(self, files: Sequence[WrittenFile], key: BatchKey | None, ranges: Ranges) -> bool:
        """Commit the files; false if someone else committed this batch meanwhile."""

    def files_of(self, key: BatchKey) -> list[str] | None:
        """The files that the batch's commit named; nothing if that is no longer known."""

    def history(self) -> list[CommittedRanges]:
        """The commits that recorded where their rows come from, oldest first."""

    def needed_files(self) -> set[str]:
        """Every file that this or an older snapshot may still show."""


class Kind(Protocol):
    """One table format; its module."""

    # The folder below the root that tasks write to, whether their files are hidden until the
    # commit, and whether they repeat partition columns.
    FOLDER: str
    HIDDEN: bool
    KEEPS_PARTITION_COLUMNS: bool

    def is_here(self, location: Location) -> bool:
        """Whether there is a table of this kind."""

    def open_table(self, location: Location, version: int | None = None) -> Table:
        """The newest snapshot, or that of a version."""

    def create(self, location: Location, schema: StructType, partition_by: tuple[str, ...]) -> None:
        """Make an empty table, unless someone just did."""

    def read_piece(
        self, location: Location, piece: Piece, schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a piece, columns in the schema's order."""


_MODULES: Final = {
    "delta": ("waystation.spark.table_delta", "deltalake"),
    "parquet": ("waystation.spark.table_parquet", "pyarrow"),
    "iceberg": ("waystation.spark.table_iceberg", "pyiceberg"),
}

_SIGNS: Final = {
    "delta": "_delta_log/[0-9]*",
    "parquet": "_waystation/table.json",
    "iceberg": "metadata/*.metadata.json",
}


def kind_called(name: str) -> Kind:
    """The kind by its name; importing its library is left until it is needed."""
    module, package = _MODULES[name]
    try:
        return cast(Kind, import_module(module))
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith(package):
            raise
        raise MissingPackageError(name, package) from None


def find_kind(location: Location) -> str | None:
    """The kind of the table that lies there, found by what its folder holds."""
    if not location.local:
        # Tables of the other kinds are not found by path in a store.
        return "delta" if kind_called("delta").is_here(location) else None
    return next((kind for kind, sign in _SIGNS.items() if any(location.folder.glob(sign))), None)


def existing_kind(location: Location) -> str:
    """As ``find_kind``, but there must be one."""
    found = find_kind(location)
    if found is None:
        raise TableError(
            location.path,
            "there is no table here (no Delta log, no _waystation log, no Iceberg metadata). "
            "Check the path; a folder of plain Parquet files is read by spark.read.parquet",
        )
    return found
