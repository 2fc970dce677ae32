"""Finds an etcd to start on this machine, or fetches Debian's, or says how to get one.

It is looked for on PATH, then where this project unpacks programs: beside a checkout, and in the
user's cache.  Where apt is, the package is downloaded there; it is not installed, since that
would start a server for the whole machine and needs an administrator.
"""

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from waystation.model.errors import WaystationError

_PACKAGE = "etcd-server"
_CHECKOUT = Path(__file__).parents[3] / ".cache" / "tools"


class NoEtcdError(WaystationError):
    """There is no etcd on this machine."""

    def __init__(self) -> None:
        super().__init__(
            "there is no etcd on this machine. Remedy: `sudo apt-get install etcd-server` "
            "(elsewhere `brew install etcd`, or put the program from "
            "https://github.com/etcd-io/etcd/releases on PATH), or name a service that runs "
            "already: --store etcd://HOST:PORT or zookeeper://HOST:PORT"
        )


def find_etcd(environment: Mapping[str, str], say: Callable[[str], None]) -> Path:
    """The program; ``say`` hears when it has to be fetched first."""
    cache = _cache(environment)
    found = _search(environment, cache)
    if found is None and _fetch(cache, say):
        found = _search(environment, cache)
    if found is None:
        raise NoEtcdError
    return found


def _cache(environment: Mapping[str, str]) -> Path:
    home = environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME", "/")) / ".cache"
    return Path(home) / "waystation" / "tools"


def _search(environment: Mapping[str, str], cache: Path) -> Path | None:
    unpacked = [str(root / "usr" / "bin") for root in (_CHECKOUT, cache)]
    path = os.pathsep.join([environment.get("PATH", ""), *unpacked])
    found = shutil.which("etcd", path=path)
    return Path(found) if found else None


def _fetch(into: Path, say: Callable[[str], None]) -> bool:
    """Download and unpack the package; false where that cannot be."""
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        return False
    downloads = into / "debs"
    try:
        downloads.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    say(f"there is no etcd on PATH: fetching Debian's {_PACKAGE} into {into}")
    fetching = ["apt-get", "download", "-qq", _PACKAGE]
    subprocess.run(fetching, cwd=downloads, check=False, capture_output=True)
    for package in downloads.glob(f"{_PACKAGE}_*.deb"):
        subprocess.run(["dpkg-deb", "-x", package, into], check=False, capture_output=True)
    return True
