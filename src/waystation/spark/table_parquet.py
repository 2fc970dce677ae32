"""Plain Parquet folders with a log of commits beside them, in ``_waystation``.

``_waystation/table.json`` holds the columns, ``_waystation/<version>.json`` one commit: its
files, its sink and batch, and the newest batch of every sink.  An entry is linked into place
under its number, which only one of several writers can do.  Every hundredth commit is followed by
``_waystation/<version>.files.json``, the files of all commits so far, which readers begin with.

Tasks write files whose names begin with an underscore.  The entry makes them part of the table;
after it they are renamed, so that ``spark.read.parquet`` sees them too: file by file, since a
file system renames no more at once.  Whoever opens the table for writing finishes the renames
of a driver that died, before anything is added.
"""

import json
import os
import posixpath
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.types import DataType, StructType

from waystation.spark.table_errors import TableError
from waystation.spark.table_files import WrittenFile
from waystation.spark.table_kinds import BatchKey, Piece
from waystation.spark.table_location import Location
from waystation.spark.table_parts import read_parquet
from waystation.spark.table_ranges import CommittedRanges, Ranges, from_json, to_json
from waystation.spark.table_schema import arrow_schema, nullable

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
HIDDEN: Final = True
KEEPS_PARTITION_COLUMNS: Final = False

LOG: Final = "_waystation"
_LATELY: Final = 50
_SUMMED_UP_EVERY: Final = 100


def is_here(location: Location) -> bool:
    """Whether there is a log of ours."""
    return location.local and (location.folder / LOG / "table.json").is_file()


def open_table(location: Location, version: int | None = None) -> "_Parquet":
    """The newest snapshot, or that of a version; the version of an empty table is 0."""
    if not is_here(location):
        raise TableError(
            location.path,
            "there is no Parquet table of Waystation here. Format parquet works in folders only: "
            "in an object store use format delta",
        )
    newest = _newest(location.folder)
    if version is not None and version > newest:
        raise TableError(
            location.path, f"option version asks for {version}, and the newest is {newest}"
        )
    return _Parquet(location, newest if version is None else version)


def create(location: Location, schema: StructType, partition_by: tuple[str, ...]) -> None:
    """Make an empty table, unless someone just did."""
    if not location.local:
        raise TableError(
            location.path, "format parquet works in folders only: use format delta in a store"
        )
    log = location.folder / LOG
    log.mkdir(parents=True, exist_ok=True)
    columns = json.loads(nullable(schema).json())
    table = {"format": 1, "schema": columns, "partitionBy": list(partition_by)}
    _write_once(log / "table.json", table)


