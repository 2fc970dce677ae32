"""Spark's own Kafka connector: its jars, fetched once from Maven Central, beside Kafka's.

PyPI's ``pyspark`` has none of them.  The connector that fits it best is the one of its own version;
where Maven Central has no such one yet, an earlier one is taken.
"""

from __future__ import annotations

import shutil
from importlib.metadata import version
from pathlib import Path

from benchmarks.peers import java
from benchmarks.peers.broker import PeerMissingError
from benchmarks.peers.places import CACHE

_CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13"
_TOKENS = "org.apache.spark:spark-token-provider-kafka-0-10_2.13"
_EARLIER = ("4.2.0", "4.1.1")
# Hardly changes from one version to the next; only used where delegation tokens are.
_EARLIER_TOKENS = (*_EARLIER, "4.1.0-preview1", "4.0.0")
_WITH_IT = (
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
    "org.scala-lang.modules:scala-parallel-collections_2.13:1.2.0",
)


def jars() -> Path:
    """The folder with the jars once ``fetch_connector`` has run."""
    return CACHE / f"spark-kafka-{version('pyspark')}"


def fetch_connector() -> list[Path]:
    """Have the connector's jars at hand, for ``spark.jars``; the first time needs the network."""
    if not jars().exists():
        java.java_version()
        partial = CACHE / "spark-kafka-partial"
        shutil.rmtree(partial, ignore_errors=True)
        try:
            _first_of(_CONNECTOR, (version("pyspark"), *_EARLIER), partial)
            _first_of(_TOKENS, (version("pyspark"), *_EARLIER_TOKENS), partial)
            for artifact in _WITH_IT:
                java.copy_artifact(artifact, partial)
            partial.rename(jars())  # whole or not at all: a broken download is fetched again
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return sorted(jars().glob("*.jar"))


def connector_version() -> str:
    """The version of the connector that was fetched."""
    name = _CONNECTOR.partition(":")[2]
    return next(jars().glob(f"{name}-*.jar")).stem.removeprefix(f"{name}-")


def _first_of(artifact: str, versions: tuple[str, ...], to: Path) -> None:
    refusals = []
    for each in dict.fromkeys(versions):
        try:
            java.copy_artifact(f"{artifact}:{each}", to)
        except PeerMissingError as error:
            refusals.append(str(error))
        else:
            return
    raise PeerMissingError("\n".join(refusals))
