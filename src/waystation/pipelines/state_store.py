"""What jobs with a memory share: where it is kept, and how long it reaches back.

The memory of a stream is kept in RocksDB, on the executors' disks: what is remembered may be
larger than what fits into Java's heap.  It is part of the checkpoint, and goes on with it.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from waystation.pipelines.failures import JobError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["checked_duration", "state_in_rocksdb"]

_PREFIX: Final = "spark.sql.streaming.stateStore"
_SETTINGS: Final = {
    f"{_PREFIX}.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # Each batch saves what it changed, not all files anew.
    f"{_PREFIX}.rocksdb.changelogCheckpointing.enabled": "true",
}
_DURATION: Final = re.compile(r"(\d+ *(millisecond|second|minute|hour|day|week)s? *)+")


@contextmanager
def state_in_rocksdb(spark: "SparkSession") -> Iterator[None]:
    """Queries that are started inside keep their state in RocksDB; others of the session do not.

    A query takes the session's settings along when it starts.
    """
    before = {name: spark.conf.get(name, None) for name in _SETTINGS}
    for name, value in _SETTINGS.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, had in before.items():
            if had is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, had)


def checked_duration(option: str, text: str) -> str:
    """A duration as Spark writes it, such as ``1 hour 30 minutes``."""
    said = " ".join(text.lower().split())
    if not _DURATION.fullmatch(said) or not re.search("[1-9]", said):
        raise JobError(
            f"{option} is {text!r}, no duration: try '90 seconds', '10 minutes', '1 hour'"
        )
    return said
