"""Java and the Maven classpath of Apache Kafka: fetched once, kept under ``.cache/bench``.

Broker and tools come from the same artifacts on Maven Central, at one version.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.broker import PeerMissingError
from benchmarks.peers.places import CACHE

KAFKA_VERSION = "4.3.1"
_LOG4J_VERSION = "2.25.4"  # what kafka_2.13 of this version brings; the binding must match
_OLDEST_JAVA = 17
_DEPENDENCY_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1"
_FETCH_TIMEOUT_S = 600

# bin/kafka-run-class.sh of the release: collector options for broker and tools alike.
PERFORMANCE_OPTIONS = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)

_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>waystation.benchmarks</groupId>
  <artifactId>peers</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""
_DEPENDENCY = """\
    <dependency>
      <groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>
    </dependency>"""
Artifact = tuple[str, str, str]  # group, name, version
_ARTIFACTS: tuple[Artifact, ...] = (
    ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
    ("org.apache.kafka", "kafka-tools", KAFKA_VERSION),
    ("org.apache.logging.log4j", "log4j-slf4j-impl", _LOG4J_VERSION),
)


def jars() -> Path:
    """The folder with Kafka's jars once ``fetch_kafka`` has run."""
    return CACHE / f"kafka-{KAFKA_VERSION}"


def classpath() -> str:
    """What ``java -cp`` takes to run anything of Kafka."""
    return f"{jars()}/*"


def fetch_kafka() -> None:
    """Have Kafka's jars at hand; only the first time needs the network."""
    fetch(_ARTIFACTS, jars())


def fetch(artifacts: Sequence[Artifact], to: Path) -> None:
    """Have artifacts and what they need in the folder ``to``; the first of them tells if it is."""
    java_version()
    _, first, version = artifacts[0]
    if (to / f"{first}-{version}.jar").exists():
        return
    if shutil.which("mvn") is None:
        raise PeerMissingError("mvn is not installed: apt install maven")
    partial = to.with_name(f"{to.name}-partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    pom = partial / "pom.xml"
    listed = "\n".join(_DEPENDENCY.format(*artifact) for artifact in artifacts)
    pom.write_text(_POM.format(dependencies=listed))
    try:
        _copy_dependencies(f"{first} {version}", pom, partial)
        shutil.rmtree(to, ignore_errors=True)
        partial.rename(to)  # whole or not at all: a broken download is fetched again
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def java_version() -> str:
    """The version of the ``java`` that will run; raises if there is none or it is too old."""
    if shutil.which("java") is None:
        remedy = "apt install default-jdk-headless"
        raise PeerMissingError(f"java {_OLDEST_JAVA}+ is not installed: {remedy}")
    banner = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True).stderr
    version = parse_java_version(banner)
    if int(version.split(".")[0]) < _OLDEST_JAVA:
        raise PeerMissingError(f"java is {version}; Kafka 4 needs {_OLDEST_JAVA} or newer")
    return version


def parse_java_version(banner: str) -> str:
    """``17.0.15`` from what ``java -version`` prints; ``0`` when it prints something else."""
    found = re.search(r'version "([\d.]+)', banner)
    return found.group(1) if found else "0"


def copy_artifact(artifact: str, to: Path) -> None:
    """Have one jar, ``group:name:version``, in the folder ``to``, without what it depends on."""
    if shutil.which("mvn") is None:
        raise PeerMissingError("mvn is not installed: apt install maven")
    _maven(artifact, "copy", f"-Dartifact={artifact}", f"-DoutputDirectory={to}")


def _copy_dependencies(what: str, pom: Path, to: Path) -> None:
    options = ("-f", str(pom), "-DincludeScope=runtime", f"-DoutputDirectory={to}")
    _maven(what, "copy-dependencies", *options)


def _maven(what: str, goal: str, *options: str) -> None:
    """Let Maven's dependency plugin do something; what it says if it cannot."""
    command = ["mvn", "-B", "-q", "-Dstyle.color=never", f"{_DEPENDENCY_PLUGIN}:{goal}", *options]
    try:
        fetched = subprocess.run(
            command, capture_output=True, text=True, timeout=_FETCH_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise PeerMissingError(f"Maven Central did not deliver {what} in ten minutes") from None
    if fetched.returncode:
        said = "\n".join((fetched.stdout + fetched.stderr).splitlines()[:5])
        raise PeerMissingError(f"Maven could not fetch {what}:\n{said}")
