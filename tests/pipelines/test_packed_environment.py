"""An environment that is packed and sent along is all that a cluster's executors need of ours."""

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.packaging.test_wheel import wheel
from tests.pipelines.committed import committed
from tests.spark.topics import create, fill
from tests.support.soak import SOAKING
from tests.support.spark_cluster import SPARK_HOME, SparkCluster
from waystation.pipelines import transform

__all__ = ["wheel"]  # a fixture of this module too

pytestmark = [pytest.mark.heavy(100), pytest.mark.timeout(1_200)]

NEEDED = ["pyarrow", "numpy", "pandas<3"]
PROBE = '''
"""Rows that say which Python has made them."""

def where(frame):
    def tell(batches):
        import sys
        import pyarrow as pa
        import waystation

        for batch in batches:
            told = pa.array([f"{sys.prefix} {waystation.__file__}"] * batch.num_rows)
            yield pa.RecordBatch.from_pydict({"key": batch["key"], "value": told})

    return frame.select("key").mapInArrow(tell, "key binary, value string")
'''


def check_a_packed_environment(wheel: Path, bootstrap: str, tmp_path: Path) -> None:
    """As docs/guides/spark-clusters.md says: one relative path, two environments."""
    create(bootstrap, "packed", 2)
    create(bootstrap, "told", 2)
    fill(bootstrap, "packed", {0: 10, 1: 10})
    pack(wheel, tmp_path)
    (tmp_path / "environment").symlink_to(Path(sys.prefix))
    (tmp_path / "probe.py").write_text(PROBE)

    with SparkCluster(tmp_path / "cluster") as cluster:
        submit(cluster.master, bootstrap, tmp_path)

    told = [(message.value or b"").decode() for message in committed(bootstrap, "told")]
    assert len(told) == 20
    for prefix, module in (one.split(" ") for one in told):
        assert prefix.startswith(str(tmp_path / "cluster")), "the driver's own was used"
        assert module.startswith(prefix)


if SOAKING:  # packing takes minutes
    test_a_packed_environment_is_all_that_executors_need = check_a_packed_environment


def pack(wheel: Path, folder: Path) -> None:
    """``env.tar.gz`` with what tasks import, and no Spark."""
    run(sys.executable, "-m", "venv", "--without-pip", str(folder / "env"))
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "env" / "bin" / "python")]
    run(*pip, "install", "-q", "--disable-pip-version-check", str(wheel), *NEEDED)
    with tarfile.open(folder / "env.tar.gz", "w:gz", compresslevel=1) as archive:
        archive.add(folder / "env", arcname=".")


def submit(master: str, bootstrap: str, folder: Path) -> None:
    settings = ["spark.driver.host=127.0.0.1", "spark.driver.bindAddress=127.0.0.1"]
    settings += ["spark.executor.memory=512m", "spark.ui.enabled=false"]
    spark = [word for setting in settings for word in ("--conf", setting)]
    job = ["--bootstrap", bootstrap, "--topics", "packed", "--to", "told", "--available-now"]
    job += ["--checkpoint", str(folder / "checkpoint"), "--function", "probe.py:where"]
    run(
        str(SPARK_HOME / "bin" / "spark-submit"),
        *["--master", master, *spark, "--archives", "env.tar.gz#environment"],
        *[transform.__file__, *job],
        folder=folder,
        PYSPARK_PYTHON="environment/bin/python",
        PYSPARK_DRIVER_PYTHON="environment/bin/python",
    )


def run(*words: str, folder: Path | None = None, **environment: str) -> None:
    done = subprocess.run(
        words,
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-1_000:]}{done.stderr[-3_000:]}"
