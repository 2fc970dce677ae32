"""What a leader learns from other brokers, while it hears nothing from the store.

By its own clock a broker knows that its lease must have ended, but not what that means.  If the
store is away for everybody, nobody was elected, and leaders go on under the sets that are written.
If it is away for this broker alone, others lead by now what it led.  The two look alike from here,
so it asks around, while its lease is overdue:

1. Who speaks of a higher leader epoch is believed (``cluster/hearsay.py``): this broker leads that
   partition no more, tells clients who does, and answers whoever waits.
2. While nobody speaks of one it leads on.  But where replicas that were in sync are not heard of
   either, nothing can be committed, and perhaps they follow another: ``acks=all`` is refused with
   the error that makes clients look for another leader, instead of being let wait.
3. Once the lease is renewed, or those replicas are back, all is as before.

Readers, and writers who want no other replica's word, are served for as long as nobody is known to
lead instead: that is what "goes on" means when everybody else has died with the store.
"""

import asyncio
from collections.abc import Callable

from waystation.broker.membership import Membership
from waystation.broker.peers import Peers
from waystation.broker.replicas import Replicas
from waystation.broker.view import ClusterView
from waystation.cluster.hearsay import Place, Word, newer, others
from waystation.cluster.parts import INTERNAL_TOPICS
from waystation.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from waystation.model.errors import PeerUnreachableError
from waystation.model.ids import LeaderEpoch, NodeId, TopicId
from waystation.telemetry.logs import get_logger

_events = get_logger("broker")

# How often others are asked within the time of a lease.
_TIMES = 6


class Hearsay:
    """Asks other brokers what became of this one's leaderships."""

    def __init__(
        self,
        node: NodeId,
        replicas: Replicas,
        peers: Peers,
        view: ClusterView,
        membership: Membership,
        silent_s: Callable[[NodeId], float],
    ) -> None:
        """``silent_s`` tells for how long a follower has not been heard of."""
        self._node = node
        self._replicas = replicas
        self._peers = peers
        self._view = view
        self._membership = membership
        self._silent_s = silent_s
        self._doubting = False

    async def run(self) -> None:
        """Go on until cancelled."""
        while True:
            await asyncio.sleep(self._membership.session_s / _TIMES)
            if self._membership.overdue:
                self._doubt()
                await self._ask_around()
            elif self._doubting:
                self._trust()

    # --- doubting -------------------------------------------------------------------------------

    def _doubt(self) -> None:
        """See where replicas are not heard of that the mark waits for."""
        silent = [
            node
            for node in self._view.image.brokers
            if node != self._node and self._silent_s(node) > self._membership.session_s
        ]
        for partition in self._replicas:
            state = partition.state
            # What coordinators write may wait for its replicas.
            if state is None or partition.name.topic in INTERNAL_TOPICS:
                continue
            missing = [one for one in state.in_sync.written if one in silent]
            if missing and not partition.in_doubt:
                self._doubting = True
                partition.doubt(missing)
            elif not missing and partition.in_doubt:
                partition.trust()

    def _trust(self) -> None:
        self._doubting = False
        for partition in self._replicas:
            partition.trust()

    # --- asking ---------------------------------------------------------------------------------

    async def _ask_around(self) -> None:
        """Ask everybody about the topics that this broker leads something of, by the store."""
        image = self._view.newest
        led = [
            topic.id
            for topic in image.topics.values()
            if any(state.leader == self._node for state in topic.partitions)
        ]
        others = [node for node in image.brokers if node != self._node]
        if led and others:
            await asyncio.gather(*(self._ask(node, led) for node in others))

    async def _ask(self, node: NodeId, led: list[TopicId]) -> None:
        request = MetadataRequest(
            topics=[MetadataRequestTopic(topic_id=one, name=None) for one in led],
            allow_auto_topic_creation=False,
        )
        timeout_s = self._membership.session_s / 2
        try:
            answer = await self._peers.ask(node, request, MetadataResponse, timeout_s=timeout_s)
        except PeerUnreachableError:
            return
        words = newer(self._view.image, others(_words(answer), self._node))
        if words:
            _events.warning(
                "leadership.over",
                partitions=len(words),
                told_by=node,
                reason="the coordination store cannot be reached from here; others can",
            )
            await self._view.believe(words)


def _words(answer: MetadataResponse) -> dict[Place, Word]:
    return {
        (TopicId(topic.topic_id), one.partition_index): Word(
            NodeId(one.leader_id) if one.leader_id >= 0 else None,
            LeaderEpoch(one.leader_epoch),
            tuple(map(NodeId, one.isr_nodes)),
        )
        for topic in answer.topics
        if not topic.error_code
        for one in topic.partitions
    }
