"""How tasks share the files of a snapshot, and how one reads its share of a Parquet file.

A large file is cut by bytes: a row group belongs to the piece that its first byte lies in, so
that nobody has to open a file in order to cut it.  Small files travel together.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from waystation.spark.table_errors import TableError
from waystation.spark.table_kinds import Piece
from waystation.spark.table_location import Location
from waystation.spark.table_schema import conform

__all__ = ["FILE", "ROW", "cut", "read_parquet", "shares"]

# Columns that say where a row lies; given on request.
FILE: Final = "_file"
ROW: Final = "_row"

TASK_BYTES: Final = 128 << 20
_LEAST_BYTES: Final = 16 << 20
# What opening a file costs, in bytes that could be read meanwhile.
_OPENING_BYTES: Final = 4 << 20
_TASKS_AT_LEAST: Final = 16
_BATCH_BYTES: Final = 2 << 20
_BATCH_ROWS: Final = 1 << 16


def cut(piece: Piece, task_bytes: int = TASK_BYTES) -> Iterator[Piece]:
    """The piece in parts of at most ``task_bytes``."""
    for start in range(piece.start, max(piece.end, piece.start + 1), task_bytes):
        yield piece._replace(start=start, end=min(start + task_bytes, piece.end))


def shares(pieces: list[Piece], task_bytes: int = TASK_BYTES) -> list[list[Piece]]:
    """Pieces in their order, as many together as make a task worth its start."""
    weight = sum(piece.end - piece.start + _OPENING_BYTES for piece in pieces)
    enough = min(task_bytes, max(_LEAST_BYTES, weight // _TASKS_AT_LEAST))
    together: list[list[Piece]] = []
    room = 0
    for piece in pieces:
        if room <= 0:
            together.append([])
            room = enough
        together[-1].append(piece)
        room -= piece.end - piece.start + _OPENING_BYTES
    return together


def read_parquet(location: Location, piece: Piece, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Batches of one or two megabytes with exactly the schema's columns.

    Values of partition columns come from the log; columns that the file was written without
    are null.
    """
    with _opened(location, piece) as file:
        constant = {**dict(piece.partition), FILE: piece.path}
        stored = [
            name
            for name in schema.names
            if name not in constant and file.schema_arrow.get_field_index(name) >= 0
        ]
        row = 0
        for group in range(file.num_row_groups):
            about = file.metadata.row_group(group)
            if piece.start <= _first_byte(about) < piece.end:
                for batch in _group(file, group, stored):
                    yield _complete(batch, schema, constant, row)
                    row += batch.num_rows
            else:
                row += about.num_rows


def _opened(location: Location, piece: Piece) -> Any:
    try:
        source = _source(location, piece)
        return pq.ParquetFile(source, coerce_int96_timestamp_unit="us")
    except FileNotFoundError:
        raise TableError(
            location.path,
            f"its file {piece.path} is gone, by a vacuum since this snapshot was opened or by "
            "hand. Load the table again",
        ) from None
    except (OSError, pa.ArrowInvalid) as error:
        raise TableError(location.path, f"its file {piece.path} cannot be read: {error}") from None


def _source(location: Location, piece: Piece) -> Any:
    system = location.file_system()
    if piece.hidden_path is not None:
        # A commit renames its files after it counts: look at the old name, then the new one.
        with suppress(FileNotFoundError):
            return system.open_input_file(piece.hidden_path)
    if "://" in piece.path or piece.path.startswith(("/", "file:")):
        # A shallow clone names files of another table by their full path.
        folder, _, name = piece.path.rpartition("/")
        return Location.of(folder, location.storage).file_system().open_input_file(name)
    return system.open_input_file(piece.path)


def _first_byte(about: Any) -> int:
    column = about.column(0)
    dictionary = column.dictionary_page_offset
    return int(dictionary or column.data_page_offset)


def _group(file: Any, group: int, stored: list[str]) -> Iterator[pa.RecordBatch]:
    """One row group, in batches of bearable size."""
    about = file.metadata.row_group(group)
    if not stored:
        for start in range(0, about.num_rows, _BATCH_ROWS):
            count = min(_BATCH_ROWS, about.num_rows - start)
            yield pa.RecordBatch.from_arrays([pa.nulls(count)], names=[""])
        return
    row_bytes = max(about.total_byte_size // max(about.num_rows, 1), 1)
    rows = max(min(_BATCH_BYTES // row_bytes, _BATCH_ROWS), 1)
    yield from file.iter_batches(rows, row_groups=[group], columns=stored, use_threads=False)


def _complete(
    batch: pa.RecordBatch, schema: pa.Schema, constant: dict[str, Any], row: int
) -> pa.RecordBatch:
    for name, value in constant.items():
        at = schema.get_field_index(name)
        if at >= 0:
            scalar = pa.scalar(value, schema.field(at).type)
            batch = batch.append_column(name, pa.repeat(scalar, batch.num_rows))
    if schema.get_field_index(ROW) >= 0:
        rows = pa.array(range(row, row + batch.num_rows), pa.int64())
        batch = batch.append_column(ROW, rows)
    return conform(batch, schema)
