"""kill -9 of the broker while groups rebalance and commit.

What was acknowledged to a group is never taken back, and groups go on by themselves.
"""

import asyncio
import contextlib
import random
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from uuid import UUID

import pytest

from tests.support.group_churn import BROKER_OPTIONS, Churn, churn, prove
from tests.support.group_members import (
    ClassicMember,
    Crowd,
    Line,
    Member,
    ServerSideMember,
)
from tests.support.plain_client import PlainClient
from tests.support.soak import count
from waystation.messages.find_coordinator import FindCoordinatorRequest
from waystation.messages.metadata import MetadataRequest, MetadataRequestTopic
from waystation.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from waystation.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from waystation.model.errors import ErrorCode
from waystation.testing.process import BrokerProcess

pytestmark = [pytest.mark.alone, pytest.mark.timeout(1_800)]

ROUNDS, ROUNDS_OF_CLIENTS = count(3, 30), count(2, 30)
TOPIC, PARTITIONS = "orders", 8
COMMITTERS = 4
SETTLED_WITHIN_S = 20.0
COMMIT_VERSION, FETCH_VERSION = 9, 9
NOT_YET = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE}
LOST = (OSError, asyncio.IncompleteReadError)


class Kept:
    """What one group was promised: each commit counts one up, so that none is like another."""

    def __init__(self) -> None:
        self.attempted: dict[int, int] = defaultdict(int)
        self.acknowledged: dict[int, int] = defaultdict(int)

    def check(self, found: dict[int, int]) -> None:
        """Nothing acknowledged was lost, nothing was made up."""
        for partition, attempted in self.attempted.items():
            least, got = self.acknowledged[partition], found.get(partition, 0)
            assert least <= got <= attempted, (
                f"partition {partition}: {least} was acknowledged, {attempted} tried, {got} found"
            )
            # What was found is what counts from now on, acknowledged or not.
            self.acknowledged[partition] = got


class Troupe:
    """A group of protocol-level members that commit all the time."""

    def __init__(self, crowd: Crowd, group: str, bootstrap: str) -> None:
        self.crowd, self.group, self.kept = crowd, group, Kept()
        self._bootstrap = bootstrap
        self._leaving: list[Member] = []

    async def commit_without_end(self, committer: int) -> None:
        """Commit for those who own partitions, one commit at a time for each partition."""
        while True:
            with contextlib.suppress(*LOST):
                line = await Line.to(self._bootstrap)
                try:
                    while True:
                        await self._commit_once(line, committer)
                finally:
                    line.hang_up()
            await asyncio.sleep(0.01)

    def step(self, chance: random.Random) -> None:
        """A member comes or goes."""
        members = self.crowd.members
        if len(members) < 3 or (len(members) < 6 and chance.random() < 0.5):
            self.crowd.add(1)
        else:
            goes = members.pop(chance.randrange(len(members)))
            self._leaving.append(goes)
            asyncio.get_running_loop().create_task(goes.close())

    async def go_on(self) -> None:
        """After a restart: those who wanted to leave say so again, the others settle."""
        for one in self._leaving:
            await one.close()
        self._leaving.clear()
        self.kept.check(await self._committed())
        await self.crowd.settle(SETTLED_WITHIN_S)

    async def _commit_once(self, line: Line, committer: int) -> None:
        owned = [
            (member, index)
            for member in self.crowd.members
            for _, index in member.owned
            if index % COMMITTERS == committer and member.epoch
        ]
        if not owned:
            await asyncio.sleep(0.01)
            return
        member, partition = random.choice(owned)
        value = self.kept.attempted[partition] = self.kept.attempted[partition] + 1
        told = await line.ask(self._commit_request(member, partition, value), COMMIT_VERSION)
        if not told.topics[0].partitions[0].error_code:
            self.kept.acknowledged[partition] = value

    def _commit_request(self, member: Member, partition: int, value: int) -> OffsetCommitRequest:
        one = OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=value, committed_metadata=""
        )
        return OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=member.epoch,
            member_id=member.member_id,
            topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[one])],
        )

    async def _committed(self) -> dict[int, int]:
        line = await Line.to(self._bootstrap)
        asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=self.group)])
        asked.groups[0].topics = None
        while True:
            (told,) = (await line.ask(asked, FETCH_VERSION)).groups
            if told.error_code not in NOT_YET:
                break
            await asyncio.sleep(0.01)
        line.hang_up()
        assert told.error_code == 0, told
        found = [one for topic in told.topics for one in topic.partitions]
        return {one.partition_index: one.committed_offset for one in found}


