"""The groups that this broker coordinates: one machine per partition of ``__consumer_offsets``.

How a group finds its machine, and what a machine lives through, is in ``posts.py``.  Here is what
makes them groups: the topics they read, and the metrics they are counted by.
"""

from collections.abc import Callable, Collection, Iterable, Sequence

from waystation.broker.all_groups import AllGroupRecordReader, AllGroups, encode_any
from waystation.broker.group_options import GroupOptions
from waystation.broker.machine_log import PartitionLog, PartitionProducers, load
from waystation.broker.posts import ID_BYTES_MAX, InternalTopic, Loaded, Posts, fits_into_a_key
from waystation.broker.replicas import Replicas
from waystation.broker.share_orders import ShareOrders
from waystation.broker.topics import Topics
from waystation.cluster.image import ClusterImage
from waystation.cluster.parts import INTERNAL_TOPICS, TopicImage
from waystation.cluster.views import find_shown, find_shown_by_id, shown_names
from waystation.groups.commands import TopicSeen
from waystation.groups.records import OffsetCommitted, Record
from waystation.groups.settings import GroupSettings
from waystation.model.errors import InvalidGroupIdError
from waystation.model.ids import LeaderEpoch, NodeId, TopicId
from waystation.model.machines import InTransaction
from waystation.model.offsets import Offset
from waystation.partition.partition import Partition
from waystation.runtime.chance import Chance
from waystation.runtime.clock import Clock
from waystation.runtime.timers import Timers
from waystation.sharing.group_machine import ShareGroups
from waystation.sharing.settings import ShareSettings
from waystation.telemetry.metrics import Counter, Registry

OFFSETS_TOPIC = "__consumer_offsets"

_COMMITS = (OffsetCommitted, InTransaction)


class TopicsNow:
    """The cluster's topics and views as groups look at them.

    Internal ones are not offered by name.
    """

    __slots__ = ("_archives", "image", "version")

    def __init__(self) -> None:
        self.image = ClusterImage()
        self._archives: Collection[str] = ()
        self.version = 0

    def adopt(self, image: ClusterImage, archives: Collection[str] = ()) -> bool:
        """Look at another image; whether a topic came, grew or went."""
        before, self.image, self._archives = self.image, image, archives
        same = before.topics is image.topics and before.views is image.views
        if same or _sizes(before) == _sizes(image):
            return False
        self.version += 1
        return True

    def named(self, name: str) -> TopicSeen | None:
        """The topic of that name."""
        return _seen(find_shown(self.image, name))

    def of_id(self, topic_id: TopicId) -> TopicSeen | None:
        """The topic of that id."""
        return _seen(find_shown_by_id(self.image, topic_id))

    def names(self) -> Iterable[str]:
        """What a regular expression may choose from."""
        return [name for name in shown_names(self.image) if name not in INTERNAL_TOPICS]

    def wait_for(self, group_id: str) -> bool:
        """Whether a topic keeps what that group has not committed."""
        return group_id in self._archives


class TopicsOfQueues:
    """The same without views: a queue is a topic's, and settles what becomes of its messages."""

    __slots__ = ("_now",)

    def __init__(self, now: TopicsNow) -> None:
        self._now = now

    @property
    def version(self) -> int:
        """Rises whenever any of them changes."""
        return self._now.version

    def named(self, name: str) -> TopicSeen | None:
        """The topic of that name."""
        return _seen(self._now.image.topics.get(name))

    def of_id(self, topic_id: TopicId) -> TopicSeen | None:
        """The topic of that id."""
        return _seen(self._now.image.topics_by_id.get(topic_id))


class GroupLog(PartitionLog[Record]):
    """Counts the offsets among what it appends, in transactions too."""

    __slots__ = ("commits",)

    commits: Counter

    def append(self, records: Sequence[Record]) -> Offset:
        """Write records as one batch; where the log ends now."""
        end = super().append(records)
        self.commits.value += sum(type(record) in _COMMITS for record in records)
        return end


class GroupCoordinators(Posts[Record]):
    """The machines of groups, on one broker."""

    def __init__(
        self,
        node: NodeId,
        replicas: Replicas,
        topics: Topics,
        settings: Callable[[], GroupSettings],
        share_settings: Callable[[], ShareSettings],
        options: GroupOptions,
        orders: ShareOrders,
        *,
        clock: Clock,
        timers: Timers,
        chance: Chance,
        registry: Registry,
    ) -> None:
        super().__init__(
            OFFSETS_TOPIC,
            "group",
            node,
            replicas,
            topics,
            clock=clock,
            timers=timers,
            load_seconds=registry.histogram(
                "waystation_group_load_seconds",
                "How long a partition of __consumer_offsets took to load.",
            ),
        )
        self._settings = settings
        self._share_settings = share_settings
        self._options = options
        self._orders = orders
        self._chance = chance
        self._seen = TopicsNow()
        self._commits = registry.counter(
            "waystation_group_offsets_committed_total", "Offsets that groups committed."
        )

    def follow(self, image: ClusterImage, archives: Collection[str] = ()) -> None:
        """Act on a new image: take up posts, give up others, tell machines of topics.

        ``archives`` are the groups that topics wait for.
        """
        self.lead(image)
        if self._seen.adopt(image, archives):
            for host in self._hosts():
                host.submit(host.machine.topics_changed)

    def _check_id(self, name: str) -> None:
        if not fits_into_a_key(name):
            raise InvalidGroupIdError(
                f"the group id has {len(name)} characters; {ID_BYTES_MAX} bytes may be"
            )

    def _wanted(self) -> InternalTopic:
        settings = self._settings()
        return InternalTopic(
            settings.offsets_topic_num_partitions,
            settings.offsets_topic_replication_factor,
            settings.offsets_topic_segment_bytes,
        )

    async def _replayed(
        self, partition: Partition, epoch: LeaderEpoch, end: Offset
    ) -> Loaded[Record]:
        clerk = self._orders.clerk()
        machine = AllGroups(
            self._settings,
            self._seen,
            self._new_id,
            PartitionProducers(partition),
            ShareGroups(
                self._share_settings,
                TopicsOfQueues(self._seen),
                self._new_id,
                clerk.hear,
                self._options.of_share_group,
            ),
            self._options.of_consumer_group,
        )
        read = AllGroupRecordReader().read_rows
        count = await load(partition, epoch, end, read, machine.apply, self._clock)
        log = GroupLog(partition, epoch, encode_any, self._clock)
        log.commits = self._commits
        return Loaded(machine, log, count, clerk.begin)

    def _new_id(self) -> str:
        return str(self._chance.new_id())


def _seen(topic: TopicImage | None) -> TopicSeen | None:
    return None if topic is None else TopicSeen(topic.name, topic.id, len(topic.partitions))


def _sizes(image: ClusterImage) -> dict[TopicId, int]:
    topics = image.topics_by_id
    sizes = {topic_id: len(topic.partitions) for topic_id, topic in topics.items()}
    for view in image.views.values():
        if view.on_id in sizes:
            sizes[view.id] = sizes[view.on_id]
    return sizes
