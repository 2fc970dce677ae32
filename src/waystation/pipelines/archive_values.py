"""Which schema an archive's values have: given, pinned, or that of the first records."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from waystation.pipelines.checkpoint import Checkpoint
from waystation.pipelines.failures import JobError
from waystation.pipelines.job import source
from waystation.pipelines.schemas import as_json_schema, infer_batches, read_schema
from waystation.pipelines.values import ValueSchema

__all__ = ["value_schema"]

_PIN = "schema.json"
_SAMPLE_RECORDS = 1_000
_WHICH_TOPICS = ("subscribe", "subscribepattern", "assign")

Asked = tuple[str, "str | Path | StructType | None", str | None]
"""Value format, schema and message."""


def value_schema(
    spark: SparkSession,
    checkpoint: Checkpoint,
    read_from: Mapping[str, Any],
    options: Mapping[str, object],
    asked: Asked,
) -> ValueSchema:
    """What the user gave, else what is pinned, else what the first records have in common."""
    value_format, schema, message = asked
    if isinstance(schema, StructType):
        return as_json_schema(schema)
    given = read_schema(value_format, schema, message)
    if given is not None:
        return given
    pinned = checkpoint.read(_PIN)
    if pinned is None:
        pinned = _inferred(spark, read_from, options)
        checkpoint.write(_PIN, pinned)
    return as_json_schema(StructType.fromJson(pinned))


def _inferred(
    spark: SparkSession, read_from: Mapping[str, Any], options: Mapping[str, object]
) -> Any:
    """Found by a task, so that nothing comes to the driver but a schema."""
    kept = {
        name: value
        for name, value in options.items()
        if "." in name or name.lower() in _WHICH_TOPICS
    }
    frame = source(spark, read_from, stream=False, schema="value binary", **kept)
    sample = frame.where("value is not null").limit(_SAMPLE_RECORDS)
    found = sample.mapInArrow(infer_batches, "schema string").collect()
    if not found:
        raise JobError(
            "there is no JSON object among the first records, so that no schema can be inferred. "
            "Remedy: give one with --schema FILE, or start when there are records"
        )
    return json.loads(found[0]["schema"])
