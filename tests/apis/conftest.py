"""One node for all tests that only need topics of their own, and connections to it."""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.apis.asking import Asking
from tests.apis.kit import ThreadedNode
from waystation.runtime.chance import Chance


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadedNode]:
    with ThreadedNode(tmp_path_factory.mktemp("node") / "data") as running:
        yield running


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
