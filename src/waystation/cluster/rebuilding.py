"""Metadata made anew from what data directories hold, when the store that had it is lost.

Directories know which topics and partitions they hold, under which ids, how far, and which leader
wrote which stretch; of options and views, what their brokers wrote down last (``keepsakes.py``).
They do not know who was in sync.  What is not known is decided so that nothing is lost by it:

1. The replica whose last records are of the highest leader epoch, and of those the longest, leads:
   whatever was committed is in it, provided that one replica which was in sync has been found.
   Those that end exactly there have the same records and are in sync with it; the others copy.
2. Leader epochs go on well above all that were found, so that no stretch is ever ambiguous and
   clients that have seen later ones believe the new.
3. Topics keep everything until somebody sets a retention, although their other options come back;
   those that were compacted are compacted.
4. A partition that nobody holds, with others of its topic there, is made anew and empty.
5. Counters go on above everything that was found.
6. Options of groups and brokers, and views of topics that are there, are as the newest of the
   brokers' own copies has them.

What is decided is told in ``notes``; nothing here writes.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from waystation.cluster import keys
from waystation.cluster.keepsakes import Keepsake, newest
from waystation.cluster.parts import INTERNAL_TOPICS
from waystation.cluster.values import (
    ClusterValue,
    ConfigValue,
    CounterValue,
    PartitionValue,
    TopicValue,
    ViewValue,
    encode,
)
from waystation.model.errors import WaystationError
from waystation.model.ids import (
    NO_BROKER_EPOCH,
    NO_LEADER_EPOCH,
    NO_PRODUCER,
    BrokerEpoch,
    LeaderEpoch,
    NodeId,
    ProducerId,
    TopicId,
    TopicPartition,
    uuid_text,
)
from waystation.model.offsets import Offset

EPOCHS_LEFT_OUT = 100
_PRODUCER_IDS_LEFT_OUT = 1_000_000
_BROKER_EPOCHS_LEFT_OUT = 1_000
_COMPACT = {"cleanup.policy": "compact"}
_KEEP_ALL = {"retention.ms": "-1", "retention.bytes": "-1"}
_RETENTION = ("retention.", "local.retention.")
_OWN = {**_COMPACT, "compression.type": "producer", "durability": "disk"}

Options = Mapping[str, str]


class ContradictionError(WaystationError):
    """The directories are not of one cluster, so no cluster can be made of them."""


class FoundReplica(NamedTuple):
    """A log that lies in a data directory."""

    partition: TopicPartition
    topic_id: TopicId
    last_epoch: LeaderEpoch
    log_start: Offset
    log_end: Offset
    compacted: bool = False
    last_producer: ProducerId = NO_PRODUCER

    @property
    def reach(self) -> tuple[int, int]:
        """How much it knows, to be compared."""
        return self.last_epoch, self.log_end


class Survey(NamedTuple):
    """All that lies in the data directories of one node."""

    node: NodeId
    cluster_id: str | None
    broker_epoch: BrokerEpoch
    replicas: tuple[FoundReplica, ...]
    keepsake: Keepsake | None = None


class Rebuilt(NamedTuple):
    """What to put into an empty store, and what was decided that somebody should know of."""

    items: dict[str, bytes]
    cluster_id: str
    topics: int
    partitions: int
    lost: tuple[TopicPartition, ...]
    notes: tuple[str, ...]


class _Held(NamedTuple):
    node: NodeId
    replica: FoundReplica


def rebuild(
    surveys: Sequence[Survey],
    new_cluster_id: str,
    options: Mapping[TopicId, Options] | None = None,
) -> Rebuilt:
    """A cluster of all that was found; ``options`` are of topics that no keepsake knows."""
    cluster_id = _cluster_of(surveys, new_cluster_id)
    kept_by_brokers = newest((one.keepsake for one in surveys), cluster_id)
    options = {**(options or {}), **_topic_options(kept_by_brokers)}
    held = [_Held(one.node, each) for one in surveys for each in one.replicas]
    notes: list[str] = []
    chosen = _without_namesakes(held, notes)
    items = {keys.CLUSTER: encode(ClusterValue(id=cluster_id))}
    leading: Counter[NodeId] = Counter({one.node: 0 for one in surveys})
    lost: list[TopicPartition] = []
    kept: list[str] = []
    partitions = 0
    for name, some in sorted(_by_topic(chosen).items()):
        topic_id = some[0].replica.topic_id
        assignment = []
        for number, holders in enumerate(_by_number(some)):
            where = TopicPartition(name, number)
            if not holders:
                lost.append(where)
            order, state = _decided(where, holders, leading, notes)
            assignment.append(order)
            items[keys.partition(topic_id, number)] = encode(state)
        partitions += len(assignment)
        items[keys.topic(name)] = encode(TopicValue(id=topic_id, replicas=tuple(assignment)))
        if name not in INTERNAL_TOPICS:
            kept.append(name)
        config = _safe_options(name, some, options.get(topic_id, {}))
        items[keys.topic_config(name)] = encode(ConfigValue(options=config))
    items.update(_counters(surveys))
    if kept_by_brokers is not None:
        items.update(_kept_items(kept_by_brokers, _by_topic(chosen), notes))
    if kept:
        lost_too = (
            "options of topics, brokers and groups, and views, are lost"
            if kept_by_brokers is None
            else "how long topics keep messages is not taken over"
        )
        notes.append(
            f"{lost_too}; topics keep everything (retention.ms=-1, retention.bytes=-1) until you "
            f"set them: {', '.join(kept)}"
        )
    return Rebuilt(items, cluster_id, len(_by_topic(chosen)), partitions, tuple(lost), tuple(notes))


def _cluster_of(surveys: Sequence[Survey], new_cluster_id: str) -> str:
    """The cluster that all directories belong to, or a new one if none of them says."""
    if not surveys:
        raise ContradictionError("nothing was found: name the data directories of all brokers")
    nodes = Counter(one.node for one in surveys)
    twice = [node for node, times in nodes.items() if times > 1]
    if twice:
        raise ContradictionError(f"node {twice[0]} was found twice: name each broker once")
    found = {one.cluster_id: one.node for one in surveys if one.cluster_id is not None}
    if len(found) > 1:
        (first, one), (second, other) = list(found.items())[:2]
        raise ContradictionError(
            f"node {one} belongs to cluster {first}, node {other} to cluster {second}"
        )
    return next(iter(found), new_cluster_id)


def _without_namesakes(held: list[_Held], notes: list[str]) -> list[_Held]:
    """Of several lives of a topic, the one that most replicas are of; then the one that goes on."""
    lives: dict[str, dict[TopicId, list[_Held]]] = defaultdict(lambda: defaultdict(list))
    for one in held:
        lives[one.replica.partition.topic][one.replica.topic_id].append(one)
    chosen = []
    for name, ids in lives.items():
        kept = max(ids, key=lambda each: (len(ids[each]), max(h.replica.reach for h in ids[each])))
        chosen += ids[kept]
        for dropped, some in ids.items():
            if dropped != kept:
                where = ", ".join(f"{one.replica.partition} on node {one.node}" for one in some)
                notes.append(
                    f"topic {name} was found with two ids: {uuid_text(kept)} goes on, "
                    f"{uuid_text(dropped)} is taken for a deleted one ({where}), whose messages "
                    "are deleted when those nodes start: move its directories away to keep them"
                )
    return chosen


def _by_topic(held: Iterable[_Held]) -> dict[str, list[_Held]]:
    topics: dict[str, list[_Held]] = defaultdict(list)
    for one in held:
        topics[one.replica.partition.topic].append(one)
    return topics


def _by_number(some: list[_Held]) -> list[list[_Held]]:
    last = max(one.replica.partition.partition for one in some)
    numbers: list[list[_Held]] = [[] for _ in range(last + 1)]
    for one in some:
        numbers[one.replica.partition.partition].append(one)
    return numbers


def _decided(
    where: TopicPartition, holders: list[_Held], leading: Counter[NodeId], notes: list[str]
) -> tuple[tuple[NodeId, ...], PartitionValue]:
    """Replicas, the preferred leader first, and the state; the election is the controller's."""
    if not holders:
        node = min(leading, key=lambda each: (leading[each], each))
        leading[node] += 1
        notes.append(f"{where} was found on no node: it begins anew, empty, on node {node}")
        return (node,), _state(NO_LEADER_EPOCH, (node,))
    best = max(one.replica.reach for one in holders)
    equal = sorted(one.node for one in holders if one.replica.reach == best)
    leader = min(equal, key=lambda each: (leading[each], each))
    leading[leader] += 1
    in_sync = (leader, *(node for node in equal if node != leader))
    behind = sorted((one for one in holders if one.node not in in_sync), key=lambda one: one.node)
    if behind:
        ends = ", ".join(f"node {one.node} to {one.replica.log_end}" for one in behind)
        notes.append(
            f"{where}: node {leader} goes furthest, to offset {best[1]} of epoch {best[0]}; "
            f"the others copy from it ({ends})"
        )
    highest = LeaderEpoch(max(one.replica.last_epoch for one in holders))
    return (*in_sync, *(one.node for one in behind)), _state(highest, in_sync)


