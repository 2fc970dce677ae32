"""Columns on their way between Spark, Arrow and a table.

A table's columns are nullable, whatever the frame promises: a column added later has no value
in the rows before it.  What a frame brings must have the names and types of the table.
"""

from typing import Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from waystation.spark.errors import BadOptionError
from waystation.spark.table_errors import TableError

__all__ = [
    "PLACE",
    "RAW",
    "REASON",
    "arrow_schema",
    "check_fit",
    "check_partition_columns",
    "conform",
    "has_places",
    "nullable",
    "pruned",
    "quarantined",
]

# Where a row lies in its topic; present in what was read from one.
PLACE: Final = ("topic", "partition", "offset")
# What a frame says of rows that do not fit: why, and the value as it came.
REASON: Final = "quarantine_reason"
RAW: Final = "quarantine_value"

_PLACE_TYPES: Final = (StringType, IntegerType, LongType)
_PARTITIONABLE: Final = (
    StringType,
    ByteType,
    ShortType,
    IntegerType,
    LongType,
    BooleanType,
    DateType,
    DecimalType,
    TimestampType,
)


def arrow_schema(schema: StructType) -> pa.Schema:
    """As Spark wants it from a Python source: plain types, timestamps in UTC."""
    return to_arrow_schema(schema, timezone="UTC")


def nullable(kind: DataType) -> Any:
    """The same type with every promise of a value taken back."""
    match kind:
        case StructType():
            return StructType(
                [StructField(f.name, nullable(f.dataType), True, f.metadata) for f in kind.fields]
            )
        case ArrayType():
            return ArrayType(nullable(kind.elementType), True)
        case MapType():
            return MapType(nullable(kind.keyType), nullable(kind.valueType), True)
        case _:
            return kind


def has_places(schema: StructType) -> bool:
    """Whether rows say which topic, partition and offset they are."""
    types = {field.name: field.dataType for field in schema.fields}
    return all(
        isinstance(types.get(name), kind) for name, kind in zip(PLACE, _PLACE_TYPES, strict=True)
    )


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch's columns in the schema's order and types; columns it lacks are null."""
    if batch.schema.equals(schema):
        return batch
    columns = [_column(batch, field) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    at = batch.schema.get_field_index(field.name)
    if at < 0:
        return pa.nulls(batch.num_rows, field.type)
    column = batch.column(at)
    return column if column.type.equals(field.type) else column.cast(field.type)


def check_fit(path: str, frame: StructType, table: StructType) -> None:
    """Refuse a frame with columns that the table lacks or holds as another type."""
    held = {field.name: nullable(field.dataType) for field in table.fields}
    for field in frame.fields:
        kind = nullable(field.dataType)
        if field.name not in held:
            raise TableError(
                path,
                f"it has no column {field.name} ({kind.simpleString()}), which the frame "
                f"brings; it has {', '.join(held)}. Drop the column, or write to another path",
            )
        if _bare(kind) != _bare(held[field.name]):
            raise TableError(
                path,
                f"column {field.name} is {held[field.name].simpleString()} there and "
                f"{kind.simpleString()} in the frame. Cast it, or write to another path",
            )


def _bare(kind: DataType) -> str:
    """The type's text without comments on its columns."""
    return kind.simpleString()


def check_partition_columns(names: tuple[str, ...], schema: StructType) -> None:
    """Refuse to partition by what is not there or has no text form."""
    types = {field.name: field.dataType for field in schema.fields}
    for name in names:
        if name not in types:
            raise BadOptionError(
                f"option partitionBy names {name}, which the frame does not have: it has "
                f"{', '.join(types)}"
            )
        if not isinstance(types[name], _PARTITIONABLE):
            raise BadOptionError(
                f"option partitionBy names {name}, a {types[name].simpleString()}: partition by "
                "text, numbers, dates or booleans"
            )
    if types and len(names) == len(types):
        raise BadOptionError("option partitionBy names every column: leave one for the files")


def pruned(path: str, wanted: StructType, table: StructType) -> None:
    """Refuse a schema that asks for columns or types that the table does not have."""
    held = {field.name: field.dataType for field in table.fields}
    for field in wanted.fields:
        if field.name not in held:
            raise TableError(path, f"it has no column {field.name}: it has {', '.join(held)}")
        kind, have = nullable(field.dataType), nullable(held[field.name])
        if _bare(kind) != _bare(have):
            raise TableError(
                path,
                f"column {field.name} is {have.simpleString()}, not {kind.simpleString()}: "
                "select it as it is and cast",
            )


def quarantined(schema: StructType) -> tuple[StructType, StructType]:
    """The columns of rows that fit, and of those that do not."""
    held = {field.name: field.dataType for field in schema.fields}
    for name, kind in ((REASON, StringType), (RAW, BinaryType)):
        if not isinstance(held.get(name), kind):
            raise BadOptionError(
                f"option quarantinePath needs a column {name} of type "
                f"{kind().simpleString()} in the frame: null in rows that fit"
            )
    fitting = [field for field in schema.fields if field.name not in (REASON, RAW)]
    others = [
        StructField("value", BinaryType()) if field.name == "value" else field for field in fitting
    ]
    if "value" not in held:
        others.append(StructField("value", BinaryType()))
    return StructType(fitting), StructType([*others, StructField("reason", StringType())])
