"""Where a reader in a rack reads, and when it goes back to the leader."""

from tests.client.test_metadata import ORDERS, told

from waystation.client.metadata import ClusterView
from waystation.client.sources import Sources
from waystation.model.ids import NodeId
from waystation.runtime.clock import ManualClock

LEADER, NEAR = NodeId(1), NodeId(2)
VIEW = ClusterView().after(told(leader=1, epoch=5))


class Reader(Sources):
    def __init__(self) -> None:
        self.clock = ManualClock()
        super().__init__("b", 60_000, self.clock)


def test_it_reads_from_the_leader_until_that_sends_it_elsewhere() -> None:
    reader = Reader()
    assert (reader.of(ORDERS, VIEW), reader.rack_at(LEADER)) == (LEADER, "b")

    reader.sent_to(ORDERS, NEAR, VIEW)
    assert (reader.of(ORDERS, VIEW), reader.rack_at(NEAR)) == (NEAR, "b")


def test_it_goes_back_for_a_while_when_it_was_refused() -> None:
    reader = Reader()
    reader.sent_to(ORDERS, NEAR, VIEW)
    reader.refused(ORDERS)
    assert (reader.of(ORDERS, VIEW), reader.rack_at(LEADER)) == (LEADER, "")

    reader.clock.advance(11)
    assert reader.rack_at(LEADER) == "b"


def test_it_goes_back_when_nobody_is_there() -> None:
    reader = Reader()
    reader.sent_to(ORDERS, NEAR, VIEW)
    reader.lost(NodeId(3))
    assert reader.of(ORDERS, VIEW) == NEAR

    reader.lost(NEAR)
    assert (reader.of(ORDERS, VIEW), reader.rack_at(LEADER)) == (LEADER, "")


def test_another_leader_is_asked_where_to_read() -> None:
    reader = Reader()
    reader.sent_to(ORDERS, NEAR, VIEW)

    assert reader.of(ORDERS, VIEW.after(told(leader=3, epoch=6))) == 3


def test_the_leader_is_asked_again_now_and_then() -> None:
    reader = Reader()
    reader.sent_to(ORDERS, NEAR, VIEW)
    reader.clock.advance(61)

    assert (reader.of(ORDERS, VIEW), reader.rack_at(LEADER)) == (LEADER, "b")
