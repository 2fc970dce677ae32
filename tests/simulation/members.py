"""Members as clients are: they ask again, lose connections, are paused and killed.

A member reads partitions of endless topics: it begins where the group has committed, goes on at
its own pace, commits now and then, and gives back what it is told to give back.
"""

import asyncio
import contextlib
from collections.abc import Iterable
from typing import Any, TypeVar

from tests.simulation.coordinator import Cluster, Request
from waystation.groups.commands import (
    Commit,
    Committed,
    ConsumerHeartbeat,
    ConsumerHeartbeatDone,
    FetchedOffsets,
    FetchOffsets,
    Heartbeat,
    Join,
    Joined,
    Leave,
    Leaving,
    OffsetToCommit,
    Sync,
    Synced,
)
from waystation.groups.embedded import (
    Assignment,
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from waystation.model.errors import (
    CoordinatorLoadingError,
    FencedInstanceIdError,
    FencedMemberEpochError,
    GroupNotFoundError,
    IllegalGenerationError,
    MemberIdRequiredError,
    NotCoordinatorError,
    RebalanceInProgressError,
    StaleMemberEpochError,
    UnknownMemberError,
    UnreleasedInstanceIdError,
    WaystationError,
)
from waystation.testing.network import End
from waystation.testing.world import Node

T = TypeVar("T")

SESSION_MS, REBALANCE_MS = 2_000, 4_000
_HEARTBEAT_S = 0.4
_BACKOFF_S = 0.1
# Longer than anybody may wait for an answer: a join waits for all to join, or for their time-outs.
_PATIENCE_S = 15.0


class DisconnectedError(Exception):
    """The connection broke, or whoever is at its other end coordinates nothing."""


class Connection:
    """Asks one coordinator at a time, and finds another when that one no longer is."""

    def __init__(self, cluster: Cluster, node: Node) -> None:
        self._cluster, self._node = cluster, node
        self._end: End | None = None
        self._number = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._at = 0

    async def ask(self, method: str, command: Any) -> Any:
        """The answer; errors that another coordinator may not have are raised as such."""
        end = self._connected()
        self._number += 1
        answer = asyncio.get_running_loop().create_future()
        self._waiting[self._number] = answer
        end.send(Request(self._number, method, command))
        try:
            async with asyncio.timeout(_PATIENCE_S):
                found = await answer
        except TimeoutError:
            raise AssertionError(f"nobody answered {command}") from None
        if isinstance(found, NotCoordinatorError | CoordinatorLoadingError):
            if isinstance(found, NotCoordinatorError):
                self.close()
            raise DisconnectedError
        if isinstance(found, WaystationError):
            raise found
        return found

    def close(self) -> None:
        """Hang up, and try the other coordinator next."""
        if self._end is not None:
            self._end.close()
            self._lost()

    def _connected(self) -> End:
        if self._end is None:
            target = self._cluster.coordinators[self._at].node.name
            self._end = self._cluster.world.network.connect(self._node.name, target)
            self._end.on_message = self._answered
            self._end.on_close = self._lost
        return self._end

    def _answered(self, message: tuple[int, object]) -> None:
        number, answer = message
        waiting = self._waiting.pop(number, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    def _lost(self) -> None:
        self._end = None
        self._at = 1 - self._at
        waiting, self._waiting = self._waiting, {}
        for one in waiting.values():
            if not one.done():
                one.set_exception(DisconnectedError())


class Member:
    """What both protocols have in common: positions, commits, and a life."""

    def __init__(
        self, cluster: Cluster, name: str, group: str, topics: Iterable[str], instance: str | None
    ) -> None:
        self.cluster, self.group, self.topics = cluster, group, tuple(topics)
        self.instance = instance
        self.node = cluster.world.nodes.get(name) or cluster.world.node(name)
        self.who = instance or f"{name}/{self.node.life}"
        self.connection = Connection(cluster, self.node)
        self.member_id = ""
        self.generation = -1
        self.positions: dict[tuple[str, int], int] = {}
        self.committed_at_ms = 0.0
        self.node.spawn(self._live())

    @property
    def owned(self) -> list[tuple[str, int]]:
        """What it reads now, as it believes."""
        return list(self.positions)

    async def _live(self) -> None:
        while True:
            try:
                await self._be_a_member()
            except DisconnectedError:
                await asyncio.sleep(_BACKOFF_S)
            await self._stumble()

    async def _be_a_member(self) -> None:
        raise NotImplementedError

    async def _stumble(self) -> None:
        """Now and then, stand still for longer than anybody waits, and know nothing of it."""
        if not self.cluster.calm and self._chance() < 0.02:
            await asyncio.sleep(self._chance() * 6)

    def _chance(self) -> float:
        return self.cluster.world.chance.random()

    def _note(self, text: str) -> None:
        self.cluster.world.note(f"{self.who} {text}")

    # --- reading --------------------------------------------------------------------------------

    async def _begin(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Begin where the group left off; what is not begun before a failure is not owned."""
        wanted = list(partitions)
        if not wanted:
            return
        by_topic: dict[str, list[int]] = {}
        for topic, number in wanted:
            by_topic.setdefault(topic, []).append(number)
        topics = tuple((topic, tuple(numbers)) for topic, numbers in by_topic.items())
        fetched = await self._positions(topics)
        for one in fetched.offsets:
            place = (self.group, one.topic, one.partition)
            if one.offset >= 0:
                self.cluster.witness.told_offset(place, one.offset)
            start = max(one.offset, 0)
            self.cluster.witness.begins(self.who, place, start)
            self.cluster.witness.took(
                self.who, self.group, self.generation, one.topic, one.partition
            )
            self.positions[one.topic, one.partition] = start

    async def _positions(self, topics: tuple[tuple[str, tuple[int, ...]], ...]) -> FetchedOffsets:
        fetched: FetchedOffsets = await self.connection.ask("fetch_offsets", self._fetch(topics))
        return fetched

    def _fetch(self, topics: tuple[tuple[str, tuple[int, ...]], ...]) -> FetchOffsets:
        return FetchOffsets(self.group, topics)

    def _read_on(self) -> None:
        """Process a little of everything."""
        for (topic, number), position in self.positions.items():
            further = position + self.cluster.world.chance.randrange(5)
            self.positions[topic, number] = further
            self.cluster.witness.processed((self.group, topic, number), further)

    async def _commit(self, partitions: Iterable[tuple[str, int]] | None = None) -> None:
        chosen = self.owned if partitions is None else list(partitions)
        offsets = tuple(
            OffsetToCommit(topic, number, self.positions[topic, number], -1, "")
            for topic, number in chosen
        )
        if not offsets:
            return
        command = Commit(self.group, self.generation, self.member_id, self.instance, -1, offsets)
        committed: Committed = await self.connection.ask("commit", command)
        for offset, error in zip(offsets, committed.errors, strict=True):
            if error is None:
                place = (self.group, offset.topic, offset.partition)
                self.cluster.witness.told_offset(place, offset.offset)
                self.committed_at_ms = self.cluster.world.now_ms


class ClassicMember(Member):
    """Joins, lets the leader share out, gives everything back at every rebalance (eager).

    A lost connection is no reason to join again: it goes on as a member until it is told.
    """

    _settled = False
    _seen = 0

    async def _be_a_member(self) -> None:
        try:
            if not self._settled:
                await self._join()
            while self._seen == self.cluster.topics.version:
                await asyncio.sleep(_HEARTBEAT_S * (0.5 + self._chance()))
                self._read_on()
                await self._stumble()
                if self._chance() < 0.7:
                    await self._commit()
                await self._heartbeat()
            await self._give_back()  # it has seen new partitions, and joins again
        except RebalanceInProgressError:
            await self._give_back()
        except (
            UnknownMemberError,
            IllegalGenerationError,
            FencedInstanceIdError,
            GroupNotFoundError,
        ) as error:
            self._note(f"is told {error}")
            self.positions.clear()
            if not isinstance(error, IllegalGenerationError):
                self.member_id = ""
            self.generation, self._settled = -1, False
            await asyncio.sleep(_BACKOFF_S)

    async def _give_back(self) -> None:
        try:
            with contextlib.suppress(WaystationError):
                if self._chance() < 0.8:
                    await self._commit()
        finally:
            self.positions.clear()
            self._settled = False

    async def _heartbeat(self) -> None:
        await self.connection.ask(
            "heartbeat", Heartbeat(self.group, self.generation, self.member_id, self.instance)
        )

    async def _join(self) -> None:
        self.positions.clear()
        self._seen = self.cluster.topics.version
        joined: Joined = await self._joined()
        self.member_id, self.generation = joined.member_id, joined.generation
        assignments: tuple[tuple[str, bytes], ...] = ()
        if joined.leader == joined.member_id and not joined.skip_assignment:
            assignments = self._share_out(joined)
            self.cluster.shared_out[self.group, joined.generation] = self._seen
        elif joined.leader == joined.member_id:
            # What it finds shared out may be from before topics grew: it would notice.
            self._seen = self.cluster.shared_out.get((self.group, joined.generation), 0)
        synced: Synced = await self.connection.ask(
            "sync",
            Sync(
                self.group,
                joined.generation,
                joined.member_id,
                self.instance,
                "consumer",
                joined.protocol,
                assignments,
            ),
        )
        assigned = read_assignment(synced.assignment).partitions
        await self._begin((topic, number) for topic, numbers in assigned for number in numbers)
        self._settled = True
        self._note(f"reads {self.owned} in generation {self.generation}")

    async def _joined(self) -> Joined:
        subscription = write_subscription(Subscription(self.topics, version=1))
        command = Join(
            self.group,
            self.member_id,
            self.instance,
            "client",
            "/host",
            "consumer",
            (("range", subscription),),
            SESSION_MS,
            REBALANCE_MS,
            may_skip_assignment=True,
        )
        try:
            joined: Joined = await self.connection.ask("join", command)
        except MemberIdRequiredError as required:
            self.member_id = required.member_id
            command = command._replace(member_id=required.member_id)
            joined = await self.connection.ask("join", command)
        return joined

    def _share_out(self, joined: Joined) -> tuple[tuple[str, bytes], ...]:
        """Give each member in turn a partition that it subscribes to."""
        shares: dict[str, dict[str, list[int]]] = {one.member_id: {} for one in joined.members}
        wanted = {
            one.member_id: read_subscription(one.subscription).topics for one in joined.members
        }
        turn = 0
        for topic in self.cluster.topics.names():
            seen = self.cluster.topics.named(topic)
            readers = [member for member in shares if topic in wanted[member]]
            for number in range(seen.partitions if seen and readers else 0):
                shares[readers[turn % len(readers)]].setdefault(topic, []).append(number)
                turn += 1
        return tuple(
            (
                member,
                write_assignment(
                    Assignment(
                        tuple((topic, tuple(numbers)) for topic, numbers in share.items()), 1
                    )
                ),
            )
            for member, share in shares.items()
        )

    async def leave(self) -> None:
        """Say good-bye."""
        leaving = Leaving(self.member_id, self.instance)
        await self.connection.ask("leave", Leave(self.group, (leaving,)))


class ServerSideMember(Member):
    """Says what it owns, is told what it shall own, gives back first and takes then."""

    def __init__(self, *arguments: Any) -> None:
        self._said_all = False
        self._assigned: tuple[tuple[str, int], ...] | None = None
        super().__init__(*arguments)

    async def _be_a_member(self) -> None:
        if not self.member_id:
            self.member_id = f"{self.who}-{self.cluster.world.chance.randrange(1 << 30)}"
        if self.generation < 0:
            self.generation, self._said_all = 0, False
        try:
            while True:
                await self._heartbeat()
                self._read_on()
                await self._stumble()
                if self.generation > 0 and self._chance() < 0.7:
                    await self._commit()
                await asyncio.sleep(_HEARTBEAT_S * (0.5 + self._chance()))
        except StaleMemberEpochError:
            await asyncio.sleep(_BACKOFF_S)
        except (FencedMemberEpochError, UnknownMemberError, GroupNotFoundError) as error:
            self._note(f"is told {error}")
            if self.generation == 0 and isinstance(error, GroupNotFoundError):
                raise AssertionError(f"{self.who} may not join") from error
            self._forget()
        except (UnreleasedInstanceIdError, FencedInstanceIdError) as error:
            self._note(f"is told {error}")
            self._forget()
            await asyncio.sleep(0.5)
        except DisconnectedError:
            # Whether the last heartbeat arrived is not known: say all of it again.
            self._said_all = False
            raise

    def _forget(self) -> None:
        self.positions.clear()
        self.generation, self._assigned = -1, None
        if self.instance is not None:
            self.member_id = ""

    async def _heartbeat(self) -> None:
        everything = not self._said_all
        done: ConsumerHeartbeatDone = await self.connection.ask(
            "consumer_heartbeat",
            ConsumerHeartbeat(
                self.group,
                self.member_id,
                self.generation,
                self.instance,
                None,
                REBALANCE_MS if everything else -1,
                self.topics if everything else None,
                None,
                None,
                self._owned_by_id(),
                "client",
                "/host",
            ),
        )
        self._said_all = True
        self.generation = done.member_epoch
        if done.assignment is not None:
            self._assigned = tuple(
                (self._name(topic_id), number)
                for topic_id, numbers in done.assignment
                for number in numbers
            )
        if self._assigned is not None:
            await self._reconcile(self._assigned)

    async def _reconcile(self, assigned: tuple[tuple[str, int], ...]) -> None:
        gone = [one for one in self.owned if one not in assigned]
        if gone:
            with contextlib.suppress(WaystationError):
                await self._commit(gone)
            for one in gone:
                self.positions.pop(one, None)
        for topic, number in self.owned:
            self.cluster.witness.took(self.who, self.group, self.generation, topic, number)
        await self._begin(one for one in assigned if one not in self.positions)

    def _fetch(self, topics: tuple[tuple[str, tuple[int, ...]], ...]) -> FetchOffsets:
        return FetchOffsets(self.group, topics, self.member_id, self.generation)

    def _owned_by_id(self) -> Any:
        by_topic: dict[str, list[int]] = {}
        for topic, number in sorted(self.owned):
            by_topic.setdefault(topic, []).append(number)
        owned = []
        for topic, numbers in by_topic.items():
            seen = self.cluster.topics.named(topic)
            assert seen is not None, f"{topic} is no topic"
            owned.append((seen.id, tuple(numbers)))
        return tuple(sorted(owned))

    def _name(self, topic_id: Any) -> str:
        seen = self.cluster.topics.of_id(topic_id)
        assert seen is not None, f"{topic_id} is no topic"
        return seen.name

    async def leave(self) -> None:
        """Say good-bye; a static member that will be back says so."""
        epoch = -1 if self.instance is None else -2
        await self.connection.ask(
            "consumer_heartbeat",
            ConsumerHeartbeat(
                self.group,
                self.member_id,
                epoch,
                self.instance,
                None,
                -1,
                None,
                None,
                None,
                None,
                "client",
                "/host",
            ),
        )


class Auditor:
    """Someone who looks at the groups' offsets all the time: what it was shown must stay true."""

    def __init__(self, cluster: Cluster, groups: Iterable[str]) -> None:
        self._cluster, self._groups = cluster, tuple(groups)
        self._node = cluster.world.node("auditor")
        self._connection = Connection(cluster, self._node)
        self._node.spawn(self._look())

    async def _look(self) -> None:
        while True:
            pause_s = 1.0 if self._cluster.calm else 0.1
            await asyncio.sleep(self._cluster.world.chance.uniform(0.01, pause_s))
            for group in self._groups:
                with contextlib.suppress(DisconnectedError):
                    fetched: FetchedOffsets = await self._connection.ask(
                        "fetch_offsets", FetchOffsets(group, None)
                    )
                    for one in fetched.offsets:
                        self._cluster.witness.told_offset(
                            (group, one.topic, one.partition), one.offset
                        )
