"""``waystation doctor``: looks at this machine and says the remedy for what is wrong.

A check is a function that returns what it found.  ``bad`` keeps a broker from running,
``note`` is worth knowing, ``good`` is fine.
"""

import os
import platform
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import click

from waystation.cli.options import bootstrap_option, json_option
from waystation.cli.output import print_json, shown_bytes

EXAMPLE = """
\b
Example:
  waystation doctor --data-dir ./data --listen 127.0.0.1:9092
"""

_OLDEST_PYTHON = (3, 11)
_OLDEST_JAVA = 17
_OLDEST_PYSPARK = (4, 1)
_PIPELINE = ("pyspark", "pyarrow", "pandas", "deltalake")
_FULL_BYTES, _TIGHT_BYTES = 200 << 20, 2 << 30
_FEW_FILES = 4_096
_MARKS = {"good": "ok  ", "note": "note", "bad": "BAD "}


class Finding(NamedTuple):
    """What one check found; a remedy where there is something to mend."""

    check: str
    verdict: str
    found: str
    remedy: str = ""


@click.command(epilog=EXAMPLE)
@click.option("--data-dir", default="./data", show_default=True, help="Where data would go.")
@click.option("--listen", default="127.0.0.1:9092", show_default=True, metavar="HOST:PORT")
@click.option("--http", default="127.0.0.1:8090", show_default=True, metavar="HOST:PORT")
@bootstrap_option
@json_option
def doctor(data_dir: str, listen: str, http: str, bootstrap: str, as_json: bool) -> None:
    """Check Python, the package, ports, disk, limits, what the pipeline needs and the broker.

    Ends with 1 if something keeps a broker from running.
    """
    broker = check_broker(bootstrap)
    findings = [
        check_python(sys.version_info[:3]),
        check_codec(),
        check_loop(),
        check_port("kafka port", listen, broker.verdict == "good"),
        check_port("http port", http, broker.verdict == "good"),
        check_data_dir(Path(data_dir)),
        check_open_files(_open_files()),
        check_java(_java_banner(os.environ)),
        check_spark(_versions(_PIPELINE)),
        broker,
    ]
    for finding in findings:
        if as_json:
            print_json(finding._asdict())
        else:
            _tell(finding)
    if any(finding.verdict == "bad" for finding in findings):
        raise click.exceptions.Exit(1)


def _tell(finding: Finding) -> None:
    click.echo(f"{_MARKS[finding.verdict]}  {finding.check}: {finding.found}")
    if finding.remedy:
        click.echo(f"      remedy: {finding.remedy}")


# --- the package ----------------------------------------------------------------------------


def check_python(version: tuple[int, int, int]) -> Finding:
    """Whether this interpreter is new enough."""
    found = f"{'.'.join(map(str, version))} ({platform.python_implementation()})"
    if version[:2] < _OLDEST_PYTHON:
        return Finding("python", "bad", found, "install Python 3.11 or newer")
    return Finding("python", "good", found)


def check_codec() -> Finding:
    """Whether the record codec was compiled; without, everything works, some of it slower."""
    from waystation.records import codec

    if str(codec.__file__).endswith(".py"):
        remedy = "install a C compiler (gcc), then reinstall the package"
        return Finding("record codec", "note", "not compiled: slower, and complete", remedy)
    return Finding("record codec", "good", "compiled")


