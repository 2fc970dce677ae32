"""Bugs to plant into the real cluster, and in which storm each of them shows.

Each is a promise of the protocol that is not kept.  The simulation must find every one of them
within a bounded number of seeds: ``test_cluster_bugs.py``.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from waystation.broker.markers import Markers
from waystation.cluster import elections, in_sync_changes, membership
from waystation.cluster.elections import Elected, Electorate
from waystation.cluster.parts import PartitionImage
from waystation.cluster.policies import TopicPolicy
from waystation.cluster.values import PartitionValue
from waystation.model.machines import Reply
from waystation.partition.partition import Partition
from waystation.partition.syncing import Syncing
from waystation.replication.in_sync import InSync
from waystation.replication.leader import LeaderState
from waystation.runtime.host import Host
from waystation.storage.log import Log
from waystation.storage.producer_state import ProducerStates
from waystation.testing.simulated_store import SimulatedStore

Planted = Iterator[None]


@dataclass(frozen=True, slots=True)
class Bug:
    """What is broken, how, and which blows let it show."""

    plant: Callable[[], Any]
    blows: tuple[str, ...]
    first_seed: int = 0
    """Where to begin to look: a seed that found it once."""
    thread_s: float | None = None
    """How slow threads are, where that matters."""


# --- replication ----------------------------------------------------------------------------------


@contextmanager
def _new_leaders_commit_all_they_have() -> Planted:
    """A new leader takes the end of its log for the high watermark."""
    honest = LeaderState.__init__

    def hasty(state: LeaderState, *args: Any, **facts: Any) -> None:
        honest(state, *args, **{**facts, "mark": facts["log_end"]})

    with patch.object(LeaderState, "__init__", hasty):
        yield


@contextmanager
def _what_is_not_flushed_counts() -> Planted:
    """The high watermark is taken over log ends, not over what is on disk."""
    honest = LeaderState.__init__

    def hasty(state: LeaderState, *args: Any, **facts: Any) -> None:
        honest(state, *args, **facts)
        state._flushed = False

    with (
        patch.object(LeaderState, "__init__", hasty),
        patch.object(Syncing, "safe_end", property(lambda syncing: syncing.log.log_end)),
    ):
        yield


@contextmanager
def _logs_that_part_are_not_cut() -> Planted:
    """The leader never finds that a follower's log has left its own."""
    with patch("waystation.partition.partition.divergence", lambda *_: None):
        yield


@contextmanager
def _who_joins_need_not_have_caught_up() -> Planted:
    """A follower may join the in-sync set wherever it is."""
    with patch.object(LeaderState, "needed_to_join", 0):
        yield


@contextmanager
def _a_set_counts_before_it_is_written() -> Planted:
    """A proposed in-sync set counts at once, whatever the store says."""
    proposed = property(lambda sets: sets.written if sets.proposed is None else sets.proposed)
    with patch.object(InSync, "counted", proposed):
        yield


@contextmanager
def _too_few_commit() -> Planted:
    """The mark moves although too few are in sync, and others may be elected."""

    def count(state: LeaderState) -> bool:
        return state._mark.count((*state.in_sync.counted, *state._courted), enough=True)

    with patch.object(LeaderState, "_count", count):
        yield


@contextmanager
def _leaders_answer_alone() -> Planted:
    """``acks=all`` is answered when the leader has appended."""
    with patch.object(Partition, "when_committed", lambda *_: True):
        yield


# --- deciding -------------------------------------------------------------------------------------


@contextmanager
def _anyone_may_lead() -> Planted:
    """Whoever lives is elected, whether or not it holds what is committed."""
    honest = elections.succeed

    def succeed(
        partition: PartitionImage, electorate: Electorate, policy: TopicPolicy
    ) -> Elected | None:
        return honest(partition, electorate, policy._replace(unclean=True))

    with patch.object(elections, "succeed", succeed):
        yield


