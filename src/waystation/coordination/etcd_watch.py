"""Watches that outlive the server they were opened at.

A watch follows one stream of one server.  When the stream ends, or its server no longer agrees
with the others, the watch goes on at the next server from the revision after the last one it
told of.  So its owner sees every last state once and in order, and does not notice.

Only two things end in ``CompactedError``: changes that etcd no longer holds, and a cluster that
was set back to before what the watch has seen already.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import msgspec

from waystation.coordination.etcd_gateway import Gateway, LostError
from waystation.coordination.etcd_messages import WatchAnswer, WatchLine, decoder
from waystation.coordination.store import Change, Versioned, check_prefix
from waystation.coordination.watches import LocalWatch
from waystation.runtime.tasks import Tasks
from waystation.telemetry.logs import get_logger

_events = get_logger("coordination")

# A stream says nothing while nothing changes, nor when its server stands still: so it is asked.
QUIET_S = 2.0
_PAUSE_S = 0.1
_PAUSE_MAX_S = 2.0
_LINE = decoder(WatchLine)


class EtcdWatches:
    """All watches of one store, each with a task that follows its stream."""

    def __init__(self, gateway: Gateway, root: str) -> None:
        self._gateway = gateway
        self._root = root
        self._tasks = Tasks()
        self._following: dict[LocalWatch, asyncio.Task[Any]] = {}
        self._closed = False

    def watch(self, prefix: str, from_revision: int) -> LocalWatch:
        """Changes under ``prefix`` after ``from_revision``."""
        check_prefix(prefix)
        watch = LocalWatch(self, prefix, from_revision)
        if self._closed:
            watch.close()
        else:
            follow = self._follow(watch, prefix, from_revision)
            self._following[watch] = self._tasks.spawn(follow, "coordination.watch")
        return watch

    def forget(self, watch: LocalWatch) -> None:
        """Follow no longer."""
        if task := self._following.pop(watch, None):
            task.cancel()

    async def close(self) -> None:
        """End every watch."""
        self._closed = True
        for watch in tuple(self._following):
            watch.close()
        await self._tasks.aclose()

    async def _follow(self, watch: LocalWatch, prefix: str, revision: int) -> None:
        """Tell ``watch`` of everything after ``revision``, at one server after the other."""
        wanted = key_range(self._root, prefix)
        pause_s = _PAUSE_S
        while True:
            try:
                request = {"create_request": {**wanted, "start_revision": revision + 1}}
                async with self._gateway.stream("watch", request) as (base, stream):
                    async for answer in self._answers(base, stream):
                        if answer.compact_revision or await self._is_set_back(
                            base, answer, revision
                        ):
                            watch.lose()
                            return
                        pause_s = _PAUSE_S
                        if answer.events:
                            change = self._change(answer)
                            watch.tell(change)
                            revision = change.revision
            except LostError as problem:
                _events.warning("watch.interrupted", prefix=prefix, reason=str(problem))
            await asyncio.sleep(pause_s)
            pause_s = min(_PAUSE_MAX_S, pause_s * 2)

    async def _answers(self, base: str, stream: aiohttp.StreamReader) -> AsyncIterator[WatchAnswer]:
        """The stream's lines, for as long as its server is one of the cluster."""
        line = bytearray()
        while True:
            try:
                async with asyncio.timeout(QUIET_S):
                    chunk = await stream.readany()
            except TimeoutError:
                await self._gateway.ping(base)
                continue
            if not chunk:
                raise LostError("ended the stream")
            *ends, rest = chunk.split(b"\n")
            for end in ends:
                yield self._read(base, bytes(line + end))
                line.clear()
            line += rest

    def _read(self, base: str, line: bytes) -> WatchAnswer:
        try:
            said = _LINE.decode(line)
        except msgspec.DecodeError as problem:
            raise LostError(f"does not speak as etcd does: {problem}") from problem
        if (answer := said.result) is None:
            raise LostError(str(said.error))
        self._gateway.check(base, answer)
        if answer.canceled and not answer.compact_revision:
            self._gateway.forget_token(0, answer.cancel_reason)
            raise LostError(answer.cancel_reason or "ended the watch")
        return answer

    async def _is_set_back(self, base: str, answer: WatchAnswer, revision: int) -> bool:
        """A server may lag behind the watch; a whole cluster that does has lost its past."""
        lags = answer.created and answer.header.revision < revision
        return lags and await self._gateway.ping(base) < revision

    def _change(self, answer: WatchAnswer) -> Change:
        """Several revisions at once, the last state of each key; without the folder's own."""
        start = len(self._root)
        last = {event.kv.key.decode()[start:]: event for event in answer.events}
        last.pop("", None)
        return Change(
            max(event.kv.mod_revision for event in answer.events),
            {
                key: Versioned(event.kv.value, event.kv.mod_revision)
                for key, event in last.items()
                if event.type == "PUT"
            },
            tuple(key for key, event in last.items() if event.type == "DELETE"),
        )


def key_range(root: str, prefix: str) -> dict[str, bytes]:
    """The keys that ``prefix`` means, as etcd's half-open range, or as one key."""
    start = f"{root}{prefix}"
    if not start.endswith("/"):
        return {"key": start.encode()}
    return {"key": start.encode(), "range_end": f"{start[:-1]}{chr(ord('/') + 1)}".encode()}
