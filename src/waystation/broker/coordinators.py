"""The groups that this broker coordinates: one machine per partition of ``__consumer_offsets``.

A group belongs to the partition that its id hashes to, as in Kafka, and to whoever leads that
partition.

1. A machine answers only while this node leads its partition in the epoch it was loaded in, and
   only once all of the partition is loaded.  Loading begins as soon as the node leads.
2. Whatever ends a machine but a change of leadership, such as a full disk, is followed by
   another load, later and later while it goes on failing.
3. Partitions are loaded one after the other, so that those who are served meanwhile wait for at
   most one slice of it.

The internal topic is made when somebody first looks for a coordinator.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache

from waystation.broker.group_records import GroupRecordReader, encode
from waystation.broker.machine_log import PartitionLog, load, settled
from waystation.broker.replicas import Replicas
from waystation.broker.topics import Topics
from waystation.cluster.image import ClusterImage
from waystation.cluster.parts import TopicImage
from waystation.cluster.topics import TopicSpec
from waystation.groups.commands import TopicSeen
from waystation.groups.machine import Groups
from waystation.groups.records import OffsetCommitted, Record
from waystation.groups.settings import GroupSettings
from waystation.model.errors import (
    CoordinatorLoadingError,
    CoordinatorNotAvailableError,
    InvalidGroupIdError,
    NotCoordinatorError,
    TopicExistsError,
    WaystationError,
)
from waystation.model.ids import LeaderEpoch, NodeId, TopicId
from waystation.model.offsets import Offset
from waystation.runtime.chance import Chance
from waystation.runtime.clock import Clock, SteadyClock
from waystation.runtime.host import Host
from waystation.runtime.tasks import Tasks
from waystation.runtime.timers import Timers
from waystation.telemetry.logs import get_logger
from waystation.telemetry.metrics import Counter, Histogram, Registry

OFFSETS_TOPIC = "__consumer_offsets"

_GROUP_ID_BYTES_MAX = 32_767
# What a decision about one group may take: members and what they subscribe to, at once.
_DECISION_BYTES_MAX = 64 << 20
_RETRY_S, _RETRY_MAX_S = 0.1, 10.0
# A machine that lived for so long did not die of what the one before died of.
_WELL_S = 60.0
_HASHES_REMEMBERED = 1 << 14

_events = get_logger("coordinator")


class TopicsNow:
    """The cluster's topics as groups look at them; internal ones are not offered by name."""

    __slots__ = ("_archives", "_image", "version")

    def __init__(self) -> None:
        self._image = ClusterImage()
        self._archives: Collection[str] = ()
        self.version = 0

    def adopt(self, image: ClusterImage, archives: Collection[str] = ()) -> bool:
        """Look at another image; whether a topic came, grew or went."""
        before, self._image, self._archives = self._image, image, archives
        if before.topics is image.topics or _sizes(before) == _sizes(image):
            return False
        self.version += 1
        return True

    def named(self, name: str) -> TopicSeen | None:
        """The topic of that name."""
        return _seen(self._image.topics.get(name))

    def of_id(self, topic_id: TopicId) -> TopicSeen | None:
        """The topic of that id."""
        return _seen(self._image.topics_by_id.get(topic_id))

    def names(self) -> Iterable[str]:
        """What a regular expression may choose from."""
        return [name for name, topic in self._image.topics.items() if not topic.internal]

    def wait_for(self, group_id: str) -> bool:
        """Whether a topic keeps what that group has not committed."""
        return group_id in self._archives


class Post:
    """One partition that this node leads, in one epoch; ``host`` is there once it is loaded."""

    __slots__ = ("epoch", "failures", "host", "loaded_s", "number", "topic_id")

    def __init__(self, number: int, topic_id: TopicId, epoch: LeaderEpoch) -> None:
        self.number = number
        self.topic_id = topic_id
        self.epoch = epoch
        self.host: Host[Record] | None = None
        self.failures = 0
        self.loaded_s = 0.0

    def holds(self, topic: TopicImage | None, node: NodeId) -> bool:
        """Whether the node still has this post."""
        if topic is None or topic.id != self.topic_id or self.number >= len(topic.partitions):
            return False
        state = topic.partitions[self.number]
        return state.leader == node and state.leader_epoch == self.epoch


class GroupLog(PartitionLog[Record]):
    """Counts the offsets among what it appends."""

    __slots__ = ("commits",)

    commits: Counter

    def append(self, records: Sequence[Record]) -> Offset:
        """Write records as one batch; where the log ends now."""
        end = super().append(records)
        self.commits.value += sum(type(record) is OffsetCommitted for record in records)
        return end


