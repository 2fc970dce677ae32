"""The partitions of an internal topic that this broker leads, and a machine for each.

Groups and transactions are found alike: whatever has an id belongs to the partition that the id
hashes to, as in Kafka, and to whoever leads that partition.

1. A machine answers only while this node leads its partition in the epoch it was loaded in, and
   only once all of the partition is loaded.  Loading begins as soon as the node leads.
2. Whatever ends a machine but a change of leadership, such as a full disk, is followed by
   another load, later and later while it goes on failing.  While there are fewer replicas in sync
   than there must be, nothing can be remembered, and nothing is loaded.
3. Partitions are loaded one after the other, so that those who are served meanwhile wait for at
   most one slice of it.

The internal topic is made when somebody first looks for a coordinator.  What the machines are is
said in ``coordinators.py`` and ``transactions.py``.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Generic, NamedTuple, TypeVar

from waystation.broker.machine_log import settled
from waystation.broker.replicas import Replicas
from waystation.broker.topics import Topics
from waystation.cluster.image import ClusterImage
from waystation.cluster.parts import TopicImage
from waystation.cluster.topics import TopicSpec
from waystation.model.errors import (
    CoordinatorLoadingError,
    CoordinatorNotAvailableError,
    NotCoordinatorError,
    NotEnoughReplicasError,
    TopicExistsError,
    WaystationError,
)
from waystation.model.ids import LeaderEpoch, NodeId, TopicId
from waystation.model.offsets import Offset
from waystation.partition.partition import Partition
from waystation.runtime.clock import Clock, SteadyClock
from waystation.runtime.host import Host
from waystation.runtime.machine import Machine, MachineLog
from waystation.runtime.tasks import Tasks
from waystation.runtime.timers import Timers
from waystation.telemetry.logs import get_logger
from waystation.telemetry.metrics import Histogram

R = TypeVar("R")

ID_BYTES_MAX = 32_767
"""What fits into a key of an internal topic."""

MIN_INSYNC = 2
"""In-sync replicas that a topic needs where nobody says otherwise, once it has three."""

# What one decision may take, such as all members of a group and what they subscribe to.
_DECISION_BYTES_MAX = 64 << 20
_RETRY_S, _RETRY_MAX_S = 0.1, 10.0
# Replicas come back by themselves, and those who wait for them should not wait for us.
_REPLICAS_MAX_S = 0.5
# A machine that lived for so long did not die of what the one before died of.
_WELL_S = 60.0
_HASHES_REMEMBERED = 1 << 14

_events = get_logger("coordinator")


class InternalTopic(NamedTuple):
    """How an internal topic is made; as many replicas as can be apart, if that is fewer.

    The controller adds the others as brokers join (``cluster/internal_topics.py``).
    """

    partitions: int
    replication_factor: int
    segment_bytes: int
    min_insync: int = MIN_INSYNC


class Loaded(NamedTuple, Generic[R]):
    """A machine that has replayed a partition, and the log that it goes on in."""

    machine: Machine[R]
    log: MachineLog[R]
    records: int
    begin: Callable[[Host[R]], None] = Host.start
    """What to do with its host before anybody is served."""


class Post(Generic[R]):
    """One partition that this node leads, in one epoch; ``host`` is there once it is loaded."""

    __slots__ = ("epoch", "failures", "host", "loaded_s", "number", "topic_id")

    def __init__(self, number: int, topic_id: TopicId, epoch: LeaderEpoch) -> None:
        self.number = number
        self.topic_id = topic_id
        self.epoch = epoch
        self.host: Host[R] | None = None
        self.failures = 0
        self.loaded_s = 0.0

    def holds(self, topic: TopicImage | None, node: NodeId) -> bool:
        """Whether the node still has this post."""
        if topic is None or topic.id != self.topic_id or self.number >= len(topic.partitions):
            return False
        state = topic.partitions[self.number]
        return state.leader == node and state.leader_epoch == self.epoch


class Posts(ABC, Generic[R]):
    """Loads, serves and gives up the machines of one internal topic on one broker."""

    def __init__(
        self,
        topic: str,
        what: str,
        node: NodeId,
        replicas: Replicas,
        topics: Topics,
        *,
        clock: Clock,
        timers: Timers,
        load_seconds: Histogram,
    ) -> None:
        """``what`` is the word for that which has an id and is coordinated."""
        self._topic_name = topic
        self._what = what
        self._node = node
        self._replicas = replicas
        self._topics = topics
        self._clock = clock
        self._steady = SteadyClock(clock)
        self._timers = timers
        self._load_seconds = load_seconds
        self._image = ClusterImage()
        self._posts: dict[int, Post[R]] = {}
        self._making, self._loading = asyncio.Lock(), asyncio.Lock()
        self._tasks = Tasks()

    # --- what a kind of coordinator says of itself ----------------------------------------------

    @abstractmethod
    def _check_id(self, name: str) -> None:
        """Raise unless something may be called so: it must fit into a key."""

    @abstractmethod
    def _wanted(self) -> InternalTopic:
        """What the internal topic shall be like, should it be made now."""

    @abstractmethod
    async def _replayed(self, partition: Partition, epoch: LeaderEpoch, end: Offset) -> Loaded[R]:
        """Load everything that the partition holds before ``end``."""

    # --- who looks for a coordinator ------------------------------------------------------------

    async def find(self, name: str) -> tuple[NodeId, str, int]:
        """Who coordinates ``name``, and where; makes the internal topic if there is none."""
        self._check_id(name)
        if self._topic_name not in self._image.topics:
            await self._make_topic()
        number, topic = self.number_of(name), self._topic()
        leader = topic.partitions[number].leader
        broker = None if leader is None else self._image.brokers.get(leader)
        if broker is None:
            raise self._nobody_leads(number)
        return broker.id, broker.host, broker.port

    def leader_of(self, name: str) -> NodeId:
        """The node that coordinates ``name``."""
        number = self.number_of(name)
        leader = self._topic().partitions[number].leader
        if leader is None:
            raise self._nobody_leads(number)
        return leader

    def number_of(self, name: str) -> int:
        """The partition of the internal topic that ``name`` belongs to."""
        self._check_id(name)
        return partition_of(name, len(self._topic().partitions))

    def host_of(self, name: str) -> Host[R]:
        """The host of the machine that ``name`` belongs to, if it is here and loaded.

        HOT: once per request of a member.
        """
        number = self.number_of(name)
        post = self._posts.get(number)
        if post is not None and post.host is not None:
            return post.host
        raise self._absent(number, f"{self._what} {name!r}")

    def host_at(self, number: int) -> Host[R]:
        """The host of one partition's machine, if it is here and loaded."""
        post = self._posts.get(number)
        if post is not None and post.host is not None:
            return post.host
        raise self._absent(number, f"{self._topic_name}-{number}")

    def machines(self) -> list[Any]:
        """Those that are loaded and led here."""
        return [host.machine for host in self._hosts()]

    def _hosts(self) -> list[Host[R]]:
        return [post.host for post in self._posts.values() if post.host is not None]

    def _absent(self, number: int, subject: str) -> WaystationError:
        """Why nobody here answers for a partition: ``subject`` is what was asked about."""
        topic = self._topic()
        if number in self._posts:
            return CoordinatorLoadingError(
                f"the coordinator of {subject} still reads {self._topic_name}-{number}"
            )
        known = number < len(topic.partitions)
        leader = topic.partitions[number].leader if known else None
        if leader is None or leader == self._node:
            return self._nobody_leads(number)
        return NotCoordinatorError(f"{subject} is coordinated by node {leader}")

    @property
    def loading(self) -> int:
        """How many partitions are led here and not loaded yet."""
        return sum(post.host is None for post in self._posts.values())

    @property
    def all_here(self) -> bool:
        """Whether every machine of the cluster is here and loaded, if there is any."""
        topic = self._image.topics.get(self._topic_name)
        return topic is None or len(self._hosts()) == len(topic.partitions)

    @property
    def exists(self) -> bool:
        """Whether the internal topic was made."""
        return self._topic_name in self._image.topics

    # --- who leads ------------------------------------------------------------------------------

    def lead(self, image: ClusterImage) -> None:
        """Act on a new image: take up posts, give up others."""
        before, self._image = self._image, image
        topic = image.topics.get(self._topic_name)
        if topic is not before.topics.get(self._topic_name):
            self._give_up(topic)
            if topic is not None:
                self._take_up(topic)

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
                    given_up = f"{self._topic_name}-{number} was given up"
                    post.host.resign(NotCoordinatorError(given_up))

    def _take_up(self, topic: TopicImage) -> None:
        for number, state in enumerate(topic.partitions):
            if state.leader == self._node and number not in self._posts:
                post = self._posts[number] = Post(number, topic.id, state.leader_epoch)
                self._tasks.spawn(self._load(post), f"load-{self._topic_name}-{number}")

    # --- loading --------------------------------------------------------------------------------

    async def _load(self, post: Post[R], delay_s: float = 0.0) -> None:
        await asyncio.sleep(delay_s)
        try:
            if self._posts.get(post.number) is post:
                await self._fill(post)
        except WaystationError as error:
            self._try_again(post, error)
        except Exception as error:  # the outermost frame of this task
            _events.error(
                "load.failed", topic=self._topic_name, partition=post.number, exc_info=error
            )
            self._try_again(post, CoordinatorLoadingError(f"cannot load: {error!r}"))

    async def _fill(self, post: Post[R]) -> None:
        """Load the partition, one at a time, and serve what belongs to it."""
        partition = self._replicas.get(self._topic_name, post.number)
        end = await settled(partition, post.epoch)
        if partition.under_min_insync:
            in_sync, least = partition.leadership.in_sync, partition.settings.min_insync_replicas
            raise NotEnoughReplicasError(partition.name, len(in_sync), least)
        async with self._loading:
            if self._posts.get(post.number) is not post:
                return
            began_s = self._clock.monotonic()
            loaded = await self._replayed(partition, post.epoch, end)
            seconds = self._clock.monotonic() - began_s
        if self._posts.get(post.number) is not post:
            return
        self._load_seconds.observe(seconds)
        if loaded.records:
            _events.info(
                "coordinator.loaded",
                topic=self._topic_name,
                partition=post.number,
                records=loaded.records,
                seconds=seconds,
            )
        self._serve(post, loaded)

    def _serve(self, post: Post[R], loaded: Loaded[R]) -> None:
        host = Host(
            loaded.machine,
            loaded.log,
            clock=self._steady,
            timers=self._timers,
            failed=lambda error: self._failed(post, error),
        )
        loaded.begin(host)
        if not host.ended:
            post.host, post.loaded_s = host, self._clock.monotonic()

    def _failed(self, post: Post[R], error: WaystationError) -> None:
        post.host = None
        if self._clock.monotonic() - post.loaded_s > _WELL_S:
            post.failures = 0
        self._try_again(post, error)

    def _try_again(self, post: Post[R], error: WaystationError) -> None:
        if self._posts.get(post.number) is not post:
            return
        longest_s = _RETRY_MAX_S
        if isinstance(error, NotEnoughReplicasError):
            longest_s = _REPLICAS_MAX_S
        delay_s = min(_RETRY_S * 2**post.failures, longest_s)
        post.failures += 1
        _events.warning(
            "coordinator.failed",
            topic=self._topic_name,
            partition=post.number,
            reason=str(error),
            retry_s=delay_s,
        )
        self._tasks.spawn(self._load(post, delay_s), f"load-{self._topic_name}-{post.number}")

    # --- the internal topic ---------------------------------------------------------------------

    def _topic(self) -> TopicImage:
        topic = self._image.topics.get(self._topic_name)
        if topic is None:
            raise CoordinatorNotAvailableError(
                f"there is no {self._topic_name} yet: "
                "it is made when a client looks for a coordinator"
            )
        return topic

    async def _make_topic(self) -> None:
        name = self._topic_name
        async with self._making:
            if name in self._image.topics:
                return
            outcome = (await self._topics.create([self._spec()]))[name]
        if isinstance(outcome, WaystationError) and not isinstance(outcome, TopicExistsError):
            raise CoordinatorNotAvailableError(f"cannot make {name}: {outcome}")

    def _spec(self) -> TopicSpec:
        """Whatever the broker's defaults for topics are, these are the cluster's own."""
        wanted = self._wanted()
        factor = self._topics.factor_now(wanted.replication_factor)
        options = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "durability": "disk",
            "max.message.bytes": str(_DECISION_BYTES_MAX),
            "message.timestamp.type": "CreateTime",
            "segment.bytes": str(wanted.segment_bytes),
        }
        if wanted.min_insync != MIN_INSYNC:
            options["min.insync.replicas"] = str(min(wanted.min_insync, factor))
        return TopicSpec(self._topic_name, wanted.partitions, factor, options=options)

    def _nobody_leads(self, number: int) -> CoordinatorNotAvailableError:
        return CoordinatorNotAvailableError(
            f"nobody leads {self._topic_name}-{number} at the moment"
        )


@lru_cache(_HASHES_REMEMBERED)
def partition_of(name: str, partitions: int) -> int:
    """The partition of an internal topic that an id belongs to, as Kafka has it."""
    hashed = 0
    units = name.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        hashed = (31 * hashed + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    signed = hashed - (1 << 32) if hashed >> 31 else hashed
    return 0 if signed == -(1 << 31) else abs(signed) % partitions


def fits_into_a_key(name: str) -> bool:
    """Whether an id is short enough to be one."""
    return len(name) <= ID_BYTES_MAX // 4 or len(name.encode()) <= ID_BYTES_MAX
