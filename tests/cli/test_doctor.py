"""The doctor: each check says what it found and, where something is wrong, the remedy."""

import json
import socket
from pathlib import Path

from tests.support.command import waystation

from waystation.cli.doctor import (
    check_codec,
    check_data_dir,
    check_java,
    check_loop,
    check_open_files,
    check_port,
    check_python,
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
    assert check_java("").found == "not installed"
    assert "Spark" in check_java("").remedy


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
