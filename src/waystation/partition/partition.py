"""One replica of a partition, as its node serves it.

It joins a storage log (bytes on disk) with a replication core (what is committed) and those
who wait for either.  Six promises:

1. a batch is appended only while this node leads, under its epoch, after every check passed;
2. ``acks=all`` is told "committed" only when the high watermark has passed the batch, which
   with ``durability=disk`` means that it is synced;
3. a consumer is never shown a byte at or past the high watermark, nor one that wants only
   committed records one at or past the last stable offset;
4. after a failed write or sync everyone who waits is told, and nothing more is served from
   a log that cannot be trusted;
5. while another leads, the log holds what that one's has, and nothing that was cut counts;
6. a follower's end counts only if all before it is the same here: see ``followed_by``.

What survives a crash is known in ``syncing.py``, the copy of what another leads is kept by
``following.py``, and who leads is said in ``leadership.py``.

All methods run on the loop's thread; only the flusher's syncs run elsewhere.
"""

from collections.abc import Callable, Sequence

from waystation.cluster.parts import INTERNAL_TOPICS
from waystation.model.errors import (
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    NotLeaderError,
    OffsetOutOfRangeError,
    WaystationError,
)
from waystation.model.ids import (
    NO_LEADER_EPOCH,
    BrokerEpoch,
    LeaderEpoch,
    NodeId,
    ProducerEpoch,
    ProducerId,
    TopicId,
    TopicPartition,
)
from waystation.model.offsets import NO_OFFSET, Millis, Offset
from waystation.model.topics import TopicSettings
from waystation.partition.following import Following
from waystation.partition.intake import Intake
from waystation.partition.leadership import Leadership, LeadershipInDoubtError, check_claim
from waystation.partition.meters import TopicMeter
from waystation.partition.syncing import Syncing
from waystation.partition.waiting import AppendWaiters, CommitWaiters, OnCommit, ReadWaiters
from waystation.records.control import Marker, marker_batch
from waystation.records.header import mark_once, peek
from waystation.replication.epochs import EpochEnd, LeaderEpochs
from waystation.replication.lag import Paces
from waystation.replication.leader import LeaderState, divergence
from waystation.storage.flusher import Flusher
from waystation.storage.journal import Journal
from waystation.storage.log import Log, LogSlice
from waystation.storage.producer_state import OpenTransaction
from waystation.storage.surroundings import Appended
from waystation.storage.truncation import CutPlan

Rule = Callable[[memoryview, Millis], None]
"""Raises for an admitted batch that shall not be stored."""

ACKS_ALL = -1


