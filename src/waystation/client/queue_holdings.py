"""What a session holds of which partitions, and how the leader calls them.

A partition that is not read any more stays known: what is held of it is still to be settled.
"""

from collections.abc import Mapping

from waystation.client.queue_lease import Hold, Settler
from waystation.client.queue_requests import Place, Places
from waystation.client.queue_settling import Batch
from waystation.model.ids import TopicPartition
from waystation.model.offsets import Offset
from waystation.sharing.states import RELEASE, RENEW

__all__ = ["Holdings"]


class Holdings:
    """Begun anew with every session."""

    __slots__ = ("_holds", "_known", "_session")

    def __init__(self, session: Settler) -> None:
        self._session = session
        self._holds: dict[TopicPartition, Hold] = {}
        self._known: dict[TopicPartition, Place] = {}

    def reads(self, partitions: Mapping[Place, TopicPartition]) -> None:
        """These are read from now on; one of a topic that was made anew is another one."""
        for place, where in partitions.items():
            if self._known.get(where, place) != place:
                self.let_go(where, f"topic {where.topic} was deleted and made anew")
            self._known[where] = place

    def of(self, where: TopicPartition) -> Hold:
        """All that is held of a partition."""
        hold = self._holds.get(where)
        if hold is None:
            topic_id, _ = self._known[where]
            hold = self._holds[where] = Hold(self._session, where, topic_id)
        return hold

    def answered(self, batch: Batch, refused: Mapping[TopicPartition, Mapping[int, str]]) -> None:
        """A leader has followed what was said, but for what it refused."""
        for where, kinds in batch.items():
            hold = self._holds.get(where)
            if hold is not None:
                no = refused.get(where, {})
                for offset, kind in kinds.items():
                    if kind == RELEASE:
                        hold.released(Offset(offset))
                    elif kind != RENEW and offset not in no:
                        hold.settled(Offset(offset))
        batch.answered(refused)

    def has(self, where: TopicPartition) -> bool:
        """Whether anything of it can be settled."""
        return where in self._holds

    def let_go(self, where: TopicPartition, why: str) -> None:
        """Nothing of a partition is held any more."""
        hold = self._holds.pop(where, None)
        if hold is not None:
            hold.lost = why

    def lose(self, why: str, partitions: Mapping[Place, TopicPartition]) -> None:
        """Nothing at all is; the next session begins with these partitions."""
        for hold in self._holds.values():
            hold.lost = why
        self._holds = {}
        self._known = {where: place for place, where in partitions.items()}

    def places(self) -> Places:
        """Every partition by what its leader calls it."""
        return {place: where for where, place in self._known.items()}
