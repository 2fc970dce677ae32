"""Delta tables, through deltalake: no jar, and any Delta reader understands them.

A batch is one entry of the Delta log.  It carries two application transactions: one named
after the sink, one after sink and query.  The log refuses an entry whose transaction somebody
else moved meanwhile, which makes looking and committing one step.
"""

import json
import posixpath
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.schema import Schema
from deltalake.transaction import AddAction
from pyspark.sql.types import StructType

from waystation.spark.table_errors import TableError
from waystation.spark.table_files import WrittenFile
from waystation.spark.table_kinds import BatchKey, Piece
from waystation.spark.table_location import Location
from waystation.spark.table_parts import read_parquet
from waystation.spark.table_ranges import OFFSETS, CommittedRanges, Ranges, from_json, to_json
from waystation.spark.table_schema import nullable

__all__ = [
    "FOLDER",
    "HIDDEN",
    "KEEPS_PARTITION_COLUMNS",
    "create",
    "is_here",
    "open_table",
    "read_piece",
]

FOLDER: Final = ""
HIDDEN: Final = False
KEEPS_PARTITION_COLUMNS: Final = False

SINK: Final = "waystation.sink"
BATCH: Final = "waystation.batch"
FILES: Final = "waystation.files"

# Features that a reader of whole Parquet files need not know about.
_HARMLESS: Final = {"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"}
# Features of writers that adding whole files keeps by itself.
_KEPT: Final = {
    *_HARMLESS,
    "appendOnly",
    "changeDataFeed",
    "checkConstraints",
    "columnMapping",
    "deletionVectors",
    "generatedColumns",
    "invariants",
}
# Of these the table itself says whether it has any.
_RULES: Final = {"delta.generationExpression", "delta.identity.start", "delta.invariants"}

_LATELY: Final = 50


def is_here(location: Location) -> bool:
    """Whether there is a Delta log."""
    if location.local:
        return any(location.folder.glob("_delta_log/[0-9]*"))
    return bool(DeltaTable.is_deltatable(location.path, location.storage_options))


def open_table(location: Location, version: int | None = None) -> "_Delta":
    """The newest snapshot, or that of a version."""
    try:
        table = DeltaTable(location.path, version, location.storage_options)
    except TableNotFoundError:
        raise TableError(location.path, "there is no Delta table here") from None
    except (DeltaError, OSError, ValueError) as error:
        if version is None:
            raise TableError(location.path, f"cannot be opened: {error}") from None
        raise TableError(
            location.path, f"option version asks for {version}, which is not there: {error}"
        ) from None
    return _Delta(location, table)


def create(location: Location, schema: StructType, partition_by: tuple[str, ...]) -> None:
    """Make an empty table, unless someone just did."""
    try:
        columns = Schema.from_json(nullable(schema).json())
    except Exception as error:  # deltalake raises whatever its parser met
        raise TableError(
            location.path, f"Delta has no place for {schema.simpleString()}: {error}"
        ) from None
    try:
        DeltaTable.create(
            location.path,
            columns,
            mode="ignore",
            partition_by=list(partition_by),
            storage_options=location.storage_options,
        )
    except (DeltaError, OSError) as error:
        raise TableError(
            location.path, f"cannot be made: {error}. Check the path and who may write there"
        ) from None


