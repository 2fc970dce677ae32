"""The queues that this broker leads: one per group and partition, made when somebody first asks.

1. A queue is there only while its partition is led here, under the epoch in which it was loaded.
2. A consumer whose session or connection ends holds nothing any more.  What was acquired by receipt
   has neither: it is held until it is settled, by whoever knows its member id, or its lock is over.
3. A queue that nobody reads and that has nothing under way is forgotten; it is loaded again for
   the next who asks, so that what happened to its stored state meanwhile counts.

What one queue goes through is in ``queue_host.py``; who reads what is in ``sharing/sessions.py``.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, Protocol

from waystation.broker.queue_around import Around, DeadLetters
from waystation.broker.queue_host import QueueHost
from waystation.broker.queue_meters import QueueMeters
from waystation.broker.replicas import Replicas
from waystation.model.errors import NotLeaderError
from waystation.model.ids import NO_LEADER_EPOCH, TopicId
from waystation.runtime.clock import Clock, SteadyClock
from waystation.runtime.timers import Timers
from waystation.sharing.persister import Persister
from waystation.sharing.sessions import ShareSessions, Turn
from waystation.sharing.settings import QueueSettings, ShareSettings
from waystation.sharing.state_records import QueueId
from waystation.telemetry.metrics import Registry

_KEY: Final = "queue sessions"


class Owner(Protocol):
    """A connection, as far as this file needs it."""

    session: dict[str, Any]

    def when_closed(self, run: Callable[[], None], /) -> None:
        """Have ``run`` called when the connection ends."""
        ...


class Queues:
    """All queues of a broker, and the sessions of those who read them."""

    def __init__(
        self,
        replicas: Replicas,
        persister: Persister,
        options: Callable[[str], QueueSettings],
        settings: Callable[[], ShareSettings],
        *,
        clock: Clock,
        timers: Timers,
        defer: Callable[[Callable[[], None]], object],
        registry: Registry,
        dead_letters: DeadLetters | None = None,
    ) -> None:
        """``options`` are those of a group, as they are when asked."""
        self._replicas = replicas
        self._options = options
        self._hosts: dict[QueueId, QueueHost] = {}
        self._closed = False
        self.sessions = ShareSessions(settings)
        self._around = Around(
            persister,
            SteadyClock(clock),
            clock,
            timers,
            defer,
            settings,
            QueueMeters(registry),
            self._gone,
            dead_letters or _Nobody(),
        )
        registry.computed(
            "waystation_queues", "Queues led by this broker.", "gauge", lambda: [({}, len(self))]
        )
        registry.computed(
            "waystation_queue_sessions",
            "Consumers of queues that this broker serves.",
            "gauge",
            lambda: [({}, len(self.sessions))],
        )
        registry.computed(
            "waystation_queue_in_flight",
            "Messages of queues that consumers hold.",
            "gauge",
            lambda: [({}, sum(host.in_flight for host in self))],
        )

    def __iter__(self) -> Iterator[QueueHost]:
        return iter(list(self._hosts.values()))

    def __len__(self) -> int:
        return len(self._hosts)

    def options_of(self, group_id: str) -> QueueSettings:
        """What a group says about its queues."""
        return self._options(group_id)

    # --- finding --------------------------------------------------------------------------------

    def check_led(self, topic_id: TopicId, partition: int) -> None:
        """Raise unless this broker leads the partition."""
        self._replicas.get("", partition, topic_id).check_epoch(NO_LEADER_EPOCH)

    def find(self, group_id: str, topic_id: TopicId, partition: int) -> QueueHost | None:
        """The queue, if it is here now."""
        host = self._hosts.get(QueueId(group_id, topic_id, partition))
        if host is not None:
            host.check()
        return None if host is None or host.closed else host

    def host_of(self, group_id: str, topic_id: TopicId, partition: int) -> QueueHost:
        """The queue; it begins to load if it was not here.  Raises where others lead.

        HOT: once per partition of a ShareFetch.
        """
        held = self._replicas.get("", partition, topic_id)
        held.check_epoch(NO_LEADER_EPOCH)
        if self._closed:
            raise NotLeaderError(held.name, None, held.leadership.epoch)
        found = self.find(group_id, topic_id, partition)
        if found is not None:
            if found.is_waited_for or not found.is_idle:
                return found
            # Nobody has read it for a while: its group may have been deleted, and made anew.
            found.close()
        queue_id = QueueId(group_id, topic_id, partition)
        host = QueueHost(queue_id, held, partial(self._options, group_id), self._around)
        if not host.closed:
            self._hosts[queue_id] = host
        return host

    # --- sessions -------------------------------------------------------------------------------

    def connected(self, owner: Owner) -> None:
        """Notice when this connection ends: what its consumers hold is taken back.

        HOT: once per ShareFetch; only the first of a connection costs anything.
        """
        if _KEY not in owner.session:
            owner.session[_KEY] = True
            owner.when_closed(partial(self._disconnected, owner))

    def follow(self, group_id: str, member_id: str, turn: Turn) -> None:
        """Note who reads what from now on; who has ended holds nothing any more."""
        if turn.is_last:
            self._left(group_id, member_id)
            return
        for topic_id, partition in turn.ended:
            host = self.find(group_id, topic_id, partition)
            if host is not None:
                host.readers.pop(member_id, None)

    def _disconnected(self, owner: Owner) -> None:
        for group_id, member_id, _ in self.sessions.disconnected(owner):
            self._left(group_id, member_id)

    def _left(self, group_id: str, member_id: str) -> None:
        """It may hold messages of partitions too that it had stopped reading."""
        for host in self:
            if host.queue_id.group_id == group_id:
                host.leave(member_id)

    # --- the cluster ----------------------------------------------------------------------------

    def look_again(self) -> None:
        """Options or leaders may have changed: throw away what is not as it has to be."""
        for host in self:
            host.check()

    def close(self) -> None:
        """The broker stops: whoever waits is told to look for another, and nothing is given."""
        self._closed = True
        for host in self:
            host.give_up()

    def _gone(self, host: QueueHost) -> None:
        if self._hosts.get(host.queue_id) is host:
            del self._hosts[host.queue_id]


class _Nobody:
    """Who hears of dead letters where nobody moves them."""

    def changed(self, host: QueueHost) -> None:
        """Nothing to do."""

    def gone(self, host: QueueHost) -> None:
        """Nothing to do."""
