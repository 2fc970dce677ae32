"""``waystation pipeline``: jobs are found, explain themselves, and end as asked."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import deltalake
import pytest
from tests.support.command import COMMAND, waystation

from waystation.cli.pipeline import JOBS

OF_SPARK = [name for name in JOBS if name != "init"]
"""Those that run in Spark themselves."""


def test_the_jobs_are_listed_without_importing_them() -> None:
    script = (
        "import sys; sys.argv = ['waystation', 'pipeline', '--help']\n"
        "from waystation.cli import main\n"
        "try: main.main()\n"
        "except SystemExit: pass\n"
        "print([name for name in sys.modules if name.split('.')[0] in ('pyspark', 'pyarrow') "
        "or name.startswith('waystation.pipelines')])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)

    assert all(name in done.stdout for name in JOBS)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("job", OF_SPARK)
def test_every_job_explains_itself_with_an_example(job: str) -> None:
    ended = waystation("pipeline", job, "--help")

    assert ended.code == 0, ended.err
    assert "Example:\n" in ended.out
    assert all(option in ended.out for option in ("--topics", "--bootstrap", "--master", "--json"))


@pytest.mark.parametrize("job", OF_SPARK)
def test_every_job_is_a_file_that_spark_submit_can_run(job: str) -> None:
    module = f"waystation.pipelines.{job}"
    ended = subprocess.run([sys.executable, "-m", module, "--help"], capture_output=True, text=True)

    assert ended.returncode == 0, ended.stderr
    assert "--topics" in ended.stdout


def test_a_misspelt_job_is_answered_with_its_neighbour() -> None:
    ended = waystation("pipeline", "archvie", "--topics", "t")

    assert ended.code == 2
    assert "Did you mean 'archive'?" in ended.err


def test_the_topics_must_be_said() -> None:
    ended = waystation("pipeline", "archive", "--lake", "x")

    assert ended.code == 2
    assert "--topics A,B or --topic-pattern RE" in ended.err


def test_a_schema_that_is_missing_is_named_before_spark_starts(tmp_path: Path) -> None:
    words = ("--topics", "t", "--lake", str(tmp_path / "lake"))
    ended = waystation("pipeline", "archive", *words, "--schema", str(tmp_path / "absent.avsc"))

    assert ended.code == 2
    assert "absent.avsc" in ended.err


@pytest.mark.heavy(30)
@pytest.mark.timeout(400)
def test_a_running_archive_ends_well_when_it_is_interrupted(
    bootstrap: str, topic: str, tmp_path: Path
) -> None:
    """And what was interrupted goes on: nothing is missing, nothing is there twice."""
    waystation("produce", topic, "--bootstrap", bootstrap, typed=b"first\nsecond\n")
    lake = tmp_path / "lake"
    words = ["--topics", topic, "--lake", str(lake), "--bootstrap", bootstrap]
    words += ["--master", "local[2]", "--conf", "spark.ui.enabled=false", "--json"]
    command = [*COMMAND, "pipeline", "archive", *words]

    with subprocess.Popen(
        [*command, "--every", "0.2"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=200)

    assert line, said
    told = json.loads(line)
    assert (told["batch"], told["rows"], told["lag"]) == (0, 2, 0)
    assert process.returncode == 0, said
    assert "stopping after this batch" in said
    assert "Traceback" not in said
    described = waystation("group", "describe", "archive-lake", "--json", "--bootstrap", bootstrap)
    assert json.loads(described.out)["total"]["lag"] == 0
    assert deltalake.DeltaTable(str(lake)).to_pyarrow_table()["offset"].to_pylist() == [0, 1]
