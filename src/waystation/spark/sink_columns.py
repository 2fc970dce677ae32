"""The columns of a frame that becomes records of a topic.

Those of Spark's own Kafka sink.  What is wrong with a frame is said before a row is written: the
column, its type, and the cast that mends it.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
    TimestampType,
)

from waystation.model.settings import unknown_option
from waystation.spark.errors import BadOptionError

__all__ = ["check_columns"]


class _Kind(NamedTuple):
    """What a column may be; ``cast`` is what to write to make it so."""

    fits: Callable[[DataType], bool]
    wanted: str
    cast: str


def _is_payload(kind: DataType) -> bool:
    return isinstance(kind, BinaryType | StringType)


def _is_header_list(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields = kind.elementType.fields
    return [field.name for field in fields] == ["key", "value"] and (
        isinstance(fields[0].dataType, StringType) and isinstance(fields[1].dataType, BinaryType)
    )


_PAYLOAD: Final = "binary or string"
_HEADERS: Final = "array<struct<key:string,value:binary>>"
_KINDS: Final = {
    "value": _Kind(_is_payload, _PAYLOAD, "cast(value as string), or to_json(value)"),
    "key": _Kind(_is_payload, _PAYLOAD, "cast(key as string)"),
    "headers": _Kind(_is_header_list, _HEADERS, f"cast(headers as {_HEADERS})"),
    "topic": _Kind(lambda kind: isinstance(kind, StringType), "string", "cast(topic as string)"),
    "partition": _Kind(lambda kind: isinstance(kind, IntegerType), "int", "cast(partition as int)"),
    "timestamp": _Kind(
        lambda kind: isinstance(kind, TimestampType), "timestamp", "cast(timestamp as timestamp)"
    ),
}


def check_columns(schema: StructType, topic: str) -> None:
    """Refuse a frame that is not made of records; ``topic`` is the option, if it is given."""
    names = schema.fieldNames()
    for field in schema.fields:
        kind = _KINDS.get(field.name)
        if kind is None:
            raise BadOptionError(_unknown(field.name))
        if not kind.fits(field.dataType):
            raise BadOptionError(
                f"column {field.name} is {field.dataType.simpleString()}, must be {kind.wanted}: "
                f"write {kind.cast} AS {field.name}"
            )
    if doubled := [name for name in names if names.count(name) > 1]:
        raise BadOptionError(f"column {doubled[0]} stands twice in the frame: leave one away")
    if "value" not in names:
        raise BadOptionError(
            f"the frame has no column value, only {', '.join(names)}: make one, such as "
            "to_json(struct(*)) AS value"
        )
    if not topic and "topic" not in names:
        raise BadOptionError(
            "nobody says where the rows go: set option topic, or give the frame a column topic"
        )


def _unknown(name: str) -> str:
    problem = unknown_option(name, list(_KINDS)).replace("option", "column", 1)
    return (
        f"{problem} in the frame: a record is made of {', '.join(_KINDS)}; select those, or put "
        f"the others into the value, as to_json(struct(*)) AS value"
    )
