"""``rdload``: built once from ``rdload.c`` against Debian's librdkafka, then run per load.

If the library's header is missing, it is installed by apt where we may, otherwise unpacked
into the cache, otherwise the one command that helps is said.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

from benchmarks.loads.catalog import Kind, Load
from benchmarks.peers.places import CACHE

_SOURCE = Path(__file__).with_name("rdload.c")
_PROGRAM = CACHE / "rdload"
_UNPACKED = CACHE / "librdkafka"
_PACKAGES = ("librdkafka-dev", "librdkafka1")
REMEDY = "apt install gcc libc6-dev librdkafka-dev"
_LOAD_TIMEOUT_S = 600


class LoadError(Exception):
    """A load did not run to its end; the text is what the client said."""


def build() -> None:
    """Have the program at hand; compiled again only when its source is newer."""
    if _PROGRAM.exists() and _PROGRAM.stat().st_mtime >= _SOURCE.stat().st_mtime:
        return
    if shutil.which("gcc") is None:
        raise LoadError(f"the load program needs a C compiler: {REMEDY}")
    CACHE.mkdir(parents=True, exist_ok=True)
    if not _compiles() and not (_installed_by_apt() or _unpacked_from_apt()):
        raise LoadError(f"the load program needs librdkafka's header: {REMEDY}")


def create_topic(bootstrap: str, topic: str, partitions: int, replicas: int = 1) -> None:
    """A topic with a leader and all replicas in sync for every partition when this returns."""
    shape = ("--partitions", str(partitions), "--replicas", str(replicas))
    _run("create", "--bootstrap", bootstrap, "--topic", topic, *shape)


def run(load: Load, bootstrap: str, topic: str) -> dict[str, object]:
    """Run one load to its end; what ``rdload`` reported."""
    return _run(*arguments_of(load, bootstrap, topic))


def arguments_of(load: Load, bootstrap: str, topic: str) -> list[str]:
    """What ``rdload`` is given to run a load."""
    arguments = [
        *(load.kind.value, "--bootstrap", bootstrap, "--topic", topic),
        *("--partitions", str(load.partitions), "--size", str(load.size_bytes)),
        *("--acks", load.acks),
        *(argument for setting in load.settings for argument in ("--set", setting)),
    ]
    if load.kind is Kind.LATENCY:
        arguments += ["--rate", str(load.rate_per_s), "--seconds", str(load.seconds)]
        arguments += ["--warmup-seconds", str(load.warmup_seconds)]
        arguments += ["--sticky"] if load.sticky else []
    else:
        arguments += ["--count", str(load.count)]
    return arguments


def _run(*arguments: str) -> dict[str, object]:
    try:
        done = subprocess.run(
            [str(_PROGRAM), *arguments],
            capture_output=True,
            text=True,
            timeout=_LOAD_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise LoadError(f"rdload {' '.join(arguments)}: not done in ten minutes") from None
    if done.returncode:
        raise LoadError(f"rdload {' '.join(arguments)}:\n{done.stderr.strip()}")
    reported: dict[str, object] = json.loads(done.stdout)
    return reported


def _compiles() -> bool:
    unpacked = list(_UNPACKED.glob("usr/lib/*/librdkafka.so"))
    where = [f"-I{_UNPACKED}/usr/include", f"-L{unpacked[0].parent}"] if unpacked else []
    where += [f"-Wl,-rpath,{unpacked[0].parent}"] if unpacked else []
    command = ["gcc", "-O2", *where, "-o", str(_PROGRAM), str(_SOURCE), "-lrdkafka", "-lpthread"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _installed_by_apt() -> bool:
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return False
    command = ["apt-get", "install", "-y", "--no-install-recommends", _PACKAGES[0]]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(command, capture_output=True, check=False, env=environment)
    return _compiles()


def _unpacked_from_apt() -> bool:
    """Download and unpack without root; the library's own dependencies are usually there."""
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        return False
    _UNPACKED.mkdir(parents=True, exist_ok=True)
    fetch = ["apt-get", "download", *_PACKAGES]
    subprocess.run(fetch, cwd=_UNPACKED, capture_output=True, check=False)
    for package in _UNPACKED.glob("*.deb"):
        subprocess.run(["dpkg", "-x", str(package), str(_UNPACKED)], check=False)
    return _compiles()
