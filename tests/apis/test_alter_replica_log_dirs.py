"""AlterReplicaLogDirs: a replica moves between directories while it is written and read."""

import os
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import pytest

from tests.apis.asking import BROKER, TOPIC, Asking
from tests.apis.clustering import ThreadedCluster
from tests.apis.kit import ThreadedNode, batch_of, versions
from waystation.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from waystation.messages.describe_log_dirs import DescribeLogDirsPartition, DescribeLogDirsRequest
from waystation.model.errors import ErrorCode
from waystation.wire.versions import ApiKey


class Twofold:
    """A node with two data directories."""

    def __init__(self, folder: Path) -> None:
        self.paths = [str(folder / "left"), str(folder / "right")]
        self._folder = folder
        self.start()

    def start(self) -> None:
        """Its first or next life."""
        self.node = ThreadedNode(self._folder, log_dirs=",".join(self.paths))
        self.node.__enter__()

    def home(self, topic: str) -> str:
        """The directory that a partition is served from."""
        partition = self.node.node.broker.replicas.get(topic, 0)
        return str(partition.log.directory.path)

    def elsewhere(self, topic: str) -> str:
        """The other one."""
        return next(path for path in self.paths if path != self.home(topic))


@pytest.fixture(scope="module")
def twofold(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twofold]:
    made = Twofold(tmp_path_factory.mktemp("twofold"))
    yield made
    made.node.stop()


@pytest.fixture
def client(twofold: Twofold) -> Iterator[Asking]:
    with Asking(*twofold.node.address) as connected:
        yield connected


def move(client: Asking, path: str, topic: str, *numbers: int, version: int = 2) -> list[int]:
    request = AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDir(
                path=path, topics=[AlterReplicaLogDirTopic(name=topic, partitions=list(numbers))]
            )
        ]
    )
    (told,) = client.ask(request, version).results
    assert told.topic_name == topic
    assert [one.partition_index for one in told.partitions] == list(numbers)
    return [one.error_code for one in told.partitions]


def shown(client: Asking, topic: str) -> dict[str, list[DescribeLogDirsPartition]]:
    told = client.ask(DescribeLogDirsRequest(topics=None), 4)
    return {
        one.log_dir: [each for held in one.topics if held.name == topic for each in held.partitions]
        for one in told.results
    }


@pytest.mark.parametrize("version", versions(ApiKey.ALTER_REPLICA_LOG_DIRS))
def test_a_replica_moves_with_all_its_records(
    twofold: Twofold, client: Asking, topic: str, version: int
) -> None:
    client.create(topic, segment_bytes="2000")
    for number in range(50):
        assert client.produce(topic, batch_of(b"%d" % number * 50)).error_code == 0
    before = [record.value for record in read_all(client, topic)]
    source, target = twofold.home(topic), twofold.elsewhere(topic)

    assert move(client, target, topic, 0, version=version) == [0]
    twofold.node.until(lambda: twofold.home(topic) == target)

    assert [record.value for record in read_all(client, topic)] == before
    assert client.produce(topic, batch_of(b"more")).base_offset == 50
    assert client.start_and_end(topic) == (0, 51)
    told = shown(client, topic)
    assert told[source] == []
    (only,) = told[target]
    assert (only.is_future_key, only.offset_lag) == (False, 0)
    twofold.node.until(lambda: not list(Path(source).glob(f"{topic}*")))


def test_it_moves_while_it_is_written(twofold: Twofold, client: Asking, topic: str) -> None:
    client.create(topic, segment_bytes="100000")
    stop, written = Event(), []

    def write() -> None:
        with Asking(*twofold.node.address) as own:
            producer, sequence = own.new_producer(), 0
            while not stop.is_set():
                value = b"%d" % sequence * 40
                batch = batch_of(value, producer=(producer, 0, sequence))
                told = own.produce(topic, batch)
                assert (told.error_code, told.base_offset) == (0, sequence), told
                written.append(value)
                sequence += 1

    writer = Thread(target=write)
    writer.start()
    try:
        for _ in range(6):
            least = len(written) + 50
            twofold.node.until(lambda least=least: len(written) >= least)
            target = twofold.elsewhere(topic)
            assert move(client, target, topic, 0) == [0]
            twofold.node.until(lambda target=target: twofold.home(topic) == target)
    finally:
        stop.set()
        writer.join()

    assert [record.value for record in read_all(client, topic)] == written
    assert len(written) > 300


