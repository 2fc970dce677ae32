"""The queues whose state this broker keeps: one machine per partition of ``__share_group_state``.

How a queue finds its machine, and what a machine lives through, is in ``posts.py``; what a machine
knows of queues, and whom it fences, in ``sharing/state_machine.py``.

A topic that is gone takes its queues along.  The broker that had a queue begin may know of a newer
cluster than this one, so a topic counts as gone only if it was here before, or is not here a good
while after the load.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache

from waystation.broker.machine_log import PartitionLog, load
from waystation.broker.posts import ID_BYTES_MAX, InternalTopic, Loaded, Posts, fits_into_a_key
from waystation.broker.replicas import Replicas
from waystation.broker.share_records import UnreadableShareRecordError, encode_state, read_state
from waystation.broker.topics import Topics
from waystation.cluster.image import ClusterImage
from waystation.cluster.views import find_shown_by_id
from waystation.model.errors import InvalidRequestError
from waystation.model.ids import LeaderEpoch, NodeId, TopicId, uuid_of, uuid_text
from waystation.model.offsets import Offset
from waystation.partition.partition import Partition
from waystation.records.record import Row
from waystation.runtime.clock import Clock
from waystation.runtime.host import Host
from waystation.runtime.timers import Timers
from waystation.sharing.settings import ShareSettings
from waystation.sharing.state_machine import ShareStates
from waystation.sharing.state_records import QueueId, StateRecord
from waystation.telemetry.logs import get_logger
from waystation.telemetry.metrics import Registry

QUEUES_TOPIC = "__share_group_state"

_SWEEP_AFTER_S = 60.0
_KEYS_REMEMBERED = 1 << 14
_events = get_logger("coordinator")


@lru_cache(_KEYS_REMEMBERED)
def coordinator_key(queue: QueueId) -> str:
    """The name by which a queue's coordinator is found, as Kafka spells it."""
    return f"{queue.group_id}:{uuid_text(queue.topic_id)}:{queue.partition}"


def queue_named(key: str) -> QueueId:
    """The queue that a coordinator's key names."""
    group_and_topic, _, partition = key.rpartition(":")
    group_id, _, topic = group_and_topic.rpartition(":")
    try:
        if not group_id or not partition.isdecimal():
            raise ValueError
        return QueueId(group_id, TopicId(uuid_of(topic)), int(partition))
    except ValueError:
        raise InvalidRequestError(
            f"{key!r} names no queue: write GROUP:TOPIC_ID:PARTITION, the topic's id as Kafka's "
            "tools show it"
        ) from None


class ShareCoordinators(Posts[StateRecord]):
    """The machines of queues' states, on one broker."""

    def __init__(
        self,
        node: NodeId,
        replicas: Replicas,
        topics: Topics,
        settings: Callable[[], ShareSettings],
        *,
        clock: Clock,
        timers: Timers,
        registry: Registry,
    ) -> None:
        super().__init__(
            QUEUES_TOPIC,
            "queue",
            node,
            replicas,
            topics,
            clock=clock,
            timers=timers,
            load_seconds=registry.histogram(
                "waystation_share_state_load_seconds",
                "How long a partition of __share_group_state took to load.",
            ),
        )
        self._settings = settings

    def follow(self, image: ClusterImage) -> None:
        """Act on a new image: take up posts, give up others, forget queues over gone topics."""
        before = self._image
        self.lead(image)
        if before.topics is image.topics:
            return
        gone = before.topics_by_id.keys() - image.topics_by_id.keys()
        if gone:
            for host in self._hosts():
                _forget(host, lambda topic_id: topic_id not in gone)

    def _sweep(self, host: Host[StateRecord]) -> None:
        _forget(host, lambda topic_id: find_shown_by_id(self._image, topic_id) is not None)

    # --- what makes them states of queues -------------------------------------------------------

    def _check_id(self, name: str) -> None:
        if not fits_into_a_key(name):
            raise InvalidRequestError(
                f"the name of a queue has {len(name)} characters; {ID_BYTES_MAX} bytes may be"
            )

    def _wanted(self) -> InternalTopic:
        settings = self._settings()
        return InternalTopic(
            settings.share_coordinator_state_topic_num_partitions,
            settings.share_coordinator_state_topic_replication_factor,
            settings.share_coordinator_state_topic_segment_bytes,
            settings.share_coordinator_state_topic_min_isr,
        )

    async def _replayed(
        self, partition: Partition, epoch: LeaderEpoch, end: Offset
    ) -> Loaded[StateRecord]:
        machine = ShareStates(self._settings)
        count = await load(partition, epoch, end, _records, machine.apply, self._clock)
        log: PartitionLog[StateRecord] = PartitionLog(partition, epoch, encode_state, self._clock)
        return Loaded(machine, log, count, self._begin)

    def _begin(self, host: Host[StateRecord]) -> None:
        host.start()
        # Topics may have gone while nobody looked after the queues over them.
        if host.machine.queues():
            self._timers.call_later(_SWEEP_AFTER_S, lambda: self._sweep(host))


def _forget(host: Host[StateRecord], is_there: Callable[[TopicId], bool]) -> None:
    host.submit(lambda now: host.machine.topics_gone(now, is_there))


def _records(rows: Sequence[Row]) -> list[StateRecord]:
    """What ``rows`` hold; one that cannot be read is told to the operator, and passed over."""
    records: list[StateRecord] = []
    for at, _, key, value, _ in rows:
        try:
            record = None if key is None else read_state(key, value)
        except UnreadableShareRecordError as fault:
            _events.error("record.unreadable", offset=at, reason=str(fault))
        else:
            if record is not None:
                records.append(record)
    return records
