"""Questions about transactions whose coordinator is another broker.

Before the first batch of a transaction enters a partition here, its coordinator is asked whether
the partition is part of the transaction, or to make it so (KIP-890).

1. By the time the coordinator's yes arrives, the transaction may have ended here already, and a
   batch that came behind would begin one that nobody ends.  If a marker of the producer was written
   here meanwhile, or another leader may have written one, the coordinator is asked again.
2. A coordinator that still ends the producer's last transaction is asked again for a short while.
   It does not let brokers wait, as it does clients: others' answers would wait behind them.
3. Whatever keeps a coordinator from answering is told as that: a client then tries again.
"""

from collections.abc import Callable, Mapping
from typing import Final

from waystation.broker.admission import Hear
from waystation.broker.gathering import Gathering
from waystation.broker.peers import Peers
from waystation.broker.replicas import Replicas
from waystation.client.errors import error_of
from waystation.groups.inquiries import Inquiries, Inquiry
from waystation.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from waystation.model.errors import (
    ConcurrentTransactionsError,
    CoordinatorNotAvailableError,
    ErrorCode,
    PeerUnreachableError,
    WaystationError,
)
from waystation.model.ids import LeaderEpoch, NodeId, TopicPartition
from waystation.runtime.timers import Timers
from waystation.transactions.commands import Add
from waystation.transactions.waiting import WAIT_MS

_PURPOSE: Final = "verification"
_RETRY_S: Final = 0.01

# What a coordinator says that has not heard of a topic yet, and of partitions beside such a one.
_BEHIND = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED)


class _Question:
    """What is asked, until when it is asked again, and what must not have changed by then."""

    __slots__ = ("add", "epochs", "hear", "inquiry", "until_s")

    def __init__(self, add: Add, hear: Hear, until_s: float) -> None:
        self.add = add
        self.hear = hear
        self.until_s = until_s
        self.inquiry: Inquiry | None = None
        self.epochs: dict[TopicPartition, LeaderEpoch | None] = {}


class Verification:
    """The questions of one broker to coordinators elsewhere."""

    def __init__(
        self,
        peers: Peers,
        coordinator_of: Callable[[str], NodeId],
        replicas: Replicas,
        inquiries: Inquiries,
        timers: Timers,
    ) -> None:
        """``inquiries`` hear of every marker that is written here."""
        self._peers = peers
        self._coordinator_of = coordinator_of
        self._replicas = replicas
        self._inquiries = inquiries
        self._timers = timers
        self._gathering: Gathering[NodeId, _Question] = Gathering(self._send, "verification")

    def ask(self, add: Add, hear: Hear) -> None:
        """Ask the coordinator; ``hear`` is called once, maybe at once."""
        self._try(_Question(add, hear, self._timers.now_s() + WAIT_MS / 1_000))

    async def aclose(self) -> None:
        """Ask nothing more; nobody hears of it."""
        await self._gathering.aclose()

    def _try(self, question: _Question) -> None:
        add = question.add
        try:
            coordinator = self._coordinator_of(add.transactional_id)
        except WaystationError as error:
            question.hear(dict.fromkeys(add.partitions, error))
            return
        question.inquiry = self._inquiries.begin(add.producer_id)
        question.epochs = self._epochs(add)
        self._gathering.add(coordinator, question)

    async def _send(self, node: NodeId, questions: list[_Question]) -> None:
        request = AddPartitionsToTxnRequest(
            transactions=[_transaction(question.add) for question in questions]
        )
        try:
            answer = await self._peers.ask(
                node, request, AddPartitionsToTxnResponse, purpose=_PURPOSE
            )
            results = _results(node, answer, questions)
        except WaystationError as error:
            unknown = CoordinatorNotAvailableError(str(error))
            results = [dict.fromkeys(one.add.partitions, unknown) for one in questions]
        for question, errors in zip(questions, results, strict=True):
            self._heard(question, errors)

    def _heard(
        self, question: _Question, errors: Mapping[TopicPartition, WaystationError | None]
    ) -> None:
        too_early = any(isinstance(one, ConcurrentTransactionsError) for one in errors.values())
        if too_early and self._timers.now_s() < question.until_s:
            self._timers.call_later(_RETRY_S, lambda: self._try(question))
        elif None in errors.values() and self._is_overtaken(question):
            self._try(question)
        else:
            question.hear(errors)

    def _is_overtaken(self, question: _Question) -> bool:
        assert question.inquiry is not None, "answered before it was asked"
        return question.inquiry.overtaken or question.epochs != self._epochs(question.add)

    def _epochs(self, add: Add) -> dict[TopicPartition, LeaderEpoch | None]:
        """In which epochs this broker leads what the question is about."""
        found = ((name, self._replicas.find(*name)) for name in add.partitions)
        return {
            name: held.leadership.epoch if held is not None and held.leading else None
            for name, held in found
        }


def _transaction(add: Add) -> AddPartitionsToTxnTransaction:
    topics: dict[str, list[int]] = {}
    for name in sorted(add.partitions):
        topics.setdefault(name.topic, []).append(name.partition)
    return AddPartitionsToTxnTransaction(
        transactional_id=add.transactional_id,
        producer_id=add.producer_id,
        producer_epoch=add.epoch,
        verify_only=add.verify_only,
        topics=[
            AddPartitionsToTxnTopic(name=topic, partitions=numbers)
            for topic, numbers in topics.items()
        ],
    )


def _results(
    node: NodeId, answer: AddPartitionsToTxnResponse, questions: list[_Question]
) -> list[dict[TopicPartition, WaystationError | None]]:
    if answer.error_code:
        raise error_of(answer.error_code, f"node {node}")
    results = answer.results_by_transaction
    if [one.transactional_id for one in results] != [one.add.transactional_id for one in questions]:
        raise PeerUnreachableError(node, "it answers what it was not asked")
    return [
        _errors(node, question.add, one) for question, one in zip(questions, results, strict=True)
    ]


def _errors(
    node: NodeId, add: Add, result: AddPartitionsToTxnResult
) -> dict[TopicPartition, WaystationError | None]:
    codes = {
        TopicPartition(topic.name, part.partition_index): part.partition_error_code
        for topic in result.topic_results
        for part in topic.results_by_partition
    }
    return {name: _error(node, add, codes.get(name)) for name in add.partitions}


def _error(node: NodeId, add: Add, code: int | None) -> WaystationError | None:
    subject = f"the coordinator of {add.transactional_id!r}, node {node},"
    if code is None or code in _BEHIND:
        return CoordinatorNotAvailableError(f"{subject} does not know all of the partitions yet")
    return error_of(code, subject) if code else None
