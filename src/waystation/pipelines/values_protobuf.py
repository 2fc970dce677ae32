"""Protobuf values: one message per record, of a type out of a descriptor set.

Almost any bytes are some message whose fields nobody knows.  Unknown fields are therefore misfits:
it is the only sign that a value is of another type, and what they hold would be lost.
"""

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from waystation.pipelines.failures import JobError

__all__ = ["messages", "parser", "spark_type"]

Reader = Callable[[Any], Any]

_TIMESTAMP: Final = "google.protobuf.Timestamp"
_F = FieldDescriptor
_SCALARS: Final[dict[int, DataType]] = {
    _F.TYPE_DOUBLE: DoubleType(),
    _F.TYPE_FLOAT: FloatType(),
    _F.TYPE_INT32: IntegerType(),
    _F.TYPE_SINT32: IntegerType(),
    _F.TYPE_SFIXED32: IntegerType(),
    _F.TYPE_UINT32: LongType(),
    _F.TYPE_FIXED32: LongType(),
    _F.TYPE_INT64: LongType(),
    _F.TYPE_SINT64: LongType(),
    _F.TYPE_SFIXED64: LongType(),
    # No whole number of Spark's holds all 64 bits without a sign.
    _F.TYPE_UINT64: DecimalType(20, 0),
    _F.TYPE_FIXED64: DecimalType(20, 0),
    _F.TYPE_BOOL: BooleanType(),
    _F.TYPE_STRING: StringType(),
    _F.TYPE_BYTES: BinaryType(),
    _F.TYPE_ENUM: StringType(),
}


def messages(definition: bytes) -> list[str]:
    """The message types that the last file of the set declares, outermost only."""
    files = _files(definition).file
    if not files:
        return []
    package = f"{files[-1].package}." if files[-1].package else ""
    return [f"{package}{one.name}" for one in files[-1].message_type]


def spark_type(definition: bytes, message: str) -> StructType:
    """The message as a struct."""
    return _struct(_descriptor(definition, message), ())


def parser(definition: bytes, message: str) -> Callable[[bytes], Any]:
    """Reads one message, all of whose fields must be known."""
    descriptor = _descriptor(definition, message)
    kind: Any = message_factory.GetMessageClass(descriptor)
    read = _message_reader(descriptor)

    def parse(value: bytes) -> Any:
        try:
            found: Message = kind.FromString(value)
        except DecodeError as error:
            raise ValueError(f"Protobuf: {error}") from None
        if not found.IsInitialized():
            raise ValueError(f"Protobuf: {message} lacks fields that are required")
        known_bytes = found.ByteSize()
        found.DiscardUnknownFields()
        if found.ByteSize() != known_bytes:
            raise ValueError(f"Protobuf: there are fields that {message} does not have")
        try:
            return read(found)
        except OverflowError as error:  # a time that no calendar has
            raise ValueError(f"Protobuf: {error}") from None

    return parse


def _files(definition: bytes) -> Any:
    files = descriptor_pb2.FileDescriptorSet()
    try:
        files.ParseFromString(definition)
    except DecodeError as error:
        raise JobError(f"schema: this is no Protobuf descriptor set: {error}") from None
    return files


def _descriptor(definition: bytes, message: str) -> Descriptor:
    pool = descriptor_pool.DescriptorPool()
    try:
        for one in _files(definition).file:
            pool.Add(one)
        return pool.FindMessageTypeByName(message)
    except (KeyError, TypeError) as error:
        raise JobError(f"schema: there is no message {message}: {error}") from None


# --- types ------------------------------------------------------------------------------------


def _struct(descriptor: Descriptor, inside: tuple[str, ...]) -> StructType:
    if descriptor.full_name in inside:
        raise JobError(f"schema: the message {descriptor.full_name} contains itself")
    inside = (*inside, descriptor.full_name)
    if not descriptor.fields:
        raise JobError(f"schema: the message {descriptor.full_name} has no fields")
    return StructType([StructField(one.name, _column(one, inside)) for one in descriptor.fields])


def _column(field: FieldDescriptor, inside: tuple[str, ...]) -> DataType:
    if _is_map(field):
        key, value = _entry(field)
        return MapType(_single(key, inside), _single(value, inside))
    single = _single(field, inside)
    return ArrayType(single) if _is_repeated(field) else single


def _single(field: FieldDescriptor, inside: tuple[str, ...]) -> DataType:
    if field.message_type is None:
        return _SCALARS[field.type]
    if field.message_type.full_name == _TIMESTAMP:
        return TimestampType()
    return _struct(field.message_type, inside)


def _is_repeated(field: FieldDescriptor) -> bool:
    """Newer releases have a property for it, and mean to drop the label."""
    if hasattr(field, "is_repeated"):
        return bool(field.is_repeated)
    return bool(field.label == FieldDescriptor.LABEL_REPEATED)


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _entry(field: FieldDescriptor) -> tuple[FieldDescriptor, FieldDescriptor]:
    entry = field.message_type.fields_by_name
    return entry["key"], entry["value"]


# --- values -----------------------------------------------------------------------------------


def _message_reader(descriptor: Descriptor) -> Reader:
    readers = [(field.name, _field_reader(field)) for field in descriptor.fields]
    return lambda message: {name: read(message) for name, read in readers}


def _field_reader(field: FieldDescriptor) -> Reader:
    """What a message holds in this field; null where it can tell that it holds nothing."""
    name = field.name
    if _is_map(field):
        key, value = (_single_reader(one) for one in _entry(field))
        return lambda message: [(key(k), value(v)) for k, v in getattr(message, name).items()]
    read = _single_reader(field)
    if _is_repeated(field):
        return lambda message: [read(one) for one in getattr(message, name)]
    if field.has_presence:
        return lambda message: read(getattr(message, name)) if message.HasField(name) else None
    return lambda message: read(getattr(message, name))


def _single_reader(field: FieldDescriptor) -> Reader:
    if field.message_type is not None:
        if field.message_type.full_name == _TIMESTAMP:
            return lambda stamp: stamp.ToDatetime(dt.UTC)
        return _message_reader(field.message_type)
    if field.type in (_F.TYPE_UINT64, _F.TYPE_FIXED64):
        return Decimal
    if field.type == _F.TYPE_ENUM:
        names = {number: one.name for number, one in field.enum_type.values_by_number.items()}
        # A number that this schema has no name for is kept as it is.
        return lambda number: names.get(number, str(number))
    return lambda value: value
