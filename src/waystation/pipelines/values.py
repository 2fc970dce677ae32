"""Typed values: a record's bytes become a column that can be asked questions.

A record fits when it can be read and nothing of it would be lost: a field that the schema does
not know, a byte left over, a number too large are misfits as much as plain rubbish.  What does
not fit keeps its bytes and is given a reason, so that it can be set aside; a record without a
value fits any schema.

This runs in Spark's Python workers, a batch of records at a time.  Where schemas come from is
in ``schemas.py``; each format has a file of its own that knows its types and reads one record.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import BinaryType, DataType, StringType, StructField, StructType

from waystation.pipelines import values_avro, values_json, values_protobuf

__all__ = [
    "QUARANTINE_REASON",
    "QUARANTINE_VALUE",
    "ValueSchema",
    "decode",
    "decode_batches",
    "spark_type",
    "with_typed_value",
]

VALUE: Final = "value"
QUARANTINE_REASON: Final = "quarantine_reason"
QUARANTINE_VALUE: Final = "quarantine_value"

Parser = Callable[[bytes], Any]


class ValueSchema(NamedTuple):
    """How values are read; ``definition`` is in the format's own words."""

    value_format: str
    definition: bytes = b""
    message: str = ""


class Decoded(NamedTuple):
    """Columns as long as the values were: what fits, and for the rest why not and the bytes."""

    values: pa.Array
    reasons: pa.Array
    misfits: pa.Array


def spark_type(schema: ValueSchema) -> DataType:
    """What Spark calls the type of such values."""
    match schema.value_format:
        case "binary":
            return BinaryType()
        case "text":
            return StringType()
        case "json":
            return values_json.spark_type(schema.definition)
        case "avro" | "confluent-avro":
            return values_avro.spark_type(schema.definition)
        case "protobuf":
            return values_protobuf.spark_type(schema.definition, schema.message)
    raise AssertionError(f"no such format: {schema.value_format}")


def with_typed_value(columns: StructType, schema: ValueSchema) -> StructType:
    """The columns that ``decode_batches`` makes of ``columns``."""
    kept = [
        StructField(VALUE, spark_type(schema)) if field.name == VALUE else field
        for field in columns.fields
    ]
    added = [
        StructField(QUARANTINE_REASON, StringType()),
        StructField(QUARANTINE_VALUE, BinaryType()),
    ]
    return StructType([*kept, *added])


def decode_batches(
    schema: ValueSchema, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Give every batch its typed value, and the two columns of those that do not fit."""
    for batch in batches:
        at = batch.schema.get_field_index(VALUE)
        decoded = decode(schema, batch.column(at))
        names = [*batch.schema.names, QUARANTINE_REASON, QUARANTINE_VALUE]
        columns = [*batch.columns, decoded.reasons, decoded.misfits]
        columns[at] = decoded.values
        yield pa.RecordBatch.from_arrays(columns, names=names)


def decode(schema: ValueSchema, values: pa.Array) -> Decoded:
    """Read each of ``values``, which are bytes or null."""
    if schema.value_format == "text" and (whole := _all_text(values)) is not None:
        return Decoded(whole, _nulls(whole, pa.string()), _nulls(whole, pa.binary()))
    parse, arrow_type = _compiled(schema)
    given: list[bytes | None] = values.to_pylist()
    rows: list[Any] = [None] * len(given)
    reasons: list[str | None] = [None] * len(given)
    for at, value in enumerate(given):
        if value is None:
            continue
        try:
            rows[at] = parse(value)
        except ValueError as error:
            reasons[at] = str(error)
    typed = _array(rows, reasons, arrow_type)
    misfits = [None if why is None else value for value, why in zip(given, reasons, strict=True)]
    return Decoded(typed, pa.array(reasons, pa.string()), pa.array(misfits, pa.binary()))


def _array(rows: list[Any], reasons: list[str | None], arrow_type: pa.DataType) -> pa.Array:
    """The rows as one column; a row that Arrow cannot hold becomes null and gets its reason."""
    try:
        return pa.array(rows, arrow_type)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        pass  # one of them, or several: look at each
    for at, row in enumerate(rows):
        try:
            pa.array([row], arrow_type)
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            rows[at], reasons[at] = None, str(error)
    return pa.array(rows, arrow_type)


def _all_text(values: pa.Array) -> pa.Array | None:
    """All values at once, if all are text; that is how it is nearly always."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return None


def _nulls(like: pa.Array, arrow_type: pa.DataType) -> pa.Array:
    return pa.nulls(len(like), arrow_type)


@lru_cache(maxsize=8)
def _compiled(schema: ValueSchema) -> tuple[Parser, pa.DataType]:
    """Once per schema and worker: building a parser takes far longer than using it."""
    return _parser(schema), to_arrow_type(spark_type(schema), timezone="UTC")


def _parser(schema: ValueSchema) -> Parser:
    match schema.value_format:
        case "text":
            return bytes.decode
        case "json":
            return values_json.parser(schema.definition)
        case "avro":
            return values_avro.parser(schema.definition)
        case "confluent-avro":
            return values_avro.confluent_parser(schema.definition)
        case "protobuf":
            return values_protobuf.parser(schema.definition, schema.message)
    raise AssertionError(f"values of format {schema.value_format} are not parsed")