def test_a_move_is_shown_until_it_is_done_and_can_be_taken_back(
    twofold: Twofold, client: Asking, topic: str
) -> None:
    client.create(topic)
    for _ in range(10):
        client.produce(topic, batch_of(b"x" * 100_000))
    source, target = twofold.home(topic), twofold.elsewhere(topic)
    client.configure(BROKER, "1", replica_alter_log_dirs_io_max_bytes_per_second="1000")
    try:
        assert move(client, target, topic, 0) == [0]
        assert move(client, target, topic, 0) == [0], "harmless to repeat"
        future = twofold.node.node.broker.relocations.future
        name = twofold.node.node.broker.replicas.get(topic, 0).name
        twofold.node.until(lambda: future(name) is not None)

        told = shown(client, topic)

        assert [one.is_future_key for one in told[source]] == [False]
        assert [one.is_future_key for one in told[target]] == [True]
        assert move(client, source, topic, 0) == [0]
        twofold.node.until(lambda: future(name) is None)
        twofold.node.until(lambda: not list(Path(target).glob(f"{topic}*")))
        assert shown(client, topic)[target] == []
        assert twofold.home(topic) == source
    finally:
        client.alter(BROKER, "1", {"replica.alter.log.dirs.io.max.bytes.per.second": None})
    assert move(client, target, topic, 0) == [0]
    twofold.node.until(lambda: twofold.home(topic) == target)


def test_a_topic_may_be_deleted_while_it_moves(
    twofold: Twofold, client: Asking, topic: str
) -> None:
    client.create(topic)
    client.produce(topic, batch_of(b"x" * 100_000))
    target = twofold.elsewhere(topic)
    client.configure(BROKER, "1", replica_alter_log_dirs_io_max_bytes_per_second="100000")
    try:
        assert move(client, target, topic, 0) == [0]
        client.delete(topic)
        twofold.node.until(lambda: not list(Path(target).glob(f"{topic}*")))
    finally:
        client.alter(BROKER, "1", {"replica.alter.log.dirs.io.max.bytes.per.second": None})


def test_what_cannot_be_is_told_one_by_one(twofold: Twofold, client: Asking, topic: str) -> None:
    client.create(topic)
    home = twofold.home(topic)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    assert move(client, "/nowhere", topic, 0) == [ErrorCode.LOG_DIR_NOT_FOUND]
    assert move(client, "", topic, 0) == [ErrorCode.LOG_DIR_NOT_FOUND]
    assert move(client, "relative/../path", topic, 0) == [ErrorCode.LOG_DIR_NOT_FOUND]
    assert move(client, home, topic, 0, 1, -1) == [0, unknown, unknown]
    assert move(client, home, "absent", 0) == [unknown]
    assert client.ask(AlterReplicaLogDirsRequest(dirs=[]), 2).results == []


def test_only_who_holds_a_replica_moves_it(cluster: ThreadedCluster, topic: str) -> None:
    cluster.create(topic, [1])
    with cluster.client(3) as client:
        path = str(cluster.node(3).broker.directories[0].path)

        assert move(client, path, topic, 0) == [ErrorCode.REPLICA_NOT_AVAILABLE]


