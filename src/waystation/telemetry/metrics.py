"""Numbers that a running node keeps about itself.

A metric is an object with a slot that is bumped in place: no lock, no look-up, no label parsing
on the way (benchmarks/telemetry/metrics.py).  Its labels are fixed when it is made, so the owner
keeps one object per label set.  All of it belongs to the loop's thread; ``Registry.snapshot``
copies the values there, and ``exposition.py`` makes text of the copy elsewhere.

Two promises:

1. asking twice for the same name and labels gives the same metric;
2. a histogram's quantile lies within one bucket, a factor of ``2 ** 0.25``, of the true one, as
   long as the values lie within the histogram's range.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from typing import Literal, NamedTuple, TypeVar, cast

Kind = Literal["counter", "gauge", "histogram"]
Labels = tuple[tuple[str, str], ...]
Reading = Iterable[tuple[Mapping[str, str], float]]

_STEPS_PER_OCTAVE = 4


class Counter:
    """A sum that only grows."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0

    def add(self, amount: float = 1) -> None:
        """Count ``amount`` more.  HOT: several times per request."""
        self.value += amount


class Gauge:
    """A level that goes up and down."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0

    def set(self, value: float) -> None:
        """The level is ``value`` now."""
        self.value = value

    def add(self, amount: float = 1) -> None:
        """The level rises by ``amount``, or falls by a negative one."""
        self.value += amount


class Histogram:
    """How often values fell between log-spaced bounds, four of them to every doubling.

    Values at or below ``low`` share the first bucket, those above ``high`` the last.
    """

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, low: float, high: float) -> None:
        assert 0 < low < high, f"a histogram from {low} to {high}"
        steps = math.ceil(math.log2(high / low) * _STEPS_PER_OCTAVE)
        self.bounds = tuple(low * 2 ** (step / _STEPS_PER_OCTAVE) for step in range(steps + 1))
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Note one value.  HOT: once per request or sync."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        """How many values were noted."""
        return sum(self.counts)


class Sample(NamedTuple):
    """One value, or one histogram's state, as it was when the snapshot was taken."""

    labels: Labels
    value: float
    buckets: tuple[tuple[float, int], ...] = ()
    """Of a histogram: how many values lie at or below each bound; ``value`` is their sum."""


class Family(NamedTuple):
    """All metrics of one name."""

    name: str
    kind: Kind
    doc: str
    samples: list[Sample]


Metric = Counter | Gauge | Histogram
M = TypeVar("M", Counter, Gauge, Histogram)


class _Shelf(NamedTuple):
    kind: Kind
    doc: str
    metrics: dict[Labels, Metric]
    readings: list[Callable[[], Reading]]


class Registry:
    """Every metric of one node; made by the composition root and handed down."""

    __slots__ = ("_shelves",)

    def __init__(self) -> None:
        self._shelves: dict[str, _Shelf] = {}

    def counter(self, name: str, doc: str, **labels: str) -> Counter:
        """The counter of this name and these labels; the name ends in ``_total``."""
        assert name.endswith("_total"), f"counter {name} does not end in _total"
        return self._metric("counter", name, doc, labels, Counter)

    def gauge(self, name: str, doc: str, **labels: str) -> Gauge:
        """The gauge of this name and these labels."""
        return self._metric("gauge", name, doc, labels, Gauge)

    def histogram(
        self, name: str, doc: str, *, low: float = 1e-6, high: float = 64.0, **labels: str
    ) -> Histogram:
        """The histogram of this name and these labels; the default range suits seconds."""
        return self._metric("histogram", name, doc, labels, lambda: Histogram(low, high))

    def computed(self, name: str, doc: str, kind: Kind, read: Callable[[], Reading]) -> None:
        """Values that ``read`` works out when asked, for what is known elsewhere anyway."""
        self._shelf(kind, name, doc).readings.append(read)

    def forget(self, name: str, **labels: str) -> None:
        """Drop a metric whose subject is gone, such as a deleted partition."""
        shelf = self._shelves.get(name)
        if shelf is not None:
            shelf.metrics.pop(_key(labels), None)

    def snapshot(self) -> list[Family]:
        """The values of now, by name; safe to read on another thread."""
        return [
            Family(name, shelf.kind, shelf.doc, _samples(shelf))
            for name, shelf in sorted(self._shelves.items())
        ]

    def _metric(
        self, kind: Kind, name: str, doc: str, labels: Mapping[str, str], make: Callable[[], M]
    ) -> M:
        metrics = self._shelf(kind, name, doc).metrics
        key = _key(labels)
        known = metrics.get(key)
        if known is None:
            known = metrics[key] = make()
        return cast(M, known)

    def _shelf(self, kind: Kind, name: str, doc: str) -> _Shelf:
        shelf = self._shelves.setdefault(name, _Shelf(kind, doc, {}, []))
        assert shelf.kind == kind, f"{name} is a {shelf.kind}, not a {kind}"
        return shelf


def _key(labels: Mapping[str, str]) -> Labels:
    return tuple(sorted(labels.items()))


def _samples(shelf: _Shelf) -> list[Sample]:
    samples = [_sample(labels, metric) for labels, metric in shelf.metrics.items()]
    for read in shelf.readings:
        samples += [Sample(_key(labels), value) for labels, value in read()]
    return samples


def _sample(labels: Labels, metric: Metric) -> Sample:
    if isinstance(metric, Histogram):
        return Sample(labels, metric.sum, tuple(_cumulated(metric)))
    return Sample(labels, metric.value)


def _cumulated(histogram: Histogram) -> Iterable[tuple[float, int]]:
    """One bound per doubling: the finer ones serve quantiles here, not a scraper's disk."""
    seen = 0
    for step, (bound, count) in enumerate(zip(histogram.bounds, histogram.counts, strict=False)):
        seen += count
        if step % _STEPS_PER_OCTAVE == 0:
            yield bound, seen
    yield math.inf, histogram.count
