"""The dead letters of all queues that this broker leads, and the breakers that hold them back.

A queue that gives messages up gets a desk (``dead_letter_desk.py``), which moves them to the
group's dead-letter topic and is forgotten with its queue.  Whether a flood of them has made a queue
pause is looked at every second, so that an operator hears of it: as an event when it begins and
when it is over, and as a gauge.
"""

from waystation.broker.dead_letter_desk import DeadLetterDesk, Services
from waystation.broker.dead_letter_topics import DeadLetterTopics
from waystation.broker.queue_host import QueueHost
from waystation.model.errors import CorruptBatchError
from waystation.runtime.clock import Clock, SteadyClock
from waystation.runtime.tasks import Tasks
from waystation.runtime.timers import Timer, Timers
from waystation.sharing.breaker import CLOSED
from waystation.sharing.state_records import QueueId
from waystation.telemetry.logs import get_logger
from waystation.telemetry.metrics import Registry

__all__ = ["DeadLetters"]

_LOOK_S = 1.0

_events = get_logger("dead-letters")


class DeadLetters:
    """One desk for each queue that has something to move."""

    def __init__(
        self,
        topics: DeadLetterTopics,
        *,
        clock: Clock,
        timers: Timers,
        registry: Registry,
    ) -> None:
        self._hosts: dict[QueueId, QueueHost] = {}
        self._clock = SteadyClock(clock)
        self._timers = timers
        self._desks: dict[QueueId, DeadLetterDesk] = {}
        self._unreadable: dict[QueueId, None] = {}
        """Queues whose notes say what only another version knows."""
        self._open: dict[QueueId, None] = {}
        self._timer: Timer | None = None
        self._tasks = Tasks()
        self._services = Services(
            topics,
            clock,
            registry.counter(
                "waystation_dead_letters_total", "Messages moved to dead-letter topics."
            ),
            registry.counter(
                "waystation_dead_letters_gone_total",
                "Messages that retention or compaction took before they became dead letters.",
            ),
        )
        registry.computed(
            "waystation_dead_letters_waiting",
            "Messages that were given up and are not in their dead-letter topic yet.",
            "gauge",
            lambda: [({}, self.waiting)],
        )
        registry.computed(
            "waystation_queue_breakers_open",
            "Queues that have paused because nearly everything failed.",
            "gauge",
            lambda: [({}, len(self._open))],
        )

    @property
    def waiting(self) -> int:
        """How many messages wait to be moved."""
        return sum(
            host.leader.queue.dying for host in self._hosts.values() if host.leader is not None
        )

    def start(self) -> None:
        """Look after breakers."""
        self._timer = self._timers.call_later(_LOOK_S, self._look)

    async def aclose(self) -> None:
        """Move nothing more; whoever leads next goes on."""
        if self._timer is not None:
            self._timer.cancel()
        for desk in list(self._desks.values()):
            await desk.aclose()
        await self._tasks.aclose()

    def changed(self, host: QueueHost) -> None:
        """A queue was loaded, or something of it was stored.

        HOT: once per write of a queue; nearly all have nothing to move.
        """
        assert host.leader is not None, f"{host} was not loaded"
        self._hosts[host.queue_id] = host
        desk = self._desks.get(host.queue_id)
        if not host.leader.queue.dying and (desk is None or desk.is_resting):
            return
        if desk is None:
            desk = self._begin(host)
        if desk is not None:
            desk.poke()

    def gone(self, host: QueueHost) -> None:
        """Another leads, or nobody reads the queue any more."""
        if self._hosts.get(host.queue_id) is not host:
            return
        del self._hosts[host.queue_id]
        self._unreadable.pop(host.queue_id, None)
        desk = self._desks.pop(host.queue_id, None)
        if desk is not None:
            self._tasks.spawn(desk.aclose(), f"dead-letters-{host.queue_id}-over")

    def _begin(self, host: QueueHost) -> DeadLetterDesk | None:
        """A desk; none where nobody knows what is on its way: moving it again would repeat it."""
        if host.queue_id in self._unreadable:
            return None
        try:
            desk = self._desks[host.queue_id] = DeadLetterDesk(host, self._services)
        except CorruptBatchError as error:
            self._unreadable[host.queue_id] = None
            _events.error(
                "dead_letters.unreadable",
                queue=str(host.partition.name),
                group=host.queue_id.group_id,
                reason=str(error),
                remedy="let a broker of the version lead that wrote them",
            )
            return None
        return desk

    # --- breakers -------------------------------------------------------------------------

    def _look(self) -> None:
        self._timer = self._timers.call_later(_LOOK_S, self._look)
        now = self._clock.now()
        is_open = {
            queue_id: host
            for queue_id, host in self._hosts.items()
            if host.leader is not None and host.leader.queue.breaker_state(now) != CLOSED
        }
        for queue_id, host in is_open.items():
            if queue_id not in self._open:
                self._opened(host)
        for queue_id in self._open:
            if queue_id not in is_open:
                _events.info(
                    "breaker.closed", group=queue_id.group_id, partition=queue_id.partition
                )
        self._open = dict.fromkeys(is_open)

    def _opened(self, host: QueueHost) -> None:
        options = host.settings()
        _events.warning(
            "breaker.opened",
            queue=str(host.partition.name),
            group=host.queue_id.group_id,
            part=options.dead_letter_breaker_part,
            pause_ms=options.dead_letter_breaker_pause_ms,
            remedy="nearly every message fails: look at what the consumers need, not at messages",
        )
