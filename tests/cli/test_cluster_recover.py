"""``waystation cluster recover``: a real store loses everything, the brokers' disks do not."""

import json
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from uuid import UUID

import pytest
from kazoo.client import KazooClient
from tests.support.command import COMMAND, waystation
from tests.support.local_cluster import LocalCluster, local_cluster
from tests.support.soak import count
from tests.support.stores import STORES, STORES_OF_TODAY, service

from waystation.cli.survey_files import document
from waystation.cluster import keys
from waystation.cluster.image import ClusterImage
from waystation.cluster.keepsakes import FILE_NAME
from waystation.cluster.rebuilding import FoundReplica, Survey
from waystation.coordination.address import parse_address
from waystation.coordination.store import CoordinationStore
from waystation.model.ids import BrokerEpoch, LeaderEpoch, NodeId, TopicId, TopicPartition
from waystation.model.offsets import Offset
from waystation.node.installing import INSTALLING
from waystation.node.local import LocalNodes
from waystation.node.stores import with_store


@pytest.fixture(scope="module")
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalCluster]:
    """Three brokers; with an etcd of their own unless the test asks for another store."""
    folder = tmp_path_factory.mktemp("recover")
    with ExitStack() as stack:
        words: tuple[str, ...] = ()
        if getattr(request, "param", "etcd") != "etcd":
            address = stack.enter_context(service(request.param, folder / "store"))
            words = ("--store", f"{address}/waystation")
        yield stack.enter_context(local_cluster(folder / "cluster", 3, *words))


