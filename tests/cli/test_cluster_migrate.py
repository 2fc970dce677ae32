"""``waystation cluster migrate``: a laptop's broker goes on with a real store, with its data."""

import json
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest
from tests.support.command import COMMAND, Ended, waystation
from tests.support.soak import count
from tests.support.stores import STORES, STORES_OF_TODAY, service

from waystation.cluster import keys
from waystation.cluster.values import ClusterValue, PartitionValue, TopicValue, encode
from waystation.coordination.sqlite_items import SqliteItems
from waystation.coordination.store import CoordinationStore
from waystation.model.ids import LeaderEpoch, NodeId, TopicId
from waystation.node.installing import INSTALLING
from waystation.node.stores import with_store
from waystation.testing.process import BrokerFailedError, BrokerProcess


@pytest.fixture(scope="module")
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A server, etcd unless the test asks for another."""
    kind = getattr(request, "param", "etcd")
    with service(kind, tmp_path_factory.mktemp(kind)) as address:
        yield address


@pytest.fixture
def store(running: str, topic: str) -> str:
    """A folder of the test's own."""
    return f"{running}/{topic}"


def _migrate(data_dir: Path, store: str, *words: str) -> Ended:
    arguments = ("--data-dir", str(data_dir), "--store", store, "--yes", *words)
    return waystation("cluster", "migrate", *arguments)


def _content(store: str) -> dict[str, bytes]:
    async def read(opened: CoordinationStore) -> dict[str, bytes]:
        return {key: found.value for key, found in (await opened.get("")).items.items()}

    return with_store(store, read)


def _made(data_dir: Path, topics: int) -> dict[str, bytes]:
    """The metadata of a node with so many topics, in a file as the node has it."""
    data_dir.mkdir()
    items = {keys.CLUSTER: encode(ClusterValue(id="of-a-laptop"))}
    state = encode(PartitionValue(leader=NodeId(1), leader_epoch=LeaderEpoch(3), in_sync=(1,)))  # type: ignore[arg-type]
    for number in range(topics):
        topic_id = TopicId(UUID(int=number + 1))
        items[keys.topic(f"t{number}")] = encode(TopicValue(id=topic_id, replicas=((NodeId(1),),)))
        items[keys.partition(topic_id, 0)] = state
    file = SqliteItems(data_dir / "cluster.sqlite")
    file.txn({}, items, (), {})
    file.close()
    return items


@pytest.mark.parametrize("running", STORES_OF_TODAY, indirect=True)
def test_a_broker_goes_on_with_its_topics_and_its_messages(tmp_path: Path, store: str) -> None:
    broker = BrokerProcess(tmp_path / "data")
    with broker.start():
        at = ("--bootstrap", broker.bootstrap)
        waystation("topic", "create", "orders", "--config", "retention.ms=777000", *at)
        waystation("produce", "orders", "--value", "two coffees", *at)
        told = waystation("topic", "describe", "orders", "--json", *at).out
    dry = _migrate(broker.data_dir, store, "--dry-run")
    untouched = _content(store)
    moved = _migrate(broker.data_dir, store, "--json")
    again = _migrate(broker.data_dir, store)
    with pytest.raises(BrokerFailedError, match=f"metadata moved to {store}"):
        broker.start()
    broker.options["store"] = store
    with broker.start():
        at = ("--bootstrap", broker.bootstrap)
        read = waystation("consume", "orders", "--from-beginning", *at).out
        after = waystation("topic", "describe", "orders", "--json", *at).out

    assert "would move 1 topic with 1 partition of" in dry.err
    assert untouched == {}
    assert moved.code == 0, moved.err
    assert json.loads(moved.out)["moved"] is True
    assert f"was at {store} already" in again.err
    assert read == "two coffees\n"
    assert json.loads(after)["id"] == json.loads(told)["id"]
    assert json.loads(after)["configs"] == json.loads(told)["configs"]


