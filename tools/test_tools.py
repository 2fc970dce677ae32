"""Fetches the programs the tests start that PyPI does not have.

By apt where this user may install packages; otherwise Debian's packages are unpacked into
``.cache/tools``, which the tests put on PATH; otherwise one list of what is missing and the
one command that installs it.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

# program -> Debian package
NEEDED = {"kcat": "kcat", "strace": "strace"}

UNPACKED = Path(__file__).parent.parent / ".cache" / "tools"


def missing() -> dict[str, str]:
    path = os.pathsep.join([os.environ.get("PATH", ""), str(UNPACKED / "usr" / "bin")])
    return {name: package for name, package in NEEDED.items() if not shutil.which(name, path=path)}


def install(packages: list[str]) -> None:
    """As root: the ordinary way, quietly."""
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        return
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update", "-qq"], env=environment, check=False)
    subprocess.run(
        ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages],
        env=environment,
        check=False,
        stdout=subprocess.DEVNULL,
    )


def unpack(packages: list[str]) -> None:
    """Without root: download the packages and their libraries, and unpack them beside us."""
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb") and shutil.which("apt-cache")):
        return
    downloads = UNPACKED / "debs"
    downloads.mkdir(parents=True, exist_ok=True)
    asked = ["apt-cache", "depends", "--recurse", "--no-recommends", "--no-suggests"]
    asked += ["--no-conflicts", "--no-breaks", "--no-replaces", "--no-enhances", *packages]
    listed = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
    names = sorted({line for line in listed.splitlines() if line and line[0].isalnum()})
    for name in names:
        subprocess.run(
            ["apt-get", "download", "-qq", name], cwd=downloads, check=False, capture_output=True
        )
    for package in downloads.glob("*.deb"):
        if not package.name.startswith(("libc6_", "libgcc", "gcc-")):
            subprocess.run(["dpkg-deb", "-x", package, UNPACKED], check=False)


def main() -> None:
    for attempt in (install, unpack):
        lacking = missing()
        if lacking:
            attempt(sorted(set(lacking.values())))
    lacking = missing()
    if lacking:
        packages = " ".join(sorted(set(lacking.values())))
        sys.exit(
            f"The tests start programs that are not here: {', '.join(lacking)}.\n"
            f"Remedy: sudo apt-get install {packages}"
        )


if __name__ == "__main__":
    main()
