"""JSON values: objects whose fields have the types of a Spark schema.

The schema is translated once into types that msgspec checks while it reads, so that a reason
names the place: ``Expected `int`, got `str` - at `$.amount```.  Nothing is converted that was
not meant: a number in quotes is no number, a field of another name is a misfit.
"""

import datetime as dt
import decimal
import json
from collections.abc import Callable
from typing import Annotated, Any, Final

import msgspec
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from waystation.pipelines.failures import JobError

__all__ = ["parser", "spark_type"]

_KEPT: Final = (bytes, dt.date, dt.datetime, decimal.Decimal)


def _whole(bits: int) -> Any:
    bound = 1 << (bits - 1)
    return Annotated[int, msgspec.Meta(ge=-bound, le=bound - 1)]


_SCALARS: Final[dict[type[DataType], Any]] = {
    StringType: str,
    BinaryType: bytes,
    BooleanType: bool,
    ByteType: _whole(8),
    ShortType: _whole(16),
    IntegerType: _whole(32),
    LongType: _whole(64),
    FloatType: float,
    DoubleType: float,
    DecimalType: decimal.Decimal,
    DateType: dt.date,
    TimestampType: dt.datetime,
    TimestampNTZType: Annotated[dt.datetime, msgspec.Meta(tz=False)],
}


def spark_type(definition: bytes) -> StructType:
    """The schema, in which everything may be null: a misfit's value is."""
    found = _nullable(_schema(definition))
    assert isinstance(found, StructType), f"{found} is no struct"
    return found


def parser(definition: bytes) -> Callable[[bytes], Any]:
    """Reads one value into dicts, lists and scalars."""
    decoder = msgspec.json.Decoder(_object(_schema(definition), "value"))

    def parse(value: bytes) -> Any:
        return msgspec.to_builtins(decoder.decode(value), builtin_types=_KEPT)

    return parse


def _schema(definition: bytes) -> StructType:
    return StructType.fromJson(json.loads(definition))


def _object(struct: StructType, path: str) -> type[msgspec.Struct]:
    """A type for such objects; its attributes are numbered, since a field may have any name."""
    fields: list[Any] = []
    names: dict[str, str] = {}
    # msgspec wants required fields first; the order of a dict's items does not matter to Arrow.
    for number, field in enumerate(sorted(struct.fields, key=lambda one: one.nullable)):
        attribute = f"f{number}"
        names[attribute] = field.name
        wanted = _wanted(field.dataType, f"{path}.{field.name}")
        fields.append((attribute, wanted | None, None) if field.nullable else (attribute, wanted))
    try:
        return msgspec.defstruct("Value", fields, rename=names, forbid_unknown_fields=True)
    except ValueError as error:
        raise JobError(f"schema, at {path}: {error}") from None


def _wanted(asked: DataType, path: str) -> Any:
    if isinstance(asked, StructType):
        return _object(asked, path)
    if isinstance(asked, ArrayType):
        element = _wanted(asked.elementType, f"{path}[]")
        return list[element | None] if asked.containsNull else list[element]  # type: ignore[valid-type]
    if isinstance(asked, MapType):
        value = _wanted(asked.valueType, f"{path}{{}}")
        if not isinstance(asked.keyType, StringType):
            raise JobError(f"schema, at {path}: the keys of a JSON object are strings")
        return dict[str, value | None] if asked.valueContainsNull else dict[str, value]  # type: ignore[valid-type]
    found = _SCALARS.get(type(asked))
    if found is None:
        raise JobError(
            f"schema, at {path}: JSON values cannot have the type {asked.simpleString()}"
        )
    return found


def _nullable(found: DataType) -> DataType:
    if isinstance(found, StructType):
        return StructType([StructField(one.name, _nullable(one.dataType)) for one in found.fields])
    if isinstance(found, ArrayType):
        return ArrayType(_nullable(found.elementType))
    if isinstance(found, MapType):
        return MapType(found.keyType, _nullable(found.valueType))
    return found
