"""The Spark session that a job runs in.

Before a JVM is started, everything that it needs is looked at: the packages, their versions,
Java.  What is missing is named together with its remedy, since Spark itself would say only that
its gateway has exited.

Under ``spark-submit``, in a notebook, or wherever there is a session already, that one is used:
then the machine is not ours to judge, and only settings that may change while it runs are set.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from waystation.pipelines.failures import JobError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from waystation.pipelines.job import Job

__all__ = ["check_java", "check_packages", "session"]

_OLDEST_JAVA = 17
_INSTALL = "Remedy: pip install 'waystation[pipelines]'"
_OLDEST = {
    "pyspark": (4, 1),
    "pyarrow": (17,),
    "pandas": (2, 2),
    "numpy": (1, 26),
    "deltalake": (1, 0),
    "fastavro": (1, 9),
    "protobuf": (5, 28),
    "matplotlib": (3, 9),
}
_TOO_NEW = {"pandas": (3,)}
_LAUNCHED_BY_SUBMIT = "PYSPARK_GATEWAY_PORT"

# A job's own defaults; --conf wins over them.
_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    # A second copy of a task would write its rows a second time, to be thrown away.
    "spark.speculation": "false",
    "spark.ui.showConsoleProgress": "false",
}
_LOCAL_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "8",
}
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_LOGGING = """
rootLogger.level = fatal
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = fatal
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


def session(job: "Job", name: str) -> "SparkSession":
    """The session there is, or a new one as ``job`` asks for it."""
    check_packages()
    from pyspark.sql import SparkSession

    settings = {**_SETTINGS, **_given(job.conf)}
    if job.master is not None:
        settings["spark.master"] = job.master
    builder = SparkSession.builder.appName(name)
    if SparkSession.getActiveSession() is not None or _LAUNCHED_BY_SUBMIT in os.environ:
        return _configured(builder, settings).getOrCreate()
    check_java(_java_home_or_path())
    settings = {"spark.master": "local[*]", **settings}
    if is_local(settings["spark.master"]):
        settings = {**_LOCAL_SETTINGS, **settings}
        _use_this_python()
    with _quiet_logs() as quiet:
        return _configured(builder, {_JAVA_OPTIONS: quiet, **settings}).getOrCreate()


def _configured(
    builder: "SparkSession.Builder", settings: Mapping[str, str]
) -> "SparkSession.Builder":
    for setting, value in settings.items():
        builder = builder.config(setting, value)
    return builder


@contextmanager
def _quiet_logs() -> Iterator[str]:
    """Java's option for a JVM that keeps to itself; a file, since it speaks before it can be told.

    A failure is told once, by us, as one line.  ``--conf spark.log.level=INFO`` shows everything.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log4j2.properties"
        path.write_text(_LOGGING)
        yield f"-Dlog4j2.configurationFile={path.as_uri()}"


def is_local(master: str) -> bool:
    """Whether the workers run on this machine, from this installation."""
    return master.startswith("local")


def check_packages() -> None:
    """Raise if a package of the extra is missing, or is one that Spark does not understand."""
    for package, oldest in _OLDEST.items():
        found = _version(package)
        if found is None:
            raise JobError(f"the package {package} is not installed. {_INSTALL}")
        wanted = ".".join(map(str, oldest))
        if found < oldest:
            raise JobError(
                f"{package} {_shown(found)} is too old, {wanted} or newer is needed. {_INSTALL}"
            )
        if package in _TOO_NEW and found >= _TOO_NEW[package]:
            raise JobError(
                f"{package} {_shown(found)} is too new for pyspark. "
                f"Remedy: pip install '{package}<{_shown(_TOO_NEW[package])}'"
            )


def check_java(java: str | None) -> None:
    """Raise if the command ``java`` is missing or older than Spark needs."""
    remedy = (
        f"Remedy: install Java {_OLDEST_JAVA} or newer (apt install openjdk-17-jre-headless) "
        "and set JAVA_HOME to it if there are several"
    )
    if java is None:
        raise JobError(f"Spark needs Java, and there is none: no JAVA_HOME, no java. {remedy}")
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    except OSError as error:
        raise JobError(f"{java} cannot be run: {error.strerror}. {remedy}") from None
    major = _java_major(said.stderr + said.stdout)
    if major is None:
        raise JobError(f"{java} does not tell its version. {remedy}")
    if major < _OLDEST_JAVA:
        raise JobError(f"{java} is Java {major}, too old for Spark. {remedy}")


def _java_major(banner: str) -> int | None:
    found = re.search(r'version "(\d+)(?:\.(\d+))?', banner)
    if found is None:
        return None
    # Before 9, Java called itself 1.8.
    return int(found[2] or 0) if found[1] == "1" else int(found[1])


def _java_home_or_path() -> str | None:
    """The Java that Spark's own scripts would start."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else shutil.which("java")


def _use_this_python() -> None:
    """Let Spark's workers run in this environment, not in whatever python3 is on the path."""
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        os.environ.setdefault(name, sys.executable)


def _given(conf: tuple[str, ...]) -> dict[str, str]:
    split = (text.partition("=") for text in conf)
    return {name.strip(): value for name, _, value in split}


def _version(package: str) -> tuple[int, ...] | None:
    try:
        numbers = re.match(r"\d+(?:\.\d+)*", version(package))
    except PackageNotFoundError:
        return None
    return tuple(int(one) for one in numbers[0].split(".")) if numbers else ()


def _shown(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))