@pytest.fixture(scope="module")
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A server that no broker uses."""
    with service(request.param, tmp_path_factory.mktemp(request.param)) as address:
        yield address


def _lose_the_store(cluster: LocalCluster) -> None:
    """Its disk is gone, and it has begun anew."""
    address = parse_address(LocalNodes(cluster.folder).plan.store)
    if address.kind == "etcd":
        cluster("kill", "etcd")
        shutil.rmtree(cluster.folder / "etcd")
        cluster("start", "etcd")
        return
    client = KazooClient(",".join(address.endpoints))
    client.start()
    client.delete(f"/{address.folder}", recursive=True)
    client.stop()
    client.close()


def _content(store: str) -> dict[str, bytes]:
    async def read(opened: CoordinationStore) -> dict[str, bytes]:
        return {key: found.value for key, found in (await opened.get("")).items.items()}

    return with_store(store, read)


def _directories(cluster: LocalCluster, *nodes: int) -> list[str]:
    paths = [str(cluster.folder / f"broker-{node}") for node in nodes]
    return [word for path in paths for word in ("--data-dir", path)]


@pytest.mark.parametrize("cluster", STORES_OF_TODAY, indirect=True)
def test_topics_messages_and_groups_are_there_again(
    cluster: LocalCluster, topic: str, tmp_path: Path
) -> None:
    store = LocalNodes(cluster.folder).plan.store
    cluster.create(topic, "--partitions", "3", "--config", "retention.ms=777000")
    for number in range(6):
        cluster.produce(topic, f"message {number}")
    group = ("--group", "readers", "--from-beginning", "--count", "4")
    assert cluster.ask(topic, *group, command=("consume",)).code == 0
    queue = ("--order-by-key", "--lock", "7s", "--delays")
    for words, command in (
        ((f"{topic}-work", *queue), ("queue", "create")),
        ((f"{topic}-some", "--on", topic, "--where", "headers.a = 'b'"), ("view", "create")),
    ):
        assert (made := cluster.ask(*words, command=command)).code == 0, made.err
    _await_copies(cluster, f"{topic}-some")
    before = cluster.told("status")
    for name in ("1", "2", "3"):
        cluster("kill", name)
    _lose_the_store(cluster)

    survey = waystation("cluster", "recover", "--survey-only", *_directories(cluster, 3))
    (tmp_path / "3.json").write_text(survey.out)
    words = ["--store", store, "--survey", str(tmp_path / "3.json"), *_directories(cluster, 1, 2)]
    dry = waystation("cluster", "recover", "--dry-run", *words)
    untouched = _content(store)
    recovered = waystation("cluster", "recover", "--yes", "--json", *words)
    assert recovered.code == 0, recovered.err
    again = waystation("cluster", "recover", "--yes", *words)
    needless = waystation("cluster", "recover", "--dry-run", *words)
    cluster.up()
    healthy = cluster.ask("status", "--wait", "30s")
    read = cluster.consume(topic)
    lag = cluster.ask("describe", "readers", "--json", command=("group",))
    configs = cluster.ask("describe", topic, "--json", command=("topic",)).out
    queue_options = _content(store)[keys.group_config(f"{topic}-work")].decode()
    delayed = ("--value", "late", "--after", "1s")
    sent = cluster.ask(f"{topic}-work", *delayed, command=("queue", "send"))
    came = cluster.ask(f"{topic}-work", "--wait", "20s", command=("queue", "receive"))
    view = cluster.ask("list", command=("view",))

    assert dry.code == 0, dry.err
    assert "keep everything" in dry.err
    assert untouched == {}
    told = json.loads(recovered.out)
    assert told["written"]
    assert told["lost"] == []
    assert told["cluster_id"] == before["cluster_id"]
    assert told["partitions"] == before["partition_count"]
    assert "nothing was written" in again.err
    assert "nothing would be written" in needless.err
    assert healthy.code == 0, healthy.err
    assert sorted(read.splitlines()) == [f"message {number}" for number in range(6)]
    assert '"lag":2' in lag.out.replace(" ", "") or _lag(lag.out) == 2
    assert json.loads(configs)["configs"]["retention.ms"]["value"] == "-1"
    assert '"share.order":"key"' in queue_options
    assert '"share.record.lock.duration.ms":"7000"' in queue_options
    assert sent.code == 0, sent.err
    assert "late" in came.out
    assert f"{topic}-some" in view.out


def _await_copies(cluster: LocalCluster, name: str) -> None:
    """Until every broker has written down what only the store knows."""
    deadline = time.monotonic() + 30
    for node in (1, 2, 3):
        path = cluster.folder / f"broker-{node}" / FILE_NAME
        while not path.exists() or name not in path.read_text():
            assert time.monotonic() < deadline, f"{path} does not name {name}"
            time.sleep(0.05)


def _lag(text: str) -> int:
    told = [json.loads(line) for line in text.splitlines()]
    return sum(one.get("lag") or 0 for each in told for one in each.get("partitions", [each]))


@pytest.mark.parametrize("cluster", STORES_OF_TODAY, indirect=True)
def test_a_cluster_that_lives_is_never_overwritten(cluster: LocalCluster) -> None:
    store = LocalNodes(cluster.folder).plan.store
    cluster.up()
    before = _content(store)
    running = waystation(
        "cluster", "recover", "--yes", "--store", store, *_directories(cluster, 1, 2, 3)
    )
    survey = Survey(NodeId(1), "another", BrokerEpoch(0), ())
    file = cluster.folder.parent / "another.json"
    _write(file, survey)
    other = waystation("cluster", "recover", "--yes", "--store", store, "--survey", str(file))

    assert running.code == 1
    assert "broker-1" in running.err
    assert other.code == 1
    assert "the store holds cluster" in other.err
    assert _content(store) == before


@pytest.mark.timeout(count(120, 1_200))
@pytest.mark.parametrize("running", STORES, indirect=True)
def test_killed_anywhere_the_same_command_goes_on(running: str, tmp_path: Path) -> None:
    chance = random.Random(11)
    replicas = tuple(
        FoundReplica(
            TopicPartition(f"t{number}", 0),
            TopicId(UUID(int=number + 1)),
            LeaderEpoch(3),
            Offset(0),
            Offset(9),
        )
        for number in range(1_000)
    )
    file = tmp_path / "survey.json"
    _write(file, Survey(NodeId(1), None, BrokerEpoch(0), replicas))
    for turn in range(count(1, 40)):
        store = f"{running}/killed-{turn}"
        command = ["cluster", "recover", "--yes", "--store", store, "--survey", str(file)]
        with subprocess.Popen([*COMMAND, *command], stderr=subprocess.DEVNULL) as recovering:
            with_store(store, lambda opened, one=recovering: _begun(opened, one))  # type: ignore[misc]
            time.sleep(chance.uniform(0, 0.2))
            recovering.send_signal(signal.SIGKILL)
        half = _content(store)
        finished = waystation(*command)
        whole = _content(store)

        assert INSTALLING in half or keys.CLUSTER in half
        assert finished.code == 0, finished.err
        assert INSTALLING not in whole
        image = ClusterImage.from_items({key: (value, 1) for key, value in whole.items()}, 1)
        assert len(image.topics) == 1_000
        assert image.strays == {}


async def _begun(store: CoordinationStore, process: subprocess.Popen[bytes]) -> None:
    while not (await store.get(INSTALLING)).items and process.poll() is None:
        pass


def _write(path: Path, survey: Survey) -> None:
    import msgspec

    path.write_bytes(msgspec.json.encode(document(survey)))


def test_what_makes_no_sense_is_said(tmp_path: Path) -> None:
    (tmp_path / "damaged.json").write_text("{}")
    store = ("--store", "etcd://127.0.0.1:1")
    usage = [
        waystation("cluster", "recover"),
        waystation("cluster", "recover", "--data-dir", str(tmp_path)),
        waystation("cluster", "recover", *store, "--survey", str(tmp_path / "damaged.json")),
        waystation("cluster", "recover", *store, "--survey", str(tmp_path / "none.json")),
    ]
    empty = waystation("cluster", "recover", *store, "--data-dir", str(tmp_path))

    assert [ended.code for ended in usage] == [2, 2, 2, 2]
    assert empty.code == 1
    assert "is no data directory of a broker" in empty.err
