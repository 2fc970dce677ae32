"""Apache Kafka as it ships: KRaft, one combined node, its own settings, heap and collector.

It never calls fsync on the data path, whatever ``durability`` a scenario asks of us: that
is the comparison we want, and the table says so.
"""

from __future__ import annotations

import base64
import subprocess
import uuid
from collections.abc import Mapping
from pathlib import Path
from string import Template

from benchmarks.peers import java
from benchmarks.peers.broker import free_ports

_PROPERTIES = Path(__file__).with_name("kafka.properties")
_LOGGING = Path(__file__).with_name("log4j2.properties")

# bin/kafka-server-start.sh: heap, and a garbage collector log; kafka-run-class.sh: local JMX.
HEAP_OPTIONS = ("-Xmx1G", "-Xms1G")
_JMX_OPTIONS = (
    "-Dcom.sun.management.jmxremote=true",
    "-Dcom.sun.management.jmxremote.authenticate=false",
    "-Dcom.sun.management.jmxremote.ssl=false",
)


class KafkaPeer:
    """Starts ``kafka.Kafka`` the way its scripts do."""

    name = "kafka"

    def install(self) -> None:
        """Fetch the jars from Maven Central unless they are here."""
        java.fetch_kafka()

    def facts(self) -> dict[str, object]:
        """Version, Java, JVM options and the properties file."""
        return {
            "version": java.KAFKA_VERSION,
            "java": java.java_version(),
            "jvm": " ".join((*HEAP_OPTIONS, *java.PERFORMANCE_OPTIONS)),
            "settings": _shipped_settings(),
        }

    def prepare(self, directory: Path, port: int, durability: str) -> None:
        """Write the properties and format the storage, which Kafka's users do once by hand."""
        write_properties(directory, port, free_ports(1)[0], {})
        format_storage(directory, new_id(), "--standalone")

    def command(self, directory: Path, port: int, durability: str) -> list[str]:
        """The broker, with the options of kafka-server-start.sh."""
        return start_command(directory)


def write_properties(
    directory: Path, port: int, controller_port: int, changed: Mapping[str, str]
) -> None:
    """The shipped settings of one node, with those ``changed`` that a cluster cannot share."""
    text = Template(_PROPERTIES.read_text()).substitute(
        PORT=port, CONTROLLER_PORT=controller_port, DIRECTORY=directory / "log"
    )
    kept = [line for line in text.splitlines() if line.split("=", 1)[0] not in changed]
    kept += [f"{name}={value}" for name, value in changed.items()]
    _config(directory).write_text("\n".join(kept) + "\n")
    (directory / "logs").mkdir()


def format_storage(directory: Path, cluster_id: str, *more: str) -> None:
    """What ``kafka-storage.sh format`` does; ``more`` says who the controllers are."""
    command = ["java", "-Xmx256M", f"-Dkafka.logs.dir={directory / 'logs'}"]
    command += ["-cp", java.classpath(), "kafka.tools.StorageTool", "format"]
    command += [f"--cluster-id={cluster_id}", "-c", str(_config(directory)), *more]
    subprocess.run(command, check=True, capture_output=True)


def start_command(directory: Path) -> list[str]:
    """The broker of this directory, with the options of kafka-server-start.sh."""
    logs = directory / "logs"
    return [
        *("java", *HEAP_OPTIONS, *java.PERFORMANCE_OPTIONS, *_JMX_OPTIONS),
        f"-Xlog:gc*:file={logs}/kafkaServer-gc.log:time,tags:filecount=10,filesize=100M",
        f"-Dkafka.logs.dir={logs}",
        f"-Dlog4j2.configurationFile={_LOGGING}",
        *("-cp", java.classpath(), "kafka.Kafka", str(_config(directory))),
    ]


def new_id() -> str:
    """A random id as Kafka writes those of clusters and directories."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def _config(directory: Path) -> Path:
    return directory / "server.properties"


def _shipped_settings() -> dict[str, str]:
    lines = _PROPERTIES.read_text().splitlines()
    pairs = (line.split("=", 1) for line in lines if line and not line.startswith("#"))
    return {name: value for name, value in pairs if "${" not in value}
