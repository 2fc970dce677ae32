"""What administrators are told while the coordination store does not answer: each its own error."""

import pytest

from tests.cluster.items import Items, new_id
from waystation.broker.moves import Moves
from waystation.broker.topics import Topics
from waystation.broker.view import ClusterView
from waystation.cluster.policies import TopicPolicy
from waystation.cluster.topics import TopicDefaults, TopicSpec
from waystation.model.errors import StoreUnavailableError
from waystation.model.ids import NodeId, TopicPartition
from waystation.runtime.clock import ManualClock
from waystation.testing.simulated_store import Answer, SimulatedStore, StoreServer, Work


def lost(_work: Work, _receive: Answer) -> None:
    """Nothing gets there."""


@pytest.fixture
def view() -> ClusterView:
    """Of two brokers and a topic, and since then of nothing more."""
    items = Items()
    items.join(1, 2)
    items.create(TopicSpec("orders", 2, 2))
    store = SimulatedStore(StoreServer(ManualClock()), lost, timeout_s=0.01)

    async def act(_before: object, _after: object) -> None:
        raise AssertionError("something was seen")

    view = ClusterView(store, act)
    view.image = items.image
    return view


async def test_a_topic_that_could_not_be_written_has_an_error(view: ClusterView) -> None:
    topics = Topics(view, TopicDefaults, new_id, NodeId(1))

    outcomes = await topics.create([TopicSpec("payments", 1, 1), TopicSpec("refunds", 1, 1)])

    assert list(outcomes) == ["payments", "refunds"]
    assert all(isinstance(one, StoreUnavailableError) for one in outcomes.values())


async def test_a_move_that_could_not_be_written_has_an_error(view: ClusterView) -> None:
    moves = Moves(view, lambda _: lambda _: TopicPolicy(), lambda: False, lambda _: None)
    where = TopicPartition("orders", 0)
    backwards = tuple(reversed(view.image.topics["orders"].partitions[0].replicas))

    outcomes = await moves.reassign({where: backwards})

    assert isinstance(outcomes[where], StoreUnavailableError)
