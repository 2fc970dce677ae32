"""A plan that evens out leaders and replicas with the fewest moves.

1. Replicas of any two brokers that may hold new ones differ by at most one afterwards, and so
   do preferred leaders, unless machines, racks or too few partitions stand against it.
2. No partition comes nearer together: not onto a machine it is on already, not onto fewer racks.
3. A replica is copied only if its broker has too many or another too few.  To change the
   preferred leader copies nothing.

A plan changes nothing; its moves are reassignments like an operator's.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from waystation.cluster.changes import Changes
from waystation.cluster.draining import safe_beside, site_of
from waystation.cluster.image import ClusterImage
from waystation.cluster.placement import machine_of, sites_for_new
from waystation.cluster.reassignment import Replicas, asked, settled
from waystation.model.ids import NodeId, TopicPartition

Assigned = dict[TopicPartition, Replicas]
Counts = dict[NodeId, int]
Way = tuple[NodeId, ...]
Pair = tuple[NodeId, NodeId]


class Load(NamedTuple):
    """What one broker holds, and how much of it it prefers to lead."""

    replicas: int
    leaders: int


class Plan(NamedTuple):
    """New replicas of some partitions, and each broker's load without and with them."""

    moves: Assigned
    copies: int
    before: Mapping[NodeId, Load]
    after: Mapping[NodeId, Load]


def plan(image: ClusterImage, *, share_machines: bool = False) -> Plan:
    """How to even out what all brokers hold once the moves under way are done."""
    now = {
        TopicPartition(topic.name, number): settled(image, topic, number)
        for topic in image.topics.values()
        for number in range(len(topic.partitions))
    }
    nodes = sorted(site.node for site in sites_for_new(image))
    before = _loads(nodes, now)
    spread = _Spread(image, now, share_machines)
    _even(nodes, {node: load.replicas for node, load in before.items()}, spread)
    led = _Led(spread.assigned)
    _even(nodes, {node: load.leaders for node, load in _loads(nodes, led.assigned).items()}, led)
    moves = {name: target for name, target in led.assigned.items() if target != now[name]}
    copies = sum(len({*target}.difference(now[name])) for name, target in moves.items())
    return Plan(moves, copies, before, _loads(nodes, led.assigned))


def carried_out(image: ClusterImage, wanted: Plan) -> list[Changes]:
    """The plan's moves, asked for; void for topics that changed since it was made."""
    return [
        asked(image, image.topic(name.topic), name.partition, target)
        for name, target in wanted.moves.items()
    ]


class _Draft(ABC):
    """An assignment that is being evened out; ``_of`` has the partitions that count for a node."""

    def __init__(self, assigned: Assigned) -> None:
        self.assigned = dict(assigned)
        self._of: dict[NodeId, dict[TopicPartition, None]] = {}
        for name, replicas in assigned.items():
            for node in self._counting(replicas):
                self._of.setdefault(node, {})[name] = None

    def offer(self, giver: NodeId, taker: NodeId) -> TopicPartition | None:
        """A partition that ``giver`` can hand over to ``taker``, if there is one."""
        offers = self._of.get(giver, {})
        return next((name for name in offers if self._may(name, giver, taker)), None)

    def hand_over(self, name: TopicPartition, giver: NodeId, taker: NodeId) -> None:
        """Let the partition count for ``taker`` instead."""
        del self._of[giver][name]
        self._of.setdefault(taker, {})[name] = None
        self.assigned[name] = self._handed_over(self.assigned[name], giver, taker)

    @abstractmethod
    def _counting(self, replicas: Replicas) -> Replicas: ...

    @abstractmethod
    def _may(self, name: TopicPartition, giver: NodeId, taker: NodeId) -> bool: ...

    @abstractmethod
    def _handed_over(self, replicas: Replicas, giver: NodeId, taker: NodeId) -> Replicas: ...


