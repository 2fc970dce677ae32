"""What a check is given, and how it ends when it does not pass."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.peers import java
from benchmarks.peers.broker import PeerMissingError

from tests.compat.letters import WrongAnswerError

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
CACHE = ROOT / ".cache" / "compat"

RUN_TIMEOUT_S = 120
_FETCH_TIMEOUT_S = 600

# What package managers print when they cannot reach their registry, rather than dislike its answer.
_NO_NETWORK = (
    "ENOTFOUND", "ECONNREFUSED", "ECONNRESET", "ETIMEDOUT", "EAI_AGAIN",
    "dial tcp", "no such host", "i/o timeout", "connection refused", "TLS handshake timeout",
)  # fmt: skip


class Target(NamedTuple):
    """The broker under test; ``data`` is its directory, or None when somebody else runs it."""

    bootstrap: str
    data: Path | None
    scratch: Path
    token: str

    def topic(self, name: str) -> str:
        """A name that no earlier run against the same broker has used."""
        return f"{name}-{self.token}"


class UnreachableError(Exception):
    """A registry cannot be reached, so the check says nothing about the broker."""


class MissingError(Exception):
    """A program that the check needs is not installed."""


def need(program: str, remedy: str) -> None:
    """Raise ``MissingError`` unless ``program`` is on PATH."""
    if shutil.which(program) is None:
        raise MissingError(f"{program} is not installed: {remedy}")


def fetch(registry: str, command: Sequence[str], directory: Path) -> None:
    """Run a package manager; tell a registry out of reach from a broken manifest."""
    try:
        done = subprocess.run(
            command,
            cwd=directory,
            capture_output=True,
            text=True,
            timeout=_FETCH_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise UnreachableError(f"{registry} did not answer in ten minutes") from None
    if done.returncode:
        said = _last_words(done)
        if any(sign in done.stdout + done.stderr for sign in _NO_NETWORK):
            raise UnreachableError(f"{registry} is out of reach: {said}")
        raise WrongAnswerError(f"{command[0]} failed: {said}")


def kafka_classpath() -> str:
    """What ``java -cp`` takes to run Kafka's client and tools; fetched the first time."""
    try:
        java.java_version()
    except PeerMissingError as error:
        raise MissingError(str(error)) from None
    if not java.jars().exists():
        need("mvn", "apt install maven")
    try:
        java.fetch_kafka()
    except PeerMissingError as error:
        raise UnreachableError(f"Maven Central is out of reach: {error}") from None
    return java.classpath()


def run(command: Sequence[str], given: str = "", timeout_s: float = RUN_TIMEOUT_S) -> str:
    """What a program prints; ``WrongAnswerError`` with its last words if it fails or hangs."""
    try:
        done = subprocess.run(
            command,
            input=given,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise WrongAnswerError(f"no end within {timeout_s} s") from None
    if done.returncode:
        raise WrongAnswerError(f"exit code {done.returncode}: {_last_words(done)}")
    return done.stdout


def _last_words(done: subprocess.CompletedProcess[str]) -> str:
    lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return "\n".join(lines[-12:])