class GroupCoordinators:
    """Loads, serves and gives up the machines of one broker."""

    def __init__(
        self,
        node: NodeId,
        replicas: Replicas,
        topics: Topics,
        settings: Callable[[], GroupSettings],
        *,
        clock: Clock,
        timers: Timers,
        chance: Chance,
        registry: Registry,
    ) -> None:
        self._node = node
        self._replicas = replicas
        self._topics = topics
        self._settings = settings
        self._clock = clock
        self._steady = SteadyClock(clock)
        self._timers = timers
        self._chance = chance
        self._image = ClusterImage()
        self._seen = TopicsNow()
        self._posts: dict[int, Post] = {}
        self._making, self._loading = asyncio.Lock(), asyncio.Lock()
        self._tasks = Tasks()
        self._commits, self._load_seconds = _meters(registry)

    # --- who looks for a group ----------------------------------------------------------------

    async def find(self, group_id: str) -> tuple[NodeId, str, int]:
        """Who coordinates the group, and where; makes the internal topic if there is none."""
        if OFFSETS_TOPIC not in self._image.topics:
            await self._make_topic()
        topic = self._topic()
        number = _number(group_id, topic)
        leader = topic.partitions[number].leader
        broker = None if leader is None else self._image.brokers.get(leader)
        if broker is None:
            raise _nobody_leads(number)
        return broker.id, broker.host, broker.port

    def host_of(self, group_id: str) -> Host[Record]:
        """The host of the group's machine, if it is here and loaded.

        HOT: once per request of a member.
        """
        topic = self._topic()
        number = _number(group_id, topic)
        post = self._posts.get(number)
        if post is None:
            leader = topic.partitions[number].leader
            if leader is None or leader == self._node:
                raise _nobody_leads(number)
            raise NotCoordinatorError(f"group {group_id!r} is coordinated by node {leader}")
        if post.host is None:
            raise CoordinatorLoadingError(
                f"the coordinator of group {group_id!r} still reads {OFFSETS_TOPIC}-{number}"
            )
        return post.host

    def machines(self) -> list[Groups]:
        """Those that are loaded and led here."""
        return [host.machine for host in self._hosts()]

    def _hosts(self) -> list[Host[Record]]:
        return [post.host for post in self._posts.values() if post.host is not None]

    @property
    def loading(self) -> int:
        """How many partitions are led here and not loaded yet."""
        return sum(post.host is None for post in self._posts.values())

    # --- who leads ----------------------------------------------------------------------------

    def follow(self, image: ClusterImage, archives: Collection[str] = ()) -> None:
        """Act on a new image: take up posts, give up others, tell machines of topics.

        ``archives`` are the groups that topics wait for.
        """
        before, self._image = self._image, image
        topic = image.topics.get(OFFSETS_TOPIC)
        if topic is not before.topics.get(OFFSETS_TOPIC):
            self._give_up(topic)
            if topic is not None:
                self._take_up(topic)
        if self._seen.adopt(image, archives):
            for host in self._hosts():
                host.submit(host.machine.topics_changed)

    def resign(self) -> None:
        """Answer everyone who waits: the node shuts down."""
        self._give_up(None)

    async def aclose(self) -> None:
        """Coordinate nothing any more."""
        self.resign()
        await self._tasks.aclose()

    def _give_up(self, topic: TopicImage | None) -> None:
        for number, post in list(self._posts.items()):
            if not post.holds(topic, self._node):
                del self._posts[number]
                if post.host is not None:
                    post.host.resign(NotCoordinatorError(f"{OFFSETS_TOPIC}-{number} was given up"))

    def _take_up(self, topic: TopicImage) -> None:
        for number, state in enumerate(topic.partitions):
            if state.leader == self._node and number not in self._posts:
                post = self._posts[number] = Post(number, topic.id, state.leader_epoch)
                self._tasks.spawn(self._load(post), f"load-{OFFSETS_TOPIC}-{number}")

    # --- loading ------------------------------------------------------------------------------

    async def _load(self, post: Post, delay_s: float = 0.0) -> None:
        await asyncio.sleep(delay_s)
        try:
            if self._posts.get(post.number) is post:
                await self._fill(post)
        except WaystationError as error:
            self._try_again(post, error)
        except Exception as error:  # the outermost frame of this task
            _events.error("load.failed", partition=post.number, exc_info=error)
            self._try_again(post, CoordinatorLoadingError(f"cannot load: {error!r}"))

    async def _fill(self, post: Post) -> None:
        """Load the partition, one at a time, and serve its groups."""
        partition = self._replicas.get(OFFSETS_TOPIC, post.number)
        end = await settled(partition, post.epoch)
        async with self._loading:
            if self._posts.get(post.number) is not post:
                return
            began_s = self._clock.monotonic()
            machine = Groups(self._settings, self._seen, lambda: str(self._chance.new_id()))
            read = GroupRecordReader().read_rows
            count = await load(partition, post.epoch, end, read, machine.apply, self._clock)
            seconds = self._clock.monotonic() - began_s
        if self._posts.get(post.number) is not post:
            return
        self._load_seconds.observe(seconds)
        if count:
            _events.info("groups.loaded", partition=post.number, records=count, seconds=seconds)
        self._serve(post, machine, GroupLog(partition, post.epoch, encode, self._clock))

    def _serve(self, post: Post, machine: Groups, log: GroupLog) -> None:
        log.commits = self._commits
        host = Host(
            machine,
            log,
            clock=self._steady,
            timers=self._timers,
            failed=lambda error: self._failed(post, error),
        )
        host.start()
        # Topics may have come or gone while nobody looked after the groups that read them.
        host.submit(machine.topics_changed)
        if not host.ended:
            post.host, post.loaded_s = host, self._clock.monotonic()

    def _failed(self, post: Post, error: WaystationError) -> None:
        post.host = None
        if self._clock.monotonic() - post.loaded_s > _WELL_S:
            post.failures = 0
        self._try_again(post, error)

    def _try_again(self, post: Post, error: WaystationError) -> None:
        if self._posts.get(post.number) is not post:
            return
        delay_s = min(_RETRY_S * 2**post.failures, _RETRY_MAX_S)
        post.failures += 1
        _events.warning(
            "coordinator.failed", partition=post.number, reason=str(error), retry_s=delay_s
        )
        self._tasks.spawn(self._load(post, delay_s), f"load-{OFFSETS_TOPIC}-{post.number}")

    # --- the internal topic -------------------------------------------------------------------

    def _topic(self) -> TopicImage:
        topic = self._image.topics.get(OFFSETS_TOPIC)
        if topic is None:
            raise CoordinatorNotAvailableError(
                f"there is no {OFFSETS_TOPIC} yet: it is made when a client looks for a coordinator"
            )
        return topic

    async def _make_topic(self) -> None:
        async with self._making:
            if OFFSETS_TOPIC in self._image.topics:
                return
            outcome = (await self._topics.create([self._spec()]))[OFFSETS_TOPIC]
        if isinstance(outcome, WaystationError) and not isinstance(outcome, TopicExistsError):
            raise CoordinatorNotAvailableError(f"cannot make {OFFSETS_TOPIC}: {outcome}")

    def _spec(self) -> TopicSpec:
        """Whatever the broker's defaults for topics are, these are the cluster's own."""
        settings = self._settings()
        options = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "durability": "disk",
            "max.message.bytes": str(_DECISION_BYTES_MAX),
            "message.timestamp.type": "CreateTime",
            "segment.bytes": str(settings.offsets_topic_segment_bytes),
        }
        factor = min(settings.offsets_topic_replication_factor, len(self._image.brokers))
        partitions = settings.offsets_topic_num_partitions
        return TopicSpec(OFFSETS_TOPIC, partitions, factor, options=options)


