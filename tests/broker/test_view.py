"""The cluster's view: it moves forward, and a change is visible once it was acted on."""

import asyncio
from pathlib import Path

import pytest

from tests.cluster.items import new_id
from waystation.broker.view import ClusterView
from waystation.cluster import keys
from waystation.cluster.changes import Changes
from waystation.cluster.hearsay import Word
from waystation.cluster.image import ClusterImage
from waystation.cluster.membership import take_producer_ids
from waystation.cluster.values import PartitionValue, TopicValue, encode
from waystation.coordination.sqlite import SqliteStore
from waystation.model.ids import LeaderEpoch, NodeId
from waystation.runtime.tasks import Tasks

ONE, TWO = NodeId(1), NodeId(2)


class Follower:
    """A view that follows a store, and what it acted on."""

    def __init__(self, store: SqliteStore) -> None:
        self.acted: list[int] = []
        self.hold: asyncio.Event | None = None
        self.view = ClusterView(store, self._act)
        self.tasks = Tasks()

    async def _act(self, before: ClusterImage, after: ClusterImage) -> None:
        assert before.revision < after.revision
        if self.hold is not None:
            await self.hold.wait()
        self.acted.append(after.revision)

    async def start(self) -> None:
        await self.view.load()
        self.tasks.spawn(self.view.follow(), "view")


def take(image: ClusterImage) -> tuple[range, list[Changes]]:
    block, changes = take_producer_ids(image, 10)
    return block, [changes]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cluster.sqlite"


async def test_a_change_is_seen_when_the_call_returns(path: Path) -> None:
    async with SqliteStore(path) as store:
        follower = Follower(store)
        await follower.start()
        block = await follower.view.change(take)

        assert block == range(10)
        assert follower.acted == [follower.view.image.revision]
        assert await follower.view.change(take) == range(10, 20)
        await follower.tasks.aclose()


async def test_a_change_is_not_seen_before_it_was_acted_on(path: Path) -> None:
    async with SqliteStore(path) as store:
        follower = Follower(store)
        await follower.start()
        before = follower.view.image.revision
        follower.hold = asyncio.Event()
        change = asyncio.ensure_future(follower.view.change(take))
        await store.get("")  # everything written so far was published
        await asyncio.sleep(0)

        assert not change.done()
        assert follower.view.image.revision == before
        follower.hold.set()
        await change
        assert follower.view.image.revision > before
        await follower.tasks.aclose()


async def test_a_decision_that_was_overtaken_is_made_again(path: Path) -> None:
    async with SqliteStore(path) as store:
        first, second = Follower(store), Follower(store)
        await first.start()
        await second.start()
        blocks = await asyncio.gather(
            *(follower.view.change(take) for follower in (first, second) for _ in range(5))
        )

        assert sorted(block.start for block in blocks) == list(range(0, 100, 10))
        await first.tasks.aclose()
        await second.tasks.aclose()


async def test_changes_that_were_dropped_are_read_again(path: Path) -> None:
    async with SqliteStore(path, history_max=2) as store:
        behind, writer = Follower(store), Follower(store)
        await behind.view.load()
        await writer.start()
        for _ in range(10):
            await writer.view.change(take)
        behind.tasks.spawn(behind.view.follow(), "view")
        await behind.view.reached(writer.view.image.revision)

        assert behind.view.image.revision >= writer.view.image.revision
        await behind.tasks.aclose()
        await writer.tasks.aclose()


async def test_nothing_to_change_waits_for_nothing(path: Path) -> None:
    async with SqliteStore(path) as store:
        follower = Follower(store)
        await follower.start()

        assert await follower.view.change(lambda _: ("answer", [])) == "answer"
        await follower.tasks.aclose()


async def test_what_is_not_acted_on_yet_is_known_to_who_only_decides(path: Path) -> None:
    async with SqliteStore(path) as store:
        follower, other = Follower(store), Follower(store)
        await follower.start()
        await other.start()
        follower.hold = asyncio.Event()
        await other.view.change(take)
        await other.view.change(take)
        newest = await follower.view.heard(other.view.image.revision - 1)

        assert newest.revision == other.view.image.revision > follower.view.image.revision
        follower.hold.set()
        await follower.view.reached(newest.revision)
        await follower.tasks.aclose()
        await other.tasks.aclose()


async def test_a_decision_that_comes_too_late_holds_up_no_other(path: Path) -> None:
    async with SqliteStore(path) as store:
        view = ClusterView(store, Follower(store)._act)
        await store.txn({}, {"ids/taken": b"x"})
        decisions = [Changes(compares={f"ids/{n}": 0}, puts={f"ids/{n}": b"1"}) for n in range(250)]
        late = Changes(compares={"ids/taken": 0}, puts={"ids/taken": b"1"})
        wanted = [*decisions[:120], late, *decisions[120:]]
        written = await view.write_each(wanted)

        assert len(written) == 250
        assert late not in written
        assert len((await store.get("ids/")).items) == 251


async def test_nothing_more_is_tried_once_there_is_no_use(path: Path) -> None:
    async with SqliteStore(path) as store:
        view = ClusterView(store, Follower(store)._act)
        wanted = [
            Changes(compares={"office": 1, f"ids/{n}": 0}, puts={f"ids/{n}": b"1"})
            for n in range(200)
        ]
        asked = []

        async def still() -> bool:
            asked.append(1)
            return False

        assert await view.write_each(wanted, still) == []
        assert len(asked) == 1


async def test_others_are_believed_until_the_store_knows_as_much(path: Path) -> None:
    async with SqliteStore(path) as store:
        topic = TopicValue(new_id(), ((ONE, TWO),))
        key = keys.partition(topic.id, 0)
        await store.txn({}, {keys.topic("orders"): encode(topic), key: led(ONE, 3)})
        view = ClusterView(store, _nothing_to_do)
        await view.load()
        tasks = Tasks()
        tasks.spawn(view.follow(), "view")
        acting: list[tuple[NodeId | None, int]] = []

        async def until(leader: NodeId, epoch: int) -> None:
            async with asyncio.timeout(5):
                while not acting or acting[-1] != (leader, epoch):
                    await asyncio.sleep(0.001)
                    state = view.image.topics["orders"].partitions[0]
                    if state.leader_epoch > 3:
                        acting.append((state.leader, state.leader_epoch))

        await view.believe({(topic.id, 0): Word(TWO, LeaderEpoch(5), (TWO,))})
        await until(TWO, 5)
        # What the store said before that is no news, though it comes later.
        await view.reached((await store.txn({}, {key: led(ONE, 4)})).revision)
        await until(TWO, 5)
        await store.txn({}, {key: led(ONE, 6)})
        await until(ONE, 6)

        assert sorted({epoch for _, epoch in acting}) == [
            epoch for _, epoch in dict.fromkeys(acting)
        ]
        assert (ONE, 4) not in acting
        await tasks.aclose()


async def _nothing_to_do(_before: ClusterImage, _after: ClusterImage) -> None:
    """Whatever it was."""


def led(leader: NodeId, epoch: int) -> bytes:
    return encode(PartitionValue(leader, LeaderEpoch(epoch), (ONE, TWO)))
