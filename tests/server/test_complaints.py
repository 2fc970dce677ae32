"""A flood of the same complaint is a few lines and a number."""

from tests.server.conftest import Log
from waystation.runtime.clock import ManualClock
from waystation.server.complaints import Complaints
from waystation.telemetry.logs import get_logger


def test_a_flood_is_rationed_and_counted(log: Log) -> None:
    clock = ManualClock()
    complain = Complaints(get_logger("server"), clock)
    for _ in range(1_000):
        complain("connection.refused", peer="10.0.0.1:1")
    complain("request.malformed", peer="10.0.0.2:1")
    clock.advance(1)
    complain("connection.refused", peer="10.0.0.1:1")

    lines = log.named("connection.refused")

    assert len(lines) == 11
    assert lines[-1]["left_out"] == 990
    assert len(log.named("request.malformed")) == 1
