"""What groups there are and how far they lag, worked out now and then for whoever scrapes.

The lag of a group in a partition is what it has not committed of what can be read there: a number
of messages, and the age of the oldest of them, which tells how late the group is whatever the
rate.  The number is one of offsets, as Kafka's tools have it: the marker of a transaction counts
too.  The age does not: where nothing but markers is left, nobody is late.

1. A survey never holds up the loop for longer than a slice, and takes a twentieth of its time at
   most: with many offsets it comes less often.
2. At most ``LISTED_MAX`` lags are told one by one, the largest, and the number of the others.
3. Of a partition without a replica here only the number is told, by its leader's word, and from
   the second survey on that finds offsets of it.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from heapq import heappush, heappushpop
from typing import Final, NamedTuple

from waystation.broker.far_ends import Ends, FarEnds
from waystation.broker.replicas import Replicas
from waystation.groups.machine import Groups
from waystation.model.errors import WaystationError
from waystation.model.ids import TopicPartition
from waystation.model.offsets import NO_TIMESTAMP, Millis, Offset
from waystation.records.batch import rows_of
from waystation.records.header import BatchHeader, Buffer, batches
from waystation.runtime.clock import Clock
from waystation.runtime.regions import FileRegion
from waystation.runtime.replay import replay, sliced
from waystation.telemetry.logs import get_logger
from waystation.telemetry.metrics import Reading, Registry

LISTED_MAX: Final = 1_000

_EVERY_S = 5.0
_SHARE = 20
_READ_AT_ONCE = 50
# Some fifty of them: behind more in a row the last one's time stands for the message's.
_MARKERS_BYTES = 4_096
# How many partitions' leaders are asked about.
_AWAY_MAX = 10_000
_events = get_logger("coordinator")

Place = tuple[str, str, int, int]
"""Group, topic, partition, committed offset."""


class Lag(NamedTuple):
    """How far a group is behind in one partition."""

    messages: int
    place: Place
    since: Millis | None = None
    """When the oldest message was written; -1 if there is none, ``None`` if it is not known."""


class _Look(NamedTuple):
    """What is at the offset that a group has got to, and where what can be read ends."""

    offset: Offset
    end: Offset
    region: FileRegion


class GroupSurvey:
    """Looks at all machines of a broker in turn, and remembers what it saw."""

    def __init__(
        self,
        machines: Callable[[], Sequence[Groups]],
        loading: Callable[[], int],
        replicas: Replicas,
        elsewhere: FarEnds,
        clock: Clock,
        registry: Registry,
        *,
        listed_max: int = LISTED_MAX,
    ) -> None:
        self._machines = machines
        self._loading = loading
        self._replicas = replicas
        self._elsewhere = elsewhere
        self._clock = clock
        self._listed_max = listed_max
        self._states: Counter[tuple[str, str]] = Counter()
        self._members = self._offsets = self._unlisted = 0
        self._lags: list[Lag] = []
        self._away: set[TopicPartition] = set()
        self._show(registry)

    async def run(self) -> None:
        """Go on until cancelled."""
        pause_s = _EVERY_S
        while True:
            await asyncio.sleep(pause_s)
            if self._loading():
                continue
            began_s = self._clock.monotonic()
            try:
                await self.look()
            except Exception as error:  # the outermost frame of this task
                _events.error("survey.failed", exc_info=error)
            pause_s = max(_EVERY_S, (self._clock.monotonic() - began_s) * _SHARE)

    async def look(self) -> None:
        """Take one survey."""
        states: Counter[tuple[str, str]] = Counter()
        members = 0
        ends = await self._elsewhere.ask(self._away) if self._away else {}
        found = _Furthest(self._replicas, ends, self._listed_max)
        for machine in self._machines():
            for one in machine.list():
                states[one.kind, one.state] += 1
                members += one.members
            await asyncio.sleep(0)
            try:
                await replay(sliced(machine.committed_offsets()), found.note, self._clock)
            except RuntimeError:
                # A group came or went meanwhile; the next survey counts the rest.
                continue
        self._lags = await self._dated(found.lags)
        self._away = found.away
        self._states, self._members = states, members
        self._offsets, self._unlisted = found.count, found.left_out

    async def _dated(self, lags: list[Lag]) -> list[Lag]:
        """Find the times of the oldest unprocessed messages, unless they are known from before."""
        known: dict[Place, Millis | None] = {
            lag.place: lag.since for lag in self._lags if lag.since not in (None, NO_TIMESTAMP)
        }
        behind = [lag for lag in lags if lag.messages and lag.place not in known]
        for at in range(0, len(behind), _READ_AT_ONCE):
            some = behind[at : at + _READ_AT_ONCE]
            regions = [self._region(lag.place) for lag in some]
            times = await asyncio.to_thread(_times, regions)
            known.update(zip((lag.place for lag in some), times, strict=True))
        return [lag._replace(since=known.get(lag.place) if lag.messages else None) for lag in lags]

    def _region(self, place: Place) -> _Look | None:
        """The batch that holds the first message the group has not processed, or markers first."""
        _, topic, number, committed = place
        partition = self._replicas.find_source(topic, number)
        if partition is None:
            return None
        offset = max(Offset(committed), partition.log.log_start)
        try:
            region = partition.read(offset, _MARKERS_BYTES, at_least_one=True).region
        except WaystationError:
            return None
        return None if region is None else _Look(offset, partition.high_watermark, region)

    # --- metrics --------------------------------------------------------------------------------

    def _show(self, registry: Registry) -> None:
        def one(name: str, doc: str, read: Callable[[], float]) -> None:
            registry.computed(name, doc, "gauge", lambda: [({}, read())])

        registry.computed(
            "waystation_groups", "Groups that this broker coordinates.", "gauge", self._by_state
        )
        one("waystation_group_members", "Members of those groups.", lambda: self._members)
        one("waystation_group_offsets", "Offsets that they have committed.", lambda: self._offsets)
        one(
            "waystation_group_partitions_loading",
            "Partitions of __consumer_offsets that are led here and not loaded yet.",
            self._loading,
        )
        one(
            "waystation_group_lags_unlisted",
            "Lags that are not told one by one, for there are too many.",
            lambda: self._unlisted,
        )
        registry.computed(
            "waystation_group_lag_messages",
            "Messages that a group has not committed.",
            "gauge",
            lambda: [(_labels(lag), lag.messages) for lag in self._lags],
        )
        registry.computed(
            "waystation_group_lag_seconds",
            "Age of the oldest of those messages.",
            "gauge",
            self._seconds,
        )

    def _by_state(self) -> Reading:
        return [
            ({"kind": kind, "state": state}, count) for (kind, state), count in self._states.items()
        ]

    def _seconds(self) -> Reading:
        now = self._clock.now()
        for lag in self._lags:
            if lag.messages == 0 or lag.since == NO_TIMESTAMP:
                yield _labels(lag), 0.0
            elif lag.since is not None:
                yield _labels(lag), max(0, now - lag.since) / 1_000


class _Furthest:
    """Keeps the largest lags of those it is shown."""

    def __init__(self, replicas: Replicas, ends: Ends, limit: int) -> None:
        self._replicas = replicas
        self._ends = ends
        self._limit = limit
        self.away: set[TopicPartition] = set()
        """Partitions without a replica here."""
        self._heap: list[Lag] = []
        self.count = self.left_out = 0

    @property
    def lags(self) -> list[Lag]:
        """The largest first."""
        return sorted(self._heap, reverse=True)

    def note(self, place: Place) -> None:
        """Look at one committed offset.

        HOT: once per committed offset and survey.
        """
        self.count += 1
        partition = self._replicas.find_source(place[1], place[2])
        end = self._end_elsewhere(place) if partition is None else partition.high_watermark
        if end is None:
            return
        lag = Lag(max(0, end - place[3]), place)
        if len(self._heap) < self._limit:
            heappush(self._heap, lag)
        else:
            heappushpop(self._heap, lag)
            self.left_out += 1

    def _end_elsewhere(self, place: Place) -> Offset | None:
        name = TopicPartition(place[1], place[2])
        if len(self.away) < _AWAY_MAX:
            self.away.add(name)
        return self._ends.get(name)


def _labels(lag: Lag) -> dict[str, str]:
    group, topic, partition, _ = lag.place
    return {"group": group, "topic": topic, "partition": str(partition)}


def _times(looks: Iterable[_Look | None]) -> list[Millis | None]:
    """When the messages at those offsets were written; runs in a thread."""
    return [None if look is None else _time(look) for look in looks]


def _time(look: _Look) -> Millis | None:
    try:
        data, marked_at = look.region.read(), NO_TIMESTAMP
        for at, header in batches(data):
            if not header.is_control:
                return _time_in(data, at, header, look.offset)
            marked_at = NO_TIMESTAMP if header.next_offset >= look.end else header.max_timestamp
        return marked_at
    except (WaystationError, OSError):
        return None


def _time_in(data: Buffer, at: int, header: BatchHeader, offset: Offset) -> Millis:
    if header.base_timestamp == header.max_timestamp:
        return header.max_timestamp
    written = (row[1] for row in rows_of(data, at) if row[0] >= offset)
    return Millis(next(written, header.max_timestamp))