@lru_cache(_HASHES_REMEMBERED)
def partition_of(group_id: str, partitions: int) -> int:
    """The partition of the internal topic that a group belongs to, as Kafka has it."""
    hashed = 0
    units = group_id.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        hashed = (31 * hashed + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    signed = hashed - (1 << 32) if hashed >> 31 else hashed
    return 0 if signed == -(1 << 31) else abs(signed) % partitions


def _number(group_id: str, topic: TopicImage) -> int:
    """The group's partition, if a group may be called so: it must fit into a key."""
    if len(group_id) > _GROUP_ID_BYTES_MAX // 4 and len(group_id.encode()) > _GROUP_ID_BYTES_MAX:
        raise InvalidGroupIdError(
            f"the group id has {len(group_id)} characters; {_GROUP_ID_BYTES_MAX} bytes may be"
        )
    return partition_of(group_id, len(topic.partitions))


def _nobody_leads(number: int) -> CoordinatorNotAvailableError:
    return CoordinatorNotAvailableError(f"nobody leads {OFFSETS_TOPIC}-{number} at the moment")


def _seen(topic: TopicImage | None) -> TopicSeen | None:
    return None if topic is None else TopicSeen(topic.name, topic.id, len(topic.partitions))


def _sizes(image: ClusterImage) -> dict[TopicId, int]:
    return {topic_id: len(topic.partitions) for topic_id, topic in image.topics_by_id.items()}


def _meters(registry: Registry) -> tuple[Counter, Histogram]:
    commits = registry.counter(
        "waystation_group_offsets_committed_total", "Offsets that groups committed."
    )
    seconds = registry.histogram(
        "waystation_group_load_seconds", "How long a partition of __consumer_offsets took to load."
    )
    return commits, seconds
