"""``waystation serve --processes``: several real brokers of one machine, and their parent."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.command import COMMAND, waystation
from tests.support.servers import free_ports
from tests.support.stores import STORES, STORES_OF_TODAY, service

from waystation.model.errors import InvalidSettingsError
from waystation.node.processes import check, flags_of
from waystation.node.settings import load

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="children are found in /proc")


@pytest.fixture(scope="module")
def store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A server, etcd unless the test asks for another."""
    kind = getattr(request, "param", "etcd")
    with service(kind, tmp_path_factory.mktemp(kind)) as address:
        yield address


class _Parent:
    """A ``serve --processes 2`` and what it said."""

    def __init__(self, process: subprocess.Popen[str], log: Path, port: int) -> None:
        self.process, self._log, self._port = process, log, port

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._port},127.0.0.1:{self._port + 1}"

    def said(self) -> str:
        return self._log.read_text()

    def children(self) -> list[int]:
        pid = self.process.pid
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def until(self, true: Callable[[], bool]) -> None:
        ends_at = time.monotonic() + 40
        while not true():
            assert time.monotonic() < ends_at, self.said()[-3000:]
            time.sleep(0.05)


@contextmanager
def _parent(folder: Path, store: str, *words: str) -> Iterator[_Parent]:
    port = _two_ports()
    command = [*COMMAND, "serve", "--processes", "2", "--listen", f"127.0.0.1:{port}"]
    command += ["--http", "none", "--data-dir", str(folder / "data"), "--store", store]
    command += ["--set", "broker.session.timeout.ms=2000", *words]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, text=True)
    parent = _Parent(process, folder / "log", port)
    try:
        parent.until(lambda: parent.said().count(" ready: kafka ") == 2)
        yield parent
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(70)


def _two_ports() -> int:
    """A free port with a free one after it."""
    for port in free_ports(20):
        try:
            socket.create_server(("127.0.0.1", port + 1)).close()
        except OSError:
            continue
        return port
    raise AssertionError("no two ports in a row are free")


@pytest.mark.parametrize("store", STORES, indirect=True)
def test_each_process_is_a_broker_with_the_next_id_port_and_directory(
    tmp_path: Path, store: str
) -> None:
    with _parent(tmp_path, f"{store}/brokers") as parent:
        at = ("--bootstrap", parent.bootstrap)
        told = json.loads(waystation("cluster", "status", "--json", *at).out)
        apart = waystation("topic", "create", "safe", "--replication-factor", "2", *at)
        single = waystation("topic", "create", "quick", "--partitions", "2", *at)
        spread = json.loads(waystation("topic", "describe", "quick", "--json", *at).out)

    ports = [int(one["address"].split(":")[1]) for one in told["brokers"]]
    assert [one["node"] for one in told["brokers"]] == [1, 2]
    assert ports[1] == ports[0] + 1
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == ["broker-1", "broker-2"]
    assert {one["machine"] for one in told["brokers"]} == {socket.gethostname()}
    # Both replicas would die with this machine.
    assert apart.code == 1
    assert "machine" in apart.err
    assert single.code == 0
    assert sorted(one["leader"] for one in spread["partitions"]) == [1, 2]


@pytest.mark.parametrize("store", STORES_OF_TODAY, indirect=True)
def test_replicas_share_the_machine_if_told_and_the_dead_are_replaced(
    tmp_path: Path, store: str
) -> None:
    allowed = ("--set", "replicas.share.machine=true")
    with _parent(tmp_path, f"{store}/deaths", *allowed) as parent:
        at = ("--bootstrap", parent.bootstrap)
        made = waystation("topic", "create", "t", "--replication-factor", "2", *at)
        sent = waystation("produce", "t", "--value", "kept", *at)
        before = parent.children()
        os.kill(before[0], signal.SIGKILL)
        parent.until(lambda: parent.said().count(" ready: kafka ") == 3)
        after = parent.children()
        healthy = waystation("cluster", "status", "--wait", "30s", *at)
        read = waystation("consume", "t", "--from-beginning", *at)
        parent.process.send_signal(signal.SIGTERM)
        code = parent.process.wait(70)

    assert made.code == sent.code == 0, made.err + sent.err
    assert before[1] in after
    assert before[0] not in after
    assert "process.died" in parent.said()
    assert healthy.code == 0, healthy.err
    assert read.out == "kept\n"
    assert code == 0
    assert not any(Path(f"/proc/{pid}").exists() for pid in after)


@pytest.mark.parametrize("store", STORES_OF_TODAY, indirect=True)
def test_children_stop_when_their_parent_is_killed(tmp_path: Path, store: str) -> None:
    with _parent(tmp_path, f"{store}/orphans") as parent:
        children = parent.children()
        parent.process.kill()
        parent.process.wait()
        parent.until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children))

    clean = (tmp_path / "data").glob("broker-*/.kafka_cleanshutdown")
    assert len(list(clean)) == 2


@pytest.mark.parametrize("store", STORES_OF_TODAY, indirect=True)
def test_one_that_cannot_start_stops_all(tmp_path: Path, store: str) -> None:
    port = _two_ports()
    with socket.create_server(("127.0.0.1", port + 1)):
        ended = waystation(
            *("serve", "--processes", "2", "--listen", f"127.0.0.1:{port}", "--http", "none"),
            *("--data-dir", str(tmp_path), "--store", f"{store}/stops"),
        )

    assert ended.code == 1
    assert "another process has that port" in ended.err
    assert "could not start: all are stopped" in ended.err


def test_one_store_for_one_node_is_refused(tmp_path: Path) -> None:
    ended = waystation("serve", "--processes", "2", "--data-dir", str(tmp_path / "data"))

    assert ended.code == 2
    assert "--processes 2 needs a store that brokers can share" in ended.err
    assert "Remedy: --store etcd://" in ended.err
    assert not (tmp_path / "data").exists()


def test_what_each_process_is_told() -> None:
    given = {
        "node.id": "7",
        "listen": "0.0.0.0:9092",
        "advertise": "queue.example.org:19092",
        "http": "none",
        "log.dirs": "/disk1,/disk2",
    }
    second = flags_of(load([("test", given)]), 1)

    assert " ".join(second) == (
        "--node-id 8 --data-dir /disk1/broker-8 --data-dir /disk2/broker-8 "
        "--listen 0.0.0.0:9093 --advertise queue.example.org:19093 --http none"
    )
    assert "--listen 127.0.0.1:0" in " ".join(
        flags_of(load([("test", {"listen": "127.0.0.1:0"})]), 1)
    )
    with pytest.raises(InvalidSettingsError, match="no port 65536"):
        flags_of(load([("test", {"listen": "127.0.0.1:65535"})]), 1)
    check(load([("test", {"store": "etcd://db"})]).addresses, 2)
