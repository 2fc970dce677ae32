"""An archive whose lake lies on a disk that is too small; run in a mount namespace of its own.

    python -m tests.pipelines.full_disk BOOTSTRAP TOPIC LAKE CHECKPOINT

``LAKE`` is a mount point.  Prints, as JSON, what the full disk was answered with, and how the
rows stand then and after there is room.
"""

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from waystation.pipelines.archive import archive
from waystation.pipelines.audit import audit
from waystation.pipelines.failures import JobFailedError
from waystation.pipelines.job import follow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(spark: "SparkSession", bootstrap: str, topic: str, lake: str, checkpoint: str) -> object:
    asked: dict[str, Any] = {
        "bootstrap": bootstrap,
        "topics": topic,
        "lake": lake,
        "checkpoint": checkpoint,
        "available_now": True,
        "source_options": {"maxOffsetsPerTrigger": 100},
    }
    said = None
    try:
        follow(archive(spark, **asked), json_output=True)
    except JobFailedError as error:
        said = str(error)
    when_full = audit(spark, bootstrap=bootstrap, topics=topic, lake=lake)
    rows_when_full = spark.read.format("waystation.table").load(lake).count()
    subprocess.run(["mount", "-o", "remount,size=64m", lake], check=True)
    follow(archive(spark, **asked), json_output=True)
    in_the_end = audit(spark, bootstrap=bootstrap, topics=topic, lake=lake, complete=True)
    return {
        "said": said,
        "rows": rows_when_full,
        "clean when full": when_full.clean,
        "clean in the end": in_the_end.clean,
    }


if __name__ == "__main__":
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    sys.stdout.write(f"outcome: {json.dumps(run(session, *sys.argv[1:]))}\n")
    session.stop()
