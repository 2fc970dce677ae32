"""Runs ``waystation`` commands as a shell would."""

import subprocess
import sys
from typing import NamedTuple

COMMAND = [sys.executable, "-m", "waystation.cli.main"]


class Ended(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


def waystation(*arguments: str, typed: bytes = b"", timeout_s: float = 30.0) -> Ended:
    """Run a command to its end with ``typed`` as its input."""
    done = subprocess.run(
        [*COMMAND, *arguments], input=typed, capture_output=True, timeout=timeout_s, check=False
    )
    return Ended(
        done.returncode, done.stdout.decode("utf-8", "surrogateescape"), done.stderr.decode()
    )
