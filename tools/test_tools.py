"""Fetches the programs the tests start that PyPI does not have, or those that are named.

By apt where this user may install packages; otherwise Debian's packages are unpacked into
``.cache/tools``, where the tests look for them; otherwise one list of what is missing and the
one command that installs it.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

# program -> Debian packages that have it, the first that there is
NEEDED = {
    "kcat": ("kcat",),
    "strace": ("strace",),
    "java": (
        "openjdk-17-jre-headless",
        "openjdk-21-jre-headless",
        "openjdk-25-jre-headless",
        "default-jre-headless",
    ),
}
# server -> all the Debian packages it runs from; only ever unpacked, as installing starts them
SERVERS = {
    "etcd": ("etcd-server",),
    "zookeeper": (
        "libzookeeper-java",
        "libdropwizard-metrics-java",
        "libnetty-java",
        "libslf4j-java",
        "libsnappy-java",
    ),
}
# product -> the same, for what benchmarks compare with: fetched only by name
PEERS = {
    "rabbitmq": (
        "rabbitmq-server",
        "erlang-base",
        *(
            f"erlang-{part}"
            for part in (
                *("asn1", "crypto", "eldap", "ftp", "inets", "mnesia", "os-mon", "parsetools"),
                *("public-key", "runtime-tools", "snmp", "ssl", "syntax-tools", "tftp", "tools"),
                "xmerl",
            )
        ),
    ),
    "nats-server": ("nats-server",),
}
UNPACKED_ONLY = SERVERS | PEERS
OLDEST_JAVA = 17  # what Spark 4 runs on

UNPACKED = Path(__file__).parent.parent / ".cache" / "tools"


def missing(programs: Iterable[str]) -> list[str]:
    """Those that are not there, or too old."""
    return [name for name in programs if not _is_here(name)]


def _is_here(program: str) -> bool:
    if program == "java":
        return java_home() is not None
    if program == "zookeeper":
        return zookeeper_jars() is not None
    if program == "rabbitmq":
        return rabbitmq() is not None
    return found(program) is not None


def found(program: str, unpacked: Path = UNPACKED) -> str | None:
    """Where a program is: on PATH, or unpacked by this one."""
    folders = (str(unpacked / "usr" / folder) for folder in ("bin", "sbin"))
    return shutil.which(program, path=os.pathsep.join([os.environ.get("PATH", ""), *folders]))


# --- Java -----------------------------------------------------------------------------------


def java_home(
    environment: Mapping[str, str] = os.environ, unpacked: Path = UNPACKED
) -> Path | None:
    """Where a Java is that Spark can use: JAVA_HOME, on PATH, or unpacked by this program."""
    homes = [Path(environment["JAVA_HOME"])] if environment.get("JAVA_HOME") else []
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path:
        homes.append(Path(on_path).resolve().parents[1])
    homes += sorted((unpacked / "usr" / "lib" / "jvm").glob("*-openjdk-*"))
    return next((home for home in homes if _is_new_enough(home)), None)


def _is_new_enough(home: Path) -> bool:
    """Every Java since 9 tells its version in a file, which is quicker than to start it."""
    release = home / "release"
    if not (home / "bin" / "java").is_file() or not release.is_file():
        return False
    found = re.search(r'^JAVA_VERSION="(\d+)', release.read_text(), re.MULTILINE)
    return found is not None and int(found[1]) >= OLDEST_JAVA


# --- ZooKeeper ------------------------------------------------------------------------------

_NETTY = ("buffer", "codec", "common", "handler", "resolver", "transport")
_NATIVE = ("transport-native-epoll", "transport-native-unix-common")
_JARS = (
    *("zookeeper", "zookeeper-jute", "metrics-core", "slf4j-api", "slf4j-simple", "snappy-java"),
    *(f"netty-{part}" for part in (*_NETTY, *_NATIVE)),
)


def zookeeper_jars(unpacked: Path = UNPACKED) -> list[Path] | None:
    """What a ZooKeeper server's class path needs: all of it, or nothing."""
    for root in (Path("/"), unpacked):
        jars = [root / "usr" / "share" / "java" / f"{name}.jar" for name in _JARS]
        if all(jar.is_file() for jar in jars):
            return jars
    return None