def _state(highest: LeaderEpoch, in_sync: tuple[NodeId, ...]) -> PartitionValue:
    epoch = LeaderEpoch(highest + EPOCHS_LEFT_OUT)
    return PartitionValue(leader=None, leader_epoch=epoch, in_sync=in_sync)


def _safe_options(name: str, some: list[_Held], known: Options) -> dict[str, str]:
    """Options that delete nothing, whatever the topic's own were."""
    if name in INTERNAL_TOPICS:
        return {**_OWN, **known}
    compacted = any(one.replica.compacted for one in some)
    others = {name: value for name, value in known.items() if not name.startswith(_RETENTION)}
    return {**(_COMPACT if compacted else {}), **others, **_KEEP_ALL}


def _topic_options(kept: Keepsake | None) -> dict[TopicId, Options]:
    return {} if kept is None else {one.id: one.options for one in kept.topics.values()}


def _kept_items(
    kept: Keepsake, topics: Mapping[str, list[_Held]], notes: list[str]
) -> dict[str, bytes]:
    """What stands in no log, as a broker wrote it down."""
    items = {
        keys.group_config(name): encode(ConfigValue(options=options))
        for name, options in kept.groups.items()
    } | {
        keys.broker_config(name): encode(ConfigValue(options=options))
        for name, options in kept.brokers.items()
    }
    ids = {name: some[0].replica.topic_id for name, some in topics.items()}
    gone = []
    for name, view in sorted(kept.views.items()):
        if ids.get(view.on) != view.on_id or name in ids:
            gone.append(name)
            continue
        value = ViewValue(id=view.id, on=view.on, on_id=view.on_id, where=view.where)
        items[keys.view(name)] = encode(value)
    views = len(kept.views) - len(gone)
    notes.append(
        f"options of topics, groups ({len(kept.groups)}) and brokers ({len(kept.brokers)}), and "
        f"views ({views}), are as a broker wrote them down last, at revision {kept.revision} of "
        "the lost store: look whether they are what you want"
    )
    if gone:
        notes.append(f"views of topics that were not found are lost: {', '.join(gone)}")
    return items


def _counters(surveys: Sequence[Survey]) -> dict[str, bytes]:
    producer = max((each.last_producer for one in surveys for each in one.replicas), default=-1)
    life = max((one.broker_epoch for one in surveys), default=NO_BROKER_EPOCH)
    return {
        keys.PRODUCER_IDS: encode(CounterValue(next=producer + 1 + _PRODUCER_IDS_LEFT_OUT)),
        keys.BROKER_EPOCHS: encode(CounterValue(next=life + 1 + _BROKER_EPOCHS_LEFT_OUT)),
    }
