"""Goes on with dead letters that another leader has left, before any consumer comes.

A queue is loaded when somebody reads it.  One whose group has a dead-letter topic may have messages
on their way there, or waiting to go, that nobody would notice while its consumers are away.  So a
new leader asks the share coordinators, once per term and group, which of its partitions have a
queue of such a group at all, and loads those; one with nothing to move is let go again.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from waystation.broker.group_options import GroupOptions
from waystation.broker.queue_host import QueueHost
from waystation.broker.replicas import Replicas
from waystation.cluster.parts import INTERNAL_TOPICS
from waystation.model.errors import WaystationError
from waystation.model.ids import LeaderEpoch
from waystation.partition.partition import Partition
from waystation.runtime.timers import Timers
from waystation.sharing.persister import Persister, StateSummary, Summarize
from waystation.sharing.state_records import QueueId
from waystation.telemetry.logs import get_logger

__all__ = ["Resuming"]

_LET_GO_AFTER_S: Final = 2.0

_events = get_logger("dead-letters")


class Resuming:
    """The queues that this broker has looked at since it leads them."""

    def __init__(
        self,
        replicas: Replicas,
        persister: Persister,
        options: GroupOptions,
        host_of: Callable[[QueueId], QueueHost],
        is_known: Callable[[], bool],
        timers: Timers,
    ) -> None:
        """``host_of`` loads a queue; ``is_known`` says whether any queue's state is kept."""
        self._replicas = replicas
        self._persister = persister
        self._options = options
        self._host_of = host_of
        self._is_known = is_known
        self._timers = timers
        self._looked: dict[tuple[QueueId, LeaderEpoch], None] = {}

    def follow(self) -> None:
        """Leaders or groups may have changed."""
        groups = self._options.groups_with_dead_letters() if self._is_known() else []
        if not groups:
            return
        looked: dict[tuple[QueueId, LeaderEpoch], None] = {}
        for partition in self._replicas:
            if not partition.leading or partition.name.topic in INTERNAL_TOPICS:
                continue
            for group_id in groups:
                queue_id = QueueId(group_id, partition.topic_id, partition.name.partition)
                term = queue_id, partition.leadership.epoch
                looked[term] = None
                if term not in self._looked:
                    to = partial(self._heard, queue_id, partition, term[1])
                    self._persister.summarize(Summarize(queue_id), to)
        self._looked = looked

    def _heard(
        self, queue_id: QueueId, partition: Partition, epoch: LeaderEpoch, answer: object
    ) -> None:
        if not isinstance(answer, StateSummary):
            return  # the group reads other topics; or nobody knows, and a consumer will find out
        if not partition.leading or partition.leadership.epoch != epoch:
            return
        try:
            host = self._host_of(queue_id)
        except WaystationError as error:
            _events.debug("queue.elsewhere", queue=str(queue_id), reason=str(error))
            return
        self._timers.call_later(_LET_GO_AFTER_S, partial(self._let_go, host))

    def _let_go(self, host: QueueHost) -> None:
        """Forget the queue unless somebody reads it by now, or there is something to do."""
        if host.closed or host.readers:
            return
        leader = host.leader
        if leader is None:
            self._timers.call_later(_LET_GO_AFTER_S, partial(self._let_go, host))
        elif not host.in_flight and not leader.queue.dying:
            host.close()
