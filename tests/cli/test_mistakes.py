"""A newcomer's mistakes get answers: who is to blame and what to do, and never a traceback."""

import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.command import Ended, waystation

from waystation.testing.process import BrokerProcess

MAKEFILE = Path(__file__).parents[2] / "Makefile"
FREE_PORTS = ("--listen", "127.0.0.1:0", "--http", "none")
NOBODY = "127.0.0.1:1"


def serve(data_dir: Path, *arguments: str) -> Ended:
    return waystation("serve", "--data-dir", str(data_dir), *arguments)


def is_answered(ended: Ended, *facts: str, code: int = 1) -> None:
    """It failed, and the last thing said holds all the facts; nobody is shown a traceback."""
    assert ended.code == code, ended
    assert "Traceback" not in ended.err
    said = [line for line in ended.err.splitlines() if line.startswith(("waystation:", "Error:"))]
    assert len(said) == 1, f"not one line: {ended.err}"
    for fact in facts:
        assert fact in ended.err, f"{fact!r} is not said: {ended.err}"


# --- starting a broker ------------------------------------------------------------------


@pytest.mark.parametrize("option", ["--listen", "--http"])
def test_a_taken_port_is_named_with_the_option_that_chose_it(tmp_path: Path, option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        taken = f"127.0.0.1:{holder.getsockname()[1]}"
        places = {"--listen": "127.0.0.1:0", "--http": "none"} | {option: taken}
        ended = serve(tmp_path, *[word for pair in places.items() for word in pair])

    is_answered(ended, taken, "another process has that port", f"{option} HOST:PORT")


@pytest.mark.parametrize("place", ["file/data", "/proc/data"])
def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path, place: str) -> None:
    """Root may write anywhere, so these are places where nobody may."""
    (tmp_path / "file").touch()

    is_answered(serve(tmp_path / place, *FREE_PORTS), str(tmp_path / place), "--data-dir")


def test_a_directory_in_use_names_the_process_that_uses_it(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data").start() as broker:
        ended = serve(tmp_path / "data", *FREE_PORTS)

        is_answered(ended, str(tmp_path / "data"), f"pid {broker.pid}", "another --data-dir")


def test_a_directory_of_another_node_is_not_taken_over(tmp_path: Path) -> None:
    BrokerProcess(tmp_path / "data").start().stop()

    ended = serve(tmp_path / "data", "--node-id", "7", *FREE_PORTS)

    is_answered(ended, "belongs to node 1", "this is node 7", "--node-id", "--data-dir")


def test_an_unknown_flag_is_answered_with_its_neighbour(tmp_path: Path) -> None:
    is_answered(waystation("serve", "--data-dri", "x"), "--data-dri", "'--data-dir'?", code=2)


def test_an_unknown_option_is_answered_with_its_neighbour(tmp_path: Path) -> None:
    ended = serve(tmp_path, "--set", "retention.mss=1")

    is_answered(ended, "retention.mss", "did you mean retention.ms", "--options", code=2)


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ("retention.ms=soon", "must be a whole number"),
        ("segment.bytes=1", "must be at least 14"),
        ("durability=tape", "must be one of disk, memory"),
        ("store=zookeeper", "zookeeper://HOST:PORT"),
        ("retention.ms", "must be NAME=VALUE"),
    ],
)
def test_a_bad_value_is_answered_with_the_rule(tmp_path: Path, given: str, rule: str) -> None:
    ended = serve(tmp_path, "--set", given)

    is_answered(ended, given.partition("=")[0], rule, code=2)


def test_listening_beyond_loopback_must_be_meant(tmp_path: Path) -> None:
    ended = serve(tmp_path, "--listen", "0.0.0.0:0", "--http", "none")

    is_answered(ended, "0.0.0.0:0", "nothing is authenticated", "--insecure")


@pytest.mark.parametrize("place", ["9092", "localhost", "localhost:http", "127.0.0.1:99999"])
def test_a_place_that_is_none_is_answered_with_an_example(tmp_path: Path, place: str) -> None:
    is_answered(serve(tmp_path, "--listen", place), place, "HOST:PORT, e.g. 127.0.0.1:9092")


def test_a_place_of_another_machine_is_refused(tmp_path: Path) -> None:
    ended = serve(tmp_path, "--listen", "192.0.2.1:9092", "--insecure")

    is_answered(ended, "192.0.2.1:9092", "Remedy", "--listen")


def test_a_config_file_that_is_missing_is_named(tmp_path: Path) -> None:
    ended = serve(tmp_path, "--config", str(tmp_path / "absent.toml"))

    is_answered(ended, str(tmp_path / "absent.toml"), "No such file", code=2)


def test_an_old_python_is_told_before_anything_is_made(tmp_path: Path) -> None:
    old = tmp_path / "old-python"
    old.write_text(
        f"#!/bin/sh\nexec {sys.executable} -c "
        '"import sys; sys.version_info = (3, 9, 2); exec(sys.argv[1])" "$2"\n'
    )
    old.chmod(0o755)

    command = ["make", "-f", str(MAKEFILE), "run", f"PYTHON={old}"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)

    assert ended.returncode != 0
    assert "Python 3.9 is too old" in ended.stderr
    assert "needs 3.11" in ended.stderr
    assert "Remedy: make PYTHON=" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert [one.name for one in tmp_path.iterdir()] == ["old-python"]


# --- using it ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        ("topic", "describe", "absent"),
        ("topic", "delete", "absent", "--yes"),
        ("topic", "truncate", "absent", "--all", "--yes"),
        ("topic", "alter", "absent", "--set", "retention.ms=1"),
        ("consume", "absent", "--from-beginning", "--count", "1"),
    ],
    ids=" ".join,
)
def test_a_topic_that_does_not_exist_is_named(bootstrap: str, command: tuple[str, ...]) -> None:
    is_answered(waystation(*command, "--bootstrap", bootstrap), "absent", "does not exist")


def test_a_message_too_large_for_its_topic_is_told_the_limit(bootstrap: str, topic: str) -> None:
    small = ("--config", "max.message.bytes=1000", "--bootstrap", bootstrap)
    assert waystation("topic", "create", topic, *small).code == 0

    ended = waystation("produce", topic, "--bootstrap", bootstrap, typed=b"x" * 5_000)

    is_answered(ended, topic, "1000", "max.message.bytes")


def test_a_message_too_large_to_send_is_told_both_limits(bootstrap: str, topic: str) -> None:
    ended = waystation("produce", topic, "--bootstrap", bootstrap, typed=b"x" * 3_000_000)

    is_answered(ended, "1048576", "--max-bytes", "max.message.bytes")


@pytest.mark.parametrize(
    "command", [("topic", "list"), ("produce", "orders"), ("consume", "orders")], ids=" ".join
)
def test_a_broker_that_is_not_there_is_named(command: tuple[str, ...]) -> None:
    ended = waystation(*command, "--bootstrap", NOBODY, typed=b"hello\n")

    is_answered(ended, NOBODY, "connection refused", "waystation serve")


def test_an_illegal_topic_name_is_told_what_is_legal(bootstrap: str) -> None:
    ended = waystation("topic", "create", "my orders", "--bootstrap", bootstrap)

    is_answered(ended, "my orders", "letters, digits")
    assert re.search(r"'\.', '_' and '-'", ended.err)
