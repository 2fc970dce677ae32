"""The cluster as one revision of the coordination store has it.

An image never changes: applying a change gives the next one, which shares with it everything
that the change did not touch.  Creating one topic among thousands therefore costs one topic.

1. An image made by applying changes equals the one made from all items of that revision.
2. A topic exists exactly while its own key does.  Partition states that wait for their topic,
   or outlived it, are ``strays``: kept aside, shown to nobody, swept up by ``topics.sweep``.
3. Keys of kinds this version does not know are left alone.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from waystation.cluster.keys import EVERY_BROKER, group_of
from waystation.cluster.parts import (
    NO_COUNT,
    NO_OPTIONS,
    UNBORN,
    BrokerImage,
    ConfigImage,
    ControllerImage,
    CounterImage,
    LeavingImage,
    PartitionImage,
    ReassignmentImage,
    TopicImage,
    ViewImage,
)
from waystation.cluster.values import (
    BrokerValue,
    ClusterValue,
    ConfigValue,
    ControllerValue,
    CounterValue,
    DrainValue,
    LeavingValue,
    PartitionValue,
    ReassignmentValue,
    TopicValue,
    ViewValue,
    decode,
)
from waystation.model.errors import (
    IsViewError,
    MetadataFormatError,
    UnknownTopicError,
)
from waystation.model.ids import NodeId, TopicId, uuid_of

K = TypeVar("K")
V = TypeVar("V")


class StoreChange(Protocol):
    """What the coordination store tells a watcher."""

    @property
    def revision(self) -> int:
        """The store's revision after the change."""
        ...

    @property
    def puts(self) -> Mapping[str, tuple[bytes, int]]:
        """Value and version of each key that was put."""
        ...

    @property
    def deletes(self) -> Collection[str]:
        """The keys that are gone."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterImage:
    """Everything brokers agree on; all look-ups are a dictionary's."""

    revision: int = 0
    cluster_id: str | None = None
    controller: ControllerImage | None = None
    brokers: Mapping[NodeId, BrokerImage] = field(default_factory=dict)
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    topics_by_id: Mapping[TopicId, TopicImage] = field(default_factory=dict)
    views: Mapping[str, ViewImage] = field(default_factory=dict)
    views_by_id: Mapping[TopicId, ViewImage] = field(default_factory=dict)
    topic_configs: Mapping[str, ConfigImage] = field(default_factory=dict)
    broker_configs: Mapping[str, ConfigImage] = field(default_factory=dict)
    group_configs: Mapping[str, ConfigImage] = field(default_factory=dict)
    counters: Mapping[str, CounterImage] = field(default_factory=dict)
    strays: Mapping[TopicId, Mapping[int, PartitionImage]] = field(default_factory=dict)
    reassignments: Mapping[TopicId, Mapping[int, ReassignmentImage]] = field(default_factory=dict)
    leaving: Mapping[NodeId, LeavingImage] = field(default_factory=dict)
    drains: Mapping[NodeId, int] = field(default_factory=dict)

    @classmethod
    def from_items(
        cls, items: Mapping[str, tuple[bytes, int]], revision: int = 0
    ) -> "ClusterImage":
        """The image of a whole snapshot."""
        return cls(revision=-1).apply(_Items(revision, items, ()))

    def apply(self, change: StoreChange) -> "ClusterImage":
        """The image after ``change``; itself if it has seen that revision already."""
        if change.revision <= self.revision:
            return self
        draft = _Draft(self)
        for key, (value, version) in change.puts.items():
            draft.put(key, value, version)
        for key in change.deletes:
            draft.delete(key)
        return draft.image(change.revision)

    def topic(self, name: str) -> TopicImage:
        """The topic of that name, which is no view; ``views.py`` has what readers see."""
        found = self.topics.get(name)
        if found is None:
            if name in self.views:
                raise IsViewError(name, self.views[name].on)
            raise UnknownTopicError(f"there is no topic {name!r}")
        return found

    def topic_options(self, name: str) -> ConfigImage:
        """What was set for the topic itself."""
        return self.topic_configs.get(name, NO_OPTIONS)

    def broker_options(self, name: str = EVERY_BROKER) -> ConfigImage:
        """What was set for one broker, or for all of them."""
        return self.broker_configs.get(name, NO_OPTIONS)

    def group_options(self, group_id: str) -> ConfigImage:
        """What was set for one group."""
        return self.group_configs.get(group_id, NO_OPTIONS)

    def is_leaving(self, node: NodeId) -> bool:
        """Whether the broker that is registered now wants to stop."""
        wish, broker = self.leaving.get(node), self.brokers.get(node)
        return wish is not None and broker is not None and wish.epoch == broker.epoch

    def reassignment(self, topic_id: TopicId, number: int) -> ReassignmentImage | None:
        """Where the partition is on its way to, if it is."""
        return self.reassignments.get(topic_id, {}).get(number)

    def counter(self, key: str) -> CounterImage:
        """The counter at ``key``."""
        return self.counters.get(key, NO_COUNT)


