"""One ShareFetch under way: take what queues have, or wait until one has something.

It ends as soon as a consumer was given something, a partition has an error to report, the time is
up, or its connection is gone.  Until then it costs nothing: queues call it when they have
something, one waiting consumer after the other.

1. A consumer is given messages only in an answer that is about to be sent: while it waits for
   ``min_bytes`` it holds nothing.
2. All partitions together give no more than was asked for, but for the end of a batch.
3. Partitions are asked in the order given, which the session turns round each time.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from waystation.broker.fetching import Polls
from waystation.broker.queue_giving import NOTHING, Given
from waystation.broker.queue_host import QueueHost
from waystation.broker.queue_reading import Wish
from waystation.broker.queues import Queues
from waystation.model.errors import FencedStateEpochError, WaystationError
from waystation.runtime.regions import size_of
from waystation.runtime.timers import Timer, Timers
from waystation.sharing.sessions import PartitionOf


class ShareLimits(NamedTuple):
    """How much and how long; ``strictly`` so many messages, else up to the end of a batch."""

    max_records: int
    min_bytes: int
    max_bytes: int
    max_wait_ms: int
    strictly: bool = False


class Taken(NamedTuple):
    """What one partition gave."""

    place: PartitionOf
    error: WaystationError | None = None
    given: Given = NOTHING


class ShareFetch:
    """Asks once at ``start`` and again whenever a queue has something, until it may end."""

    __slots__ = (
        "_done",
        "_ended",
        "_group_id",
        "_hosts",
        "_is_reader",
        "_limits",
        "_member_id",
        "_polls",
        "_queues",
        "_timer",
        "_timers",
    )

    def __init__(
        self,
        queues: Queues,
        group_id: str,
        member_id: str,
        reads: Sequence[PartitionOf],
        limits: ShareLimits,
        done: Callable[[list[Taken]], None],
        *,
        timers: Timers,
        polls: Polls,
        is_reader: bool = True,
    ) -> None:
        """``done`` is told what was taken; the fetch is listed in ``polls`` while it waits.

        Unless it ``is_reader`` by a session, queues are not kept for it.
        """
        self._queues = queues
        self._group_id, self._member_id = group_id, member_id
        self._is_reader = is_reader
        self._hosts: dict[PartitionOf, QueueHost | None] = dict.fromkeys(reads)
        self._limits = limits
        self._done = done
        self._timers, self._polls = timers, polls
        self._timer: Timer | None = None
        self._ended = False

    def start(self) -> None:
        """Answer at once if that is possible, otherwise wait."""
        limits = self._limits
        is_final = limits.max_wait_ms <= 0 or limits.max_records <= 0 or not self._hosts
        if self._try(is_final=is_final):
            return
        self._polls.fetches[self] = None
        self._timer = self._timers.call_later(limits.max_wait_ms / 1_000, self.end_now)

    def end_now(self) -> None:
        """Answer with what there is: the time is up, or the node shuts down."""
        if not self._ended:
            self._try(is_final=True)

    def cancel(self) -> None:
        """End without an answer: nobody is there to read it."""
        if not self._ended:
            self._stop_waiting()

    def _retry(self) -> None:
        if not self._ended:
            self._try(is_final=False)

    def _try(self, *, is_final: bool) -> bool:
        """Take what there is, if that is enough; true if the fetch has ended."""
        taken: list[Taken] = []
        for place in self._hosts:
            error = self._find(place)
            if error is not None:
                taken.append(Taken(place, error))
        if taken or is_final or self._limits.min_bytes <= 1 or self._is_enough():
            taken += self._take()
        if not (taken or is_final):
            return False
        self._stop_waiting()
        self._done(taken)
        return True

    def _find(self, place: PartitionOf) -> WaystationError | None:
        """Have the partition's queue at hand, as it is by now; or say why there is none."""
        host = self._hosts[place]
        if host is not None and not host.closed:
            return None
        if host is not None and not _is_passing(host.error):
            return host.error
        try:
            host = self._queues.host_of(self._group_id, *place)
        except WaystationError as error:
            return error
        if host.closed and not _is_passing(host.error):
            return host.error
        self._hosts[place] = host
        if self._is_reader:
            host.readers[self._member_id] = None
        host.wait(self._retry)
        return None

    def _is_enough(self) -> bool:
        """Whether there are ``min_bytes``; nothing is taken yet."""
        limits, total = self._limits, 0
        for host in self._hosts.values():
            if host is not None:
                total += host.bytes_ahead(limits.max_bytes)
            if total >= limits.min_bytes:
                return True
        return False

    def _take(self) -> list[Taken]:
        """HOT: once per ShareFetch."""
        limits = self._limits
        left_records, left_bytes, taken = limits.max_records, limits.max_bytes, list[Taken]()
        for place, host in self._hosts.items():
            if left_records <= 0 or left_bytes <= 0:
                break
            if host is None:
                continue
            wish = Wish(left_records, left_bytes, not taken, limits.strictly)
            try:
                given = host.give(self._member_id, wish)
            except WaystationError as error:
                taken.append(Taken(place, error))
                continue
            if not given.acquired:
                continue
            taken.append(Taken(place, None, given))
            left_records -= sum(end - first for first, end, _ in given.acquired)
            left_bytes -= size_of(given.records)
        return taken

    def _stop_waiting(self) -> None:
        self._ended = True
        self._polls.fetches.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
        for host in self._hosts.values():
            if host is not None:
                host.stop_waiting(self._retry)


def _is_passing(error: WaystationError | None) -> bool:
    """Whether a queue that was thrown away for this is there again at once."""
    return error is None or isinstance(error, FencedStateEpochError)
