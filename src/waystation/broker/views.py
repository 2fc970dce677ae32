"""The views that this broker can answer for: whose partitions they read, and what is known of them.

A view partition is the partition of its topic that this broker holds, a compiled expression, and
the stretches in which nothing matches, as far as anybody looked.  All of it can be found out again,
so nothing is stored: a restart, or another leader, begins without it.

Stretches are forgotten when the leader's epoch changes.  Only committed messages are looked at, but
where an unclean election took some of them back, others stand at their offsets now.
"""

from collections.abc import Callable
from typing import Final

from waystation.broker.replicas import Replicas
from waystation.cluster.image import ClusterImage
from waystation.cluster.parts import ViewImage
from waystation.filters.gaps import Gaps
from waystation.filters.narrowing import Narrowing
from waystation.filters.selecting import Filter
from waystation.model.errors import WaystationError
from waystation.model.ids import NO_TOPIC_ID, TopicId
from waystation.partition.partition import Partition
from waystation.telemetry.metrics import Registry

_SLICE_S: Final = 0.001
_SLOW_S: Final = 0.003
_WINDOW_BYTES: Final = 128 << 10
_WINDOW_BYTES_LEAST: Final = 16 << 10
_WINDOW_BYTES_MOST: Final = 1 << 20


class ViewMeter:
    """What was looked at for the sake of views, and what came of it."""

    __slots__ = ("matched_records", "scanned_bytes", "scanned_records")

    def __init__(self, registry: Registry) -> None:
        self.scanned_bytes = registry.counter(
            "waystation_view_scanned_bytes_total", "Bytes of batches that views were read from."
        )
        self.scanned_records = registry.counter(
            "waystation_view_scanned_records_total", "Records that were looked at for views."
        )
        self.matched_records = registry.counter(
            "waystation_view_matched_records_total", "Those of them that matched."
        )


class ViewPartition:
    """One partition of a view, while this broker holds the partition it reads."""

    __slots__ = (
        "_chosen",
        "_epoch",
        "_gaps",
        "base",
        "is_slow",
        "meter",
        "narrowing",
        "window_bytes",
    )

    def __init__(self, base: Partition, chosen: Filter, meter: ViewMeter) -> None:
        self.base = base
        self.meter = meter
        self.narrowing = Narrowing(chosen, base.name.partition)
        self.window_bytes = _WINDOW_BYTES
        """How much to look through at once, so that it takes about a millisecond."""
        self.is_slow = False
        """Whether even little takes long: in a thread it holds up nobody."""
        self._chosen = chosen
        self._gaps, self._epoch = Gaps(), base.leadership.epoch

    @property
    def gaps(self) -> Gaps:
        """Where nothing matches in the log as this leader's epoch has it."""
        epoch = self.base.leadership.epoch
        if epoch != self._epoch:
            self._gaps, self._epoch = Gaps(), epoch
        self._gaps.forget_before(self.base.log.log_start)
        return self._gaps

    def another_narrowing(self) -> Narrowing:
        """One that a thread has to itself."""
        return Narrowing(self._chosen, self.base.name.partition)

    def adjust(self, took_s: float, nbytes: int) -> None:
        """A slice of ``nbytes`` took so long: let the next one be about right."""
        is_one_batch = nbytes > self.window_bytes
        smallest = is_one_batch or self.window_bytes == _WINDOW_BYTES_LEAST
        self.is_slow = smallest and took_s > _SLOW_S
        if is_one_batch:
            return
        if took_s > 1.5 * _SLICE_S:
            self.window_bytes = max(self.window_bytes // 2, _WINDOW_BYTES_LEAST)
        elif took_s < 0.5 * _SLICE_S and 2 * nbytes > self.window_bytes:
            self.window_bytes = min(self.window_bytes * 2, _WINDOW_BYTES_MOST)


class Views:
    """Finds what a reader of a view reads."""

    __slots__ = ("_filters", "_image", "_meter", "_parts", "_replicas")

    def __init__(
        self, image: Callable[[], ClusterImage], replicas: Replicas, registry: Registry
    ) -> None:
        self._image = image
        self._replicas = replicas
        self._meter = ViewMeter(registry)
        self._filters: dict[TopicId, Filter] = {}
        self._parts: dict[tuple[TopicId, int], ViewPartition] = {}

    def named(self, topic: str, topic_id: TopicId = NO_TOPIC_ID) -> ViewImage | None:
        """The view of that name, or of that id where no name is given."""
        image = self._image()
        return image.views.get(topic) if topic else image.views_by_id.get(topic_id)

    @property
    def are_there(self) -> bool:
        """Whether the cluster has any."""
        return bool(self._image().views)

    def partition(self, view: ViewImage, number: int) -> ViewPartition | WaystationError:
        """What to read, or why that is not to be had here."""
        base = self._replicas.find("", number, view.on_id)
        if base is None:
            return self._replicas.unknown("", number, view.on_id)
        known = self._parts.get((view.id, number))
        if known is None or known.base is not base:
            try:
                known = ViewPartition(base, self._filter(view), self._meter)
            except WaystationError as error:  # written by another version
                return error
            self._parts[view.id, number] = known
        return known

    def follow(self, image: ClusterImage) -> None:
        """Forget views that are gone, and partitions that others hold."""
        if not self._parts and not self._filters:
            return
        views = image.views_by_id
        self._filters = {one: chosen for one, chosen in self._filters.items() if one in views}
        self._parts = {
            (one, number): part
            for (one, number), part in self._parts.items()
            if one in views and self._replicas.find("", number, views[one].on_id) is part.base
        }

    def _filter(self, view: ViewImage) -> Filter:
        known = self._filters.get(view.id)
        if known is None:
            known = self._filters[view.id] = Filter(view.where)
        return known
