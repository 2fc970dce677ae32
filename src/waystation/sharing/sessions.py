"""Sessions of consumers: which partitions of a broker each of them reads, without saying it again.

A consumer opens a session with epoch 0 and counts its requests from then on; -1 ends it.  A
broker that counts differently has missed a request, or answers one twice, and says so: the
consumer then opens a new session, and what it held comes back when its locks are over.

1. A request is followed once: one that is repeated comes with an epoch that is over.
2. There are never more sessions than the broker allows; nobody loses one to a newcomer.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from waystation.model.errors import (
    InvalidRequestError,
    InvalidShareSessionEpochError,
    ShareSessionLimitError,
    ShareSessionNotFoundError,
)
from waystation.model.ids import TopicId
from waystation.sharing.settings import ShareSettings

OPENING: Final = 0
CLOSING: Final = -1
_EPOCH_MAX: Final = (1 << 31) - 1

PartitionOf = tuple[TopicId, int]


class Turn(NamedTuple):
    """One request of a session: what it reads now, and what it does not read any more.

    A closing one reads nothing: what the consumer held of ``ended`` is to be taken back.
    """

    reads: tuple[PartitionOf, ...]
    ended: tuple[PartitionOf, ...] = ()
    is_last: bool = False


class _Session:
    __slots__ = ("connection", "epoch", "partitions")

    def __init__(self, connection: object) -> None:
        self.connection = connection
        self.epoch = 1
        self.partitions: dict[PartitionOf, None] = {}


class ShareSessions:
    """All sessions of one broker; a ``connection`` is whatever tells one from another."""

    __slots__ = ("_sessions", "_settings")

    def __init__(self, settings: Callable[[], ShareSettings]) -> None:
        self._settings = settings
        self._sessions: dict[tuple[str, str], _Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def fetch(
        self,
        group_id: str,
        member_id: str,
        epoch: int,
        named: Sequence[PartitionOf],
        forgotten: Iterable[PartitionOf] = (),
        *,
        acknowledges: bool = False,
        connection: object = None,
    ) -> Turn:
        """A ShareFetch: opens, goes on, or closes; each turn begins with another partition."""
        key = group_id, member_id
        if epoch == OPENING:
            return self._open(key, named, acknowledges=acknowledges, connection=connection)
        session = self._expected(key, epoch)
        if epoch == CLOSING:
            del self._sessions[key]
            return Turn((), tuple(session.partitions), is_last=True)
        for partition in named:
            session.partitions[partition] = None
        ended = tuple(
            partition for partition in forgotten if session.partitions.pop(partition, 0) is None
        )
        reads = tuple(session.partitions)
        begin = session.epoch % len(reads) if reads else 0
        session.epoch = 1 if session.epoch == _EPOCH_MAX else session.epoch + 1
        return Turn(reads[begin:] + reads[:begin], ended)

    def acknowledge(self, group_id: str, member_id: str, epoch: int) -> Turn:
        """A ShareAcknowledge: goes on, or closes; it cannot open."""
        key = group_id, member_id
        if epoch == OPENING:
            raise InvalidShareSessionEpochError(
                f"member {member_id!r} of {group_id!r} acknowledges in epoch 0: a session is "
                "opened by ShareFetch, and nothing is held before"
            )
        session = self._expected(key, epoch)
        if epoch == CLOSING:
            del self._sessions[key]
            return Turn((), tuple(session.partitions), is_last=True)
        session.epoch = 1 if session.epoch == _EPOCH_MAX else session.epoch + 1
        return Turn(())

    def disconnected(self, connection: object) -> list[tuple[str, str, tuple[PartitionOf, ...]]]:
        """End the sessions of a connection; group, member and what to take back from it."""
        gone = [key for key, one in self._sessions.items() if one.connection is connection]
        return [(*key, tuple(self._sessions.pop(key).partitions)) for key in gone]

    def _open(
        self,
        key: tuple[str, str],
        named: Sequence[PartitionOf],
        *,
        acknowledges: bool,
        connection: object,
    ) -> Turn:
        if acknowledges:
            raise InvalidRequestError(
                f"member {key[1]!r} of {key[0]!r} acknowledges while it opens a session: "
                "nothing is held before"
            )
        limit = self._settings().group_share_max_share_sessions
        if key not in self._sessions and len(self._sessions) >= limit:
            raise ShareSessionLimitError(
                f"{limit} consumers of queues have sessions here: raise "
                "group.share.max.share.sessions, or try again later"
            )
        before = self._sessions.pop(key, None)
        session = self._sessions[key] = _Session(connection)
        session.partitions = dict.fromkeys(named)
        ended = () if before is None else tuple(before.partitions)
        return Turn(tuple(named), ended)

    def _expected(self, key: tuple[str, str], epoch: int) -> _Session:
        session = self._sessions.get(key)
        if session is None:
            raise ShareSessionNotFoundError(
                f"member {key[1]!r} of {key[0]!r} has no session here: open one with epoch 0"
            )
        if epoch not in (CLOSING, session.epoch):
            raise InvalidShareSessionEpochError(
                f"member {key[1]!r} of {key[0]!r} says epoch {epoch}, expected is "
                f"{session.epoch}: open a new session with epoch 0"
            )
        return session