def check_loop() -> Finding:
    """Whether uvloop is there."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return Finding("event loop", "good", f"uvloop {version('uvloop')}")
    except PackageNotFoundError:
        found = "the standard one: slower, and complete"
        return Finding("event loop", "note", found, "pip install uvloop")


# --- the machine ----------------------------------------------------------------------------


def check_port(check: str, address: str, broker_runs: bool) -> Finding:
    """Whether the port is free, or taken by the broker that we reached."""
    host, _, port = address.rpartition(":")
    if not port.isdigit():
        return Finding(check, "bad", f"{address!r} is no address", "give HOST:PORT")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host.strip("[]") or "127.0.0.1", int(port)))
        except OSError as error:
            if broker_runs:
                return Finding(check, "good", f"{address} is in use; a broker answers")
            remedy = f"stop what uses it (ss -ltnp 'sport = :{port}'), or choose another port"
            return Finding(check, "bad", f"{address}: {error.strerror}", remedy)
    return Finding(check, "good", f"{address} is free")


def check_data_dir(path: Path) -> Finding:
    """Whether data could be written there, and how much of it."""
    nearest = next(one for one in (path, *path.absolute().parents) if one.exists())
    if not nearest.is_dir():
        return Finding("data directory", "bad", f"{nearest} is a file", "name another directory")
    if not os.access(nearest, os.W_OK | os.X_OK):
        remedy = f"chown or chmod {nearest}, or name another directory"
        return Finding("data directory", "bad", f"{nearest} is not writable", remedy)
    free_bytes = shutil.disk_usage(nearest).free
    found = f"{path} is writable, {shown_bytes(free_bytes)} free"
    if free_bytes < _FULL_BYTES:
        return Finding("data directory", "bad", found, "free disk space, or use another disk")
    if free_bytes < _TIGHT_BYTES:
        return Finding("data directory", "note", found, "free disk space, or lower retention")
    return Finding("data directory", "good", found)


def check_open_files(limit: int | None) -> Finding:
    """Whether partitions and connections will find enough file descriptors."""
    if limit is None:
        return Finding("open files", "good", "no limit is known here")
    if limit < _FEW_FILES:
        remedy = "ulimit -n 65536 before starting a broker with many partitions or connections"
        return Finding("open files", "note", f"at most {limit}", remedy)
    return Finding("open files", "good", f"at most {limit}")


def check_java(banner: str) -> Finding:
    """Java is only needed by the Spark pipeline."""
    found = re.search(r'version "(\d+)(?:\.(\d+))?', banner)
    remedy = f"only for the Spark pipeline: install Java {_OLDEST_JAVA}+ (apt install default-jre)"
    if found is None:
        return Finding("java", "note", "not found at JAVA_HOME or on PATH", remedy)
    # Before 9, Java called itself 1.8.
    major = int(found[2] or 0) if found[1] == "1" else int(found[1])
    if major < _OLDEST_JAVA:
        return Finding("java", "note", f"version {major} is too old", remedy)
    return Finding("java", "good", f"version {major}")


def check_spark(versions: Mapping[str, str | None]) -> Finding:
    """The packages of the Spark pipeline, by name; nothing else needs them."""
    remedy = "only for the Spark pipeline: pip install 'waystation[pipelines]'"
    lacking = [name for name, version in versions.items() if version is None]
    if lacking:
        return Finding("spark", "note", f"{', '.join(lacking)} not installed", remedy)
    found = ", ".join(f"{name} {version}" for name, version in versions.items())
    if _release(versions["pyspark"]) < _OLDEST_PYSPARK:
        return Finding("spark", "note", f"{found}: pyspark is too old", remedy)
    if _release(versions["pandas"]) >= (3,):
        return Finding("spark", "note", f"{found}: pyspark needs a pandas before 3", remedy)
    return Finding("spark", "good", found)


def _release(version: str | None) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version or "")[:2])


def _versions(packages: Iterable[str]) -> dict[str, str | None]:
    from importlib.metadata import PackageNotFoundError, version

    found: dict[str, str | None] = {}
    for name in packages:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def check_broker(bootstrap: str) -> Finding:
    """Whether a broker answers."""
    from waystation.client.admin import Admin
    from waystation.model.errors import WaystationError
    from waystation.runtime.loops import run

    async def ask() -> str:
        async with Admin(bootstrap, connect_timeout_ms=2_000) as admin:
            cluster = await admin.describe_cluster()
        return f"{bootstrap} answers: cluster {cluster.cluster_id}, brokers " + _listed(
            broker.node for broker in cluster.brokers
        )

    try:
        return Finding("broker", "good", run(ask()))
    except WaystationError as error:
        return Finding("broker", "note", str(error))


def _listed(nodes: Iterable[int]) -> str:
    return ", ".join(map(str, nodes))


def _open_files() -> int | None:
    try:
        import resource
    except ImportError:
        return None
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def _java_banner(environment: Mapping[str, str]) -> str:
    """What the Java says of itself that Spark would start: that of JAVA_HOME before PATH's."""
    home = environment.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else "java"
    if shutil.which(program) is None:
        return ""
    said = subprocess.run([program, "-version"], capture_output=True, text=True, check=False)
    return said.stderr + said.stdout
