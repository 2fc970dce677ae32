"""Shows how far streams have come as the offsets of groups, at the moment they have.

A stream with ``groupId`` publishes what it has finished when Spark asks it for more, which is
one trigger late and not at all after the last batch of a query that was stopped.  A listener
hears of every batch as it ends::

    publish_progress(spark)

Where a stream goes on is decided by its checkpoint alone, so that nothing depends on this.
"""

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import UUID
from weakref import WeakKeyDictionary

from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from waystation.model.errors import WaystationError
from waystation.spark.brokers import Brokers
from waystation.spark.offsets import offsets_of
from waystation.spark.options import ReadOptions, parse_options
from waystation.telemetry.logs import get_logger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["ProgressPublisher", "publish_progress"]

_events = get_logger("spark")


def publish_progress(spark: "SparkSession") -> "ProgressPublisher":
    """Publish the progress of this session's streams from now on; once, however often it is asked.

    ``spark.streams.removeListener`` ends it.
    """
    found = _PUBLISHERS.get(spark)
    if found is None:
        found = _PUBLISHERS[spark] = ProgressPublisher(spark)
        spark.streams.addListener(found)
    return found


class ProgressPublisher(StreamingQueryListener):
    """Tells a group how far its stream has come, after every batch and at the end."""

    def __init__(self, spark: "SparkSession") -> None:
        self._streams = spark.streams
        self._sources: dict[UUID, dict[str, ReadOptions]] = {}
        self._unpublished: dict[tuple[UUID, str], str] = {}
        self._published: dict[tuple[UUID, str], str] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Spark plans the query after this."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """A batch has ended, or there was none to run."""
        run = event.progress.runId
        for source in event.progress.sources:
            if source.endOffset and source.description in self._sources_of(run, event):
                self._unpublished[run, source.description] = source.endOffset
        self._publish(run)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Try once more what could not be published, then forget the query."""
        self._publish(event.runId)
        self._sources.pop(event.runId, None)
        for known in (self._unpublished, self._published):
            for one in [one for one in known if one[0] == event.runId]:
                del known[one]

    def _publish(self, run: UUID) -> None:
        for where, text in list(self._unpublished.items()):
            if where[0] != run or self._published.get(where) == text:
                continue
            try:
                with Brokers(self._sources[run][where[1]]) as brokers:
                    brokers.publish(offsets_of(json.loads(text)))
            except WaystationError as error:
                _events.warning("progress.unpublished", run=str(run), error=str(error))
            else:
                self._published[where] = text

    def _sources_of(self, run: UUID, event: QueryProgressEvent) -> dict[str, ReadOptions]:
        """The query's sources that publish, by the words in which Spark describes them."""
        if run not in self._sources:
            query: Any = self._streams.get(str(event.progress.id))
            try:
                self._sources[run] = {} if query is None else dict(_publishing(query))
            except Exception as error:  # a Spark that keeps its plans elsewhere
                _events.warning("progress.without_options", run=str(run), error=str(error))
                self._sources[run] = {}
        return self._sources[run]


_PUBLISHERS: "WeakKeyDictionary[SparkSession, ProgressPublisher]" = WeakKeyDictionary()


def _publishing(query: Any) -> "list[tuple[str, ReadOptions]]":
    """Sources of ours that have a group.  Spark tells their options only in the query's plan."""
    found = []
    leaves = query._jsq.streamingQuery().logicalPlan().collectLeaves()
    for number in range(leaves.size()):
        leaf = leaves.apply(number)
        if leaf.nodeName() != "StreamingDataSourceV2ScanRelation":
            continue
        said = leaf.relation().options().asCaseSensitiveMap()
        try:
            options = parse_options({name: said[name] for name in said}, stream=True)
        except WaystationError:
            continue  # somebody else's
        if options.group_id:
            # Other listeners wait for this one, so it gives up soon.
            hasty = replace(options, client={**options.client, "max.block.ms": "5000"})
            found.append((leaf.stream().toString(), hasty))
    return found
