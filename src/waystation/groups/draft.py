"""What one event leads to, while it is still being worked out."""

from waystation.groups.records import Record
from waystation.model.machines import Outcome, Reply, Waiter


class Draft:
    """Records and replies in the order in which they were decided."""

    __slots__ = ("records", "replies")

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.replies: list[Reply] = []

    def reply(self, to: Waiter, answer: object) -> None:
        """Let ``to`` be answered."""
        self.replies.append(Reply(to, answer))

    def add(self, outcome: Outcome[Record]) -> None:
        """Take over what someone else decided."""
        self.records.extend(outcome.records)
        self.replies.extend(outcome.replies)

    def outcome(self) -> Outcome[Record]:
        """What the host is told."""
        return Outcome(self.records, self.replies)