def test_a_restart_finds_it_where_it_went(tmp_path: Path, topic: str) -> None:
    made = Twofold(tmp_path)
    with Asking(*made.node.address) as client:
        client.create(topic)
        for number in range(5):
            client.produce(topic, batch_of(b"%d" % number))
        target = made.elsewhere(topic)
        move(client, target, topic, 0)
        made.node.until(lambda: made.home(topic) == target)
        client.produce(topic, batch_of(b"last"))
    made.node.stop()
    made.start()
    with Asking(*made.node.address) as client:
        assert made.home(topic) == target
        assert [one.value for one in client.read(topic)][-1] == b"last"
        assert client.start_and_end(topic) == (0, 6)
    made.node.stop()


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_a_restart_goes_on_with_a_move(tmp_path: Path, topic: str, policy: str) -> None:
    """With what was copied, unless the topic is compacted: then from the beginning."""
    made = Twofold(tmp_path)
    with Asking(*made.node.address) as client:
        client.create(topic, cleanup_policy=policy)
        for number in range(20):
            told = client.produce(topic, batch_of(b"%d" % number * 20_000, keys=[b"%d" % number]))
            assert told.error_code == 0
        source, target = made.home(topic), made.elsewhere(topic)
        client.configure(BROKER, "1", replica_alter_log_dirs_io_max_bytes_per_second="300000")
        assert move(client, target, topic, 0) == [0]
        broker = made.node.node.broker
        name = broker.replicas.get(topic, 0).name

        def is_begun() -> bool:
            future = broker.relocations.future(name)
            return future is not None and future.size_bytes > 20_000

        made.node.until(is_begun)
    made.node.stop()
    (left,) = Path(target).glob(f"{topic}-0.*-future")
    assert Path(source, f"{topic}-0").is_dir()
    # While it is open, no other file gets its number.
    (copy,) = left.glob("*.log")
    held = copy.open("rb")
    made.start()
    with held, Asking(*made.node.address) as client:
        client.alter(BROKER, "1", {"replica.alter.log.dirs.io.max.bytes.per.second": None})
        client.produce(topic, batch_of(b"last", keys=[b"last"]))
        made.node.until(lambda: made.home(topic) == target)
        expected = [b"%d" % number * 20_000 for number in range(20)]
        assert [one.value for one in read_all(client, topic)] == [*expected, b"last"]
        (now,) = Path(target, f"{topic}-0").glob("*.log")
        went_on = os.fstat(held.fileno()).st_ino == now.stat().st_ino
        assert went_on == (policy == "delete")
        made.node.until(lambda: not list(Path(source).glob(f"{topic}*")))
        assert not list(Path(target).glob("*-future"))
    made.node.stop()


def test_a_copy_of_what_is_gone_is_removed_by_a_start(tmp_path: Path, topic: str) -> None:
    made = Twofold(tmp_path)
    with Asking(*made.node.address) as client:
        client.create(topic)
        home, other = made.home(topic), made.elsewhere(topic)
    made.node.stop()
    metadata = Path(home, f"{topic}-0", "partition.metadata").read_text()
    unknown = "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAACQ\n"
    for path, text in (
        (Path(home, f"{topic}-0.{'a' * 32}-future"), metadata),  # it lies there already
        (Path(other, f"gone-7.{'b' * 32}-future"), unknown),
        (Path(other, f"begun-0.{'c' * 32}-future"), None),
    ):
        path.mkdir()
        if text is not None:
            (path / "partition.metadata").write_text(text)
    made.start()
    made.node.until(lambda: not list(tmp_path.glob("*/*-future")))
    made.node.stop()

    assert Path(home, f"{topic}-0").is_dir()


def read_all(client: Asking, topic: str) -> list[object]:
    found: list[object] = []
    _, end = client.start_and_end(topic)
    while len(found) < end:
        found += client.read(topic, len(found))
    return found


def test_a_follower_moves_and_leads_afterwards(tmp_path: Path, topic: str) -> None:
    paths = [str(tmp_path / "left"), str(tmp_path / "right")]
    options_of = {2: {"log.dirs": ",".join(paths)}}
    options = {"replica.lag.time.max.ms": "500"}
    folder = tmp_path / "cluster"
    with ThreadedCluster(folder, options=options, options_of=options_of) as cluster:
        cluster.create(topic, [1, 2], min_insync_replicas="2")
        held = cluster.node(2).broker.replicas.get(topic, 0)
        source = str(held.log.directory.path)
        target = next(path for path in paths if path != source)
        with cluster.client(1) as leader, cluster.client(2) as follower:
            for number in range(100):
                if number == 30:
                    assert move(follower, target, topic, 0) == [0]
                assert leader.produce(topic, batch_of(b"%d" % number)).error_code == 0
        cluster.until(lambda: str(held.log.directory.path) == target)
        with cluster.client(1) as leader:
            assert leader.produce(topic, batch_of(b"last")).error_code == 0
            leader.alter(TOPIC, topic, {"min.insync.replicas": "1"})
        cluster.kill(1)
        cluster.until(lambda: cluster.partition(topic).in_sync == (2,))
        with cluster.client(2) as client:
            client.await_end(topic, 101)
            found = [record.value for record in client.read(topic)]
        assert found == [*(b"%d" % number for number in range(100)), b"last"]
