"""One node for all tests that only need topics and groups of their own, and connections to it."""

import logging
from collections.abc import Callable, Iterator
from io import StringIO
from itertools import count
from pathlib import Path

import pytest

from tests.apis.asking import Asking
from tests.apis.clustering import ThreadedCluster
from tests.apis.grouping import Grouping
from tests.apis.kit import ThreadedNode
from tests.apis.transacting import Transacting
from waystation.runtime.chance import Chance
from waystation.telemetry import logs


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadedNode]:
    options = {
        "group_initial_rebalance_delay_ms": "0",
        "offsets_topic_num_partitions": "4",
        "transaction_state_log_num_partitions": "4",
        "share_coordinator_state_topic_num_partitions": "4",
    }
    with ThreadedNode(tmp_path_factory.mktemp("node") / "data", **options) as running:
        yield running


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadedCluster]:
    """Three nodes that stay, for tests with topics of their own."""
    # Nobody dies in it, and a busy machine is no death.
    patient = {"broker.session.timeout.ms": "10000"}
    with ThreadedCluster(tmp_path_factory.mktemp("cluster"), options=patient) as running:
        yield running


@pytest.fixture(scope="session")
def stalled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadedCluster]:
    """Three nodes of which 2 and 3 cannot reach 1: what they are to copy from it, they never do."""
    with ThreadedCluster(tmp_path_factory.mktemp("stalled")) as running:
        running.cut(2, 1)
        running.cut(3, 1)
        yield running


@pytest.fixture
def said() -> Iterator[StringIO]:
    """What the nodes of this process say meanwhile, as lines of JSON."""
    stream, root = StringIO(), logging.getLogger()
    before = root.handlers, root.level
    logs.configure(form="json", stream=stream)
    yield stream
    logs.configure()
    root.handlers, root.level = before


@pytest.fixture
def client(node: ThreadedNode) -> Iterator[Asking]:
    with Asking(*node.address) as connected:
        yield connected


@pytest.fixture
def other(node: ThreadedNode) -> Iterator[Asking]:
    with Asking(*node.address) as connected:
        yield connected


_numbers = count()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test uses."""
    name: str = request.node.originalname
    return f"{name}-{next(_numbers)}"[-200:]


@pytest.fixture(scope="session")
def coordinator(node: ThreadedNode) -> ThreadedNode:
    """The node, once it coordinates groups."""
    coordinate(node)
    return node


@pytest.fixture
def group(coordinator: ThreadedNode, topic: str) -> str:
    """A group id that no other test uses, with a coordinator."""
    return topic


@pytest.fixture
def ann(coordinator: ThreadedNode) -> Iterator[Grouping]:
    """The connection of a first member."""
    with Grouping(*coordinator.address) as connected:
        yield connected


@pytest.fixture
def bob(coordinator: ThreadedNode) -> Iterator[Grouping]:
    """The connection of a second member."""
    with Grouping(*coordinator.address) as connected:
        yield connected


@pytest.fixture
def tess(coordinator: ThreadedNode) -> Iterator[Transacting]:
    """The connection of a transactional producer."""
    with Transacting(*coordinator.address) as connected:
        yield connected


@pytest.fixture
def tim(coordinator: ThreadedNode) -> Iterator[Transacting]:
    """The connection of another one."""
    with Transacting(*coordinator.address) as connected:
        yield connected


def coordinate(running: ThreadedNode) -> None:
    """Let a node coordinate groups, and wait until it does."""
    with Grouping(*running.address) as connected:
        found = connected.find("any")
        assert found.error_code == 0, found
    running.until(lambda: not running.node.broker.groups.loading)


MakeNode = Callable[..., ThreadedNode]


@pytest.fixture
def make_node(tmp_path: Path) -> Iterator[MakeNode]:
    """Nodes with options of their own; they share a data directory, one after the other."""
    made: list[ThreadedNode] = []

    def make(chance: Chance | None = None, **options: str) -> ThreadedNode:
        running = ThreadedNode(tmp_path / "data", chance, **options)
        running.__enter__()
        made.append(running)
        return running

    yield make
    for running in made:
        running.stop()


@pytest.fixture(scope="module")
def tidy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadedNode]:
    """A node that looks after its logs all the time."""
    options = {
        "log_retention_check_interval_ms": "1",
        "log_flush_offset_checkpoint_interval_ms": "1",
        "log_cleaner_backoff_ms": "20",
        "recovery_bytes_max": "0",
    }
    with ThreadedNode(tmp_path_factory.mktemp("tidy") / "data", **options) as running:
        yield running


@pytest.fixture
def tidily(tidy: ThreadedNode) -> Iterator[Asking]:
    with Asking(*tidy.address) as connected:
        yield connected


@pytest.fixture(scope="module")
def lazy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadedNode]:
    """A node that syncs nothing unless a topic wants it."""
    options = {"log_flush_offset_checkpoint_interval_ms": "3600000"}
    with ThreadedNode(tmp_path_factory.mktemp("lazy") / "data", **options) as running:
        yield running


@pytest.fixture
def lazily(lazy: ThreadedNode) -> Iterator[Asking]:
    with Asking(*lazy.address) as connected:
        yield connected
