"""Avro values: one datum per record, without the container that Avro's files have.

``confluent-avro`` is the same behind five bytes, a zero and the number of a schema in a
registry.  The number is not looked up: every value is read with the schema given, and one that
was written with another is a misfit.  Which of the two a topic holds must be said; guessing would
sooner or later read a zero as data.
"""

import io
import json
from collections.abc import Callable
from typing import Any, Final

import fastavro
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from waystation.pipelines.failures import JobError

__all__ = ["confluent_parser", "parser", "spark_type"]

_CONFLUENT_BYTES: Final = 5
_WIDEST_DECIMAL: Final = 38
_SCALARS: Final[dict[str, DataType]] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "bytes": BinaryType(),
    "fixed": BinaryType(),
    "string": StringType(),
    "enum": StringType(),
}
_LOGICAL: Final[dict[tuple[str, str], DataType]] = {
    ("int", "date"): DateType(),
    ("long", "timestamp-millis"): TimestampType(),
    ("long", "timestamp-micros"): TimestampType(),
    ("long", "local-timestamp-millis"): TimestampNTZType(),
    ("long", "local-timestamp-micros"): TimestampNTZType(),
}
# What fastavro raises, depending on where rubbish leads it.
_UNREADABLE: Final = (
    EOFError,
    LookupError,
    ValueError,
    ArithmeticError,
    TypeError,
    AssertionError,
    StopIteration,
)


def spark_type(definition: bytes) -> StructType:
    """The record as a struct."""
    found = _spark(_expanded(definition), "value")
    if not isinstance(found, StructType):
        raise JobError("schema: the Avro schema must be a record, so that its fields have names")
    return found


def parser(definition: bytes) -> Callable[[bytes], Any]:
    """Reads one datum, which must be the whole value."""
    schema = fastavro.parse_schema(_without_unknown_logic(json.loads(definition)))

    def parse(value: bytes) -> Any:
        stream = io.BytesIO(value)
        try:
            found = fastavro.schemaless_reader(stream, schema, None)
        except _UNREADABLE as error:
            raise ValueError(f"Avro: {type(error).__name__} {error}".rstrip()) from None
        left = len(value) - stream.tell()
        if left:
            raise ValueError(f"Avro: {left} bytes are left over")
        return found

    return parse


def confluent_parser(definition: bytes) -> Callable[[bytes], Any]:
    """Reads one datum behind the five bytes of Confluent's serializers."""
    plain = parser(definition)

    def parse(value: bytes) -> Any:
        if len(value) < _CONFLUENT_BYTES or value[0] != 0:
            raise ValueError("Avro: no Confluent header, which is a zero and four bytes")
        return plain(value[_CONFLUENT_BYTES:])

    return parse


def _expanded(definition: bytes) -> Any:
    """The schema with every named type where it is used; a name that is left is a loop."""
    try:
        return fastavro.schema.expand_schema(json.loads(definition))
    except (fastavro.schema.SchemaParseException, fastavro.schema.UnknownType) as error:
        raise JobError(f"schema: this is no Avro schema: {error}") from None
    except (ValueError, TypeError, KeyError) as error:
        raise JobError(f"schema: this is no Avro schema: {error!r}") from None


def _spark(schema: Any, path: str) -> DataType:
    if isinstance(schema, list):
        return _union(schema, path)
    kind = schema if isinstance(schema, str) else schema["type"]
    if isinstance(kind, list | dict):
        return _spark(kind, path)
    if kind == "record":
        return _record(schema, path)
    if kind == "array":
        return ArrayType(_spark(schema["items"], f"{path}[]"))
    if kind == "map":
        return MapType(StringType(), _spark(schema["values"], f"{path}{{}}"))
    if kind not in _SCALARS:
        what = "has no type in a table" if kind == "null" else "contains itself"
        raise JobError(f"schema, at {path}: {kind} {what}")
    logical = "" if isinstance(schema, str) else schema.get("logicalType", "")
    if logical == "decimal" and kind in ("bytes", "fixed"):
        return _decimal(schema, path)
    return _LOGICAL.get((kind, logical), _SCALARS[kind])


def _record(schema: Any, path: str) -> DataType:
    fields = [
        StructField(field["name"], _spark(field["type"], f"{path}.{field['name']}"))
        for field in schema["fields"]
    ]
    if not fields:
        raise JobError(f"schema, at {path}: a record without fields has no type in a table")
    return StructType(fields)


def _union(branches: list[Any], path: str) -> DataType:
    """Something or null is all that a column can be."""
    kinds = [one for one in branches if one != "null"]
    if len(kinds) != 1:
        raise JobError(
            f"schema, at {path}: a column has one type, and this union has {len(kinds)}. "
            "Remedy: archive such values with --value-format binary"
        )
    return _spark(kinds[0], path)


def _decimal(schema: Any, path: str) -> DataType:
    if schema["precision"] > _WIDEST_DECIMAL:
        raise JobError(f"schema, at {path}: a decimal has at most {_WIDEST_DECIMAL} digits")
    return DecimalType(schema["precision"], schema.get("scale", 0))


def _without_unknown_logic(schema: Any) -> Any:
    """Leave out logical types that have no column of their own: times of day, UUIDs."""
    if isinstance(schema, list):
        return [_without_unknown_logic(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {
        name: _without_unknown_logic(value) if name in ("type", "items", "values") else value
        for name, value in schema.items()
    }
    if "fields" in kept:
        kept["fields"] = [_without_unknown_logic(field) for field in kept["fields"]]
    logical = kept.get("logicalType")
    if logical not in (None, "decimal") and (kept["type"], logical) not in _LOGICAL:
        del kept["logicalType"]
    return kept
