"""Links that lose, delay, duplicate, reorder and are cut, by the luck of a seed.

``send`` is a datagram: it arrives once, twice, late or never.  ``connect`` is a connection: what
is sent on it arrives in order, once and whole, until it breaks; then each end is told, some time
later, and what was under way is lost or not.  Nothing arrives any more once its sender was told, so
that what it says on its next connection comes after what it said on this one.  A packet that a link
loses breaks the connection it belongs to, since TCP gives up in the end and simulations have no
time for its patience.
"""

from collections.abc import Callable, Iterable
from random import Random
from typing import Any, Protocol

from waystation.testing.virtual_time import Schedule, VirtualLoop

_TOLD_WITHIN_MS = 500


class Reachable(Protocol):
    """A node, as far as the network needs it."""

    name: str
    loop: VirtualLoop

    @property
    def alive(self) -> bool:
        """Whether it can receive."""
        ...


class Faults:
    """What a link does to its messages; change it at any time."""

    __slots__ = ("cut", "delay_ms", "duplicate", "loss", "straggle")

    def __init__(self) -> None:
        self.loss = 0.0
        """The share of messages that vanish."""
        self.duplicate = 0.0
        """The share of datagrams that arrive twice."""
        self.straggle = 0.0
        """The share of messages that take fifty times as long, and let others pass."""
        self.delay_ms = (0.2, 5.0)
        """The shortest and longest time on the way."""
        self.cut = False
        """Whether nothing gets through."""


class End:
    """One end of a connection; ``on_message`` and ``on_close`` are its owner's to set."""

    def __init__(self, network: "Network", owner: Reachable, other: Reachable) -> None:
        self.on_message: Callable[[Any], None] = _ignore
        self.on_close: Callable[[], None] = _nothing
        self.open = True
        self._network, self._owner, self._other = network, owner, other
        self._peer: End | None = None
        self._broken = False
        self._busy_until_s = 0.0

    @property
    def broken(self) -> bool:
        """Whether nothing gets through any more, told or not."""
        return self._broken

    def send(self, message: Any) -> None:
        """Let the other end have ``message``, unless the connection breaks before it arrives."""
        if not self.open or self._broken or self._peer is None:
            return
        faults = self._network.faults(self._owner.name, self._other.name)
        if faults.cut or self._network.chance.random() < faults.loss:
            self.abort()
            return
        arrives_s = self._network.now_s + self._network.delay_s(faults)
        # In order: nothing overtakes.
        self._busy_until_s = max(self._busy_until_s, arrives_s)
        self._other.loop.call_at_true(self._busy_until_s, self._deliver, self._peer, message)

    def close(self) -> None:
        """Hang up; the other end is told."""
        if self.open:
            self.open = False
            self._break()
            self._network.forget(self)

    def abort(self) -> None:
        """Break: both ends will be told, each in its own time."""
        if not self._broken:
            self._break()
            self._tell_later()

    def lose(self) -> None:
        """The owner is dead: it is told nothing, the other end is."""
        self.open = False
        self._break()

    def pair(self, peer: "End") -> None:
        """Be the other end of ``peer``."""
        self._peer, peer._peer = peer, self

    def _break(self) -> None:
        self._broken = True
        peer = self._peer
        if peer is not None and not peer._broken:
            peer._broken = True
            peer._tell_later()

    def _tell_later(self) -> None:
        delay_s = self._network.chance.uniform(0, _TOLD_WITHIN_MS) / 1_000
        self._owner.loop.call_at_true(self._network.now_s + delay_s, self._told)

    def _told(self) -> None:
        if self.open:
            self.open = False
            self._network.forget(self)
            self.on_close()

    def _deliver(self, peer: "End", message: Any) -> None:
        if self.open and peer.open:
            peer.on_message(message)


class Network:
    """All links of a world; each direction between two nodes is one."""

    def __init__(self, schedule: Schedule, chance: Random) -> None:
        self.chance = chance
        self._schedule = schedule
        self._hosts: dict[str, Reachable] = {}
        self._links: dict[tuple[str, str], Faults] = {}
        self._ends: dict[End, None] = {}
        self._doors: dict[str, Callable[[End], None]] = {}

    @property
    def now_s(self) -> float:
        """Seconds since the world began."""
        return self._schedule.now_s

    def join(self, host: Reachable) -> None:
        """Let ``host`` have an address: its name."""
        self._hosts[host.name] = host

    def listen(self, name: str, accept: Callable[[End], None]) -> None:
        """Have ``accept`` called with the end of every connection made to ``name``."""
        self._doors[name] = accept

    def faults(self, source: str, target: str) -> Faults:
        """What the link from ``source`` to ``target`` does."""
        return self._links.setdefault((source, target), Faults())

    def all_faults(self) -> Iterable[Faults]:
        """Of every link between the nodes there are."""
        names = list(self._hosts)
        return [self.faults(one, other) for one in names for other in names if one != other]

    def partition(self, *sides: Iterable[str]) -> None:
        """Let only nodes of one side reach each other; who is on none reaches nobody."""
        side_of = {name: number for number, side in enumerate(sides) for name in side}
        for one in self._hosts:
            for other in self._hosts:
                together = side_of.get(one, one) == side_of.get(other, other)
                self.faults(one, other).cut = one != other and not together

    def heal(self) -> None:
        """Let every link carry everything, as fast as it can."""
        for faults in self._links.values():
            faults.cut = False
            faults.loss = faults.duplicate = faults.straggle = 0.0

    def send(self, source: str, target: str, deliver: Callable[[], None]) -> None:
        """Call ``deliver`` at ``target`` when the datagram arrives, if and as often as it does."""
        faults = self.faults(source, target)
        copies = 2 if self.chance.random() < faults.duplicate else 1
        for _ in range(copies):
            if not faults.cut and self.chance.random() >= faults.loss:
                self._hosts[target].loop.call_at_true(self.now_s + self.delay_s(faults), deliver)

    def connect(self, source: str, target: str) -> End:
        """The near end of a new connection; it is told if nobody answers at the other."""
        near = End(self, self._hosts[source], self._hosts[target])
        self._ends[near] = None
        faults = self.faults(source, target)
        if faults.cut or not self._hosts[target].alive or self.chance.random() < faults.loss:
            near.abort()
            return near
        far = End(self, self._hosts[target], self._hosts[source])
        self._ends[far] = None
        near.pair(far)
        accept = self._doors.get(target)
        if accept is None:
            far.close()
        else:
            accept(far)
        return near

    def lose(self, name: str) -> None:
        """The node is dead: its connections break, and whoever is at their other ends is told."""
        lost = self._hosts[name]
        for end in [one for one in self._ends if one._owner is lost]:
            end.lose()
            self.forget(end)

    def forget(self, end: End) -> None:
        """The end is closed."""
        self._ends.pop(end, None)

    def delay_s(self, faults: Faults) -> float:
        """How long a message takes this time."""
        delay_ms = self.chance.uniform(*faults.delay_ms)
        straggles = self.chance.random() < faults.straggle
        return delay_ms * (50 if straggles else 1) / 1_000


def _ignore(_message: Any) -> None:
    """Nobody listens."""


def _nothing() -> None:
    """Nobody is told."""
