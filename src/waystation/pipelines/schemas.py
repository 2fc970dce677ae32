"""Where the types of values come from: a file, or the first records.

A schema that was inferred is pinned, so that the same records have the same types after a
restart, whatever came to the topic meanwhile.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
)

from waystation.pipelines import values_protobuf
from waystation.pipelines.failures import JobError
from waystation.pipelines.values import ValueSchema, spark_type

__all__ = ["VALUE_FORMATS", "as_json_schema", "infer_batches", "infer_json", "read_schema"]

VALUE_FORMATS: Final = ("binary", "text", "json", "avro", "confluent-avro", "protobuf")
_WITHOUT_SCHEMA: Final = ("binary", "text")

_WIDEST_LONG: Final = 1 << 63
_LARGE_WHOLE: Final = DecimalType(38, 0)
# Where numbers of several kinds meet, the later of these holds them all.
_WIDENING: Final[tuple[DataType, ...]] = (LongType(), _LARGE_WHOLE, DoubleType())


def read_schema(
    value_format: str, path: str | Path | None, message: str | None = None
) -> ValueSchema | None:
    """The schema that the user gave, or needs not give; ``None`` if it has to be inferred."""
    if value_format not in VALUE_FORMATS:
        known = ", ".join(VALUE_FORMATS)
        raise JobError(f"--value-format {value_format!r} is not known; it is one of {known}")
    if message is not None and value_format != "protobuf":
        raise JobError(f"--message is for protobuf; --value-format is {value_format}")
    if path is None:
        return _without_file(value_format)
    if value_format in _WITHOUT_SCHEMA:
        raise JobError(f"--schema: values of --value-format {value_format} have none; leave it out")
    found = _from_file(value_format, Path(path), message)
    spark_type(found)  # refuses what no table can hold
    return found


def _without_file(value_format: str) -> ValueSchema | None:
    if value_format in _WITHOUT_SCHEMA:
        return ValueSchema(value_format)
    if value_format == "json":
        return None
    kind = "FILE.proto or a descriptor set" if value_format == "protobuf" else "FILE.avsc"
    raise JobError(f"--value-format {value_format} needs --schema {kind}")


def _from_file(value_format: str, path: Path, message: str | None) -> ValueSchema:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise JobError(f"--schema {path}: {error.strerror}") from None
    match value_format:
        case "json":
            return as_json_schema(_struct(content, path))
        case "protobuf":
            definition = _compiled(path) if path.suffix == ".proto" else content
            return ValueSchema(value_format, definition, _message(definition, path, message))
        case _:
            return ValueSchema(value_format, content)


def as_json_schema(struct: StructType) -> ValueSchema:
    """JSON objects with these fields."""
    return ValueSchema("json", struct.json().encode())


def _struct(content: bytes, path: Path) -> StructType:
    """A Spark schema: as JSON, or as the words of a CREATE TABLE."""
    text = content.decode("utf-8", "replace").strip()
    try:
        found = StructType.fromJson(json.loads(text)) if text.startswith("{") else _from_words(text)
    except (ValueError, KeyError, TypeError, PySparkException) as error:
        said = str(error).strip().partition("\n")[0]
        raise JobError(
            f"--schema {path} is no schema of Spark's: {said}. Give its JSON, or words such as: "
            "id BIGINT NOT NULL, name STRING, tags ARRAY<STRING>"
        ) from None
    if not isinstance(found, StructType) or not found.fields:
        raise JobError(f"--schema {path} must have fields: JSON values are objects")
    return found


def _from_words(text: str) -> DataType:
    return DataType.fromDDL(text)


# --- protobuf ---------------------------------------------------------------------------------


def _compiled(path: Path) -> bytes:
    """The descriptor set of a ``.proto`` file and of all that it imports from its folder."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "descriptors"
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{path.parent}"]
        command += ["--include_imports", f"--descriptor_set_out={out}", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            said = done.stderr.strip().replace("\n", "; ")
            raise JobError(f"--schema {path} does not compile: {said}")
        return out.read_bytes()


def _message(definition: bytes, path: Path, message: str | None) -> str:
    found = values_protobuf.messages(definition)
    if message is not None:
        return message
    if len(found) == 1:
        return found[0]
    raise JobError(
        f"--schema {path}: say which with --message; it has {', '.join(found) or 'none'}"
    )


# --- inference --------------------------------------------------------------------------------


def infer_json(values: Iterable[bytes | None]) -> StructType | None:
    """The fields of all the objects among ``values``; ``None`` if there is no object.

    Fields keep the order in which they were first seen.  Where two records disagree, the first
    has it: the other will be a misfit, and whoever looks at the quarantine decides.
    """
    merged: DataType | None = None
    for value in values:
        try:
            found = msgspec.json.decode(value) if value is not None else None
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict) and found:
            kind = _kind(found)
            merged = kind if merged is None else _merged(merged, kind)
    settled = None if merged is None else _settled(merged)
    assert settled is None or isinstance(settled, StructType), f"{settled} is no struct"
    return settled


def infer_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The schema of all values of a Spark task, as JSON in one row, or no row."""
    found = infer_json(value for batch in batches for value in batch.column(0).to_pylist())
    texts = [] if found is None else [found.json()]
    yield pa.RecordBatch.from_arrays([pa.array(texts, pa.string())], names=["schema"])


def _kind(value: Any) -> DataType:
    match value:
        case None:
            return NullType()
        case bool():
            return BooleanType()
        case int():
            return LongType() if -_WIDEST_LONG <= value < _WIDEST_LONG else _LARGE_WHOLE
        case float():
            return DoubleType()
        case str():
            return StringType()
        case list():
            element: DataType = NullType()
            for one in value:
                element = _merged(element, _kind(one))
            return ArrayType(element)
        case dict():
            return StructType([StructField(name, _kind(one)) for name, one in value.items()])
    raise AssertionError(f"JSON has no {type(value)}")


def _merged(first: DataType, second: DataType) -> DataType:
    """A type that holds both, or the first of them."""
    if isinstance(first, NullType):
        return second
    if isinstance(first, StructType) and isinstance(second, StructType):
        return _merged_fields(first, second)
    if isinstance(first, ArrayType) and isinstance(second, ArrayType):
        return ArrayType(_merged(first.elementType, second.elementType))
    if first in _WIDENING and second in _WIDENING:
        return max(first, second, key=_WIDENING.index)
    return first


def _merged_fields(first: StructType, second: StructType) -> StructType:
    fields = {field.name: field.dataType for field in first.fields}
    for field in second.fields:
        fields[field.name] = _merged(fields.get(field.name, NullType()), field.dataType)
    return StructType([StructField(name, kind) for name, kind in fields.items()])


def _settled(kind: DataType) -> DataType:
    """Where only nulls and empty things were seen, something that a table can hold."""
    if isinstance(kind, NullType):
        return StringType()
    if isinstance(kind, ArrayType):
        return ArrayType(_settled(kind.elementType))
    if isinstance(kind, StructType):
        if not kind.fields:
            return MapType(StringType(), StringType())
        return StructType([StructField(one.name, _settled(one.dataType)) for one in kind.fields])
    return kind