# --- RabbitMQ -------------------------------------------------------------------------------


def rabbitmq(unpacked: Path = UNPACKED) -> tuple[Path, Path] | None:
    """Where a RabbitMQ server is, and the Erlang that it runs on: both, or nothing."""
    for root in (Path("/"), unpacked):
        servers = sorted(root.glob("usr/lib/rabbitmq/lib/rabbitmq_server-*"))
        erlang = root / "usr" / "lib" / "erlang"
        if servers and sorted(erlang.glob("lib/mnesia-*")) and sorted(erlang.glob("erts-*")):
            return servers[-1], erlang
    return None


# --- fetching -------------------------------------------------------------------------------


def packages_of(programs: list[str]) -> list[str]:
    """For each program the first of its packages that apt knows, or else the first."""
    return sorted(
        next(filter(_is_known, NEEDED[program]), NEEDED[program][0])
        for program in programs
        if program in NEEDED
    ) + [package for program in programs for package in UNPACKED_ONLY.get(program, ())]


def _is_known(package: str) -> bool:
    if not shutil.which("apt-cache"):
        return False
    asked = ["apt-cache", "policy", package]
    said = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
    return "Candidate:" in said and "Candidate: (none)" not in said


def install(programs: list[str]) -> None:
    """As root: the ordinary way, quietly."""
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        return
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update", "-qq"], env=environment, check=False)
    ordinary = [program for program in programs if program not in UNPACKED_ONLY]
    if not ordinary:
        return
    subprocess.run(
        ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages_of(ordinary)],
        env=environment,
        check=False,
        stdout=subprocess.DEVNULL,
    )


def unpack(programs: list[str]) -> None:
    """Download packages and the libraries of all but servers, and unpack them beside us."""
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb") and shutil.which("apt-cache")):
        return
    downloads = UNPACKED / "debs"
    downloads.mkdir(parents=True, exist_ok=True)
    asked = ["apt-cache", "depends", "--recurse", "--no-recommends", "--no-suggests"]
    asked += ["--no-conflicts", "--no-breaks", "--no-replaces", "--no-enhances"]
    wanted = packages_of(programs)
    ordinary = packages_of([program for program in programs if program not in UNPACKED_ONLY])
    names: set[str] = set()
    if ordinary:
        listed = subprocess.run([*asked, *ordinary], capture_output=True, text=True, check=False)
        names = {line for line in listed.stdout.splitlines() if line and line[0].isalnum()}
    for name in sorted(names - _installed() | set(wanted)):
        subprocess.run(
            ["apt-get", "download", "-qq", name], cwd=downloads, check=False, capture_output=True
        )
    for package in downloads.glob("*.deb"):
        if not package.name.startswith(("libc6_", "libgcc", "gcc-")):
            subprocess.run(["dpkg-deb", "-x", package, UNPACKED], check=False)
    relink(UNPACKED)


def _installed() -> set[str]:
    """The packages whose files are where they belong."""
    asked = ["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n"]
    said = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
    rows = (line.split() for line in said.splitlines())
    return {name for name, status in rows if status == "installed"}


def relink(root: Path) -> None:
    """Let links that lead to ``/etc`` of an installed package lead to the unpacked one's."""
    for link in root.glob("usr/lib/jvm/**/*"):
        if not link.is_symlink() or not (target := link.readlink()).is_absolute():
            continue
        unpacked = root / target.relative_to("/")
        if unpacked.exists():
            link.unlink()
            link.symlink_to(unpacked.resolve())


def main(programs: list[str]) -> None:
    for attempt in (install, unpack):
        lacking = missing(programs)
        if lacking:
            attempt(lacking)
    lacking = missing(programs)
    if lacking:
        sys.exit(
            f"Programs are needed that are not here: {', '.join(lacking)}"
            f"{f' ({OLDEST_JAVA} or newer)' if 'java' in lacking else ''}.\n"
            f"Remedy: sudo apt-get install {' '.join(packages_of(lacking))}"
        )


if __name__ == "__main__":
    main(sys.argv[1:] or [*NEEDED, *SERVERS])
