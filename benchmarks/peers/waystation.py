"""Waystation as its users start it: the installed command, HTTP off, everything else default."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

from benchmarks.peers.broker import PeerMissingError

COMMAND = Path(sys.executable).with_name("waystation")


class WaystationPeer:
    """Starts ``waystation serve`` from the environment that runs the benchmark."""

    name = "waystation"

    def install(self) -> None:
        """Nothing to fetch; only see that the command is there and starts."""
        if not COMMAND.exists():
            raise PeerMissingError(f"{COMMAND} does not exist: pip install -e .")
        asked = _run("serve", "--help")
        if asked.returncode:
            raise PeerMissingError(f"waystation serve does not start:\n{asked.stderr[-500:]}")

    def facts(self) -> dict[str, object]:
        """Version, Python, and the command line with which it is started."""
        return {
            "version": _run("--version").stdout.strip(),
            "python": platform.python_version(),
            "command": " ".join(self.command(Path("DIR"), 0, "memory|disk")[1:]),
        }

    def prepare(self, directory: Path, port: int, durability: str) -> None:
        """Nothing: the first start makes all it needs, and that time counts."""

    def command(self, directory: Path, port: int, durability: str) -> list[str]:
        """The broker in the foreground."""
        return [
            *(str(COMMAND), "serve", "--listen", f"127.0.0.1:{port}", "--http", "none"),
            *("--data-dir", str(directory), "--set", f"durability={durability}"),
        ]


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(COMMAND), *arguments], capture_output=True, text=True, timeout=30, check=False
    )
