"""``waystation cluster up`` and what follows: a real etcd and real brokers in the background."""

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.command import COMMAND, waystation
from tests.support.local_cluster import LocalCluster, local_cluster

from waystation.node import etcd_program
from waystation.node.local import LocalNodes
from waystation.node.local_plan import LocalClusterError, Wish, first_plan, grown


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with local_cluster(tmp_path_factory.mktemp("local") / "cluster", nodes=2) as cluster:
        yield cluster


def test_up_starts_everything_and_the_second_time_nothing(cluster: LocalCluster) -> None:
    before = cluster.running()
    again = cluster.up()
    shown = cluster("up")

    assert list(before) == ["etcd", "broker-1", "broker-2"]
    assert None not in before.values()
    assert again["started"] == []
    assert [one["pid"] for one in again["brokers"]] == [before["broker-1"], before["broker-2"]]
    assert shown.out.splitlines()[0].split() == ["PROCESS", "PID", "ADDRESS", "HTTP"]
    assert f"export WAYSTATION_BOOTSTRAP={again['bootstrap']}" in shown.err


def test_a_broker_is_killed_and_started_again(cluster: LocalCluster, topic: str) -> None:
    cluster.up()
    pid = cluster.running()["broker-2"]
    cluster.create(topic, "--partitions", "4", "--replication-factor", "2")
    cluster.produce(topic, "still to be had")
    killed = cluster("kill", "2")
    read = cluster.consume(topic)  # although nobody has taken its place yet
    while_dead = cluster.running()["broker-2"]
    twice = cluster("kill", "2")
    started = cluster("start", "2", "--json")

    assert killed.err == "broker-2: killed\n"
    assert read == "still to be had\n"
    assert while_dead is None
    assert twice.code == 1
    assert twice.err == "waystation: broker-2 does not run\n"
    assert json.loads(started.out)["state"] == "started", started.err
    assert cluster.running()["broker-2"] not in (None, pid)


def test_logs_are_shown_and_followed(cluster: LocalCluster) -> None:
    cluster.up()
    shown = cluster("logs", "1")
    command = [*COMMAND, "cluster", "logs", "1", "-f", "--data-dir", str(cluster.folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        line = following.stdout.readline()
        following.send_signal(signal.SIGINT)
        assert following.wait(20) == 130

    assert "ready: kafka" in shown.out
    assert line in cluster("logs", "1", "-n", "1000").out
    assert cluster("logs", "7").code == 1


def test_all_is_there_after_everything_was_killed(cluster: LocalCluster, topic: str) -> None:
    """As if the machine had lost its power: ``up`` is all it takes."""
    cluster.up()
    cluster.produce(topic, "still here")
    for pid in cluster.running().values():
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
    told = cluster.up()

    assert told["started"] == ["etcd", "broker-1", "broker-2"]
    assert cluster.consume(topic) == "still here\n"


def test_all_is_there_after_down_and_up(cluster: LocalCluster, topic: str) -> None:
    cluster.up()
    cluster.produce(topic, "kept")
    down = cluster("down", "--json")
    nothing = cluster("down")
    cluster.up()

    assert json.loads(down.out)["stopped"] == ["broker-1", "broker-2", "etcd"]
    assert nothing.err.startswith("nothing was running; the data stays in ")
    assert cluster.consume(topic) == "kept\n"


def test_a_command_beside_another_is_told_to_wait(cluster: LocalCluster) -> None:
    with LocalNodes(cluster.folder).alone():
        ended = cluster("up")

    assert ended.code == 1
    assert "another command starts or stops the cluster" in ended.err


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    for command in (("down",), ("kill", "1"), ("start", "1"), ("logs", "1")):
        ended = waystation("cluster", *command, "--data-dir", str(tmp_path / "none"))

        assert ended.code == 1
        assert "Remedy: `waystation cluster up` makes one" in ended.err


def test_without_etcd_the_remedy_is_one_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(etcd_program, "_CHECKOUT", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))  # no apt either

    with pytest.raises(etcd_program.NoEtcdError, match="sudo apt-get install etcd-server"):
        etcd_program.find_etcd({"XDG_CACHE_HOME": str(tmp_path)}, lambda line: None)


def test_an_etcd_that_was_unpacked_is_found(tmp_path: Path) -> None:
    program = tmp_path / "waystation" / "tools" / "usr" / "bin" / "etcd"
    program.parent.mkdir(parents=True)
    program.touch(mode=0o755)
    found = etcd_program.find_etcd({"XDG_CACHE_HOME": str(tmp_path)}, lambda line: None)

    assert found.name == "etcd"


# --- plans ----------------------------------------------------------------------------------


def test_a_plan_grows_and_keeps_what_it_has() -> None:
    first = first_plan(Wish(nodes=2, kafka_port=0, options={"num.partitions": "7"}))
    more = grown(first, Wish(nodes=4, options={"retention.ms": "5"}))

    assert [one.id for one in more.brokers] == [1, 2, 3, 4]
    assert more.brokers[:2] == first.brokers
    assert len({port for one in more.brokers for port in (one.kafka_port, one.http_port)}) == 8
    assert more.options == {"num.partitions": "7", "retention.ms": "5"}
    assert more.store == first.store
    assert grown(first, Wish()) == first


@pytest.mark.parametrize(
    ("wish", "reason"),
    [
        (Wish(nodes=1), "this cluster has 2 brokers. Remedy: .*drain"),
        (Wish(store="etcd://elsewhere"), "keeps its metadata at etcd://127.0.0.1:"),
        (Wish(kafka_port=1), "has its ports"),
    ],
)
def test_a_plan_that_exists_is_not_changed_into_another(wish: Wish, reason: str) -> None:
    plan = first_plan(Wish(nodes=2, kafka_port=0))

    with pytest.raises(LocalClusterError, match=reason):
        grown(plan, wish)


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(LocalClusterError, match=f"port {port} is taken"):
            first_plan(Wish(kafka_port=port))


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        (("--store", "sqlite"), 2, "--store sqlite is the file of one node"),
        (("--store", "http://127.0.0.1:2379"), 2, "is no coordination store: a store is"),
        (("--store", "etcd://[::1"), 2, "an IPv6 address is written as [::1]"),
        (("--store", "etcd://127.0.0.1:1"), 1, "http://127.0.0.1:1: connection refused"),
        (("--set", "no.such.option=3"), 2, "unknown option no.such.option"),
        (("--set", "num.partitions=many"), 2, "num.partitions"),
        (("--port", "70000"), 2, "70000 is not in the range"),
    ],
)
def test_what_cannot_be_leaves_nothing_behind(
    tmp_path: Path, words: tuple[str, ...], code: int, reason: str
) -> None:
    """Else every later start would be refused for it."""
    ended = waystation("cluster", "up", "--data-dir", str(tmp_path / "new"), "--port", "0", *words)

    assert ended.code == code
    assert reason in ended.err
    assert not (tmp_path / "new").exists()


def test_why_a_broker_did_not_start_is_all_that_is_said(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    cluster.up()
    cluster("kill", "2", "--signal", "TERM")
    port = LocalNodes(cluster.folder).plan.brokers[1].kafka_port
    with socket.create_server(("127.0.0.1", port)):
        ended = cluster("start", "2")
    cluster.up()

    assert ended.code == 1
    assert ended.err.startswith("waystation: broker-2 has ended: ")
    assert f"127.0.0.1:{port}" in ended.err
    assert '"event"' not in ended.err