class _Items(NamedTuple):
    revision: int
    puts: Mapping[str, tuple[bytes, int]]
    deletes: Collection[str]


class _Shared(Generic[K, V]):
    """A map of the former image, copied when it is first written to."""

    __slots__ = ("_own", "now")

    def __init__(self, before: Mapping[K, V]) -> None:
        self.now = before
        self._own: dict[K, V] | None = None

    def own(self) -> dict[K, V]:
        if self._own is None:
            self.now = self._own = dict(self.now)
        return self._own

    def drop(self, key: K) -> None:
        if key in self.now:
            del self.own()[key]


class _Draft:
    """The next image while it is being made.

    Topics and partition states are collected first and joined at the end, because a change
    may name them in any order.
    """

    def __init__(self, before: ClusterImage) -> None:
        self._before = before
        self._single: dict[str, Any] = {}
        self._brokers = _Shared(before.brokers)
        self._topics = _Shared(before.topics)
        self._by_id = _Shared(before.topics_by_id)
        self._views = _Shared(before.views)
        self._topic_configs = _Shared(before.topic_configs)
        self._broker_configs = _Shared(before.broker_configs)
        self._group_configs = _Shared(before.group_configs)
        self._counters = _Shared(before.counters)
        self._strays = _Shared(before.strays)
        self._reassignments = _Shared(before.reassignments)
        self._leaving = _Shared(before.leaving)
        self._drains = _Shared(before.drains)
        self._new_topics: dict[str, tuple[TopicValue, int] | None] = {}
        self._new_states: dict[TopicId, dict[int, PartitionImage | None]] = {}

    def put(self, key: str, stored: bytes, version: int) -> None:
        match key.split("/"):
            case ["topics", name]:
                self._new_topics[name] = decode(TopicValue, key, stored), version
            case ["partitions", topic, number]:
                state = _state(decode(PartitionValue, key, stored), version)
                self._states_of(key, topic)[_number(key, number)] = state
            case ["views", name]:
                self._views.own()[name] = _view(name, decode(ViewValue, key, stored), version)
            case ["configs", "topic", name]:
                self._topic_configs.own()[name] = _config(key, stored, version)
            case ["configs", "broker", name]:
                self._broker_configs.own()[name] = _config(key, stored, version)
            case ["configs", "group", name]:
                self._group_configs.own()[group_of(name)] = _config(key, stored, version)
            case ["brokers", number]:
                node = NodeId(_number(key, number))
                broker = decode(BrokerValue, key, stored)
                self._brokers.own()[node] = _broker(node, broker, version)
            case ["reassignments", topic, number]:
                moving = decode(ReassignmentValue, key, stored)
                moved = ReassignmentImage(moving.target, moving.origin, version)
                self._reassign(key, topic, number, moved)
            case ["leaving", number]:
                leaving = LeavingImage(decode(LeavingValue, key, stored).epoch, version)
                self._leaving.own()[NodeId(_number(key, number))] = leaving
            case ["drains", number]:
                decode(DrainValue, key, stored)
                self._drains.own()[NodeId(_number(key, number))] = version
            case ["controller"]:
                controller = decode(ControllerValue, key, stored)
                self._single["controller"] = ControllerImage(
                    controller.node, controller.epoch, version
                )
            case ["ids", _]:
                counter = decode(CounterValue, key, stored)
                self._counters.own()[key] = CounterImage(counter.next, version)
            case ["cluster"]:
                self._single["cluster_id"] = decode(ClusterValue, key, stored).id

    def delete(self, key: str) -> None:
        match key.split("/"):
            case ["topics", name]:
                self._new_topics[name] = None
            case ["partitions", topic, number]:
                self._states_of(key, topic)[_number(key, number)] = None
            case ["views", name]:
                self._views.drop(name)
            case ["configs", "topic", name]:
                self._topic_configs.drop(name)
            case ["configs", "broker", name]:
                self._broker_configs.drop(name)
            case ["configs", "group", name]:
                self._group_configs.drop(group_of(name))
            case ["brokers", number]:
                self._brokers.drop(NodeId(_number(key, number)))
            case ["reassignments", topic, number]:
                self._reassign(key, topic, number, None)
            case ["leaving", number]:
                self._leaving.drop(NodeId(_number(key, number)))
            case ["drains", number]:
                self._drains.drop(NodeId(_number(key, number)))
            case ["controller"]:
                self._single["controller"] = None
            case ["ids", _]:
                self._counters.drop(key)
            case ["cluster"]:
                self._single["cluster_id"] = None

    def image(self, revision: int) -> ClusterImage:
        for name in self._new_topics:
            self._remove_topic(name)
        for name, made in self._new_topics.items():
            if made is not None:
                self._make_topic(name, *made)
        for topic_id, states in self._new_states.items():
            self._place_states(topic_id, states)
        return replace(
            self._before,
            revision=revision,
            brokers=self._brokers.now,
            topics=self._topics.now,
            topics_by_id=self._by_id.now,
            views=self._views.now,
            views_by_id=(
                self._before.views_by_id
                if self._views.now is self._before.views
                else {view.id: view for view in self._views.now.values()}
            ),
            topic_configs=self._topic_configs.now,
            broker_configs=self._broker_configs.now,
            group_configs=self._group_configs.now,
            counters=self._counters.now,
            strays=self._strays.now,
            reassignments=self._reassignments.now,
            leaving=self._leaving.now,
            drains=self._drains.now,
            **self._single,
        )

    def _states_of(self, key: str, topic: str) -> dict[int, PartitionImage | None]:
        return self._new_states.setdefault(_topic_id(key, topic), {})

    def _reassign(self, key: str, topic: str, number: str, to: ReassignmentImage | None) -> None:
        topic_id, partition = _topic_id(key, topic), _number(key, number)
        known = dict(self._reassignments.now.get(topic_id, {}))
        known.pop(partition, None)
        if to is not None:
            known[partition] = to
        if known:
            self._reassignments.own()[topic_id] = known
        else:
            self._reassignments.drop(topic_id)

    def _remove_topic(self, name: str) -> None:
        """Take the topic away, if it is there; what is known of it finds its place later."""
        old = self._topics.now.get(name)
        if old is not None:
            self._topics.drop(name)
            self._by_id.drop(old.id)
            known = {n: each for n, each in enumerate(old.partitions) if each.version}
            self._new_states[old.id] = {**known, **self._new_states.get(old.id, {})}

    def _make_topic(self, name: str, value: TopicValue, version: int) -> None:
        partitions = tuple(UNBORN._replace(replicas=each) for each in value.replicas)
        topic = TopicImage(name, value.id, partitions, version)
        self._topics.own()[name] = self._by_id.own()[value.id] = topic
        waiting = self._strays.now.get(value.id, {})
        self._new_states[value.id] = {**waiting, **self._new_states.get(value.id, {})}

    def _place_states(self, topic_id: TopicId, states: Mapping[int, PartitionImage | None]) -> None:
        """Give each state to its partition, or to the strays if there is none."""
        topic = self._by_id.now.get(topic_id)
        held = list(topic.partitions) if topic else []
        strays = dict(self._strays.now.get(topic_id, {}))
        for number, state in states.items():
            strays.pop(number, None)
            if number < len(held):
                held[number] = (state or UNBORN)._replace(replicas=held[number].replicas)
            elif state is not None:
                strays[number] = state._replace(replicas=())
        if topic:
            changed = topic._replace(partitions=tuple(held))
            self._topics.own()[topic.name] = self._by_id.own()[topic_id] = changed
        if strays:
            self._strays.own()[topic_id] = strays
        else:
            self._strays.drop(topic_id)


def _topic_id(key: str, text: str) -> TopicId:
    try:
        return TopicId(uuid_of(text))
    except ValueError:
        raise MetadataFormatError(key, f"{text!r} is no topic id") from None


def _number(key: str, text: str) -> int:
    if not text.isdecimal():
        raise MetadataFormatError(key, f"{text!r} is no number")
    return int(text)


def _broker(node: NodeId, value: BrokerValue, version: int) -> BrokerImage:
    return BrokerImage(
        node,
        value.epoch,
        value.host,
        value.port,
        value.rack,
        version,
        value.machine,
        value.clean,
        value.features,
    )


def _state(value: PartitionValue, version: int) -> PartitionImage:
    return PartitionImage(
        (),
        value.leader,
        value.leader_epoch,
        value.in_sync,
        value.eligible,
        value.partition_epoch,
        version,
        value.unclean_epoch,
    )


def _view(name: str, value: ViewValue, version: int) -> ViewImage:
    return ViewImage(name, value.id, value.on, value.on_id, value.where, version)


def _config(key: str, stored: bytes, version: int) -> ConfigImage:
    return ConfigImage(decode(ConfigValue, key, stored).options, version)