@pytest.mark.parametrize("volatile", [False, True], ids=["page-cache-survives", "power-fails"])
async def test_commits_and_members_survive_the_broker(tmp_path: Path, volatile: bool) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201, pytest shows it when the test fails
    chance = random.Random(seed)
    with BrokerProcess(tmp_path / "data", options=BROKER_OPTIONS, volatile=volatile) as broker:
        async with troupes(broker) as groups:
            for _ in range(ROUNDS):
                await busy(groups, chance, chance.uniform(0.1, 0.6))
                broker.kill()
                await asyncio.to_thread(broker.start)
                for one in groups:
                    await one.go_on()
            assert [one.crowd.owners.conflicts for one in groups] == [[], []]
            promised = [sum(one.kept.acknowledged.values()) for one in groups]
            assert min(promised) > 10 * ROUNDS, f"hardly anything was committed: {promised}"
        assert broker.stop() == 0


async def busy(groups: list[Troupe], chance: random.Random, duration_s: float) -> None:
    """Members come and go for a while."""
    until = time.monotonic() + duration_s
    while time.monotonic() < until:
        chance.choice(groups).step(chance)
        await asyncio.sleep(chance.uniform(0.005, 0.1))


def test_real_clients_go_on_through_deaths_of_the_broker(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201, pytest shows it when the test fails
    chance = random.Random(seed)
    with BrokerProcess(tmp_path / "data", options=BROKER_OPTIONS, volatile=True) as broker:
        prove(broker, tmp_path, chance, count(3, 5), dying(broker, chance))
        assert broker.stop() == 0


def dying(broker: BrokerProcess, chance: random.Random) -> Callable[[list[Churn]], None]:
    """The broker dies again and again, while members come and go."""

    def happen(groups: list[Churn]) -> None:
        for _ in range(ROUNDS_OF_CLIENTS):
            churn(groups, chance, chance.uniform(0.5, 2.0), 0.02)
            broker.kill()
            broker.start()

    return happen


@contextlib.asynccontextmanager
async def troupes(broker: BrokerProcess) -> AsyncIterator[list[Troupe]]:
    """One group of each protocol, settled and committing."""
    topics = {TOPIC: (prepare(broker.bootstrap), PARTITIONS)}
    kinds: dict[str, type[Member]] = {"classic": ClassicMember, "server-side": ServerSideMember}
    async with contextlib.AsyncExitStack() as stack:
        found = []
        for group, kind in kinds.items():
            crowd = Crowd(kind, broker.bootstrap, group, topics, heartbeat_s=0.1)
            found.append(Troupe(await stack.enter_async_context(crowd), group, broker.bootstrap))
            crowd.add(3)
        for one in found:
            await one.crowd.settle(SETTLED_WITHIN_S)
        tasks = [
            asyncio.create_task(one.commit_without_end(committer))
            for one in found
            for committer in range(COMMITTERS)
        ]
        try:
            yield found
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)


def prepare(bootstrap: str) -> UUID:
    """Make the topic, and let somebody look for a coordinator; the topic's id."""
    with PlainClient(bootstrap) as client:
        client.create(TOPIC, PARTITIONS)
        (told,) = client.ask(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), 12).topics
        client.ask(FindCoordinatorRequest(coordinator_keys=["any"]), 4)
    return UUID(str(told.topic_id))
