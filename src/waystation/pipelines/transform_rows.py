"""What a transformation reads and what it may give back.

SQL finds each topic under its own name, and all of them together as ``messages``; a function is
given the latter.  Back come rows with the sink's columns.  A column that says where a message
*was* (``offset``, ``timestampType``, and ``topic`` where the output is known) is left behind, so
that ``SELECT *`` is right; any other column that a message has not is refused.
"""

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import to_json
from pyspark.sql.types import ArrayType, MapType, StringType, StructField, StructType

from waystation.pipelines.failures import JobError
from waystation.spark.sink_columns import check_columns

__all__ = ["ALL", "Function", "as_rows", "by_function", "by_sql", "function_at"]

Function = Callable[[DataFrame], DataFrame]

ALL: Final = "messages"
_WHERE_IT_WAS: Final = ("offset", "timestampType")
_TEXTS: Final = ("key", "value")
_NESTED: Final = (StructType, MapType, ArrayType)
# Times as they are, whatever the session's zone, to the microsecond.
_AS_JSON: Final = {"timeZone": "UTC", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]XXX"}


# --- SQL --------------------------------------------------------------------------------------


def by_sql(spark: SparkSession, sql: str, messages: DataFrame, topics: Sequence[str]) -> DataFrame:
    """What ``sql`` makes of the messages of ``topics``."""
    with _views(spark, _named(messages, topics)):
        found = spark.sql(sql)
    return _going_on(found, f"--sql {sql!r}: it reads no topic: select from {ALL}")


def _named(messages: DataFrame, topics: Sequence[str]) -> dict[str, DataFrame]:
    if len(topics) == 1:
        return {topics[0]: messages, ALL: messages}
    each = {topic: messages.where(messages["topic"] == topic) for topic in topics}
    return {**each, ALL: messages}


@contextmanager
def _views(spark: SparkSession, frames: Mapping[str, DataFrame]) -> Iterator[None]:
    """Names that SQL may use; afterwards the session has what it had under them before."""
    taken = {table.name for table in spark.catalog.listTables() if table.isTemporary}
    before = {name: spark.table(_quoted(name)) for name in frames if name.lower() in taken}
    for name, frame in frames.items():
        frame.createOrReplaceTempView(_quoted(name))
    try:
        yield
    finally:
        for name in frames:
            spark.catalog.dropTempView(name)
        for name, frame in before.items():
            frame.createOrReplaceTempView(_quoted(name))


def _quoted(name: str) -> str:
    """A topic's name has dots and dashes, which mean something else in SQL."""
    return f"`{name}`"


# --- functions --------------------------------------------------------------------------------


def function_at(place: str) -> Function:
    """The function ``name`` of ``package.module:name`` or ``path/to/file.py:name``."""
    where, colon, name = place.rpartition(":")
    if not colon or not where or not name:
        raise JobError(f"--function {place!r} must be package.module:name or path/to/file.py:name")
    module = _from_file(Path(where), place) if where.endswith(".py") else _imported(where, place)
    found: Function | None = getattr(module, name, None)
    if found is None or not callable(found):
        raise JobError(f"--function {place!r}: {where} has no function {name}")
    return found


def by_function(function: Function, messages: DataFrame) -> DataFrame:
    """What ``function`` makes of the messages."""
    name = getattr(function, "__name__", str(function))
    made: object = function(messages)
    otherwise = f"--function {name} must return a frame made of the one that it was given"
    return _going_on(made, otherwise)


def _imported(name: str, place: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise JobError(
            f"--function {place!r}: {error}. Remedy: install the package, on every node, or name "
            "its file: path/to/file.py:name"
        ) from None


def _from_file(path: Path, place: str) -> Any:
    if not path.is_file():
        raise JobError(f"--function {place!r}: there is no file {path}")
    name = f"waystation_function_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None, f"{path} ends in .py"
    assert spec.loader is not None, f"{path} is a file"
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    # Workers have no such module: functions of it that run there travel whole.
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]  # not ours
    return module


def _going_on(found: object, otherwise: str) -> DataFrame:
    if not isinstance(found, DataFrame) or not found.isStreaming:
        raise JobError(otherwise)
    return found


# --- what may be written ----------------------------------------------------------------------


def as_rows(frame: DataFrame, to: str | None) -> DataFrame:
    """The frame with the sink's columns and no others; nested keys and values as JSON."""
    left_behind = (*_WHERE_IT_WAS, *(() if to is None else ("topic",)))
    kept = [field for field in frame.schema.fields if field.name not in left_behind]
    written = [StructField(one.name, StringType()) if _becomes_json(one) else one for one in kept]
    check_columns(StructType(written), to or "")
    return frame.select(
        *(
            to_json(frame[one.name], _AS_JSON).alias(one.name)
            if _becomes_json(one)
            else frame[one.name]
            for one in kept
        )
    )


def _becomes_json(field: StructField) -> bool:
    return field.name in _TEXTS and isinstance(field.dataType, _NESTED)