def read_piece(location: Location, piece: Piece, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a piece, columns in the schema's order."""
    return read_parquet(location, piece, schema)


class _Delta:
    """One version of a Delta table."""

    def __init__(self, location: Location, table: DeltaTable) -> None:
        self._location, self._table = location, table
        self.version = int(table.version())
        self.schema = StructType.fromJson(json.loads(table.schema().to_json()))
        self.partition_by = tuple(table.metadata().partition_columns)

    def pieces(self) -> list[Piece]:
        self._check_features()
        added = pa.table(self._table.get_add_actions())
        names = ["path", "size_bytes", *(["partition"] if self.partition_by else [])]
        return [
            Piece(
                unquote(row["path"]),
                row["size_bytes"],
                0,
                row["size_bytes"],
                tuple((row.get("partition") or {}).items()),
            )
            for row in sorted(added.select(names).to_pylist(), key=lambda row: str(row["path"]))
        ]

    def check_appendable(self) -> None:
        protocol = self._table.protocol()
        about = self._table.metadata().configuration
        rules = set(protocol.writer_features or ()) - _KEPT
        rules |= {name for name in about if name.startswith("delta.constraints.")}
        if about.get("delta.columnMapping.mode", "none") != "none":
            rules.add("columnMapping")
        rules |= {rule for field in self.schema.fields for rule in _RULES & field.metadata.keys()}
        if rules:
            raise TableError(
                self._location.path,
                f"it has rules that waystation.table does not keep ({', '.join(sorted(rules))}). "
                "Write to another path",
            )

    def is_decided(self, key: BatchKey) -> bool:
        decided = self._table.transaction_version(_of_query(key))
        if decided is not None:
            return bool(decided >= key.batch)
        if self._table.transaction_version(key.sink) is not None:
            raise TableError(
                self._location.path,
                f"sink {key.sink} has written here from another checkpoint. Go on with that "
                "checkpoint, or choose another sinkId and start where recorded_ranges ends",
            )
        return False

    def append(self, files: Sequence[WrittenFile], key: BatchKey | None, ranges: Ranges) -> bool:
        told: dict[str, Any] = {OFFSETS: to_json(ranges)} if ranges else {}
        transactions = []
        if key is not None:
            told = {SINK: key.sink, BATCH: key.batch, FILES: len(files), **told}
            transactions = [
                Transaction(key.sink, key.batch),
                Transaction(_of_query(key), key.batch),
            ]
        try:
            self._table.create_write_transaction(
                [_added(file) for file in files],
                "append",
                self._table.schema(),
                list(self.partition_by),
                commit_properties=CommitProperties(
                    custom_metadata={"userMetadata": json.dumps(told)},
                    app_transactions=transactions,
                ),
            )
        except CommitFailedError as error:
            if key is not None and open_table(self._location).is_decided(key):
                return False
            raise TableError(self._location.path, f"commit refused: {error}") from None
        except (DeltaError, OSError) as error:
            raise TableError(self._location.path, f"cannot be written: {error}") from None
        self._settle()
        return True

    def files_of(self, key: BatchKey) -> list[str] | None:
        # The entry says how many files it added.  If fewer are left, someone rewrote the table,
        # and older versions may need files that this one does not show.
        for entry in self._table.history(_LATELY):
            told = _told(entry)
            if (told.get(SINK), told.get(BATCH)) == (key.sink, key.batch):
                found = [
                    path for path in self._paths() if posixpath.basename(path).startswith(key.stem)
                ]
                return found if len(found) == told.get(FILES) else None
        return None

    def history(self) -> list[CommittedRanges]:
        return [
            CommittedRanges(
                commit["version"],
                told.get(SINK),
                told.get(BATCH),
                commit.get("timestamp", 0),
                from_json(told[OFFSETS]),
            )
            for commit in reversed(self._table.history())
            if OFFSETS in (told := _told(commit))
        ]

    def needed_files(self) -> set[str]:
        # What the log took out again, older versions show until Delta's own vacuum runs.
        removed = self._table.vacuum(0, dry_run=True, enforce_retention_duration=False)
        return {*self._paths(), *map(unquote, removed)}

    def _paths(self) -> list[str]:
        shown = pa.table(self._table.get_add_actions())["path"].to_pylist()
        return [unquote(path) for path in shown]

    def _check_features(self) -> None:
        """Refuse what would be read wrongly."""
        protocol = self._table.protocol()
        features = set(protocol.reader_features or ()) - _HARMLESS
        mapping = self._table.metadata().configuration.get("delta.columnMapping.mode", "none")
        if mapping == "none":
            features.discard("columnMapping")
        elif protocol.min_reader_version == 2:
            features.add("columnMapping")
        if "deletionVectors" in features and not _any_rows(self._table.deletion_vectors()):
            features.discard("deletionVectors")
        if features:
            raise TableError(
                self._location.path,
                f"it uses {', '.join(sorted(features))}, which waystation.table cannot read. "
                "Rewrite it without (for deletion vectors: REORG TABLE ... APPLY (PURGE)), or "
                "read it with Delta's own jars",
            )

    def _settle(self) -> None:
        """Make the new entry of the log survive a power failure."""
        if self._location.local:
            newest = max(self._location.folder.glob("_delta_log/*.json"))
            self._location.settle(f"_delta_log/{newest.name}")


def _of_query(key: BatchKey) -> str:
    return f"{key.sink}/{key.query}"


def _added(file: WrittenFile) -> AddAction:
    return AddAction(
        path=file.path,
        size=file.size_bytes,
        partition_values=dict(file.partition),
        modification_time=int(time.time() * 1000),
        data_change=True,
        stats=file.stats,
    )


def _told(commit: dict[str, Any]) -> dict[str, Any]:
    """What a commit of ours says about itself; commits of others may say anything."""
    try:
        told = json.loads(commit.get("userMetadata") or "{}")
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def _any_rows(batches: Any) -> bool:
    return any(batch.num_rows for batch in pa.RecordBatchReader.from_stream(batches))
