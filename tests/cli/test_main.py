"""The front door: help, versions, misspelling, completion, and how failures look."""

import signal
import subprocess

import pytest
from tests.support.command import COMMAND, waystation

from waystation.cli.main import COMMANDS
from waystation.version import VERSION


def test_help_lists_every_command_and_an_example() -> None:
    ended = waystation("--help")

    assert ended.code == 0
    assert all(name in ended.out for name in COMMANDS)
    assert "Example" in ended.out


def test_help_imports_no_command() -> None:
    """What --help costs a user is the interpreter and click: well under 150 ms."""
    script = (
        "import sys; sys.argv = ['waystation', '--help']\n"
        "from waystation.cli import main\n"
        "try: main.main()\n"
        "except SystemExit: pass\n"
        "print([name for name in sys.modules if name.split('.')[0] in ('asyncio', 'rich', "
        "'msgspec') or name.startswith('waystation.c') and 'cli.main' not in name])"
    )
    done = subprocess.run([COMMAND[0], "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines()[-1] == "['waystation.cli']"


@pytest.mark.parametrize(
    "command",
    [
        *COMMANDS,
        "topic create",
        "topic truncate",
        "group describe",
        "group reset",
        "txn abort",
        "txn find-hanging",
        "sink resolve",
    ],
)
def test_every_command_explains_itself_with_an_example(command: str) -> None:
    ended = waystation(*command.split(), "--help")

    assert ended.code == 0
    assert "Example:\n" in ended.out


def test_the_version_is_told() -> None:
    assert waystation("--version").out == f"waystation {VERSION}\n"


def test_a_misspelt_command_is_answered_with_its_neighbour() -> None:
    ended = waystation("prodcue", "orders")

    assert ended.code == 2
    assert "Did you mean 'produce'?" in ended.err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_printed(shell: str) -> None:
    ended = waystation("completion", shell)

    assert ended.code == 0
    assert "_WAYSTATION_COMPLETE" in ended.out


def test_completion_knows_commands_and_options() -> None:
    done = subprocess.run(
        COMMAND,
        env={
            "_WAYSTATION_COMPLETE": "bash_complete",
            "COMP_WORDS": "waystation topic cr",
            "COMP_CWORD": "2",
        },
        capture_output=True,
        text=True,
        check=False,
    )

    assert "plain,create" in done.stdout


@pytest.mark.parametrize(
    "arguments", [["topic", "list"], ["produce", "t", "--value", "v"], ["consume", "t"]]
)
def test_a_broker_that_is_not_there_is_one_line_with_the_remedy(arguments: list[str]) -> None:
    ended = waystation(*arguments, "--bootstrap", "127.0.0.1:1")

    assert ended.code == 1
    assert ended.err.count("\n") == 1
    assert "127.0.0.1:1: connection refused" in ended.err
    assert "waystation serve" in ended.err


def test_an_address_that_makes_no_sense_is_one_line() -> None:
    ended = waystation("topic", "list", "--bootstrap", "nowhere:port")

    assert ended.code == 1
    assert "'nowhere:port' is no address" in ended.err


def test_ctrl_c_ends_quietly(bootstrap: str, topic: str) -> None:
    waystation("topic", "create", topic, "--bootstrap", bootstrap)
    command = [*COMMAND, "consume", topic, "--follow", "--from-beginning", "--bootstrap", bootstrap]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        waystation("produce", topic, "--value", "hello", "--bootstrap", bootstrap)
        assert process.stdout is not None
        assert process.stdout.readline() == b"hello\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=10)

    assert (process.returncode, out, err) == (130, b"", b"")


def test_a_reader_that_leaves_ends_the_command_quietly(bootstrap: str, topic: str) -> None:
    lines = b"".join(b"%0200d\n" % number for number in range(5_000))
    waystation("produce", topic, "--bootstrap", bootstrap, typed=lines)
    command = [*COMMAND, "consume", topic, "--from-beginning", "--bootstrap", bootstrap]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        err = process.stderr.read()
        process.wait(10)

    assert (process.returncode, err) == (141, b"")
