"""Large plaintext fetches leave by sendfile: from the page cache to the socket, past Python."""

import re
from pathlib import Path
from urllib.request import urlopen

from tests.support.figures import figure, megabytes
from tests.support.plain_client import PlainClient, batch_of
from waystation.server.outbox import SENDFILE_FROM_BYTES
from waystation.testing.process import BrokerProcess

BATCH = batch_of(*[b"%099d" % number for number in range(9_000)])
BATCHES = 20
METRIC = re.compile(r"^waystation_sent_by_sendfile_bytes_total (\S+)$", re.MULTILINE)


def test_large_fetches_leave_by_sendfile(tmp_path: Path) -> None:
    with (
        BrokerProcess(tmp_path / "data", http="127.0.0.1:0").start() as broker,
        PlainClient(broker.bootstrap) as client,
    ):
        client.create("films")
        for _ in range(BATCHES):
            assert client.produce("films", BATCH).error_code == 0
        before = by_sendfile(broker)
        fetched = client.fetch("films", 0, BATCHES * len(BATCH))
        sent = by_sendfile(broker) - before

    assert len(fetched.records) == BATCHES * len(BATCH)
    # A rest that is no longer large is copied like any small stretch.
    assert len(fetched.records) - SENDFILE_FROM_BYTES < sent <= len(fetched.records)
    figure(f"a fetch of {megabytes(len(fetched.records))}: {megabytes(sent)} left by sendfile")


def test_small_fetches_do_not(tmp_path: Path) -> None:
    """A system call more would cost more than the copy it saves."""
    with (
        BrokerProcess(tmp_path / "data", http="127.0.0.1:0").start() as broker,
        PlainClient(broker.bootstrap) as client,
    ):
        client.create("letters")
        assert client.produce("letters", batch_of(b"short")).error_code == 0
        assert len(client.fetch("letters", 0, 1_000_000).records) > 0

        assert by_sendfile(broker) == 0


def by_sendfile(broker: BrokerProcess) -> int:
    with urlopen(f"http://{broker.http}/metrics", timeout=10) as response:
        found = METRIC.search(response.read().decode())
    assert found is not None, "the metric is not there"
    return int(float(found[1]))