@contextmanager
def _an_election_keeps_the_epoch() -> Planted:
    """A new leader leads in the epoch of the one before."""
    honest = in_sync_changes.led_by

    def led_by(partition: PartitionImage, *args: Any, **facts: Any) -> PartitionValue:
        before = partition._replace(leader_epoch=partition.leader_epoch - 1)  # type: ignore[arg-type]
        return honest(before, *args, **facts)

    with patch.object(elections, "led_by", led_by), patch.object(membership, "led_by", led_by):
        yield


@contextmanager
def _nobody_compares() -> Planted:
    """What is written to the store is written, whatever became of it since it was read."""
    honest = SimulatedStore.txn

    async def txn(store: SimulatedStore, compares: Any, *args: Any, **facts: Any) -> Any:
        return await honest(store, {}, *args, **facts)

    with patch.object(SimulatedStore, "txn", txn):
        yield


# --- producers, transactions and coordinators -----------------------------------------------------


@contextmanager
def _repeated_batches_are_written_again() -> Planted:
    """A batch that comes a second time is not known."""
    honest = ProducerStates.check

    def check(states: ProducerStates, *args: Any, **facts: Any) -> None:
        honest(states, *args, **facts)

    with patch.object(ProducerStates, "check", check):
        yield


@contextmanager
def _open_transactions_are_shown() -> Planted:
    """Readers of committed records are not held up by transactions that are open."""
    with (
        patch.object(Log, "last_stable", lambda _, mark: mark),
        patch.object(Partition, "last_stable", property(lambda one: one.high_watermark)),
    ):
        yield


@contextmanager
def _aborted_transactions_are_shown() -> Planted:
    """Readers are not told what was aborted."""
    with patch.object(Log, "aborted", lambda *_: []):
        yield


@contextmanager
def _coordinators_answer_too_early() -> Planted:
    """Members and producers hear of decisions that are not committed yet."""

    def queue(_: Host[Any], replies: Sequence[Reply]) -> None:
        for to, answer in replies:
            to(answer)

    with patch.object(Host, "_queue", queue):
        yield


@contextmanager
def _markers_are_tried_once() -> Planted:
    """A partition that cannot take a marker now never gets it."""
    with patch.object(Markers, "_put_off", lambda *_: None):
        yield


# --- disks ----------------------------------------------------------------------------------------


@contextmanager
def _journals_are_not_replayed() -> Planted:
    """What only the journal holds is gone after a crash."""
    with patch("waystation.storage.journal_replay._entries", lambda *_: iter(())):
        yield


_CRASHES = ("crash", "crash all")
_UNREST = ("pause", "split", "crash")
_STORELESS = ("store gone", "split", "crash", "pause")

BUGS: dict[str, Bug] = {
    "new leaders commit all they have": Bug(_new_leaders_commit_all_they_have, _UNREST, 2),
    "what is not flushed counts": Bug(_what_is_not_flushed_counts, _CRASHES, 5, thread_s=0.2),
    "logs that part are not cut": Bug(_logs_that_part_are_not_cut, _UNREST),
    "who joins need not have caught up": Bug(_who_joins_need_not_have_caught_up, _UNREST, 25),
    "a set counts before it is written": Bug(_a_set_counts_before_it_is_written, _STORELESS, 4),
    "too few commit": Bug(_too_few_commit, _UNREST, 5),
    "leaders answer alone": Bug(_leaders_answer_alone, _UNREST),
    "anyone may lead": Bug(_anyone_may_lead, _UNREST),
    "an election keeps the epoch": Bug(_an_election_keeps_the_epoch, _UNREST),
    "nobody compares": Bug(_nobody_compares, _STORELESS, 5),
    "repeated batches are written again": Bug(_repeated_batches_are_written_again, _UNREST),
    "open transactions are shown": Bug(_open_transactions_are_shown, ("kill client",)),
    "aborted transactions are shown": Bug(_aborted_transactions_are_shown, ("kill client",)),
    "coordinators answer too early": Bug(_coordinators_answer_too_early, _UNREST),
    "markers are tried once": Bug(_markers_are_tried_once, _UNREST, 10),
    "journals are not replayed": Bug(_journals_are_not_replayed, _CRASHES, 1, thread_s=0.2),
}
