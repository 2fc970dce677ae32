"""What one event leads to, while it is still being worked out."""

from collections.abc import Mapping

from waystation.model.machines import Outcome, Reply, Waiter
from waystation.transactions.records import Record, TransactionStored


class Draft:
    """Records and replies in the order in which they were decided.

    Requests that waited are decided in the event that they waited for, so each must see what
    the one before it became, although nothing is applied yet.
    """

    __slots__ = ("_became", "_states", "records", "replies")

    def __init__(self, states: Mapping[str, TransactionStored]) -> None:
        self._states = states
        self._became: dict[str, TransactionStored] = {}
        self.records: list[Record] = []
        self.replies: list[Reply] = []

    def state(self, transactional_id: str) -> TransactionStored | None:
        """The id's state once everything noted so far counts."""
        became = self._became.get(transactional_id)
        return self._states.get(transactional_id) if became is None else became

    def note(self, state: TransactionStored) -> None:
        """Let the id become this, and decide the rest as if it were."""
        self._became[state.transactional_id] = state
        self.records.append(state)

    def reply(self, to: Waiter, answer: object) -> None:
        """Let ``to`` be answered."""
        self.replies.append(Reply(to, answer))

    def outcome(self) -> Outcome[Record]:
        """What the host is told."""
        return Outcome(self.records, self.replies)
