"""Whom a group waits for, and until when; whoever is late is removed from it."""

from waystation.model.deadlines import Deadlines
from waystation.model.offsets import Millis


class Watch:
    """The deadlines of one group's members."""

    __slots__ = ("invitations", "joins", "revocations", "sessions", "syncs")

    def __init__(self) -> None:
        self.sessions = Deadlines()
        """By when a member must say that it is alive."""
        self.revocations = Deadlines()
        """By when it must have given up what it shall no longer read."""
        self.joins = Deadlines()
        """By when a classic member must join again."""
        self.syncs = Deadlines()
        """By when a classic member that joined must fetch what it shall read."""
        self.invitations = Deadlines()
        """By when someone must join under the id that it was told."""

    def earliest(self) -> Millis | None:
        """When someone is late."""
        kinds = (*self._kinds(), self.invitations)
        moments = [at for kind in kinds if (at := kind.earliest()) is not None]
        return min(moments, default=None)

    def late(self, now: Millis) -> list[str]:
        """Which members did not do in time what they had to; nothing more is expected of them."""
        self.invitations.due(now)
        late = dict.fromkeys(member for kind in self._kinds() for member in kind.due(now))
        for member_id in late:
            self.forget(member_id)
        return list(late)

    def forget(self, member_id: str) -> None:
        """Expect nothing of the member."""
        for kind in self._kinds():
            kind.cancel(member_id)

    def _kinds(self) -> tuple[Deadlines, ...]:
        return self.sessions, self.revocations, self.joins, self.syncs
