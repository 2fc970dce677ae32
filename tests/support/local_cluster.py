"""The cluster that ``waystation cluster up`` starts, for tests of the commands around it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.command import Ended, waystation
from waystation.node.local import LocalNodes


class LocalCluster:
    """The commands of one cluster on this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *words: str) -> Ended:
        """A command about the processes of this machine."""
        return waystation("cluster", *words, "--data-dir", str(self.folder), timeout_s=100)

    def ask(self, *words: str, command: tuple[str, ...] = ("cluster",)) -> Ended:
        """A command that talks to brokers."""
        at = ("--bootstrap", LocalNodes(self.folder).plan.bootstrap)
        return waystation(*command, *words, *at, timeout_s=100)

    def told(self, *words: str) -> Any:
        """What a command that talks to brokers tells scripts."""
        ended = self.ask(*words, "--json")
        assert ended.code == 0, ended.err
        return json.loads(ended.out)

    def up(self, *words: str) -> dict[str, Any]:
        ended = self("up", "--port", "0", "--json", *words)
        assert ended.code == 0, ended.err
        told: dict[str, Any] = json.loads(ended.out)
        return told

    def running(self) -> dict[str, int | None]:
        return LocalNodes(self.folder).running()

    def create(self, topic: str, *words: str) -> None:
        ended = self.ask("create", topic, *words, command=("topic",))
        assert ended.code == 0, ended.err

    def produce(self, topic: str, value: str) -> None:
        ended = self.ask(topic, "--value", value, command=("produce",))
        assert ended.code == 0, ended.err

    def consume(self, topic: str) -> str:
        ended = self.ask(topic, "--from-beginning", command=("consume",))
        assert ended.code == 0, ended.err
        return ended.out


@contextmanager
def local_cluster(folder: Path, nodes: int, *words: str) -> Iterator[LocalCluster]:
    """A cluster with short leases, gone afterwards."""
    cluster = LocalCluster(folder)
    try:
        cluster.up("--nodes", str(nodes), "--set", "broker.session.timeout.ms=2000", *words)
        yield cluster
    finally:
        down = cluster("down", "--delete", "--yes")
    assert down.code == 0, down.err
    assert not cluster.folder.exists()
