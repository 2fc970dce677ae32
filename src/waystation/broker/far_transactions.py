"""What the coordinators of all brokers know of some producers.

A log has producer ids, and no transactional ids to find their coordinator by: every coordinator is
asked.  The answer is whole or none: while one of them is not led, still loads or does not answer,
and if one moved meanwhile, nothing is known.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable

from waystation.broker.peers import Peers
from waystation.client.errors import error_of
from waystation.cluster.parts import TopicImage
from waystation.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from waystation.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from waystation.model.errors import CoordinatorNotAvailableError, ErrorCode
from waystation.model.ids import NodeId, ProducerId, TopicPartition
from waystation.transactions.records import TxnState

Owned = set[tuple[ProducerId, TopicPartition]]
"""Whose transaction is under way, and where it will be ended."""

_IDLE = {TxnState.EMPTY.shown, TxnState.COMPLETE_COMMIT.shown, TxnState.COMPLETE_ABORT.shown}


class FarTransactions:
    """Asks every broker that coordinates transactions."""

    def __init__(self, peers: Peers, topic: Callable[[], TopicImage | None]) -> None:
        """``topic`` is the one that the coordinators keep their records in."""
        self._peers = peers
        self._topic = topic

    async def owned(self, producers: Collection[ProducerId]) -> Owned:
        """All that coordinators know of those producers; raises if one of them cannot say."""
        before = self._posts()
        asked = (self._owned_by(node, producers) for node in sorted({*before}))
        owned = set[tuple[ProducerId, TopicPartition]]().union(*await asyncio.gather(*asked))
        if self._posts() != before:
            raise CoordinatorNotAvailableError("coordinators moved while they were asked")
        return owned

    def _posts(self) -> dict[NodeId, list[tuple[int, int]]]:
        """Who coordinates which partitions, since which epochs."""
        topic = self._topic()
        posts: dict[NodeId, list[tuple[int, int]]] = {}
        for number, state in enumerate(() if topic is None else topic.partitions):
            if state.leader is None:
                raise CoordinatorNotAvailableError(f"nobody coordinates partition {number}")
            posts.setdefault(state.leader, []).append((number, state.leader_epoch))
        return posts

    async def _owned_by(self, node: NodeId, producers: Iterable[ProducerId]) -> Owned:
        listing = await self._peers.ask(
            node,
            ListTransactionsRequest(producer_id_filters=list(producers)),
            ListTransactionsResponse,
        )
        if listing.error_code:
            raise error_of(listing.error_code, f"node {node}")
        names = [
            one.transactional_id
            for one in listing.transaction_states
            if one.transaction_state not in _IDLE
        ]
        if not names:
            return set()
        described = await self._peers.ask(
            node,
            DescribeTransactionsRequest(transactional_ids=names),
            DescribeTransactionsResponse,
        )
        owned: Owned = set()
        for one in described.transaction_states:
            if one.error_code not in (ErrorCode.NONE, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND):
                raise error_of(one.error_code, f"node {node}: {one.transactional_id!r}")
            owned |= {
                (ProducerId(one.producer_id), TopicPartition(topic.topic, number))
                for topic in one.topics
                for number in topic.partitions
            }
        return owned