class _Spread(_Draft):
    """Which brokers hold what."""

    def __init__(self, image: ClusterImage, now: Assigned, share_machines: bool) -> None:
        super().__init__(now)
        self._image = image
        self._now = now
        self._share = share_machines
        self._moved: dict[TopicPartition, None] = {}

    def offer(self, giver: NodeId, taker: NodeId) -> TopicPartition | None:
        """One that is copied anyway costs nothing more, so it comes first."""
        held = self._of.get(giver, {})
        for name in self._moved:
            copied = name in held and giver not in self._now[name]
            if copied and self._may(name, giver, taker):
                return name
        return super().offer(giver, taker)

    def hand_over(self, name: TopicPartition, giver: NodeId, taker: NodeId) -> None:
        """Remember what is copied."""
        super().hand_over(name, giver, taker)
        self._moved[name] = None

    def _counting(self, replicas: Replicas) -> Replicas:
        return replicas

    def _may(self, name: TopicPartition, giver: NodeId, taker: NodeId) -> bool:
        """Whether the replicas stand as far apart as before, once ``giver``'s is ``taker``'s."""
        replicas = self.assigned[name]
        if taker in replicas:
            return False
        others = [site_of(self._image, node) for node in replicas if node != giver]
        old, new = site_of(self._image, giver), site_of(self._image, taker)
        if not self._share and not safe_beside(self._image, replicas, [new]):
            return False
        racks = {site.rack for site in others}
        if new.rack in racks and old.rack not in racks:
            return False
        machines = {machine_of(site) for site in others}
        return machine_of(new) not in machines or (self._share and machine_of(old) in machines)

    def _handed_over(self, replicas: Replicas, giver: NodeId, taker: NodeId) -> Replicas:
        return tuple(taker if node == giver else node for node in replicas)


class _Led(_Draft):
    """Which brokers are preferred to lead what."""

    def _counting(self, replicas: Replicas) -> Replicas:
        return replicas[:1]

    def _may(self, name: TopicPartition, giver: NodeId, taker: NodeId) -> bool:
        return taker in self.assigned[name]

    def _handed_over(self, replicas: Replicas, giver: NodeId, taker: NodeId) -> Replicas:
        return (taker, *(node for node in replicas if node != taker))


def _even(nodes: Sequence[NodeId], counts: Counts, draft: _Draft) -> None:
    """Hand over from who has most to who has least, until no two differ by more than one.

    Where one cannot hand over to the other, it goes through others: the fewest that do.
    """
    if not nodes:
        return
    low, rest = divmod(sum(counts.values()), len(nodes))
    high = low + (rest > 0)
    while ways := _unequal(nodes, counts, low, high):
        way: Way | None = next((pair for pair in ways if draft.offer(*pair) is not None), None)
        if way is None:
            way = next((found for pair in ways if (found := _way(nodes, *pair, draft))), None)
        if way is None or not _walk(way, draft):
            return
        counts[way[0]] -= 1
        counts[way[-1]] += 1


def _unequal(nodes: Sequence[NodeId], counts: Counts, low: int, high: int) -> list[Pair]:
    """Pairs of which one should hand over to the other, those first whom it helps most."""
    pairs = [(g, t) for g in nodes for t in nodes if counts[g] - counts[t] > 1]

    def need(pair: Pair) -> tuple[int, int]:
        giver, taker = pair
        return -(counts[giver] > high) - (counts[taker] < low), counts[taker] - counts[giver]

    return sorted(pairs, key=need)


def _way(nodes: Sequence[NodeId], giver: NodeId, taker: NodeId, draft: _Draft) -> Way | None:
    """The shortest chain of nodes, from ``giver`` to ``taker``, of which each can hand over."""
    ways: deque[Way] = deque([(giver,)])
    seen = {giver}
    while ways:
        way = ways.popleft()
        for node in nodes:
            if node not in seen and draft.offer(way[-1], node) is not None:
                if node == taker:
                    return (*way, node)
                seen.add(node)
                ways.append((*way, node))
    return None


def _walk(way: Way, draft: _Draft) -> bool:
    """Hand over along the chain, last first; false if one step took what another needed."""
    done: list[tuple[TopicPartition, NodeId, NodeId]] = []
    for giver, taker in reversed(list(pairwise(way))):
        name = draft.offer(giver, taker)
        if name is None:
            for undone, back_from, back_to in reversed(done):
                draft.hand_over(undone, back_to, back_from)
            return False
        draft.hand_over(name, giver, taker)
        done.append((name, giver, taker))
    return True


def _loads(nodes: Sequence[NodeId], assigned: Assigned) -> dict[NodeId, Load]:
    replicas, leaders = dict.fromkeys(nodes, 0), dict.fromkeys(nodes, 0)
    for each in assigned.values():
        for node in each:
            if node in replicas:
                replicas[node] += 1
        if each[0] in leaders:
            leaders[each[0]] += 1
    return {node: Load(replicas[node], leaders[node]) for node in nodes}