@pytest.mark.parametrize("running", STORES, indirect=True)
def test_all_of_it_arrives(tmp_path: Path, store: str) -> None:
    wanted = _made(tmp_path / "data", topics=300)
    moved = _migrate(tmp_path / "data", store)
    again = _migrate(tmp_path / "data", store, "--dry-run")

    assert moved.code == 0, moved.err
    assert "moved 300 topics with 300 partitions" in moved.err
    assert f"now: waystation serve --data-dir {tmp_path / 'data'} --store {store}" in moved.err
    assert _content(store) == wanted
    assert f"was at {store} already" in again.err


@pytest.mark.timeout(count(120, 1_200))
@pytest.mark.parametrize("running", STORES_OF_TODAY, indirect=True)
def test_killed_anywhere_the_same_command_goes_on(tmp_path: Path, store: str) -> None:
    """Either the node still starts on its file, or nobody does until the work is done."""
    chance = random.Random(7)
    outcomes = set()
    for turn in range(count(2, 40)):
        data_dir, target = tmp_path / f"data-{turn}", f"{store}-{turn}"
        wanted = _made(data_dir, topics=1_500)
        _kill_midway(data_dir, target, chance)
        content = _content(target)
        if keys.CLUSTER in content:
            assert content == wanted
            outcomes.add("done")
        else:
            outcomes.add("begun" if INSTALLING in content else "not begun")
        finished = _migrate(data_dir, target)

        assert finished.code == 0, finished.err
        assert _content(target) == wanted
        file = SqliteItems(data_dir / "cluster.sqlite", even_if_moved=True)
        assert file.moved_to == target
        assert {key: found.value for key, found in file.get("").items.items()} == wanted
        file.close()

    assert "not begun" not in outcomes


def _kill_midway(data_dir: Path, store: str, chance: random.Random) -> None:
    command = [*COMMAND, "cluster", "migrate", "--data-dir", str(data_dir), "--store", store]
    with subprocess.Popen([*command, "--yes"], stderr=subprocess.DEVNULL) as migrating:
        ends_at = time.monotonic() + 20

        async def begun(opened: CoordinationStore) -> None:
            while INSTALLING not in (await opened.get(INSTALLING)).items:
                if migrating.poll() is not None or time.monotonic() > ends_at:
                    return

        with_store(store, begun)
        time.sleep(chance.uniform(0, 0.3))
        migrating.send_signal(signal.SIGKILL)


def test_a_node_that_runs_is_not_migrated(broker: BrokerProcess, store: str) -> None:
    ended = _migrate(broker.data_dir, store)

    assert ended.code == 1
    assert "is in use by another process: stop it" in ended.err
    assert _content(store) == {}


def test_another_cluster_is_never_overwritten(tmp_path: Path, store: str) -> None:
    _made(tmp_path / "data", topics=1)
    theirs = {keys.CLUSTER: encode(ClusterValue(id="of-a-bank"))}
    with_store(store, lambda opened: opened.txn({}, theirs))
    ended = _migrate(tmp_path / "data", store)

    assert ended.code == 1
    assert "the store holds cluster of-a-bank already" in ended.err
    assert _content(store) == theirs
    SqliteItems(tmp_path / "data" / "cluster.sqlite").close()  # still to be used


def test_what_makes_no_sense_is_said(tmp_path: Path, store: str) -> None:
    nothing = _migrate(tmp_path / "nowhere", store)
    SqliteItems(tmp_path / "cluster.sqlite").close()
    unborn = _migrate(tmp_path, store)
    nobody = _migrate(tmp_path, "etcd://127.0.0.1:1")
    itself = _migrate(tmp_path, "sqlite")

    assert "first data directory of a node that ran" in nothing.err
    assert "holds no cluster yet" in unborn.err
    assert [ended.code for ended in (nothing, unborn, nobody, itself)] == [1, 1, 1, 2]
