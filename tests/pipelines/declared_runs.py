"""Runs the Declarative Pipelines project in its folder, once per line of its input.

As ``spark-pipelines run`` does, but for the Java machine, which all runs share: each has a session,
a catalog and a server of its own, and starting Java takes longer than all of that.
"""

import os
import sys
from pathlib import Path

from pyspark.pipelines.cli import find_pipeline_spec, run


def main() -> None:
    spec = find_pipeline_spec(Path.cwd())
    for _ in sys.stdin:
        os.environ["SPARK_REMOTE"] = "local[2]"  # forgotten when a session stops
        run(spec, full_refresh=[], full_refresh_all=False, refresh=[], dry=False)
        print("it ran", flush=True)  # noqa: T201 - it is a program


if __name__ == "__main__":
    main()
