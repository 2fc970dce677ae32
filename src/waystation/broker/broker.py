"""One broker: what the APIs ask, and everything it answers from.

It owns no socket and no loop; ``node`` gives it a store, disks and a clock, and starts and
stops it.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from waystation.broker.acknowledged import Acknowledged
from waystation.broker.admission import Admission
from waystation.broker.archives import Archives
from waystation.broker.cleaning import Cleaning
from waystation.broker.cluster_gauges import ClusterGauges
from waystation.broker.companions import Companions
from waystation.broker.configs import Configs
from waystation.broker.controller import Controlling
from waystation.broker.coordinators import OFFSETS_TOPIC, GroupCoordinators
from waystation.broker.copying import Copying
from waystation.broker.dead_letter_resuming import Resuming
from waystation.broker.dead_letter_topics import DeadLetterTopics
from waystation.broker.dead_letters import DeadLetters
from waystation.broker.far_ends import FarEnds
from waystation.broker.far_markers import FarMarkers
from waystation.broker.far_redrives import FarRedrives
from waystation.broker.far_transactions import FarTransactions
from waystation.broker.fetch_sessions import FetchSessions
from waystation.broker.fetching import Nearer
from waystation.broker.followers import Followers
from waystation.broker.gauges import Gauges
from waystation.broker.group_options import GroupOptions
from waystation.broker.group_survey import GroupSurvey
from waystation.broker.hanging import Hanging
from waystation.broker.hearsay import Hearsay
from waystation.broker.holdings import Holdings
from waystation.broker.housekeeping import Housekeeping
from waystation.broker.in_sync import InSync
from waystation.broker.keepsakes import Keepsakes
from waystation.broker.key_finding import KeyFinding
from waystation.broker.key_gathering import KeyGathering
from waystation.broker.long_polls import LongPolls
from waystation.broker.markers import Markers
from waystation.broker.membership import Membership, Place
from waystation.broker.moves import Moves
from waystation.broker.moving import Courier
from waystation.broker.nearest import nearest
from waystation.broker.peers import Peers
from waystation.broker.producer_ids import ProducerIds
from waystation.broker.queues import Queues
from waystation.broker.redrives import Redrives
from waystation.broker.relocations import Relocations
from waystation.broker.replica_sessions import ReplicaSessions
from waystation.broker.replicas import Replicas
from waystation.broker.replication_gauges import ReplicationGauges
from waystation.broker.scanning import Scanner
from waystation.broker.schedule_cleaning import ScheduleCleaning
from waystation.broker.schedules import Schedules
from waystation.broker.settings import BrokerSettings
from waystation.broker.share_orders import ShareOrders
from waystation.broker.share_persister import SharePersister
from waystation.broker.share_states import QUEUES_TOPIC, ShareCoordinators
from waystation.broker.throttle import FollowerThrottle, LeaderThrottle
from waystation.broker.topics import Topics
from waystation.broker.transactions import STATE_TOPIC, TransactionCoordinators
from waystation.broker.view import ClusterView
from waystation.broker.views import Views
from waystation.client.transport import Connect
from waystation.cluster.duties import duties
from waystation.cluster.image import ClusterImage
from waystation.cluster.parts import INTERNAL_TOPICS, BrokerImage
from waystation.cluster.topics import TopicDefaults
from waystation.coordination.store import CoordinationStore
from waystation.groups.settings import GroupSettings
from waystation.model.errors import InvalidTopicError, StaleBrokerEpochError
from waystation.model.ids import (
    NO_BROKER_EPOCH,
    NO_LEADER_EPOCH,
    BrokerEpoch,
    NodeId,
    TopicId,
    uuid_text,
)
from waystation.model.offsets import Offset
from waystation.model.settings import Option
from waystation.model.topics import TopicSettings
from waystation.partition.meters import TopicMeters
from waystation.partition.partition import Partition
from waystation.runtime.chance import Chance
from waystation.runtime.clock import Clock
from waystation.runtime.tasks import Tasks
from waystation.runtime.timers import Timers
from waystation.scheduling.settings import ScheduleSettings
from waystation.sharing.settings import ShareSettings
from waystation.storage.directory import DataDirectory
from waystation.storage.flusher import Flusher
from waystation.telemetry.metrics import Registry
from waystation.transactions.settings import TransactionSettings

_SESSION_IDS = (1 << 31) - 1


class Broker:
    """The parts of a broker, joined; start it, use it, stop it."""

    def __init__(
        self,
        settings: BrokerSettings,
        topic_defaults: TopicSettings,
        group_settings: GroupSettings,
        transaction_settings: TransactionSettings,
        share_settings: ShareSettings,
        static: Mapping[str, str],
        options: Sequence[Option],
        *,
        schedule_settings: ScheduleSettings,
        store: CoordinationStore,
        directories: Sequence[DataDirectory],
        clock: Clock,
        chance: Chance,
        registry: Registry,
        reconfigured: Callable[[ClusterImage], None],
        connect: Connect,
        machine: str | None = None,
    ) -> None:
        """``reconfigured`` hears of every image, for settings that are not the broker's own.

        ``connect`` is how other brokers are reached.  Brokers on one ``machine`` die together.
        """
        loop = asyncio.get_running_loop()
        self.node = NodeId(settings.node_id)
        self.settings = settings
        self.clock = clock
        self.registry = registry
        self.directories = directories
        self.timers = Timers(clock)
        self.replicas = Replicas(lambda: self._acting_on)
        self.views = Views(lambda: self._acting_on, self.replicas, registry)
        self.scanner = Scanner(loop.call_soon, clock)
        self.long_polls = LongPolls()
        self.fetch_sessions = FetchSessions(
            settings.max_incremental_fetch_session_cache_slots,
            lambda: chance.below(_SESSION_IDS) + 1,
        )
        self._chance = chance
        self._reconfigured = reconfigured
        self._view = ClusterView(store, self._act)
        self.configs = Configs(
            self.node, lambda: self.image, settings, topic_defaults, static, options
        )
        self.topics = Topics(
            self._view, self._topic_defaults, lambda: TopicId(chance.new_id()), self.node
        )
        self.peers = Peers(self.node, lambda: self._acting_on, connect, chance)
        self.producer_ids = ProducerIds(self._view)
        self.share_settings = self._shares_started_with = share_settings
        self.share_states = ShareCoordinators(
            self.node,
            self.replicas,
            self.topics,
            lambda: self.share_settings,
            clock=clock,
            timers=self.timers,
            registry=registry,
        )
        self.share_persister = SharePersister(self.share_states, self.peers, self.timers)
        self.share_orders = ShareOrders(self.share_persister)
        self.group_options = GroupOptions(
            lambda: self._acting_on, lambda: self._group_settings, lambda: self.share_settings
        )
        self._group_settings = self._groups_started_with = group_settings
        self.groups = GroupCoordinators(
            self.node,
            self.replicas,
            self.topics,
            lambda: self._group_settings,
            lambda: self.share_settings,
            self.group_options,
            self.share_orders,
            clock=clock,
            timers=self.timers,
            chance=chance,
            registry=registry,
        )
        self.admission = Admission()
        self._transaction_settings = self._transactions_started_with = transaction_settings
        markers = Markers(
            self.node,
            self.replicas,
            self.groups,
            lambda: self._acting_on,
            FarMarkers(self.peers),
            clock=clock,
            timers=self.timers,
            registry=registry,
        )
        self.transactions = TransactionCoordinators(
            self.node,
            self.replicas,
            self.topics,
            lambda: self._transaction_settings,
            markers,
            self.peers,
            clock=clock,
            timers=self.timers,
            registry=registry,
        )
        self.far_ends = FarEnds(self.peers, lambda: self._acting_on)
        self.survey = GroupSurvey(
            self.groups.machines,
            lambda: self.groups.loading,
            self.replicas,
            self.far_ends,
            clock,
            registry,
        )
        self._machine = settings.broker_machine or machine
        self._membership = Membership(
            self.node,
            store,
            self._view,
            settings.broker_session_timeout_ms,
            directories=directories,
            holds=lambda topic, number: self._holdings.found(topic, number),
            policy_of=self.configs.policy_of,
            clock=clock,
        )
        self.controlling = Controlling(
            self.node,
            store,
            self._view,
            self._membership,
            settings=lambda: self.settings,
            policy_of=self.configs.policy_of,
            internal=self._internal_replication,
            clock=clock,
            registry=registry,
        )
        self.moves = Moves(
            self._view,
            self.configs.policy_of,
            lambda: self.settings.replicas_share_machine,
            self.controlling.tell_unclean,
        )
        self.courier = Courier(
            self.node,
            self.replicas,
            lambda: self._acting_on,
            self.peers,
            markers,
            self.producer_ids,
            clock,
        )
        dead_letter_topics = DeadLetterTopics(
            self.courier, self.topics, self.configs, lambda: self._acting_on
        )
        self.dead_letters = DeadLetters(
            dead_letter_topics, clock=clock, timers=self.timers, registry=registry
        )
        self.redrives = Redrives(
            self.replicas,
            self.share_persister,
            dead_letter_topics,
            FarRedrives(self.peers, lambda: self._acting_on),
            lambda: self.share_states.exists,
            clock=clock,
            timers=self.timers,
            registry=registry,
        )
        self.queues = Queues(
            self.replicas,
            self.share_persister,
            self.group_options.of_share_group,
            lambda: self.share_settings,
            clock=clock,
            timers=self.timers,
            defer=loop.call_soon,
            registry=registry,
            dead_letters=self.dead_letters,
        )
        self._resuming = Resuming(
            self.replicas,
            self.share_persister,
            self.group_options,
            lambda queue: self.queues.host_of(*queue),
            lambda: self.share_states.exists,
            self.timers,
        )
        self._schedule_settings = self._schedules_started_with = schedule_settings
        self.schedules = Schedules(
            self.replicas,
            lambda: self._schedule_settings,
            lambda topic: self.configs.topic(self._acting_on, topic),
            self.courier,
            Companions(
                self.topics,
                lambda: self._acting_on,
                lambda topic: self.configs.topic(self._acting_on, topic),
                lambda: self.controlling.active,
            ),
            clock,
            registry,
        )
        ClusterGauges(registry, self.node, lambda: self.image, self.controlling)
        syncs = registry.histogram("waystation_flush_seconds", "How long syncs to disk took.")
        self._flusher = Flusher(
            settings.flush_threads, loop.call_soon_threadsafe, syncs, loop.call_later
        )
        meters = TopicMeters(registry)
        self._acting_on = ClusterImage()
        self._holdings = Holdings(
            self.node,
            directories,
            self.replicas,
            self._flusher,
            self._settings_of,
            clock,
            meters,
            syncs,
            lambda: self.settings.replica_lag_time_max_ms,
            lambda topic_id: topic_id in self._acting_on.topics_by_id,
            lambda: self._acting_on.revision,
        )
        self.replica_sessions = ReplicaSessions(
            self.replicas,
            LeaderThrottle(
                lambda: self.settings.leader_replication_throttled_rate, clock.monotonic
            ),
            clock,
            self.timers,
            lambda: chance.below(_SESSION_IDS) + 1,
            registry.counter(
                "waystation_replication_sent_bytes_total",
                "Bytes of record batches sent to followers.",
            ),
            loop.call_soon,
        )
        self._hearsay = Hearsay(
            self.node,
            self.replicas,
            self.peers,
            self._view,
            self._membership,
            self.replica_sessions.silent_s,
        )
        follower_throttle = FollowerThrottle(
            self.node, lambda: self.settings.follower_replication_throttled_rate, clock.monotonic
        )
        self.followers = Followers(
            self.node,
            self.replicas,
            self.peers,
            lambda: self.broker_epoch,
            lambda: self.image.revision,
            Copying(
                lambda: self.settings,
                follower_throttle,
                clock,
                registry,
                KeyGathering(self.peers),
            ),
        )
        self._in_sync = InSync(
            self.node,
            self.replicas,
            self._view,
            store,
            lambda: self.settings,
            self.configs.policy_of,
            directories,
            clock,
            registry,
        )
        ReplicationGauges(registry, self.replicas, self.followers, self.replica_sessions)
        Gauges(registry, self.replicas, meters, directories, self.fetch_sessions, self.long_polls)
        archives = Archives(self.groups, self.replicas, self.peers, meters.label, registry)
        self.hanging = Hanging(
            self.replicas,
            self.transactions,
            FarTransactions(self.peers, lambda: self._acting_on.topics.get(STATE_TOPIC)),
            lambda: self._transaction_settings,
            clock,
        )
        self.relocations = Relocations(self.replicas, directories, lambda: self.settings, clock)
        self._keepsakes = Keepsakes(self._view, directories)
        self._housekeeping = Housekeeping(
            self.replicas,
            directories,
            self._holdings,
            archives,
            Acknowledged(
                self.share_persister, lambda: self.share_states.exists, archives, self.replicas
            ),
            self.hanging,
            lambda: self.settings,
            clock,
        )
        self._cleaning = Cleaning(
            self.replicas, archives, lambda: self.settings, clock, chance, registry
        )
        self.keys = KeyFinding(self.replicas, clock, chance, registry)
        self._schedule_cleaning = ScheduleCleaning(
            self.schedules.keepers, lambda: self.settings, clock
        )
        self._tasks = Tasks()

    @property
    def image(self) -> ClusterImage:
        """The cluster, as far as this broker has acted on it."""
        return self._view.image

    @property
    def answering(self) -> list[BrokerImage]:
        """Whom clients are told of, by id: who holds a lease, and this one, which answers.

        When a store was away for long, all leases may have ended at once.  A client that is told
        of nobody at such a moment forgets whom it could ask, and librdkafka does for ever.
        """
        known = self.image.brokers
        own = [] if self.node in known else [self._membership.itself]
        return sorted([*known.values(), *own], key=lambda one: one.id)

    @property
    def broker_epoch(self) -> BrokerEpoch:
        """The life that this broker is registered as."""
        return self._membership.broker_epoch

    @property
    def registered(self) -> bool:
        """Whether the cluster counts on this broker, by what the store last told."""
        return self._membership.registered

    @property
    def store_silent_s(self) -> float:
        """For how long the coordination store has not answered; nothing while it does."""
        return self._membership.store_silent_s

    async def start(self, host: str, port: int) -> None:
        """Join the cluster and hold what it assigns; ready to serve when this returns."""
        self._acting_on = await self._membership.enter(lambda: uuid_text(self._chance.new_id()))
        # Before anybody counts on this broker: after a crash this may take long.
        await self._holdings.open()
        place = Place(host, port, self.settings.broker_rack or None, self._machine)
        image = await self._membership.join(place)
        await self._act(ClusterImage(), image)
        await self._holdings.sweep()
        self.relocations.resume()
        following = self._tasks.spawn(self._view.follow(), "cluster-view")
        await self._membership.confirm()
        keeping_alive = self._tasks.spawn(self._membership.keep_alive(), "membership")
        # Who no longer hears what the cluster decides must not be counted on: others take over.
        following.add_done_callback(lambda _: keeping_alive.cancel())
        self._tasks.spawn(self.controlling.run(), "controller")
        self._tasks.spawn(self._in_sync.run(), "in-sync")
        self._tasks.spawn(self._hearsay.run(), "hearsay")
        self._tasks.spawn(self._housekeeping.run(), "housekeeping")
        self._tasks.spawn(self._keepsakes.run(), "keepsakes")
        self._tasks.spawn(self._cleaning.run(), "cleaning")
        self._tasks.spawn(self._schedule_cleaning.run(), "schedule-cleaning")
        self._tasks.spawn(self.keys.run(), "key-index")
        self._tasks.spawn(self.survey.run(), "group-survey")
        self.dead_letters.start()

    async def hand_over(self) -> None:
        """Let others lead what this broker leads, before it stops serving."""
        await self._membership.hand_over(self.settings.controlled_shutdown_timeout_ms / 1_000)

    def answer_waiting(self) -> None:
        """End every long poll now, with what there is; others find another coordinator."""
        self.queues.close()
        self.keys.wake_all()
        self.long_polls.answer_all()
        self.replica_sessions.answer_all()
        self.transactions.resign()
        self.groups.resign()
        self.share_states.resign()

    async def stop(self) -> None:
        """Sync and close every log, leave the cluster; the next start scans nothing."""
        self.peers.close()
        await self.followers.aclose()
        await self._tasks.aclose()
        # Nothing is fetched any more: whoever counts on this broker need not wait.
        await self._membership.leave()
        await self.relocations.aclose()
        await self._cleaning.close()
        await self._schedule_cleaning.close()
        await self.keys.aclose()
        await self.schedules.aclose()
        await self.dead_letters.aclose()
        await self.redrives.aclose()
        await self.courier.aclose()
        await self.hanging.aclose()
        await self.transactions.aclose()
        await self.groups.aclose()
        await self.share_orders.aclose()
        await self.share_persister.aclose()
        await self.share_states.aclose()
        await self._holdings.close_journals()
        await asyncio.to_thread(self._flusher.close)
        marks = {held.name: held.high_watermark for held in self.replicas}
        life = self.broker_epoch if self.broker_epoch != NO_BROKER_EPOCH else None
        for directory in self.directories:
            await asyncio.to_thread(directory.close, marks, life)
        self.timers.close()

    def check_life(self, node: NodeId, life: BrokerEpoch) -> None:
        """Refuse what a broker asks in the name of a life that has ended, or nobody lives."""
        known = self._acting_on.brokers.get(node)
        if known is None or life < known.epoch:
            registered = "not registered" if known is None else f"registered as {known.epoch}"
            raise StaleBrokerEpochError(f"broker {node} asks as {life}, and is {registered}")

    def nearest(self, rack: str) -> Nearer:
        """How readers in ``rack`` are directed to replicas there."""
        return nearest(self._acting_on, self.node, rack)

    def check_writable(self, topic: str) -> None:
        """Refuse clients' writes to the cluster's own topics."""
        if topic in INTERNAL_TOPICS:
            raise InvalidTopicError(f"{topic} is the cluster's own: clients may not write to it")

    async def truncate(self, partition: Partition, before: Offset) -> Offset:
        """Delete records before an offset, and let that survive a crash; the new start."""
        start = partition.delete_records(before)
        directory = partition.log.directory
        await asyncio.to_thread(directory.plan_log_starts())
        # Deleted meanwhile: nothing was written down of it, and nothing needs to be.
        partition.check_epoch(NO_LEADER_EPOCH)
        directory.check_start_written(partition.log, start)
        return start

    async def _act(self, before: ClusterImage, after: ClusterImage) -> None:
        self._acting_on = after
        self.settings = self.configs.broker(after)
        self._group_settings = self.configs.in_force(after, self._groups_started_with)
        self._transaction_settings = self.configs.in_force(after, self._transactions_started_with)
        self.share_settings = self.configs.in_force(after, self._shares_started_with)
        self._schedule_settings = self.configs.in_force(after, self._schedules_started_with)
        self._reconfigured(after)
        self.peers.follow(after)
        await self._holdings.carry_out(duties(before, after, self.node))
        self.views.follow(after)
        self.followers.follow(before, after)
        self._in_sync.follow(after)
        self.share_states.follow(after)
        self.groups.follow(after, self.configs.archive_groups(after))
        self.transactions.follow(after)
        self.schedules.follow()
        self.queues.look_again()
        self._resuming.follow()
        self.redrives.follow()

    def _settings_of(self, topic: str) -> TopicSettings:
        return self.schedules.settings_of(topic)

    def _internal_replication(self) -> dict[str, int]:
        return {
            OFFSETS_TOPIC: self._group_settings.offsets_topic_replication_factor,
            STATE_TOPIC: self._transaction_settings.transaction_state_log_replication_factor,
            QUEUES_TOPIC: self.share_settings.share_coordinator_state_topic_replication_factor,
        }

    def _topic_defaults(self) -> TopicDefaults:
        return self.configs.topic_defaults(self.image)
