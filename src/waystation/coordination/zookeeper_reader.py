"""Keeps a copy of the store, exact at every revision it shows.

ZooKeeper reads one node at a time, so what was read is only believed if ``head`` shows
afterwards that nothing happened meanwhile; otherwise what changed meanwhile is read too, until it
does.  A connection's reads are answered in the order they were asked for, and never from an older
state than before, so that this suffices; what was read over two connections is not believed.

Changes are listed for a while only.  A copy that missed more is read anew as a whole; so is one
whose session expired, since the service may have been set back to an older state meanwhile.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from kazoo.exceptions import NoNodeError

from waystation.coordination.store import Change
from waystation.coordination.zookeeper_layout import Layout, decode_item, decode_keys, key_of
from waystation.coordination.zookeeper_plan import Copy, Held
from waystation.coordination.zookeeper_session import LostError, Session

OnNews = Callable[[Any], None]


class Advance(NamedTuple):
    """What moved the copy; ``anew`` if there is no telling, since it was read as a whole."""

    change: Change | None
    anew: bool = False


class Own(NamedTuple):
    """A change that this process made: it need not be read to be known."""

    zxid: int
    items: dict[str, Held | None]


class _MissedError(Exception):
    """Changes that are no longer listed."""


class Reader:
    """Reads what changed since it last did; only one may ask it at a time."""

    def __init__(self, session: Session, layout: Layout) -> None:
        self._session = session
        self._layout = layout
        self.copy = Copy()
        self._loaded_after = -1
        # Our own changes on their way into the copy, by name.
        self.own: dict[str, Own] = {}

    @property
    def distrusted(self) -> bool:
        """Whether the copy may be of another past than the service's."""
        return self._loaded_after != self._session.expiries

    async def advance(self, on_news: OnNews) -> Advance:
        """Bring the copy to what the server knows; ``on_news`` is called when that is more."""
        try:
            if not self.distrusted:
                return Advance(await self._advance(self.copy, on_news))
        except _MissedError:
            pass
        while True:
            expiries = self._session.expiries
            fresh = await self._load()
            try:
                await self._advance(fresh, on_news)
            except _MissedError:
                continue
            self.copy, self._loaded_after = fresh, expiries
            return Advance(None, anew=True)

    async def ask(self, method: str, path: str, **options: Any) -> Any:
        """About a node that is always there, but at a server that lags far behind."""
        try:
            answer = await self._session.call(method, path, **options)
        except NoNodeError:
            answer = None
        if answer is None:
            raise LostError(f"{path} is not there")
        return answer

    async def children(self, path: str, watch: OnNews | None = None) -> list[str]:
        """The names of the nodes in a folder."""
        names: list[str] = await self.ask("get_children", path, watch=watch)
        return names

    async def dropped(self) -> tuple[int, int]:
        """Up to which zxid changes are no longer listed, and how often that was written."""
        data, state = await self.ask("get", self._layout.changes)
        return int(data or b"0"), state.version

    async def _advance(self, copy: Copy, on_news: OnNews) -> Change | None:
        """Read until nothing happened meanwhile, and only then touch ``copy``."""
        connection = self._session.connections
        revision = copy.revision
        read: dict[str, Held | None] = {}
        seen: dict[str, int] = {}
        while True:
            graves = await self.ask("exists", self._layout.graves)
            head = await self.ask("exists", self._layout.head, watch=on_news)
            if self._session.connections != connection:
                raise LostError("the connection was lost")
            if head.mzxid == revision:
                break
            known = len(seen)
            read |= await self._unseen(copy, seen)
            if len(seen) == known:
                raise _MissedError
            revision = max(revision, *seen.values())
        copy.changes |= seen
        copy.revision, copy.graves = revision, graves.version
        return _apply(copy, read)

    async def _load(self) -> Copy:
        """Everything, as it was at one revision or later; ``_advance`` makes it exact."""
        connection = self._session.connections
        changes = await self.children(self._layout.changes)
        graves = await self.ask("exists", self._layout.graves)
        head = await self.ask("exists", self._layout.head)
        nodes = await self.children(self._layout.items)
        found = await self._items(map(key_of, nodes))
        if self._session.connections != connection:
            raise LostError("the connection was lost")
        items = {key: held for key, held in found.items() if held is not None}
        listed = dict.fromkeys(changes, head.mzxid)
        return Copy(items, head.mzxid, graves.version, listed)

    async def _unseen(self, copy: Copy, seen: dict[str, int]) -> dict[str, Held | None]:
        """What changes touched that are neither in the copy nor in ``seen``, which gets them."""
        listed = set(await self.children(self._layout.changes))
        dropped, _ = await self.dropped()
        if dropped > copy.revision:
            raise _MissedError
        copy.changes = {name: zxid for name, zxid in copy.changes.items() if name in listed}
        new = listed - copy.changes.keys() - seen.keys()
        own = sorted((self.own[name].zxid, name) for name in new & self.own.keys())
        touched: dict[str, Held | None] = {}
        for zxid, name in own:
            seen[name] = zxid
            touched |= self.own[name].items
        return touched | await self._items(await self._keys(sorted(new - self.own.keys()), seen))

    async def _keys(self, names: list[str], seen: dict[str, int]) -> set[str]:
        """The keys that others' changes touched."""
        keys: set[str] = set()
        answers = await self._get(map(self._layout.change, names))
        for name, answer in zip(names, answers, strict=True):
            if answer is None:
                raise _MissedError
            data, stat = answer
            seen[name] = stat.czxid
            keys.update(decode_keys(name, data))
        return keys

    async def _items(self, keys: Iterable[str]) -> dict[str, Held | None]:
        wanted = sorted(keys)
        found: dict[str, Held | None] = dict.fromkeys(wanted)
        answers = await self._get(map(self._layout.item, wanted))
        for key, answer in zip(wanted, answers, strict=True):
            if answer is not None:
                data, stat = answer
                value, lease = decode_item(key, data)
                found[key] = Held(value, stat.mzxid, stat.version, lease)
        return found

    async def _get(self, paths: Iterable[str]) -> list[Any]:
        """Data and state of each node, or ``None`` where there is none."""
        answers = await self._session.calls("get", list(paths))
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, NoNodeError):
                raise answer
        return [None if isinstance(answer, NoNodeError) else answer for answer in answers]


def _apply(copy: Copy, read: dict[str, Held | None]) -> Change | None:
    """Put into ``copy`` what was read, and tell of it.

    Of a key that was made and deleted again too: who waits for the revision must see it come.
    """
    puts = {key: held.versioned for key, held in read.items() if held is not None}
    deletes = tuple(key for key, held in read.items() if held is None)
    copy.items.update((key, held) for key, held in read.items() if held is not None)
    for key in deletes:
        copy.items.pop(key, None)
    return Change(copy.revision, puts, deletes) if read else None
