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

All methods run on the loop's thread; only the flusher's syncs run elsewhere.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from waystation.cluster.parts import INTERNAL_TOPICS
from waystation.model.errors import (
    FencedLeaderEpochError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    NotLeaderError,
    OffsetOutOfRangeError,
    StorageError,
    UnknownLeaderEpochError,
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
from waystation.partition.intake import Intake
from waystation.partition.meters import TopicMeter
from waystation.partition.waiting import AppendWaiters, CommitWaiters, OnCommit, ReadWaiters
from waystation.records.control import Marker, marker_batch
from waystation.records.header import batches, is_one_batch, mark_once, peek
from waystation.replication.epochs import EpochEnd, LeaderEpochs
from waystation.replication.lag import Paces
from waystation.replication.leader import DISK, LeaderState, divergence
from waystation.storage.flusher import Flusher
from waystation.storage.journal import Journal
from waystation.storage.log import Log, LogSlice
from waystation.storage.producer_state import OpenTransaction
from waystation.storage.surroundings import Appended
from waystation.storage.truncation import CutPlan

Rule = Callable[[memoryview, Millis], None]
"""Raises for an admitted batch that shall not be stored."""

ACKS_ALL = -1
_EVERYTHING = Offset(1 << 63)
_MUCH_BYTES = 256 << 10


class LeadershipInDoubtError(NotLeaderError):
    """The node leads as far as it knows, and hears of nobody who could confirm what is written.

    Clients are told what makes them look for another leader; if there is none they come back.
    """

    def __init__(
        self, partition: TopicPartition, epoch: LeaderEpoch, missing: Sequence[NodeId]
    ) -> None:
        super().__init__(partition, None, epoch)
        self.missing = tuple(missing)

    def __str__(self) -> str:
        names = ", ".join(map(str, self.missing))
        return (
            f"{self.partition} was led here in epoch {self.epoch}; neither the coordination store "
            f"nor its in-sync replicas on {names} are heard of"
        )


class Leadership(NamedTuple):
    """Who leads a partition, under which epoch, and who is in sync: the store's words."""

    leader: NodeId | None
    epoch: LeaderEpoch
    in_sync: tuple[NodeId, ...]
    eligible: tuple[NodeId, ...] = ()
    """Who else may lead: while there is anyone, nothing new commits."""
    replicas: tuple[NodeId, ...] = ()
    version: int = 0
    """Of the stored state: while it is the same, a change that was asked for may still come."""
    revision: int = 0
    """Of the store, when it said so."""


class Partition:
    """A log that this node holds, and leads while ``leading`` is true."""

    __slots__ = (
        "_doubt",
        "_dropped",
        "_flusher",
        "_followed",
        "_journal",
        "_journal_from",
        "_journaled_end",
        "_linger_s",
        "_node",
        "_state",
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
        "unflushed_records",
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
        self.unflushed_records = 0
        # The high watermark while leading, -1 otherwise: one look tells a reader of news.
        self.mark = NO_OFFSET
        # The last stable offset, likewise; the same where no transaction is open.
        self.stable = NO_OFFSET
        self._node = node
        self._flusher = flusher
        self._journal = journal
        self._linger_s = settings.flush_linger_s
        self._journal_from = self._journaled_end = log.flushed_end
        # The store's revision at which a follower's copy was last given up, while this node leads.
        self.given_up: dict[NodeId, int] = {}
        self._dropped = False
        # The end of what a leader before called committed: never less than where the log begins.
        self._followed = log.log_start
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
        """Let copies that were given up count no more, nor be taken for those made since.

        Who left the in-sync set by somebody else's decision may have given its copy up too, and
        been asked for another: both may be news at once.
        """
        asked = state.in_sync.proposed
        for node in before.replicas:
            left = node in before.in_sync and node not in after.in_sync
            ours = asked is not None and node not in asked
            if node not in after.replicas or (left and not ours):
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
        if self.safe_end < log_end:
            self.not_journaled()

    def _resign(self) -> None:
        if self._state is not None:
            self._followed = self._state.high_watermark
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
        self._check_claim(claimed, self.leadership.epoch)
        return self.followed_mark

    def check_epoch(self, claimed: int) -> LeaderState:
        """The leader's state, if this node leads and the client's epoch, when given, is ours."""
        state = self._state
        if state is None:
            raise self._not_leader()
        if claimed >= 0 and claimed != state.epoch:
            self._check_claim(claimed, state.epoch)
        return state

    def _check_claim(self, claimed: int, epoch: LeaderEpoch) -> None:
        if 0 <= claimed < epoch:
            raise FencedLeaderEpochError(
                f"{self.name} is at leader epoch {epoch}, the request says {claimed}"
            )
        if claimed > epoch:
            raise UnknownLeaderEpochError(
                f"{self.name} is at leader epoch {epoch}; {claimed} is not known yet"
            )

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
        is not needed afterwards.
        """
        state = self._state
        if state is None:
            raise self._not_leader()
        if acks == ACKS_ALL:
            if not state.enough_replicas():
                raise NotEnoughReplicasError(self.name, state.in_sync.size, state.min_insync)
            if self._doubt is not None:
                raise self._doubt
        batch, header = self.intake.admit(batch, now)
        if self.rule is not None:
            self.rule(batch, now)
        appended = self.log.append(batch, header, state.epoch, now, may_begin=may_begin)
        if not appended.duplicate:
            self.unflushed_records += header.records_count
            self.meter.produced_records.value += header.records_count
            self.meter.produced_bytes.value += header.size_bytes
            self._appended(state, batch, appended.base_offset)
        return appended

    def append_marker(self, marker: Marker, now: Millis) -> Appended:
        """End a producer's transaction here: readers see that once the marker is committed.

        It is written even where replicas are missing: what it ends has been decided elsewhere.
        """
        state = self._state
        if state is None:
            raise self._not_leader()
        batch = memoryview(marker_batch(marker, now))
        appended = self.log.append_marker(batch, marker, state.epoch, now)
        self.unflushed_records += 1
        self._appended(state, batch, appended.base_offset)
        return appended

    def append_decision(self, batch: memoryview, now: Millis) -> Appended:
        """Append a control batch of the partition's own leader, which no application sees.

        It counts once it is committed; ``batch`` is stamped in place.
        """
        state = self._check_committable()
        appended = self.log.append(batch, peek(batch), state.epoch, now)
        self.log.plain_from = self.log.log_end
        self.unflushed_records += 1
        self._appended(state, batch, appended.base_offset)
        return appended

    def append_once(self, batch: memoryview, now: Millis) -> Appended:
        """Check a batch whose records have idempotency keys, and append it under its own mark.

        That they are new is decided before (``once.py``); ``batch`` is stamped in place.
        """
        state = self._check_committable()
        batch, _ = self.intake.admit(batch, now)
        if self.rule is not None:
            self.rule(batch, now)
        header = mark_once(batch)
        appended = self.log.append_once(batch, header, state.epoch, now)
        self.unflushed_records += header.records_count
        self.meter.produced_records.value += header.records_count
        self.meter.produced_bytes.value += header.size_bytes
        self._appended(state, batch, appended.base_offset)
        return appended

    def _check_committable(self) -> LeaderState:
        state = self._state
        if state is None:
            raise self._not_leader()
        if not state.enough_replicas():
            raise NotEnoughReplicasError(self.name, state.in_sync.size, state.min_insync)
        if self._doubt is not None:
            raise self._doubt
        return state

    def _appended(self, state: LeaderState, batch: memoryview, base: Offset) -> None:
        if state.durability == DISK:
            self._secure(batch, base)
        else:
            self._moved()
            if self.unflushed_records >= self.settings.flush_messages:
                self._flush()
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
        return min(max(self._followed, self.log.log_start), self.log.log_end)

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

        Raises at the first that cannot follow; what came before it stays.  Much at once, which is
        someone catching up, is synced in its own file: the journal is for who waits for little.
        """
        assert self._state is None, f"{self.name} is led here, and cannot follow"
        if len(data) >= _MUCH_BYTES and self.settings.durability == DISK:
            self._append_much(data, now)
        elif is_one_batch(data):
            self._append_copied(data, now)
        else:
            for at, header in batches(data):
                self._append_copied(data[at : at + header.size_bytes], now)

    def _append_copied(self, batch: memoryview, now: Millis) -> None:
        """HOT: once per batch that is copied."""
        log, end = self.log, self.log.log_end
        header = log.append_replicated(batch, now)
        self.unflushed_records += header.records_count
        if self.settings.durability != DISK:
            if self.unflushed_records >= self.settings.flush_messages:
                self._flush()
        elif header.base_offset == end:
            self._secure(batch, end)
        else:
            # Behind a gap, which compaction left at the leader, the journal is not replayed.
            self.not_journaled()

    def _append_much(self, data: memoryview, now: Millis) -> None:
        end = self.log.log_end
        try:
            for at, header in batches(data):
                self.log.append_replicated(data[at : at + header.size_bytes], now)
                self.unflushed_records += header.records_count
        finally:
            if self.log.log_end > end:
                self.not_journaled()

    def learn(self, mark: Offset, log_start: Offset) -> None:
        """Take over from the leader what is committed, and where the log begins."""
        assert self._state is None, f"{self.name} is led here, and learns from nobody"
        self.log.advance_log_start(min(log_start, self.log.log_end))
        known = min(mark, self.log.log_end)
        if known > self._followed:
            self._followed = known
            self.read_waiters.changed()

    def truncate_to(self, offset: Offset, plan: CutPlan | None = None) -> None:
        """Cut off what the leader does not have."""
        assert self._state is None, f"{self.name} is led here, and not cut"
        self.log.truncate_to(offset, plan)
        self._was_cut()

    def start_at(self, offset: Offset) -> None:
        """Begin anew where the leader's log begins, which is behind the end of this one."""
        assert self._state is None, f"{self.name} is led here, and does not begin anew"
        self.log.start_at(offset)
        self._was_cut()

    def _was_cut(self) -> None:
        """All that is left is synced; what the journal was still to say is about what is gone."""
        if self._journal is not None:
            self._journal.forget(self)
        self._journal_from = self._journaled_end = self.log.flushed_end
        self._followed = self.followed_mark

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
            counted = safe_end if state.durability == DISK else offset
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
    def flushed_end(self) -> Offset:
        """The end of what the log's own files have safe; a dropped log needs nothing more."""
        return _EVERYTHING if self._dropped else self.log.flushed_end

    @property
    def safe_end(self) -> Offset:
        """The end of what survives a crash, in the log's files or in the journal.

        The journal counts only if it holds everything that the files may still lose.
        """
        flushed = self.log.flushed_end
        if self._journal_from <= flushed < self._journaled_end:
            return self._journaled_end
        return flushed

    def _secure(self, batch: memoryview, base: Offset) -> None:
        """Let a batch survive a crash: through the journal if it is small, else in its file.

        A small one that follows a large one goes to the journal at once, although it is not
        safe before the other: else a partition that is busy would never get back to it.
        """
        journal, flushed = self._journal, self.log.flushed_end
        if journal is not None and journal.takes(len(batch)):
            if flushed >= base:
                self._journal_from = base
            journal.add(self, self.topic_id, self.name.partition, batch, self._linger_s)
        else:
            self.not_journaled()

    def not_journaled(self) -> None:
        """What was appended so far is not in the journal: sync the log's own files."""
        self._journal_from = self.log.log_end
        self._flush()

    def journaled(self, outcome: Offset | StorageError) -> None:
        """The journal has everything before an offset, or has failed."""
        if isinstance(outcome, StorageError):
            self.fail(outcome)
        else:
            self._journaled_end = outcome
            self.log.remember_end(outcome)
            self._moved()

    def relocate(self, log: Log, journal: Journal | None) -> None:
        """Go on in another data directory, where ``log`` holds all that this one did, safely."""
        assert log.flushed_end == log.log_end == self.log.log_end, f"{log} is not {self.log}"
        if self._journal is not None:
            self._journal.forget(self)
        self.log, self._journal = log, journal
        self._journal_from = self._journaled_end = log.flushed_end
        self.unflushed_records = 0
        self._moved()

    def drop(self) -> None:
        """The cluster wants this replica here no more."""
        self._dropped = True
        self.follow_store(Leadership(None, self.leadership.epoch, ()))

    def _flush(self) -> None:
        if self._dropped:
            # Its files are gone, and their names may already be another topic's.
            return
        self.unflushed_records = 0
        self._flusher.request(self.log, self._flushed, self._linger_s or 0.0)

    def flush(self) -> None:
        """Sync what is not synced yet, in the background."""
        if self.log.flushed_end < self.log.log_end:
            self._flush()

    def sync_if_due(self, now: Millis) -> None:
        """Sync a log with ``durability=memory`` that has waited for ``flush.ms``."""
        dirty_since = self.log.dirty_since
        if dirty_since is not None and now - dirty_since >= self.settings.flush_ms:
            self.flush()

    def _flushed(self, log: Log, outcome: Offset | StorageError) -> None:
        if log is not self.log:
            return
        if isinstance(outcome, StorageError):
            self.fail(outcome)
        else:
            self._moved()

    def _moved(self) -> None:
        state = self._state
        if state is not None:
            if state.on_local(self.log.log_end, self.safe_end):
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
        self._linger_s = settings.flush_linger_s
        self.intake = Intake(settings, sequenced=self.name.topic not in INTERNAL_TOPICS)
        self.log.reconfigure(settings)
        if self._state is not None:
            if self._state.reconfigure(settings.min_insync_replicas, settings.durability):
                self._marked()
            self._moved()
            if self.safe_end < self.log.log_end:
                self.not_journaled()

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
