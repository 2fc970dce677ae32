"""The doctor: each check says what it found and, where something is wrong, the remedy."""

import json
import socket
from pathlib import Path

import pytest
from tests.support.command import waystation

from waystation.cli.doctor import (
    check_codec,
    check_data_dir,
    check_java,
    check_loop,
    check_open_files,
    check_port,
    check_python,
    check_spark,
)


def test_a_healthy_machine_passes(bootstrap: str, tmp_path: Path) -> None:
    ended = waystation(
        *("doctor", "--json", "--bootstrap", bootstrap, "--data-dir", str(tmp_path / "data")),
        *("--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"),
    )
    found = {one["check"]: one for one in map(json.loads, ended.out.splitlines())}

    assert ended.code == 0
    assert found["broker"]["verdict"] == "good"
    assert not (tmp_path / "data").exists()


def test_what_keeps_a_broker_from_running_is_an_exit_code() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ended = waystation("doctor", "--listen", address, "--bootstrap", "127.0.0.1:1")

    assert ended.code == 1
    assert f"BAD   kafka port: {address}" in ended.out
    assert "remedy: stop what uses it" in ended.out


def test_a_port_taken_by_a_broker_that_answers_is_fine() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"

        assert check_port("port", address, broker_runs=True).verdict == "good"
        assert check_port("port", address, broker_runs=False).verdict == "bad"
    assert check_port("port", "nonsense", broker_runs=False).verdict == "bad"


def test_python_is_judged_by_version() -> None:
    assert check_python((3, 11, 0)).verdict == "good"
    assert check_python((3, 10, 9)).verdict == "bad"


def test_java_is_judged_by_version_and_never_required() -> None:
    assert check_java('openjdk version "17.0.15" 2025-04-15').verdict == "good"
    assert check_java('java version "21" 2023-09-19').verdict == "good"
    assert check_java('java version "1.8.0_392"').verdict == "note"
    assert check_java("").found == "not found at JAVA_HOME or on PATH"
    assert "Spark" in check_java("").remedy


def test_what_the_pipeline_needs_is_judged_and_never_required() -> None:
    sound = {"pyspark": "4.3.0", "pyarrow": "22.0.0", "pandas": "2.3.3", "deltalake": "1.2.1"}

    assert check_spark(sound).verdict == "good"
    assert check_spark(sound | {"deltalake": None}).found == "deltalake not installed"
    assert "waystation[pipelines]" in check_spark(dict.fromkeys(sound)).remedy
    assert "too old" in check_spark(sound | {"pyspark": "3.5.1"}).found
    assert "pandas before 3" in check_spark(sound | {"pandas": "3.0.0rc1"}).found
    assert check_spark(dict.fromkeys(sound)).verdict == "note"


def test_the_java_that_spark_would_start_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'openjdk version \"99.0.1\"' >&2\n")
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    ended = waystation("doctor", "--json", "--bootstrap", "127.0.0.1:1")
    found = {one["check"]: one for one in map(json.loads, ended.out.splitlines())}

    assert found["java"]["found"] == "version 99"


def test_a_data_directory_must_be_a_writable_directory(tmp_path: Path) -> None:
    a_file = tmp_path / "file"
    a_file.touch()

    assert check_data_dir(tmp_path / "not" / "yet").verdict in ("good", "note")
    assert check_data_dir(a_file).verdict == "bad"
    assert check_data_dir(a_file / "below").verdict == "bad"


def test_few_file_descriptors_are_worth_a_note() -> None:
    assert check_open_files(1_024).verdict == "note"
    assert check_open_files(65_536).verdict == "good"
    assert check_open_files(None).verdict == "good"


def test_the_package_knows_itself() -> None:
    assert check_codec().verdict in ("good", "note")
    assert check_loop().verdict in ("good", "note")
