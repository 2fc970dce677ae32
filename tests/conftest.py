"""Fixtures every test may use."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from waystation.testing.process import BrokerProcess

pytest_plugins = ["tests.support.spark"]

# A shell ignores Ctrl-C for what it starts in the background, and so would all our children.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Hundreds of brokers and commands are started: none should have to compile itself anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Programs that tools/test_tools.py had to unpack for want of root.
_UNPACKED = Path(__file__).parent.parent / ".cache" / "tools" / "usr"
os.environ["PATH"] += os.pathsep + str(_UNPACKED / "bin")

# Java machines of tests live for seconds: the thorough compiler costs them more than it gains.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Heavy files begin with the longest, so that no worker ends long after the others."""
    items.sort(key=_heaviness_s, reverse=True)


def _heaviness_s(item: pytest.Item) -> int:
    marker = item.get_closest_marker("heavy")
    return int(marker.args[0]) if marker else 0


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One real broker for all tests of a worker that only need some topics of their own."""
    process = BrokerProcess(
        tmp_path_factory.mktemp("broker") / "data",
        http="127.0.0.1:0",
        options={
            "group.initial.rebalance.delay.ms": "0",
            "group.min.session.timeout.ms": "100",
            "group.consumer.heartbeat.interval.ms": "100",
            "group.share.heartbeat.interval.ms": "200",
        },
    )
    with process.start():
        yield process


@pytest.fixture(scope="session")
def bootstrap(broker: BrokerProcess) -> str:
    """Where that broker listens."""
    return broker.bootstrap


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test uses."""
    file, test = request.node.nodeid.split("::", 1)
    name = f"{Path(file).stem}-{test}"
    return "".join(c if c.isalnum() else "-" for c in name)[-200:]
