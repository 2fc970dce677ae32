"""Membership: a broker that was paused for too long comes back by itself."""

import signal
from os import kill
from pathlib import Path
from threading import Event

from tests.apis.asking import Asking
from tests.apis.kit import batch_of
from waystation.messages.metadata import MetadataRequest
from waystation.runtime.clock import SystemClock
from waystation.testing.process import BrokerProcess


def test_a_broker_that_was_paused_past_its_lease_serves_again(tmp_path: Path) -> None:
    options = {"broker.session.timeout.ms": "1000"}
    with BrokerProcess(tmp_path / "data", options=options).start() as broker:
        host, _, port = broker.bootstrap.rpartition(":")
        with Asking(host, int(port)) as client:
            client.create("kept")
            kill(broker.pid, signal.SIGSTOP)
            Event().wait(1.2)
            kill(broker.pid, signal.SIGCONT)

            client.create("at-once")
            clock = SystemClock()
            woken_at = clock.monotonic()
            while "membership.regained" not in broker.log_path.read_text():
                assert clock.monotonic() < woken_at + 20, "the broker did not come back"
                client.ask(MetadataRequest(topics=[]), 1)
            told = client.ask(MetadataRequest(topics=[]), 1)
            assert (len(told.brokers), told.controller_id) == (1, 1)
            assert client.produce("kept", batch_of(b"x")).error_code == 0
            client.create("new")
