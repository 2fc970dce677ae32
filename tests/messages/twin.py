"""Our messages as kio's, so that two independent codecs can be compared byte for byte.

kio has one class per message and version, generated from Kafka's own schemas.  A twin is
made by walking our declaration beside kio's dataclass: where kio says a duration, a
moment or an error code, we hold the number on the wire.
"""

import io
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import import_module
from typing import Any, get_args, get_type_hints

from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from waystation.wire.message import Message, Struct
from waystation.wire.primitives import ZERO_UUID

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@cache
def twin_type(declared: type[Message], version: int) -> type[Any]:
    """The class that kio has for one version of our message."""
    role = "request" if declared.__name__.endswith("Request") else "response"
    assert declared.api is not None
    module = import_module(f"kio.schema.{declared.api.name.lower()}.v{version}.{role}")
    found: type[Any] = getattr(module, declared.__name__)
    return found


@cache
def twin_fields(theirs: type[Any]) -> dict[str, tuple[Any, type[Any] | None]]:
    """By the name we give a field: kio's description of it, and its class if it is a struct.

    kio drops the unit of what it makes a duration or a moment.
    """
    hints = get_type_hints(theirs)
    described = {}
    for found in fields(theirs):
        timed = str(found.metadata.get("kafka_type", "")).startswith(("timedelta", "datetime"))
        name = f"{found.name}_ms" if timed else found.name
        described[name] = (found, _struct_in(hints[found.name]))
    return described


def encoded_by_twin(message: Message, version: int) -> bytes:
    """What kio writes for the same values."""
    theirs = twin_type(type(message), version)
    buffer = io.BytesIO()
    entity_writer(theirs)(buffer, twin_of(message, theirs))
    return buffer.getvalue()


def twin_of(ours: Struct, theirs: type[Any]) -> Any:
    """The same values in kio's class."""
    values = {}
    for name, (found, nested) in twin_fields(theirs).items():
        value = _converted(getattr(ours, name), found, nested)
        # Our None in a tagged field says nothing; kio says nothing with a default struct.
        if value is not None or "tag" not in found.metadata:
            values[found.name] = value
    return theirs(**values)


def _converted(value: Any, found: Any, nested: type[Any] | None) -> Any:
    if isinstance(value, list):
        return tuple(_converted(item, found, nested) for item in value)
    if value is None or value == ZERO_UUID:
        return None
    if nested is not None:
        return twin_of(value, nested)
    match found.metadata.get("kafka_type"):
        case "error_code":
            return ErrorCode(value)
        case "timedelta_i32" | "timedelta_i64":
            return timedelta(milliseconds=value)
        case "datetime_i64":
            return None if value == -1 else EPOCH + timedelta(milliseconds=value)
        case "records":
            return bytes(value)
    return value


def _struct_in(hint: Any) -> type[Any] | None:
    if is_dataclass(hint) and isinstance(hint, type):
        return hint
    return next((inner for arg in get_args(hint) if (inner := _struct_in(arg))), None)
