"""docs/stored.md names every file that a broker leaves in its data directory."""

import re
from pathlib import Path

from confluent_kafka import Producer

from waystation.testing.process import BrokerProcess

PAGE = Path(__file__).parents[2] / "docs" / "stored.md"


def _kind(name: str) -> str:
    """The name with every number in it as one sign, so that names of one kind are equal."""
    return re.sub(r"\d+", "#", name)


def test_every_file_of_a_data_directory_is_on_the_page(tmp_path: Path) -> None:
    named = re.findall(r"^\| `([^`/]+)`", PAGE.read_text(), re.MULTILINE)
    described = {_kind(name) for name in named}
    broker = BrokerProcess(tmp_path / "data")
    with broker.start():
        producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
        producer.produce("orders", b"two coffees", b"customer-7")
        assert producer.flush(10) == 0
        running = {path.name for path in broker.data_dir.rglob("*") if path.is_file()}
    stopped = {path.name for path in broker.data_dir.rglob("*") if path.is_file()}

    assert len(stopped) > 8
    assert {_kind(name) for name in running | stopped} <= described
