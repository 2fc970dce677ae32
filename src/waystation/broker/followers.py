"""The partitions that this broker follows: copied from their leaders, batch for batch.

For each leading broker there is one conversation (``conversation.py``) about all partitions that it
leads and this one holds.  This file knows who leads what; a partition that gets another leader, or
another epoch, is asked about anew.
"""

from collections.abc import Callable

from waystation.broker.conversation import Conversation, Copy
from waystation.broker.copying import Copying
from waystation.broker.peers import Peers
from waystation.broker.replicas import Replicas
from waystation.cluster.image import ClusterImage
from waystation.model.ids import BrokerEpoch, NodeId
from waystation.partition.partition import Partition
from waystation.replication.follower import FollowerState


class Followers:
    """Every replica here that another broker leads."""

    def __init__(
        self,
        node: NodeId,
        replicas: Replicas,
        peers: Peers,
        life: Callable[[], BrokerEpoch],
        acted_on: Callable[[], int],
        copying: Copying,
    ) -> None:
        """``acted_on`` is the store's revision up to which all is done that it says."""
        self._node = node
        self._replicas = replicas
        self._peers = peers
        self._life = life
        self._acted_on = acted_on
        self._copying = copying
        self._copies: dict[Partition, Copy] = {}
        self._talks: dict[NodeId, Conversation] = {}

    def __len__(self) -> int:
        return len(self._copies)

    @property
    def copies(self) -> list[Copy]:
        """What is followed now."""
        return list(self._copies.values())

    def follow(self, before: ClusterImage, after: ClusterImage) -> None:
        """Act on a new image, once partitions are held and led as it says."""
        if before.topics_by_id is not after.topics_by_id:
            for partition, copy in list(self._copies.items()):
                if self._replicas.find(*partition.name) is not partition:
                    self._stop(copy)
            for partition in self._replicas:
                self._obey(partition)
        for leader, talk in list(self._talks.items()):
            broker, was = after.brokers.get(leader), before.brokers.get(leader)
            if broker is not None and (was is None or was.epoch != broker.epoch):
                # A new life of the leader: whatever was said to the last one is forgotten there.
                talk.begin_anew()

    async def aclose(self) -> None:
        """Follow nobody any more."""
        for copy in self.copies:
            self._stop(copy)
        talks, self._talks = self._talks, {}
        for talk in talks.values():
            await talk.aclose()
        await self._copying.cuts.aclose()
        await self._copying.keys.aclose()

    def _obey(self, partition: Partition) -> None:
        """Follow whoever leads now, from where this replica stands."""
        leader, epoch = partition.leadership.leader, partition.leadership.epoch
        copy = self._copies.get(partition)
        # A copy on a failed disk would be found in sync by its leader, again and again.
        lost = partition.log.directory.offline is not None
        if lost or leader is None or leader == self._node or partition.leading:
            if copy is not None:
                self._stop(copy)
            return
        if copy is not None and copy.state.leader == leader and copy.state.epoch == epoch:
            return
        if copy is not None:
            self._stop(copy)
        state = FollowerState(leader, epoch, partition.followed_mark)
        copy = self._copies[partition] = Copy(partition, state)
        self._talk_with(leader).add(copy)

    def _stop(self, copy: Copy) -> None:
        del self._copies[copy.partition]
        leader = copy.state.leader
        if leader is not None and leader in self._talks:
            self._talks[leader].remove(copy)

    def _talk_with(self, leader: NodeId) -> Conversation:
        talk = self._talks.get(leader)
        if talk is None:
            talk = self._talks[leader] = Conversation(
                self._node, leader, self._peers, self._life, self._acted_on, self._copying
            )
        return talk
