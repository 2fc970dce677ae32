"""docs/operations/metrics.md lists what a broker shows, all of it and nothing else."""

import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.apis.asking import Asking
from tests.apis.kit import batch_of

from waystation.testing.process import BrokerProcess

PAGE = Path(__file__).parents[2] / "docs" / "operations" / "metrics.md"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One without the topics of other tests: only a hundred are counted by name."""
    process = BrokerProcess(tmp_path_factory.mktemp("counting") / "data", http="127.0.0.1:0")
    with process.start():
        yield process


def scraped(broker: BrokerProcess) -> str:
    with urllib.request.urlopen(f"http://{broker.http}/metrics", timeout=20) as response:
        return response.read().decode()  # type: ignore[no-any-return]


def connect(broker: BrokerProcess) -> Asking:
    host, _, port = broker.bootstrap.rpartition(":")
    return Asking(host, int(port))


def test_the_page_lists_every_metric_with_its_kind(broker: BrokerProcess, topic: str) -> None:
    with connect(broker) as client:
        client.create(topic[-100:])
    shown = dict(re.findall(r"^# TYPE (\S+) (\S+)$", scraped(broker), re.MULTILINE))
    listed = dict(re.findall(r"^\| `(\w+)` \| (\w+) \|", PAGE.read_text(), re.MULTILINE))

    assert shown == listed


def test_what_is_produced_and_fetched_is_counted(broker: BrokerProcess, topic: str) -> None:
    name = topic[-100:]
    batch = batch_of(b"x", b"y", producer=(1, 0, 0))
    with connect(broker) as client:
        client.create(name)
        for _ in range(3):
            client.produce(name, batch)  # twice a repetition
        client.produce(name, batch_of(b"z"))
        assert len(client.read(name)) == 3
        text = scraped(broker)

    def value(metric: str) -> float:
        found = re.search(rf'^{metric}{{topic="{re.escape(name)}"}} (\S+)$', text, re.MULTILINE)
        assert found is not None, metric
        return float(found[1])

    nbytes = len(batch) + len(batch_of(b"z"))
    assert value("waystation_topic_produced_records_total") == 3
    assert value("waystation_topic_produced_bytes_total") == nbytes
    assert value("waystation_topic_fetched_records_total") == 3
    assert value("waystation_topic_fetched_bytes_total") == nbytes
    assert value("waystation_log_bytes") == nbytes
    assert re.search(r'^waystation_api_seconds_count{api="Produce"} [1-9]', text, re.MULTILINE)
    assert re.search(r"^waystation_flush_seconds_count [1-9]", text, re.MULTILINE)
