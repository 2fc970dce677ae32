"""A ZooKeeper of three servers in memory, by seed: what lags, what is lost, what interleaves.

It promises what ZooKeeper does and no more.  Transactions have one order.  A server may lag
behind it.  A connection's answers come in the order of its questions, from states that never get
older; a session that moves to another server finds it no older than what it saw; a new session
may.  Answers get lost, after the deed or before it.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError

from waystation.coordination.zookeeper_plan import Check, Create, Delete, SetData, Step
from waystation.coordination.zookeeper_session import LostError, RefusedError

SERVERS = 3


class Node(NamedTuple):
    data: bytes
    czxid: int
    mzxid: int
    version: int


State = dict[str, Node]


class ZookeeperWorld:
    """All states there were, and how far each server has come."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.trouble = 0.0  # how likely a connection is lost at a step of a question
        self.states: list[State] = [{}]
        self.servers = [0] * SERVERS
        self.sequence = 0
        self.sessions: list[SimulatedSession] = []

    @property
    def zxid(self) -> int:
        return len(self.states) - 1

    def commit(self, steps: Sequence[Step]) -> list[Any]:
        """All or nothing, as the next state."""
        state, results, zxid = dict(self.states[-1]), [], self.zxid + 1
        for index, step in enumerate(steps):
            try:
                results.append(_do(state, step, zxid))
            except Exception as problem:
                raise RefusedError(index, problem) from problem
        self.states.append(state)
        return results

    async def run(self) -> None:
        """Let servers learn of what was decided, one now, another later."""
        while True:
            server = self.chance.randrange(SERVERS)
            self.bring(server, self.chance.randint(self.servers[server], self.zxid))
            await asyncio.sleep(self.chance.choice((0.001, 0.004, 0.02)))

    def bring(self, server: int, upto: int) -> None:
        """Let ``server`` know everything up to ``upto``, and tell who watches there."""
        before, self.servers[server] = self.servers[server], max(self.servers[server], upto)
        if self.servers[server] > before:
            for session in self.sessions:
                if session.server == server:
                    session.notice(before)


def _do(state: State, step: Step, zxid: int) -> Any:
    found = state.get(step.path)
    if isinstance(step, Create):
        if found:
            raise NodeExistsError
        state[step.path] = Node(step.data, zxid, zxid, 0)
        return step.path
    if not found:
        raise NoNodeError
    if step.writes not in (-1, found.version):
        raise BadVersionError
    match step:
        case SetData(path, data, _):
            state[path] = Node(data, found.czxid, zxid, found.version + 1)
            return state[path]
        case Delete(path, _):
            del state[path]
        case Check():
            pass
    return True


class SimulatedSession:
    """Stands in for ``zookeeper_session.Session``."""

    def __init__(
        self,
        world: ZookeeperWorld,
        on_connected: Callable[[], None] = lambda: None,
    ) -> None:
        self._world = world
        self._on_connected = on_connected
        self._watchers: dict[str, set[Callable[[Any], None]]] = {}
        self._last_seen = 0
        self._turn = asyncio.Lock()
        self.server = 0
        self.connections = self.expiries = 0
        world.sessions.append(self)

    async def open(self) -> None:
        self._connect()

    async def close(self) -> None:
        self._world.sessions.remove(self)

    async def call(self, method: str, path: str, data: bytes = b"", **options: Any) -> Any:
        async with self._turn:
            await self._travel()
            if method == "create":
                self._write([Create(path, data)])
                return path
            answer = self._read(method, path, options.get("watch"))
            await self._travel_back()
            if isinstance(answer, Exception):
                raise answer
            return answer

    async def calls(self, method: str, paths: Sequence[str]) -> list[Any]:
        answers = []
        for path in paths:
            try:
                answers.append(await self.call(method, path))
            except NoNodeError as problem:
                answers.append(problem)
        return answers

    async def commit(self, steps: Sequence[Step]) -> list[Any]:
        async with self._turn:
            await self._travel()
            results = self._write(steps)
            await self._travel_back()
            return results

    async def agree(self, path: str) -> None:
        await self.commit([Check(path, -1)])

    def notice(self, before: int) -> None:
        """Tell watchers of what changed at this server since ``before``."""
        old, new = (self._world.states[z] for z in (before, self._world.servers[self.server]))
        for path in [path for path in self._watchers if _looks(old, path) != _looks(new, path)]:
            for watcher in self._watchers.pop(path):
                watcher(None)

    def _write(self, steps: Sequence[Step]) -> list[Any]:
        try:
            results = self._world.commit(steps)
        except RefusedError as refusal:
            if len(steps) == 1 and isinstance(steps[0], Create):
                raise refusal.reason from None
            raise
        finally:
            self._world.bring(self.server, self._world.zxid)
            self._last_seen = self._world.servers[self.server]
        return results

    def _read(self, method: str, path: str, watch: Callable[[Any], None] | None) -> Any:
        self._last_seen = self._world.servers[self.server]
        state = self._world.states[self._last_seen]
        if watch is not None:
            self._watchers.setdefault(path, set()).add(watch)
        node = state.get(path)
        if method == "exists":
            return node
        if node is None:
            return NoNodeError()
        if method == "get":
            return node.data, node
        assert method == "get_children", method
        below = f"{path}/"
        return [name.removeprefix(below) for name in state if name.startswith(below)]

    async def _travel(self) -> None:
        """To the server; the connection may be lost on the way, or have been before."""
        self._maybe_lose()
        await self._travel_back()

    async def _travel_back(self) -> None:
        await self._pass_time()
        if self._maybe_lose():
            raise LostError("the connection was lost")

    async def _pass_time(self) -> None:
        await asyncio.sleep(self._world.chance.choice((0, 0.001, 0.003)))

    def _maybe_lose(self) -> bool:
        lost = self._world.chance.random() < self._world.trouble
        if lost:
            if self._world.chance.random() < 0.3:
                self.expiries += 1
                self._last_seen = 0
            self._connect()
        return lost

    def _connect(self) -> None:
        fit = [s for s in range(SERVERS) if self._world.servers[s] >= self._last_seen]
        self.server = self._world.chance.choice(fit or [self.server])
        self._watchers.clear()
        self.connections += 1
        self._on_connected()


def _looks(state: State, path: str) -> Any:
    children = sum(name.startswith(f"{path}/") for name in state)
    return state.get(path), children
