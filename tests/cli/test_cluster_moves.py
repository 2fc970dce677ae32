"""``waystation cluster status``, ``reassign``, ``drain``, ``rebalance`` and ``elect``."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.command import waystation
from tests.support.local_cluster import LocalCluster, local_cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with local_cluster(tmp_path_factory.mktemp("moves") / "cluster", nodes=3) as cluster:
        yield cluster


def _replicas(cluster: LocalCluster, topic: str) -> list[list[int]]:
    told = json.loads(cluster.ask("describe", topic, "--json", command=("topic",)).out)
    return [one["replicas"] for one in told["partitions"]]


# --- status ---------------------------------------------------------------------------------


def test_a_healthy_cluster_says_so(cluster: LocalCluster, topic: str) -> None:
    cluster.create(topic, "--partitions", "3", "--replication-factor", "3")
    shown = cluster.ask("status", "--check", "--partitions", "--wait", "30s")
    told: dict[str, Any] = cluster.told("status")

    assert shown.code == 0, shown.err
    assert shown.err.rstrip().endswith("healthy")
    assert f"{topic}-0" in shown.out
    assert told["healthy"]
    assert told["controller"] in (1, 2, 3)
    assert [one["node"] for one in told["brokers"]] == [1, 2, 3]
    assert {one["machine"] for one in told["brokers"]} == {"broker-1", "broker-2", "broker-3"}
    assert all(one["free_bytes"] > 0 for one in told["brokers"])


def test_a_dead_broker_is_seen_and_its_return_awaited(cluster: LocalCluster, topic: str) -> None:
    cluster.create(topic, "--partitions", "1", "--replication-factor", "3")
    cluster("kill", "3")
    # As soon as its lease has ended others are in sync without it.
    for _ in range(100):
        found = [one for one in cluster.told("status")["partitions"] if one["topic"] == topic]
        if found and len(found[0]["in_sync"]) < 3:
            break
    checked = cluster.ask("status", "--check")
    informed = cluster.ask("status")
    cluster("start", "3")
    back = cluster.ask("status", "--wait", "30s")

    (troubled,) = found
    assert sorted(troubled["in_sync"]) == [1, 2]
    assert troubled["under_replicated"]
    assert not troubled["leaderless"]
    assert checked.code == 1
    assert "not alive: broker 3" in checked.err
    assert "under-replicated" in checked.out
    assert informed.code == 0
    assert back.code == 0, back.err


def test_a_store_that_is_away_is_seen(cluster: LocalCluster) -> None:
    cluster("kill", "etcd")
    try:
        for _ in range(100):
            told = cluster.told("status")
            if not told["healthy"]:
                break
        checked = cluster.ask("status", "--check")
    finally:
        cluster("start", "etcd")
    back = cluster.ask("status", "--wait", "30s")

    assert told["store_silent_ms"] > 0
    assert checked.code == 1
    assert "the coordination store has not answered for" in checked.err
    assert back.code == 0, back.err


def test_nobody_there_is_an_error() -> None:
    ended = waystation("cluster", "status", "--bootstrap", "127.0.0.1:1")

    assert ended.code == 1
    assert "no broker answers" in ended.err


# --- moves ----------------------------------------------------------------------------------


def test_a_topic_moves_to_other_brokers_with_its_messages(
    cluster: LocalCluster, topic: str
) -> None:
    cluster.create(topic, "--partitions", "2", "--replication-factor", "2")
    cluster.ask("reassign", "--topics", topic, "--to", "1,2", "--yes", "--wait")
    cluster.produce(topic, "carried along")
    dry = cluster.told("reassign", "--topics", topic, "--to", "1,3", "--dry-run")
    before = _replicas(cluster, topic)
    moved = cluster.ask(
        "reassign", "--topics", topic, "--to", "1,3", "--wait", "--yes", "--throttle", "50MB"
    )
    again = cluster.ask("reassign", "--topics", topic, "--to", "1,3", "--yes")
    described = json.loads(cluster.ask("describe", topic, "--json", command=("topic",)).out)

    assert all(sorted(replicas) == [1, 2] for replicas in before)
    assert all(sorted(one["replicas"]) == [1, 3] for one in dry["partitions"])
    assert moved.code == 0, moved.err
    assert "done" in moved.err
    assert all(sorted(replicas) == [1, 3] for replicas in _replicas(cluster, topic))
    assert cluster.consume(topic) == "carried along\n"
    assert again.err == "nothing has to move\n"
    assert not [name for name in described["configs"] if "throttled" in name]


def test_more_replicas_and_fewer(cluster: LocalCluster, topic: str) -> None:
    cluster.create(topic, "--partitions", "1", "--replication-factor", "1")
    more = cluster.ask(
        "reassign", "--topics", topic, "--replication-factor", "3", "--yes", "--wait"
    )
    three = _replicas(cluster, topic)
    cluster.ask("reassign", "--topics", topic, "--replication-factor", "2", "--yes", "--wait")

    unknown = cluster.ask("reassign", "--topics", topic, "--to", "1,9", "--yes")
    many = cluster.ask("reassign", "--topics", topic, "--replication-factor", "4", "--yes")
    led = cluster.ask("elect", f"{topic}:0", "--unclean", "--yes")

    assert (unknown.code, many.code, led.code) == (1, 1, 1)
    assert "there is no broker 9; there are 1, 2, 3" in unknown.err
    assert "of the brokers 1, 2, 3 only 3 can hold one, on machines of their own" in many.err
    assert "Remedy: ask for 3 or less" in many.err
    assert led.err.splitlines()[-1].startswith(f"waystation: {topic}-0 is led by broker ")
    assert more.code == 0, more.err
    assert sorted(three[0]) == [1, 2, 3]
    assert len(_replicas(cluster, topic)[0]) == 2


def test_a_plan_as_kafkas_tool_has_it(cluster: LocalCluster, topic: str, tmp_path: Path) -> None:
    cluster.create(topic, "--partitions", "1", "--replication-factor", "1")
    plan = tmp_path / "plan.json"
    log_dirs = {"log_dirs": ["any", "any"]}
    move = {"topic": topic, "partition": 0, "replicas": [2, 1], **log_dirs}
    plan.write_text(json.dumps({"version": 1, "partitions": [move]}))
    moved = cluster.ask("reassign", "--plan", str(plan), "--yes", "--wait")
    status = cluster.ask("reassign", "--status")
    move["replicas"] = [1, 9]
    plan.write_text(json.dumps({"version": 1, "partitions": [move]}))
    refused = cluster.ask("reassign", "--plan", str(plan), "--yes")

    assert moved.code == 0, moved.err
    assert _replicas(cluster, topic) == [[2, 1]]
    assert status.err == "nothing is on its way\n"
    assert refused.code == 1
    assert f"waystation: {topic}-0: broker 9 is not registered; there are 1, 2, 3" in refused.err


def test_a_slow_move_is_seen_and_taken_back(cluster: LocalCluster, topic: str) -> None:
    cluster.create(topic, "--partitions", "1", "--replication-factor", "1")
    ((holder,),) = _replicas(cluster, topic)
    other = next(node for node in (1, 2, 3) if node != holder)
    for _ in range(3):
        cluster.produce(topic, "x" * 60_000)
    asked = cluster.ask(
        "reassign", "--topics", topic, "--to", str(other), "--yes", "--throttle", "1KB"
    )
    told = cluster.told("reassign", "--status")
    cancelled = cluster.ask("reassign", "--cancel", "--topics", topic, "--yes")
    after = cluster.told("reassign", "--status")

    assert asked.code == 0, asked.err
    assert [one["partition"] for one in told["moving"]] == [f"{topic}-0"]
    assert told["moving"][0]["waits_for"] == str(other)
    assert told["throttles_removed"] == []
    assert cancelled.code == 0, cancelled.err
    assert after["moving"] == []
    assert _replicas(cluster, topic) == [[holder]]


def test_a_broker_is_drained_and_filled_again(cluster: LocalCluster, topic: str) -> None:
    cluster.create(topic, "--partitions", "6", "--replication-factor", "2")
    drained = cluster.ask("drain", "2", "--wait")
    stuck_or_not = drained.code
    without = _replicas(cluster, topic)
    undone = cluster.ask("drain", "2", "--undo")
    plan = cluster.ask("rebalance", "--dry-run")
    cluster.ask("rebalance", "--yes", "--wait")
    balanced = {one["node"]: one["replicas"] for one in cluster.told("status")["brokers"]}

    assert all(2 not in replicas for replicas in without)
    assert undone.code == 0
    assert "PREFERRED LEADERS" in plan.out
    assert max(balanced.values()) - min(balanced.values()) <= 1
    # Topics with a replica on every broker have nowhere to go.
    assert stuck_or_not == (1 if "have nowhere to go" in drained.err else 0)


def test_preferred_leaders_are_elected(cluster: LocalCluster, topic: str) -> None:
    cluster.create(topic, "--partitions", "3", "--replication-factor", "3")
    cluster("kill", "1", "--signal", "TERM")
    cluster("start", "1")
    assert cluster.ask("status", "--wait", "30s").code == 0
    elected = cluster.ask("elect", "--json")
    told = json.loads(cluster.ask("describe", topic, "--json", command=("topic",)).out)

    assert elected.code == 0, elected.err
    assert all(one["leader"] == one["replicas"][0] for one in told["partitions"])


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("reassign",), "give one of"),
        (("reassign", "--to", "1"), "need --topics"),
        (("reassign", "--topics", "x", "--to", "one"), "must be numbers"),
        (("reassign", "--plan", "/nowhere.json"), "No such file"),
        (("reassign", "--cancel", "--throttle", "fast"), "is no rate"),
        (("reassign", "--topics", "x", "--to", "2,2"), "a broker holds one replica"),
        (("elect", "--unclean"), "needs the partitions to be named"),
        (("elect", "orders"), "must be TOPIC:PARTITION"),
        (("status", "--wait", "soon"), "is no duration"),
    ],
)
def test_a_command_line_that_makes_no_sense(
    cluster: LocalCluster, words: tuple[str, ...], reason: str
) -> None:
    ended = cluster.ask(*words)

    assert ended.code == 2
    assert reason in ended.err


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("reassign", "--topics", "nope", "--to", "1"), "there is no topic 'nope'"),
        (("drain", "9"), "there is no broker 9; there are 1, 2, 3"),
        (("elect", "nope:0"), "partition nope-0 does not exist"),
    ],
)
def test_what_is_not_there_is_named(
    cluster: LocalCluster, words: tuple[str, ...], reason: str
) -> None:
    ended = cluster.ask(*words)

    assert ended.code == 1
    assert reason in ended.err
