"""Starting Spark: what is missing is named before a JVM is, with its remedy."""

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from waystation.model.errors import WaystationError
from waystation.pipelines import session as sessions
from waystation.pipelines.failures import JobError, JobFailedError, readable
from waystation.pipelines.job import Job, job_options, pairs, subscription
from waystation.pipelines.progress import BatchReport, report_of
from waystation.pipelines.session import check_java, check_packages


def java(folder: Path, banner: str) -> str:
    """A program that says it is that Java."""
    path = folder / "java"
    path.write_text(f"#!/bin/sh\necho '{banner}' >&2\n")
    path.chmod(0o755)
    return str(path)


# --- what Spark needs -------------------------------------------------------------------------


@pytest.mark.parametrize("banner", ['openjdk version "17.0.15" 2025-04-15', 'java version "25"'])
def test_a_new_java_is_fine(tmp_path: Path, banner: str) -> None:
    check_java(java(tmp_path, banner))


@pytest.mark.parametrize(
    ("banner", "said"),
    [
        ('openjdk version "11.0.2" 2019-01-15', "is Java 11, too old"),
        ('java version "1.8.0_392"', "is Java 8, too old"),
        ("segmentation fault", "does not tell its version"),
    ],
)
def test_a_wrong_java_is_named_with_the_remedy(tmp_path: Path, banner: str, said: str) -> None:
    with pytest.raises(JobError, match=f"{said}.*install Java 17 or newer.*JAVA_HOME"):
        check_java(java(tmp_path, banner))


def test_a_missing_java_is_told_with_the_remedy() -> None:
    with pytest.raises(JobError, match=r"there is none.*install Java 17 or newer"):
        check_java(None)


def test_a_java_home_that_leads_nowhere_is_named(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"absent/bin/java cannot be run: No such file"):
        check_java(str(tmp_path / "absent" / "bin" / "java"))


def test_the_packages_of_this_environment_are_fine() -> None:
    check_packages()


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (None, r"pyspark is not installed. Remedy: pip install 'waystation\[pipelines\]'"),
        ((3, 5, 1), r"pyspark 3\.5\.1 is too old, 4\.1 or newer"),
    ],
)
def test_a_package_that_is_missing_or_old_is_named_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, found: tuple[int, ...] | None, said: str
) -> None:
    monkeypatch.setattr(sessions, "_version", lambda _: found)

    with pytest.raises(JobError, match=said):
        check_packages()


def test_a_pandas_that_spark_does_not_understand_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    versions = {"pandas": (3, 0)}
    monkeypatch.setattr(sessions, "_version", lambda package: versions.get(package, (99,)))

    with pytest.raises(JobError, match=r"pandas 3\.0 is too new.*pip install 'pandas<3'"):
        check_packages()


def test_a_job_without_java_ends_with_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "waystation.pipelines.archive"]
    ended = subprocess.run(
        [*command, "--topics", "t", "--lake", str(tmp_path / "lake")],
        capture_output=True,
        text=True,
        env={**os.environ, "JAVA_HOME": str(tmp_path / "absent")},
    )

    assert ended.returncode == 1
    assert ended.stderr.startswith("Error: ")
    assert ended.stderr.count("\n") == 1
    assert "absent/bin/java cannot be run" in ended.stderr
    assert list(tmp_path.iterdir()) == []


def test_what_a_job_imports_to_explain_itself_is_not_spark() -> None:
    script = (
        "import sys, waystation.pipelines.archive, waystation.pipelines.replay\n"
        "print([name for name in ('pyspark', 'pyarrow', 'pandas') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)

    assert done.stdout == "[]\n"


# --- options ----------------------------------------------------------------------------------


@click.command()
@click.option("--to")
@job_options
def told(job: Job, to: str) -> None:
    """Prints what it was given."""
    click.echo(f"{job} {to}")


def test_a_command_gets_the_shared_options_as_a_job() -> None:
    words = (
        "--topics a,b --bootstrap h:1 --master local[2] --checkpoint c --available-now --every 2"
    )
    words += " --conf spark.x=1 --option maxOffsetsPerTrigger=5 --json --group g --to there"

    ended = CliRunner().invoke(told, words.split())

    job = Job("h:1", ("a", "b"), None, "local[2]", "c", True, 2.0, ("spark.x=1",), True, "g")
    job = Job(**{**job.__dict__, "options": ("maxOffsetsPerTrigger=5",)})
    assert ended.output == f"{job} there\n"
    assert job.source_options() == {"maxOffsetsPerTrigger": "5"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "--topics A,B or --topic-pattern RE"),
        (["--topics", "a", "--topic-pattern", "b"], "--topics A,B or --topic-pattern RE"),
        (["--topics", " , "], "--topics A,B or --topic-pattern RE"),
        (["--topic-pattern", "("], "--topic-pattern '(' is no regular expression"),
        (["--topics", "a", "--conf", "spark.x"], "--conf 'spark.x': must be NAME=VALUE"),
        (["--topics", "a", "--option", "=1"], "--option '=1': must be NAME=VALUE"),
        (["--topics", "a", "--every", "-1"], "--every"),
    ],
)
def test_options_that_make_no_sense_are_refused(words: list[str], said: str) -> None:
    ended = CliRunner().invoke(told, words)

    assert ended.exit_code == 2
    assert said in ended.output


