"""etcd, on which a Waystation cluster agrees: one member, Debian's program, its own defaults."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from functools import partial
from pathlib import Path

from benchmarks.peers.broker import PeerMissingError, free_ports
from benchmarks.peers.handshake import NotReadyError
from benchmarks.peers.member import Alive, Member
from benchmarks.peers.places import ROOT

_TOOLS = ROOT / ".cache" / "tools"
_READY_TIMEOUT_S = 30.0
_LOOK_EVERY_S = 0.01


def program() -> str:
    """Where it is; fetched the first time, as for the tests."""
    found = _found()
    if found is None:
        fetch = [sys.executable, str(ROOT / "tools" / "test_tools.py"), "etcd"]
        said = subprocess.run(fetch, capture_output=True, text=True, check=False)
        found = _found()
        if found is None:
            raise PeerMissingError(f"a cluster needs etcd: {said.stderr.strip()}")
    return found


def member(directory: Path) -> tuple[Member, str]:
    """A server with its data under ``directory``, not yet started, and its address for brokers."""
    client_port, peer_port = free_ports(2)
    client, peer = f"http://127.0.0.1:{client_port}", f"http://127.0.0.1:{peer_port}"
    command = [program(), "--name", "bench", "--data-dir", str(directory / "etcd")]
    command += ["--listen-client-urls", client, "--advertise-client-urls", client]
    command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
    command += ["--initial-cluster", f"bench={peer}", "--logger", "zap", "--log-level", "warn"]
    # Without it, older versions do not start on other machines than Intel's.
    environment = {"ETCD_UNSUPPORTED_ARCH": "arm64"}
    wait = partial(_wait, client)
    started = Member("etcd", command, directory / "etcd.log", wait, environment)
    return started, f"etcd://127.0.0.1:{client_port}/waystation"


def _found() -> str | None:
    path = os.pathsep.join([os.environ.get("PATH", ""), str(_TOOLS / "usr" / "bin")])
    return shutil.which("etcd", path=path)


def _wait(url: str, alive: Alive) -> None:
    deadline = time.monotonic() + _READY_TIMEOUT_S
    while time.monotonic() < deadline:
        if not alive():
            raise NotReadyError("etcd ended while starting")
        if _is_healthy(url):
            return
        time.sleep(_LOOK_EVERY_S)
    raise NotReadyError(f"etcd is not healthy after {_READY_TIMEOUT_S:.0f} s")


def _is_healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=2) as answer:
            return b"true" in answer.read()
    except (urllib.error.URLError, OSError):
        return False