class Partition:
    """A log that this node holds, and leads while ``leading`` is true."""

    __slots__ = (
        "_doubt",
        "_following",
        "_node",
        "_state",
        "_syncing",
        "commit_waiters",
        "given_up",
        "intake",
        "leadership",
        "log",
        "mark",
        "meter",
        "name",
        "paces",
        "read_waiters",
        "replica_waiters",
        "rule",
        "settings",
        "stable",
        "told_safe",
        "topic_id",
    )

    def __init__(
        self,
        name: TopicPartition,
        topic_id: TopicId,
        log: Log,
        settings: TopicSettings,
        *,
        node: NodeId,
        flusher: Flusher,
        journal: Journal | None = None,
        meter: TopicMeter,
        defer: Callable[[Callable[[], None]], object],
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.log = log
        self.settings = settings
        self.intake = Intake(settings, sequenced=name.topic not in INTERNAL_TOPICS)
        self.meter = meter
        self.leadership = Leadership(None, NO_LEADER_EPOCH, ())
        self.commit_waiters = CommitWaiters()
        self.read_waiters = ReadWaiters(defer)
        # Followers, who are told of every append, committed or not.
        self.replica_waiters = AppendWaiters()
        # What else produced batches must be, in a topic where they mean something to the broker.
        self.rule: Rule | None = None
        # How followers keep up, while this node leads and there are any.
        self.paces: Paces | None = None
        # Called when more of the log is safe, while this node follows.
        self.told_safe: Callable[[], None] | None = None
        # The high watermark while leading, -1 otherwise: one look tells a reader of news.
        self.mark = NO_OFFSET
        # The last stable offset, likewise; the same where no transaction is open.
        self.stable = NO_OFFSET
        self._node = node
        # The store's revision at which a follower's copy was last given up, while this node leads.
        self.given_up: dict[NodeId, int] = {}
        self._syncing = Syncing(
            name,
            topic_id,
            log,
            settings,
            flusher,
            journal,
            moved=self._moved,
            failed=self.fail,
        )
        self._following = Following(self._syncing)
        self._state: LeaderState | None = None
        # Why nothing can be committed at present, although this node leads as far as it knows.
        self._doubt: LeadershipInDoubtError | None = None

    # --- leadership ---------------------------------------------------------------------

    @property
    def leading(self) -> bool:
        """Whether this node may answer for the partition."""
        return self._state is not None

    @property
    def under_min_insync(self) -> bool:
        """Whether ``acks=all`` is refused for want of replicas."""
        return self._state is not None and not self._state.enough_replicas()

    @property
    def high_watermark(self) -> Offset:
        """The end of what is committed, as far as this replica knows."""
        return self.followed_mark if self._state is None else self._state.high_watermark

    @property
    def settled(self) -> bool:
        """Whether this leader knows of everything that its predecessor committed."""
        return self._state is not None and self._state.settled

    @property
    def state(self) -> LeaderState | None:
        """What the leader knows of its replicas; ``None`` while another leads."""
        return self._state

    @property
    def last_stable(self) -> Offset:
        """The end of what is committed and in no transaction that is open; or the log's start.

        A marker ends a transaction for readers once it is committed itself.
        """
        if self._state is None:
            return self.log.last_stable(self.followed_mark)
        return max(self.stable, self.log.log_start)

    def follow_store(self, leadership: Leadership) -> None:
        """Become what the coordination store says: leader of a new epoch, or not leader."""
        before, self.leadership = self.leadership, leadership
        if leadership.leader != self._node:
            if self._state is not None or before[:2] != leadership[:2]:
                self._resign()
        elif self._state is None or before.epoch != leadership.epoch:
            self._lead(leadership)
        elif not leadership.version or before.version != leadership.version:
            self._forget_copies(self._state, before, leadership)
            self._settle(self._state, leadership)
        else:
            self._forget_copies(self._state, before, leadership)

    def _forget_copies(self, state: LeaderState, before: Leadership, after: Leadership) -> None:
        for node in after.given_up_since(before, state.in_sync.proposed):
            state.forget(node)
            self.given_up[node] = after.revision
            self.replica_waiters.changed()
            if self.paces is not None:
                self.paces.forget(node)

    def _settle(self, state: LeaderState, leadership: Leadership) -> None:
        """Others may be in sync than before; too few of them, and those who wait are told."""
        if state.settle(leadership.in_sync, leadership.eligible):
            self._marked()
        if not state.enough_replicas() and self._sequenced:
            self.commit_waiters.fail(
                NotEnoughReplicasAfterAppendError(self.name, state.in_sync.size, state.min_insync)
            )

    @property
    def _sequenced(self) -> bool:
        """Whether clients write to it: what coordinators write may wait for its replicas."""
        return self.name.topic not in INTERNAL_TOPICS

    def _lead(self, leadership: Leadership) -> None:
        self._resign()
        log_end = self.log.log_end
        # The only replica: what the log holds after recovery is what was ever acknowledged.
        alone = leadership.in_sync == (self._node,) and len(leadership.replicas) < 2
        self._state = LeaderState(
            leadership.epoch,
            leadership.in_sync,
            self.settings.min_insync_replicas,
            self.settings.durability,
            leader=self._node,
            mark=self.safe_end if alone else self.followed_mark,
            log_end=log_end,
            eligible=leadership.eligible,
        )
        self._set_marks(self._state.high_watermark)
        self._moved()
        self._syncing.secure_rest()

    def _resign(self) -> None:
        if self._state is not None:
            self._following.begin(self._state.high_watermark)
        self._state = self.paces = self._doubt = None
        self.given_up.clear()
        self.mark = self.stable = NO_OFFSET
        self.commit_waiters.fail(self._not_leader())
        self.read_waiters.changed()
        self.replica_waiters.changed()

    @property
    def in_doubt(self) -> bool:
        """Whether ``acks=all`` is refused because nobody is there to confirm it."""
        return self._doubt is not None

    def doubt(self, missing: Sequence[NodeId]) -> None:
        """Neither the store nor these replicas are heard of: let nobody wait for them.

        What was appended stays, and is committed should they come back.
        """
        self._doubt = LeadershipInDoubtError(self.name, self.leadership.epoch, missing)
        self.commit_waiters.fail(self._doubt)

    def trust(self) -> None:
        """What is appended can be committed again."""
        self._doubt = None

    def check_readable(self, claimed: int) -> Offset:
        """The end of what a consumer may read here, whether this node leads or follows."""
        if self._state is not None or self.leadership.leader in (None, self._node):
            return self.check_epoch(claimed).high_watermark
        check_claim(self.name, claimed, self.leadership.epoch)
        return self.followed_mark

    def check_epoch(self, claimed: int) -> LeaderState:
        """The leader's state, if this node leads and the client's epoch, when given, is ours."""
        state = self._check_leading()
        if claimed >= 0 and claimed != state.epoch:
            check_claim(self.name, claimed, state.epoch)
        return state

    def _check_leading(self) -> LeaderState:
        if self._state is None:
            raise self._not_leader()
        return self._state

    def _not_leader(self) -> NotLeaderError:
        leader = self.leadership.leader
        return NotLeaderError(
            self.name, leader if leader != self._node else None, self.leadership.epoch
        )

    # --- writing ------------------------------------------------------------------------

    def append(
        self, batch: memoryview, acks: int, now: Millis, *, may_begin: bool = True
    ) -> Appended:
        """Check one produced batch and append it.

        Without ``may_begin`` a batch of a transaction that is not open here is refused.

        HOT: once per batch.  The batch is stamped in place, so ``batch`` must be writable and
        is not needed afterwards (benchmarks/partition/serving.py).
        """
        state = self._state
        if state is None:
            raise self._not_leader()
        if acks == ACKS_ALL and (self._doubt is not None or not state.enough_replicas()):
            self._check_committable(state)
        batch, header = self.intake.admit(batch, now)
        if self.rule is not None:
            self.rule(batch, now)
        appended = self.log.append(batch, header, state.epoch, now, may_begin=may_begin)
        if not appended.duplicate:
            self.meter.produced_records.value += header.records_count
            self.meter.produced_bytes.value += header.size_bytes
            self._appended(batch, appended.base_offset, header.records_count)
        return appended

    def append_marker(self, marker: Marker, now: Millis) -> Appended:
        """End a producer's transaction here: readers see that once the marker is committed.

        It is written even where replicas are missing: what it ends has been decided elsewhere.
        """
        state = self._check_leading()
        batch = memoryview(marker_batch(marker, now))
        appended = self.log.append_marker(batch, marker, state.epoch, now)
        self._appended(batch, appended.base_offset, 1)
        return appended

    def append_decision(self, batch: memoryview, now: Millis) -> Appended:
        """Append a control batch of the partition's own leader, which no application sees.

        It counts once it is committed; ``batch`` is stamped in place.
        """
        state = self._check_leading()
        self._check_committable(state)
        appended = self.log.append(batch, peek(batch), state.epoch, now)
        self.log.plain_from = self.log.log_end
        self._appended(batch, appended.base_offset, 1)
        return appended

    def append_once(self, batch: memoryview, now: Millis) -> Appended:
        """Check a batch whose records have idempotency keys, and append it under its own mark.

        That they are new is decided before (``once.py``); ``batch`` is stamped in place.
        """
        state = self._check_leading()
        self._check_committable(state)
        batch, _ = self.intake.admit(batch, now)
        if self.rule is not None:
            self.rule(batch, now)
        header = mark_once(batch)
        appended = self.log.append_once(batch, header, state.epoch, now)
        self.meter.produced_records.value += header.records_count
        self.meter.produced_bytes.value += header.size_bytes
        self._appended(batch, appended.base_offset, header.records_count)
        return appended

    def _check_committable(self, state: LeaderState) -> None:
        if not state.enough_replicas():
            raise NotEnoughReplicasError(self.name, state.in_sync.size, state.min_insync)
        if self._doubt is not None:
            raise self._doubt

    def _appended(self, batch: memoryview, base: Offset, records_count: int) -> None:
        if not self._syncing.on_disk:
            self._moved()
        self._syncing.appended(batch, base, records_count)
        if self.paces is not None:
            self.replica_waiters.changed()

    def in_transaction(self, producer_id: ProducerId, epoch: ProducerEpoch) -> bool:
        """Whether exactly this producer in this epoch has a transaction open here."""
        return self.log.producers.in_transaction(producer_id, epoch)

    def open_transactions(self) -> list[OpenTransaction]:
        """The transactions with records here that no marker has ended."""
        return self.log.producers.open_transactions()

    def when_committed(self, end: Offset, told: OnCommit) -> bool:
        """True if everything before ``end`` is committed; otherwise ``told`` is called later."""
        if self.high_watermark >= end:
            return True
        self.commit_waiters.add(end, told)
        return False

    # --- following ----------------------------------------------------------------------

    @property
    def followed_mark(self) -> Offset:
        """The end of what this replica knows to be committed while it does not lead."""
        return self._following.mark

    @property
    def log_start(self) -> Offset:
        """Where the log begins."""
        return self.log.log_start

    @property
    def epochs(self) -> LeaderEpochs:
        """Which leader epoch wrote what."""
        return self.log.epochs

    def append_replicated(self, data: memoryview, now: Millis) -> None:
        """Append batches as the leader has them; one that the end of ``data`` cuts off is left.

        Raises at the first that cannot follow; what came before it stays.
        """
        assert self._state is None, f"{self.name} is led here, and cannot follow"
        self._following.append(data, now)

    def learn(self, mark: Offset, log_start: Offset) -> None:
        """Take over from the leader what is committed, and where the log begins."""
        assert self._state is None, f"{self.name} is led here, and learns from nobody"
        if self._following.learn(mark, log_start):
            self.read_waiters.changed()

    def truncate_to(self, offset: Offset, plan: CutPlan | None = None) -> None:
        """Cut off what the leader does not have."""
        assert self._state is None, f"{self.name} is led here, and not cut"
        self.log.truncate_to(offset, plan)
        self._following.was_cut()

    def start_at(self, offset: Offset) -> None:
        """Begin anew where the leader's log begins, which is behind the end of this one."""
        assert self._state is None, f"{self.name} is led here, and does not begin anew"
        self.log.start_at(offset)
        self._following.was_cut()

    # --- followed by others -------------------------------------------------------------

    def followed_by(
        self,
        node: NodeId,
        life: BrokerEpoch,
        offset: Offset,
        last_epoch: LeaderEpoch,
        safe_end: Offset,
        now: Millis,
    ) -> EpochEnd | None:
        """A follower ends at ``offset``; where its log left this one, if that is no end of ours.

        The caller has checked the epochs of leader and follower.

        HOT: once per partition that a follower asks about.
        """
        state, log = self._state, self.log
        assert state is not None, f"{self.name} is not led here"
        diverging = divergence(log.epochs, log.log_end, offset, last_epoch)
        if diverging is not None:
            return diverging
        if offset < log.log_start or offset > log.log_end:
            raise OffsetOutOfRangeError(offset, log.log_start, log.log_end)
        safe_end = min(safe_end, offset)
        if state.on_follower(node, life, offset, safe_end):
            self._marked()
        if self.paces is not None:
            counted = safe_end if self._syncing.on_disk else offset
            self.paces.on_fetch(node, life, counted, log.log_end, now)
        return None

    def read_to_end(self, offset: Offset, max_bytes: int, *, at_least_one: bool) -> LogSlice:
        """Whole batches for a follower, committed or not."""
        return self.log.read(offset, max_bytes, self.log.log_end, at_least_one)

    def court(self, nodes: Sequence[NodeId]) -> None:
        """Let the mark wait for replicas that are about to join the in-sync set."""
        if self._state is not None and self._state.court(nodes):
            self._marked()

    def propose(self, members: Sequence[NodeId]) -> None:
        """Another in-sync set was asked for; what commits from now on is held by both."""
        if self._state is not None and self._state.propose(members):
            self._marked()

    def give_up_proposal(self) -> None:
        """The set that was asked for will never be stored."""
        if self._state is not None:
            self._settle(self._state, self.leadership)

    # --- syncing ------------------------------------------------------------------------

    @property
    def log_end(self) -> Offset:
        """The end of what was appended."""
        return self.log.log_end

    @property
    def safe_end(self) -> Offset:
        """The end of what survives a crash, in the log's files or in the journal."""
        return self._syncing.safe_end

    def relocate(self, log: Log, journal: Journal | None) -> None:
        """Go on in another data directory, where ``log`` holds all that this one did, safely."""
        assert log.flushed_end == log.log_end == self.log.log_end, f"{log} is not {self.log}"
        self.log = log
        self._syncing.relocate(log, journal)
        self._moved()

    def drop(self) -> None:
        """The cluster wants this replica here no more."""
        self._syncing.drop()
        self.follow_store(Leadership(None, self.leadership.epoch, ()))

    def flush(self) -> None:
        """Sync what is not synced yet, in the background."""
        self._syncing.flush()

    def sync_if_due(self, now: Millis) -> None:
        """Sync a log with ``durability=memory`` that has waited for ``flush.ms``."""
        self._syncing.flush_if_due(now)

    def _moved(self) -> None:
        state = self._state
        if state is not None:
            if state.on_local(self.log.log_end, self._syncing.safe_end):
                self._marked()
        elif self.told_safe is not None:
            self.told_safe()

    def _marked(self) -> None:
        self._set_marks(self.high_watermark)
        self.commit_waiters.release(self.mark)
        self.read_waiters.changed()

    def _set_marks(self, mark: Offset) -> None:
        """HOT: once per commit.

        The last stable offset moves only with the high watermark: a transaction begins at or
        past that, and ends when that has passed its marker.
        """
        self.mark = self.stable = mark
        if self.log.producers.unstable.are_there:
            self.stable = self.log.last_stable(mark)

    def fail(self, error: WaystationError) -> None:
        """The log's directory is gone: answer everyone who waits."""
        self.mark = self.stable = NO_OFFSET
        self.commit_waiters.fail(error)
        self.read_waiters.changed()
        self.replica_waiters.changed()

    # --- reading ------------------------------------------------------------------------

    def read(
        self, offset: Offset, max_bytes: int, *, at_least_one: bool, stable_only: bool = False
    ) -> LogSlice:
        """Whole committed batches from ``offset`` on; an offset past the mark reads nothing.

        With ``stable_only`` none that belongs to an open transaction, or lies behind one.

        HOT: once per partition of a fetch.
        """
        log, mark = self.log, self.last_stable if stable_only else self.high_watermark
        if offset < log.log_start or offset > log.log_end:
            raise OffsetOutOfRangeError(offset, log.log_start, log.log_end)
        return log.read(offset, max_bytes, mark, at_least_one)

    def epoch_end(self, epoch: LeaderEpoch) -> EpochEnd:
        """Where an epoch ends in the leader's log.

        The log knows the epochs that wrote something; this leader's own, and others after the
        last of those, ended or will begin at its end.
        """
        known = self.log.epoch_end(epoch)
        if known.epoch >= 0 or not 0 <= epoch <= self.leadership.epoch:
            return known
        latest = self.log.epochs.latest
        wrote_nothing = epoch == self.leadership.epoch or latest < 0
        return EpochEnd(epoch if wrote_nothing else latest, self.log.log_end)

    # --- upkeep -------------------------------------------------------------------------

    def reconfigure(self, settings: TopicSettings) -> None:
        """Obey new topic settings from now on."""
        if settings == self.settings:
            return
        self.settings = settings
        self._syncing.reconfigure(settings)
        self.intake = Intake(settings, sequenced=self.name.topic not in INTERNAL_TOPICS)
        self.log.reconfigure(settings)
        if self._state is not None:
            if self._state.reconfigure(settings.min_insync_replicas, settings.durability):
                self._marked()
            self._moved()
            self._syncing.secure_rest()

    def delete_records(self, before: Offset) -> Offset:
        """Move the log's start to ``before``; -1 means the high watermark.  Returns the start."""
        self.check_epoch(-1)
        target = self.high_watermark if before == -1 else before
        if target < 0 or target > self.high_watermark:
            raise OffsetOutOfRangeError(target, self.log.log_start, self.high_watermark)
        self.log.advance_log_start(target)
        if self.mark != NO_OFFSET:
            self._set_marks(self.mark)
        self.read_waiters.changed()
        return self.log.log_start
