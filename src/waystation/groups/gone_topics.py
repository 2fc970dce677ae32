"""Offsets of topics that are gone, also if another topic has taken the name.

A topic id is one life of a topic.  An offset that was committed in a former life says nothing
about the present one, and a group that went on from it would skip records.  A topic that was
never seen, though, may be one that this broker has yet to hear of: its offsets stay.
"""

from collections.abc import Sequence

from waystation.groups.commands import TopicsSeen
from waystation.groups.offsets import Offsets
from waystation.groups.records import OffsetForgotten
from waystation.model.ids import NO_TOPIC_ID, TopicId


class GoneTopics:
    """Holds the topics that offsets are of against those that there are."""

    __slots__ = ("_offsets", "_seen", "_topics", "_version")

    def __init__(self, offsets: Offsets, topics: TopicsSeen) -> None:
        self._offsets, self._topics = offsets, topics
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
            for name, ids in list(self._offsets.topics())
            for forgotten in self._of_ids(name, self._gone(name, ids))
        ]

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
        forgotten = [
            OffsetForgotten(group_id, name, position.partition)
            for group_id, position in self._offsets.in_topic(name)
            if position.topic_id in gone
        ]
        for topic_id in gone:
            self._offsets.drop_id(name, topic_id)
        return forgotten
