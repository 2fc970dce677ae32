"""Writes the end of transactions into the partitions that they wrote to.

1. What a coordinator has decided is written everywhere, however often it takes: a partition that
   cannot take its marker now is tried again, later and later, for as long as the coordinator that
   decided lives.  The next one decides the same and begins anew.
2. The coordinator hears of it once all partitions of a transaction have it committed.
3. A partition that is gone needs no marker, and neither does one whose producer has moved on to a
   newer epoch: there is no transaction left to end.
4. All that waits to be tried again shares one timer, and a round of it never holds up the loop.
5. Whoever asks about a producer's transaction meanwhile is told if it ended here (``inquiries``).

Partitions that other brokers lead are told by these (``far_markers.py``).  The partitions of
``__consumer_offsets`` are written by the machines of their groups, which take what was committed
in the transaction as theirs at the same moment.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from waystation.broker.coordinators import OFFSETS_TOPIC, GroupCoordinators
from waystation.broker.far_markers import FarMarkers
from waystation.broker.replicas import Replicas
from waystation.cluster.image import ClusterImage
from waystation.groups.inquiries import Inquiries
from waystation.model.errors import ErrorCode, WaystationError
from waystation.model.ids import NodeId, TopicPartition
from waystation.model.offsets import Offset
from waystation.records.control import Marker
from waystation.runtime.clock import Clock
from waystation.runtime.timers import Timer, Timers
from waystation.telemetry.logs import get_logger
from waystation.telemetry.metrics import Registry

Told = Callable[[WaystationError | None], None]
"""Hears that a marker is committed, or why it is not; once."""

_RETRY_S, _RETRY_MAX_S = 0.05, 2.0
_TRIED_PER_TURN = 200

_events = get_logger("transactions")


class Ended:
    """One transaction whose end is decided, and the partitions that have no marker of it yet.

    ``wanted`` says whether whoever decided it still is the one to decide.
    """

    __slots__ = ("left", "marker", "wanted", "written")

    def __init__(
        self,
        marker: Marker,
        partitions: Sequence[TopicPartition],
        written: Callable[[], None],
        wanted: Callable[[], bool],
    ) -> None:
        self.marker = marker
        self.left = dict.fromkeys(partitions)
        self.written = written
        self.wanted = wanted


_Failure = tuple[Ended, TopicPartition, WaystationError]


class Markers:
    """The markers of one broker: those under way, and those that wait for another try."""

    def __init__(
        self,
        node: NodeId,
        replicas: Replicas,
        groups: GroupCoordinators,
        image: Callable[[], ClusterImage],
        far: FarMarkers,
        *,
        clock: Clock,
        timers: Timers,
        registry: Registry,
    ) -> None:
        """``image`` is the cluster as this broker acts on it."""
        self.inquiries = Inquiries()
        self._node = node
        self._replicas = replicas
        self._groups = groups
        self._image = image
        self._far = far
        self._clock = clock
        self._timers = timers
        self._far_again = 0
        self._last_failure: _Failure | None = None
        self._failed: deque[_Failure] = deque()
        self._round: deque[_Failure] = deque()
        self._delay_s = _RETRY_S
        self._timer: Timer | None = None
        self._count = registry.counter(
            "waystation_transaction_markers_total", "Markers written to end transactions."
        )
        registry.computed(
            "waystation_transaction_markers_waiting",
            "Markers that could not be written yet and are tried again.",
            "gauge",
            lambda: [({}, self._waiting)],
        )

    # --- one marker ---------------------------------------------------------------------------

    def write(self, name: TopicPartition, marker: Marker, told: Told) -> None:
        """Write a marker here; ``told`` hears of it once it is committed, or at once why not.

        HOT: once per partition of every transaction.
        """
        try:
            if name.topic == OFFSETS_TOPIC:
                self._write_to_groups(name.partition, marker, told)
            else:
                self._write_to_log(name, marker, told)
        except WaystationError as error:
            told(error)

    def _write_to_log(self, name: TopicPartition, marker: Marker, told: Told) -> None:
        partition = self._replicas.get(name.topic, name.partition)
        appended = partition.append_marker(marker, self._clock.now())
        self.inquiries.ended(marker.producer_id)
        self._count.value += 1
        if partition.when_committed(Offset(appended.last_offset + 1), told):
            told(None)

    def _write_to_groups(self, number: int, marker: Marker, told: Told) -> None:
        host = self._groups.host_at(number)

        def to(answer: object) -> None:
            told(answer if isinstance(answer, WaystationError) else None)

        host.submit(lambda now: host.machine.end_transaction(now, marker, to), to)
        self._count.value += 1

    # --- a coordinator's decision ---------------------------------------------------------------

    def carry_out(self, ended: Ended) -> None:
        """Write all markers of a transaction, and go on until they are."""
        if not ended.left:
            ended.written()
            return
        for name in list(ended.left):
            self._try(ended, name, again=False)

    def _try(self, ended: Ended, name: TopicPartition, *, again: bool) -> None:
        leader = self._leader_of(name)
        if leader is None or leader == self._node:
            self.write(name, ended.marker, partial(self._told, ended, name))
        else:
            self._far_again += again
            told = partial(self._told_from_far, ended, name, again)
            self._far.write(leader, name, ended.marker, told, again=again)

    def _told_from_far(
        self, ended: Ended, name: TopicPartition, again: bool, error: WaystationError | None
    ) -> None:
        self._far_again -= again
        self._told(ended, name, error)
        if not self._is_behind:
            self._delay_s = _RETRY_S

    def _leader_of(self, name: TopicPartition) -> NodeId | None:
        topic = self._image().topics.get(name.topic)
        if topic is None or name.partition >= len(topic.partitions):
            return None
        return topic.partitions[name.partition].leader

    def _told(self, ended: Ended, name: TopicPartition, error: WaystationError | None) -> None:
        if error is not None and not self._is_moot(ended, name, error):
            self._put_off(ended, name, error)
            return
        ended.left.pop(name, None)
        if not ended.left:
            ended.written()

    def _is_moot(self, ended: Ended, name: TopicPartition, error: WaystationError) -> bool:
        """Whether there is nothing to end where the marker was refused."""
        topic = self._image().topics.get(name.topic)
        if topic is None or name.partition >= len(topic.partitions):
            return True
        if error.code == ErrorCode.INVALID_PRODUCER_EPOCH:
            _events.warning(
                "marker.outdated",
                partition=str(name),
                producer_id=ended.marker.producer_id,
                epoch=ended.marker.producer_epoch,
                reason=str(error),
            )
            return True
        return False

    async def aclose(self) -> None:
        """Write nothing more."""
        await self._far.aclose()

    # --- trying again ---------------------------------------------------------------------------

    def try_now(self) -> None:
        """The cluster has changed: what could not be written may be written now."""
        self._delay_s = _RETRY_S
        if self._failed:
            self._arm(0.0)

    def _put_off(self, ended: Ended, name: TopicPartition, error: WaystationError) -> None:
        if not ended.wanted():
            return
        self._last_failure = (ended, name, error)
        self._failed.append(self._last_failure)
        if self._timer is None:
            self._arm(self._delay_s)

    def _arm(self, delay_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._timers.call_later(delay_s, self._again)

    def _again(self) -> None:
        """Try a part of what failed; the timer is set for the rest, or for the next round."""
        if not self._round:
            self._round, self._failed = self._failed, deque()
        for _ in range(min(len(self._round), _TRIED_PER_TURN)):
            ended, name, _ = self._round.popleft()
            if ended.wanted():
                self._try(ended, name, again=True)
        self._timer = None
        if self._round:
            self._arm(0.0)
        elif not self._is_behind:
            self._delay_s = _RETRY_S
        else:
            self._wait_longer()
            if self._failed:
                self._arm(self._delay_s)

    @property
    def _is_behind(self) -> bool:
        """Whether something has failed and is not written yet, as far as is known."""
        return self._waiting > 0

    @property
    def _waiting(self) -> int:
        return len(self._failed) + len(self._round) + self._far_again

    def _wait_longer(self) -> None:
        before, self._delay_s = self._delay_s, min(2 * self._delay_s, _RETRY_MAX_S)
        if before < self._delay_s == _RETRY_MAX_S and self._last_failure is not None:
            _, name, error = self._last_failure
            _events.warning(
                "markers.waiting", markers=self._waiting, partition=str(name), reason=str(error)
            )
