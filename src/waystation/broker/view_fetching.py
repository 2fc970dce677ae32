"""A fetch that reads views, among other topics or alone.

It ends as any other (``fetching.py``), with these differences:

1. what counts for ``min_bytes`` are matches; that a stretch holds none is told when the time is up,
   or along with something else, so that a quiet view costs no more answers than a quiet topic;
2. while there is more to look at and the answer is worth waiting for, it waits;
3. a reader always gets on: if the time is up before anything was looked at, the fetch ends with the
   first slice.
"""

from collections.abc import Callable, Sequence

from waystation.broker.fetching import Fetch, Found, Limits, Polls, Wanted, is_urgent, read_one
from waystation.broker.replicas import Replicas
from waystation.broker.scanning import Scanner
from waystation.broker.view_reading import Reading
from waystation.broker.views import Views
from waystation.model.errors import WaystationError
from waystation.runtime.timers import Timers


class ViewFetch(Fetch):
    """Looks through logs for as long as it waits."""

    __slots__ = ("_readings", "_refusals", "_scanner", "_time_is_up")

    def __init__(
        self,
        replicas: Replicas,
        wanted: Sequence[Wanted],
        limits: Limits,
        done: Callable[[list[Found]], None],
        *,
        timers: Timers,
        polls: Polls,
        views: Views,
        scanner: Scanner,
    ) -> None:
        super().__init__(replicas, wanted, limits, done, timers=timers, polls=polls)
        self._scanner = scanner
        self._time_is_up = False
        self._readings: dict[Wanted, Reading] = {}
        self._refusals: dict[Wanted, WaystationError] = {}
        for one in wanted:
            view = views.named(one.topic, one.topic_id)
            if view is None:
                continue
            part = views.partition(view, one.partition)
            if isinstance(part, WaystationError):
                self._refusals[one] = part
            else:
                self._readings[one] = Reading(part, one, limits, self._retry)
        # Who waits for a view waits for what it reads.
        self._pairs = [
            (one, self._readings[one].part.base if one in self._readings else partition)
            for one, partition in self._pairs
        ]

    def start(self) -> None:
        """Answer at once if that is possible, otherwise look, and wait."""
        found, enough = self._read()
        if enough or (self._limits.max_wait_ms <= 0 and not self._must_look):
            self._end(found)
        else:
            self._wait()

    @property
    def _must_look(self) -> bool:
        """Whether an answer now would leave all readers where they are, though there is more."""
        readings = self._readings.values()
        return any(one.running for one in readings) and not any(one.has_moved for one in readings)

    def _retry(self) -> None:
        if self._ended:
            return
        found, enough = self._read()
        if enough or (self._time_is_up and not self._must_look):
            self._end(found)

    def _run_out(self) -> None:
        self._time_is_up = True
        for one in self._readings.values():
            one.is_hurried = True
        self._retry()

    def _stop_waiting(self) -> None:
        super()._stop_waiting()
        for one in self._readings.values():
            one.given_up = True
        # They know this fetch: left to the collector, megabytes would wait for it.
        self._readings = {}

    def _read(self) -> tuple[list[Found], bool]:
        """What there is, and whether that is enough; if not, more is looked for."""
        left, total, urgent = self._limits.max_bytes, 0, not self._pairs
        found = []
        for one, partition in self._pairs:
            reading = self._readings.get(one)
            if reading is not None:
                result = reading.found(left, at_least_one=total == 0)
                matched = min(reading.nbytes, result.nbytes)
            elif partition is not None:
                result = read_one(one, partition, left, self._limits, at_least_one=total == 0)
                matched = result.nbytes
            else:
                unknown = self._refusals.get(one)
                if unknown is None:
                    unknown = self._replicas.unknown(one.topic, one.partition, one.topic_id)
                result, matched = Found(one, unknown), 0
            found.append(result)
            total += matched
            left -= result.nbytes
            urgent = urgent or is_urgent(result)
        enough = urgent or self._is_enough(total)
        if not enough:
            self._look(further=total < self._limits.min_bytes)
        return found, enough

    def _is_enough(self, total: int) -> bool:
        readings = self._readings.values()
        if total < self._limits.min_bytes:
            return any(one.is_full for one in readings)
        return not any(one.goes_on for one in readings)

    def _look(self, *, further: bool) -> None:
        for one in self._readings.values():
            if further and not one.running:
                one.look_further()
            if one.goes_on:
                self._scanner.start(one)