def read_piece(location: Location, piece: Piece, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a piece, columns in the schema's order."""
    return read_parquet(location, piece, schema)


class _Parquet:
    """The entries of the log up to one version."""

    def __init__(self, location: Location, version: int) -> None:
        self._location, self.version = location, version
        self._log = location.folder / LOG
        about = json.loads((self._log / "table.json").read_text())
        if about.get("format") != 1:
            raise TableError(
                location.path,
                f"its log has format {about.get('format')}, and this Waystation knows 1: upgrade",
            )
        self.schema = StructType.fromJson(about["schema"])
        self.partition_by = tuple(about["partitionBy"])

    def pieces(self) -> list[Piece]:
        types = {field.name: field.dataType for field in self.schema.fields}
        return [
            Piece(
                file["path"],
                file["bytes"],
                0,
                file["bytes"],
                tuple((name, _value(text, types[name])) for name, text in file["partition"]),
                _hidden(file["path"]) if version == self.version else None,
            )
            for version, file in self._files()
        ]

    def check_appendable(self) -> None:
        """Nobody else makes such tables."""

    def is_decided(self, key: BatchKey) -> bool:
        known = self._sinks().get(key.sink)
        if known is None:
            return False
        query, batch = known
        if query != key.query:
            raise TableError(
                self._location.path,
                f"sink {key.sink} has written here from another checkpoint. Go on with that "
                "checkpoint, or choose another sinkId and start where recorded_ranges ends",
            )
        return bool(batch >= key.batch)

    def append(self, files: Sequence[WrittenFile], key: BatchKey | None, ranges: Ranges) -> bool:
        self._show()
        at = self.version + 1
        while not self._decide(at, files, key, ranges):
            newest = _Parquet(self._location, _newest(self._location.folder))
            if key is not None and newest.is_decided(key):
                return False
            newest._show()
            at = newest.version + 1
        committed = _Parquet(self._location, at)
        committed._show()
        if at % _SUMMED_UP_EVERY == 0:
            committed._sum_up()
        return True

    def files_of(self, key: BatchKey) -> list[str] | None:
        for version in range(self.version, max(self.version - _LATELY, 0), -1):
            entry = self._entry(version)
            if (entry["sink"], entry["batch"]) == (key.sink, key.batch):
                return [_hidden(file["path"]) for file in entry["files"]]
        return None

    def history(self) -> list[CommittedRanges]:
        return [
            CommittedRanges(
                version, entry["sink"], entry["batch"], entry["at_ms"], from_json(entry["offsets"])
            )
            for version, entry in self._entries()
            if entry["offsets"]
        ]

    def needed_files(self) -> set[str]:
        shown = {file["path"] for _, file in self._files()}
        if self.version:
            shown |= {_hidden(file["path"]) for file in self._entry(self.version)["files"]}
        return shown

    def _decide(
        self, version: int, files: Sequence[WrittenFile], key: BatchKey | None, ranges: Ranges
    ) -> bool:
        """Write the entry of this version; false if someone else did."""
        before = _Parquet(self._location, version - 1)
        sinks = before._sinks() | ({key.sink: [key.query, key.batch]} if key else {})
        entry = {
            "sink": key.sink if key else None,
            "batch": key.batch if key else None,
            "at_ms": int(time.time() * 1000),
            "sinks": sinks,
            "offsets": to_json(ranges),
            "files": [
                {
                    "path": _shown(file.path),
                    "bytes": file.size_bytes,
                    "rows": file.rows,
                    "partition": file.partition,
                }
                for file in files
            ],
        }
        return _write_once(_place(self._log, version), entry)

    def _show(self) -> None:
        """Give the files of the newest entry their lasting names."""
        if not self.version:
            return
        root = self._location.folder
        shown = [file["path"] for file in self._entry(self.version)["files"]]
        for path in shown:
            hidden = root / _hidden(path)
            try:
                hidden.rename(root / path)
            except FileNotFoundError:
                continue  # it has its name already, or another driver is faster
        self._location.settle(*(path for path in shown if (root / path).exists()))

    def _sum_up(self) -> None:
        """Spare readers the entries before this one; its files have their lasting names."""
        files = [file for _, file in self._files()]
        _write_once(_summary(self._log, self.version), {"files": files})

    def _files(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Every file with the version that brought it, or 0 if that is long ago."""
        begin = self.version - self.version % _SUMMED_UP_EVERY
        while begin and not _summary(self._log, begin).exists():
            begin -= _SUMMED_UP_EVERY
        if begin:
            for file in json.loads(_summary(self._log, begin).read_text())["files"]:
                yield 0, file
        for version in range(begin + 1, self.version + 1):
            for file in self._entry(version)["files"]:
                yield version, file

    def _sinks(self) -> dict[str, list[Any]]:
        return dict(self._entry(self.version)["sinks"]) if self.version else {}

    def _entries(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for version in range(1, self.version + 1):
            yield version, self._entry(version)

    def _entry(self, version: int) -> dict[str, Any]:
        try:
            entry = json.loads(_place(self._log, version).read_text())
        except (OSError, ValueError) as error:
            raise TableError(
                self._location.path, f"entry {version} of its log cannot be read: {error}"
            ) from None
        assert isinstance(entry, dict), f"entry {version} of {self._log} is {entry!r}"
        return entry


def _newest(root: Path) -> int:
    names = (path.stem for path in (root / LOG).glob("*.json"))
    return max((int(name) for name in names if name.isdigit()), default=0)


def _place(log: Path, version: int) -> Path:
    return log / f"{version:020d}.json"


def _summary(log: Path, version: int) -> Path:
    return log / f"{version:020d}.files.json"


def _shown(path: str) -> str:
    folder, name = posixpath.split(path)
    return posixpath.join(folder, name.removeprefix("_"))


def _hidden(path: str) -> str:
    folder, name = posixpath.split(path)
    return posixpath.join(folder, f"_{name}")


def _value(text: str | None, kind: DataType) -> Any:
    """A partition value out of its text."""
    if text is None:
        return None
    arrow = arrow_schema(StructType().add("it", kind)).field(0).type
    return pa.scalar(text).cast(arrow).as_py()


def _write_once(place: Path, content: dict[str, Any]) -> bool:
    """Make a file that is whole and lasting, or is not there; false if it was there."""
    draft = place.with_name(f".{place.stem}-{uuid.uuid4().hex}")
    try:
        with draft.open("w") as file:
            json.dump(content, file)
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, place)
    except FileExistsError:
        return False
    finally:
        draft.unlink(missing_ok=True)
    handle = os.open(place.parent, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
    return True
