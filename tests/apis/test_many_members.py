"""Large groups of protocol-level members settle soon, whichever protocol they speak."""

from collections.abc import Iterator
from uuid import UUID

import pytest

from tests.support.figures import figure
from tests.support.group_members import ClassicMember, Crowd, Member, ServerSideMember
from tests.support.plain_client import PlainClient
from tests.support.soak import count
from waystation.messages.find_coordinator import FindCoordinatorRequest
from waystation.messages.metadata import MetadataRequest, MetadataRequestTopic
from waystation.testing.process import BrokerProcess

pytestmark = pytest.mark.alone

MEMBERS, PARTITIONS = count(40, 200), count(200, 1_000)
SETTLED_WITHIN_S = 5.0
KINDS: dict[str, type[Member]] = {"classic": ClassicMember, "server-side": ServerSideMember}
TOPIC = "orders"

Topics = dict[str, tuple[UUID, int]]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    options = {
        "group.initial.rebalance.delay.ms": "0",
        "group.consumer.heartbeat.interval.ms": "1000",
    }
    with BrokerProcess(tmp_path_factory.mktemp("groups") / "data", options=options) as broker:
        yield broker


@pytest.fixture(scope="module")
def topics(running: BrokerProcess) -> Topics:
    """The topic to share, and a coordinator that is ready."""
    named = [MetadataRequestTopic(name=TOPIC)]
    with PlainClient(running.bootstrap) as client:
        client.create(TOPIC, PARTITIONS)
        (told,) = client.ask(MetadataRequest(topics=named), 12).topics
        found = client.ask(FindCoordinatorRequest(coordinator_keys=["any"]), 4).coordinators[0]
    assert found.error_code == 0, found
    return {TOPIC: (told.topic_id, PARTITIONS)}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("arriving", ["at once", "within a second"])
async def test_a_large_group_settles_within_seconds(
    running: BrokerProcess, topics: Topics, kind: str, arriving: str
) -> None:
    """At once, all are in the first generation; otherwise some must hear that more have come."""
    group = f"large-{kind}-{arriving}"
    async with Crowd(KINDS[kind], running.bootstrap, group, topics) as crowd:
        crowd.add(MEMBERS, over_s=0.0 if arriving == "at once" else 1.0)
        took_s = await crowd.settle(4 * SETTLED_WITHIN_S)
        shares = [len(one.owned) for one in crowd.members]

    assert crowd.owners.conflicts == []
    assert max(shares) - min(shares) <= 1
    figure(
        f"{MEMBERS} members of a {kind} group, arriving {arriving}, settled on {PARTITIONS} "
        f"partitions in {took_s:.2f} s"
    )
    assert took_s < SETTLED_WITHIN_S


async def test_one_more_member_interrupts_no_partition_that_stays(
    running: BrokerProcess, topics: Topics
) -> None:
    async with Crowd(ServerSideMember, running.bootstrap, "one-more", topics) as crowd:
        crowd.add(MEMBERS)
        await crowd.settle(4 * SETTLED_WITHIN_S)
        given_up_before = crowd.owners.given_up
        (newcomer,) = crowd.add(1)
        took_s = await crowd.settle(4 * SETTLED_WITHIN_S)
        moved = crowd.owners.given_up - given_up_before
        its_own = len(newcomer.owned)

    assert crowd.owners.conflicts == []
    assert its_own > 0
    # Whatever was given up was given to the newcomer, and everyone else read on.
    assert moved == its_own
    figure(f"one member more among {MEMBERS} moved {moved} partitions in {took_s:.2f} s")
