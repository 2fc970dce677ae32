"""Offsets of topics that are gone, also if another topic has taken the name.

A topic id is one life of a topic.  An offset that was committed in a former life says nothing
about the present one, and a group that went on from it would skip records.  That goes for offsets
whose transaction is still open too.  A topic that was never seen, though, may be one that this
broker has yet to hear of: its offsets stay.
"""

from collections.abc import Iterator, Sequence

from waystation.groups.commands import TopicsSeen
from waystation.groups.offsets import Offsets
from waystation.groups.pending import Pending
from waystation.groups.records import OffsetForgotten
from waystation.model.ids import NO_TOPIC_ID, TopicId


class GoneTopics:
    """Holds the topics that offsets are of against those that there are."""

    __slots__ = ("_offsets", "_pending", "_seen", "_topics", "_version")

    def __init__(self, offsets: Offsets, pending: Pending, topics: TopicsSeen) -> None:
        self._offsets, self._pending, self._topics = offsets, pending, topics
        self._seen: dict[str, None] = {}
        self._version = -1

    def current_id(self, name: str) -> TopicId:
        """The id under which an offset of the topic is committed now."""
        topic = self._topics.named(name)
        if topic is None:
            return NO_TOPIC_ID
        self._seen[name] = None
        return topic.id

    def offsets_to_forget(self) -> list[OffsetForgotten]:
        """The offsets of what has gone since this was last asked."""
        if self._topics.version == self._version:
            return []
        self._version = self._topics.version
        return [
            forgotten
            for name, ids in self._named().items()
            for forgotten in self._of_ids(name, self._gone(name, list(ids)))
        ]

    def _named(self) -> dict[str, dict[TopicId, None]]:
        """The topics that offsets are of, and the ids they had."""
        named = {name: dict.fromkeys(ids) for name, ids in self._offsets.topics()}
        for record in self._pending.all():
            ids = named.setdefault(record.topic, {})
            if record.topic_id != NO_TOPIC_ID:
                ids[record.topic_id] = None
        return named

    def _gone(self, name: str, ids: Sequence[TopicId]) -> list[TopicId]:
        """The former lives among ``ids``."""
        was_seen = name in self._seen
        current = self.current_id(name)
        if current != NO_TOPIC_ID:
            return [topic_id for topic_id in ids if topic_id != current]
        if not was_seen:
            return []
        del self._seen[name]
        return [*ids, NO_TOPIC_ID]

    def _of_ids(self, name: str, gone: Sequence[TopicId]) -> list[OffsetForgotten]:
        if not gone:
            return []
        forgotten = dict.fromkeys(self._in_topic(name, gone))
        for topic_id in gone:
            self._offsets.drop_id(name, topic_id)
        return list(forgotten)

    def _in_topic(self, name: str, gone: Sequence[TopicId]) -> Iterator[OffsetForgotten]:
        for group_id, position in self._offsets.in_topic(name):
            if position.topic_id in gone:
                yield OffsetForgotten(group_id, name, position.partition)
        for record in self._pending.all():
            if record.topic == name and record.topic_id in gone:
                yield OffsetForgotten(record.group_id, name, record.partition)