def test_an_error_of_a_job_is_one_line() -> None:
    @click.command()
    @job_options
    def failing(job: Job) -> None:
        raise WaystationError("the lake is dry")

    ended = CliRunner().invoke(failing, ["--topics", "a"])

    assert (ended.exit_code, ended.output) == (1, "Error: the lake is dry\n")


def test_topics_may_be_given_in_any_form() -> None:
    assert subscription("a, b") == {"subscribe": "a,b"}
    assert subscription(["a", "b"]) == {"subscribe": "a,b"}
    assert subscription((), "x.*") == {"subscribePattern": "x.*"}
    assert subscription(()) == {}


def test_a_value_may_hold_an_equals_sign() -> None:
    assert pairs(("a=b=c",), "--conf") == {"a": "b=c"}


# --- progress ---------------------------------------------------------------------------------


def progress(**more: object) -> dict[str, object]:
    return {
        "timestamp": "2026-01-31T09:30:00.000Z",
        "batchId": 3,
        "numInputRows": 500,
        "durationMs": {"triggerExecution": 250, "addBatch": 200},
        "sources": [],
        **more,
    }


def test_a_batch_is_told_with_its_rate_and_lag() -> None:
    source = {"endOffset": '{"t":{"0":10,"1":5}}', "latestOffset": {"t": {"0": 15, "1": 5}}}

    found = report_of(progress(sources=[source]))

    assert found == BatchReport("2026-01-31T09:30:00.000Z", 3, 500, 250, 5)
    assert found.as_json()["rows_per_s"] == 2_000.0
    assert found.as_line() == "batch 3: 500 rows in 0.2 s, 2,000 rows/s, 5 to go"


@pytest.mark.parametrize("unknown", [None, "None", "null", 17, '"rate"'])
def test_the_lag_of_a_source_that_does_not_tell_is_not_invented(unknown: object) -> None:
    source = {"endOffset": {"t": {"0": 10}}, "latestOffset": unknown}

    assert report_of(progress(sources=[source])).lag is None


# --- failures ---------------------------------------------------------------------------------

WRAPPED = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted due to
stage failure: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/x/worker.py", line 1, in main
    process()
{error}

\tat org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:1)
Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler.abort(DAGScheduler.scala:2)
"""


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (
            WRAPPED.format(error="waystation.spark.errors.DataLossError: t-0: offsets 1 to 5"),
            "t-0: offsets 1 to 5",
        ),
        (WRAPPED.format(error="ValueError: no\n  such thing"), "ValueError: no such thing"),
        (
            "[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python streaming data source "
            "perform latestOffset: waystation.model.errors.UnknownTopicError: topic x is gone\nat",
            "topic x is gone",
        ),
        (
            "[TABLE_OR_VIEW_NOT_FOUND] The table is not there.\nVerify it.",
            "The table is not there.",
        ),
        (
            "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: [OTHER] Multiple "
            "queries use it. SQLSTATE: XXKST\n=== Streaming Query ===",
            "Multiple queries use it.",
        ),
        ("", "RuntimeError"),
    ],
)
def test_the_cause_is_found_inside_sparks_wrapping(text: str, cause: str) -> None:
    assert readable(RuntimeError(text)) == cause


def test_an_error_of_our_own_is_said_as_it_is() -> None:
    assert readable(JobFailedError("plain\nwords")) == "plain\nwords"
