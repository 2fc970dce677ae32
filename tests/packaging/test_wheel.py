"""The built wheel is all that a machine needs: an empty environment, pip, and it serves."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from waystation.version import VERSION

pytestmark = [pytest.mark.heavy(30), pytest.mark.timeout(400)]

ROOT = Path(__file__).parents[2]
SOURCES = ["src", "pyproject.toml", "setup.py", "README.md", "LICENSE"]
# Compiled as for a release, but for the minute that making it fast takes.
COMPILER = {"CFLAGS": "-O0 -g0"}
LEFT_OUT = shutil.ignore_patterns("*.so", "*.egg-info", "__pycache__")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the sources alone, in an environment of its own."""
    tree = tmp_path_factory.mktemp("tree")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tree / name, ignore=LEFT_OUT)
        else:
            shutil.copy(ROOT / name, tree / name)
    run(sys.executable, "-m", "build", "--wheel", "--outdir", str(tree / "dist"), str(tree))
    (built,) = (tree / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def command(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """``waystation`` as installed into an empty environment."""
    home = tmp_path_factory.mktemp("empty")
    run(sys.executable, "-m", "venv", "--without-pip", str(home))
    pip = [sys.executable, "-m", "pip", "--python", str(home / "bin" / "python")]
    run(*pip, "install", "-q", "--no-compile", "--disable-pip-version-check", str(wheel))
    return str(home / "bin" / "waystation")


@pytest.fixture
def address(command: str, tmp_path: Path) -> Iterator[str]:
    """Where the installed broker listens."""
    serve = [command, "serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    with subprocess.Popen(
        [*serve, "--data-dir", str(tmp_path / "data")],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    ) as broker:
        assert broker.stdout is not None
        ready = re.search(r"ready: kafka (\S+),", broker.stdout.readline())
        assert ready is not None, "not ready"
        yield ready[1]
        broker.terminate()
    assert broker.returncode == 0


def test_the_installed_command_tells_its_version(command: str) -> None:
    assert run(command, "--version") == f"waystation {VERSION}\n"


def test_the_installed_broker_serves_kcat(address: str) -> None:
    run("kcat", "-P", "-b", address, "-t", "orders", "-K", ":", typed="customer-7:two coffees\n")

    read = run("kcat", "-C", "-b", address, "-t", "orders", "-o", "beginning", "-e", "-q", "-K:")

    assert read == "customer-7:two coffees\n"


def test_the_installed_commands_agree_with_the_broker(command: str, address: str) -> None:
    run(command, "topic", "create", "letters", "--bootstrap", address)
    run(command, "produce", "letters", "--bootstrap", address, typed="dear reader\n")
    consume = [command, "consume", "letters", "--from-beginning", "--count", "1"]

    assert run(*consume, "--bootstrap", address) == "dear reader\n"


def test_the_installed_command_makes_projects(command: str, tmp_path: Path) -> None:
    run(command, "pipeline", "init", str(tmp_path / "orders"))

    assert (tmp_path / "orders" / "conf" / "spark-defaults.conf").is_file()
    assert (tmp_path / "orders" / "transformations" / "gold.sql").is_file()


def run(*words: str, typed: str = "") -> str:
    """What the command prints; it must succeed."""
    environment = {**os.environ, **COMPILER}
    done = subprocess.run(
        words, input=typed, capture_output=True, text=True, timeout=200, env=environment
    )
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}\n{done.stderr}"
    return done.stdout
