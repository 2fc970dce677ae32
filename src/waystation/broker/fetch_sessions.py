"""What each consumer reads, remembered, so that it only has to name what changed.

A session has an id and an epoch that both sides count up; a request whose epoch is not the
next one was lost or repeated, and the client starts over.  When all slots are taken, the
session that was quiet for longest gives way if it was quiet for two minutes; otherwise the
newcomer goes without a session, which costs it larger requests and nothing else.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable

from waystation.broker.fetching import Found, Wanted
from waystation.model.error_codes import ErrorCode
from waystation.model.errors import WaystationError
from waystation.model.ids import TopicId

NO_SESSION = 0
FIRST_EPOCH = 0
FINAL_EPOCH = -1

_EPOCH_MAX = (1 << 31) - 1
_QUIET_S = 120.0

Key = tuple[str | TopicId, int]


class FetchSessionNotFoundError(WaystationError):
    """The session was closed, evicted, or never was on this broker."""

    code = ErrorCode.FETCH_SESSION_ID_NOT_FOUND


class InvalidFetchSessionEpochError(WaystationError):
    """The request is not the next one of its session."""

    code = ErrorCode.INVALID_FETCH_SESSION_EPOCH


class FetchSession:
    """One consumer's partitions, in the order they are read next."""

    __slots__ = ("by_id", "epoch", "id", "used_at", "wanted")

    def __init__(self, session_id: int, wanted: Iterable[Wanted], *, by_id: bool) -> None:
        self.id = session_id
        self.epoch = 1
        self.by_id = by_id
        self.used_at = 0.0
        self.wanted: OrderedDict[Key, Wanted] = OrderedDict((one.key, one) for one in wanted)

    def update(self, wanted: Iterable[Wanted], forgotten: Iterable[Key]) -> None:
        """Take over what the client says has changed."""
        for key in forgotten:
            self.wanted.pop(key, None)
        for one in wanted:
            known = self.wanted.get(one.key)
            if known is not None:
                one.told_high_watermark = known.told_high_watermark
                one.told_log_start = known.told_log_start
            self.wanted[one.key] = one

    def news(self, found: list[Found]) -> list[Found]:
        """What the client does not know yet; partitions that had bytes go to the back."""
        news = [one for one in found if one.is_news]
        for one in news:
            one.wanted.told_high_watermark = one.high_watermark
            one.wanted.told_log_start = one.log_start
            if one.region is not None and one.wanted.key in self.wanted:
                self.wanted.move_to_end(one.wanted.key)
        return news


class FetchSessions:
    """All sessions of a broker, the least recently used first."""

    __slots__ = ("_next_id", "_sessions", "_slots")

    def __init__(self, slots: int, next_id: Callable[[], int]) -> None:
        self._slots = slots
        self._next_id = next_id
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, wanted: list[Wanted], now_s: float, *, by_id: bool) -> FetchSession | None:
        """A new session, or none where there is no room or nothing to remember."""
        if not wanted or not self._make_room(now_s):
            return None
        session_id = self._next_id()
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._next_id()
        session = FetchSession(session_id, wanted, by_id=by_id)
        session.used_at = now_s
        self._sessions[session_id] = session
        return session

    def next(self, session_id: int, epoch: int, now_s: float, *, by_id: bool) -> FetchSession:
        """The session that ``epoch`` continues."""
        session = self._sessions.get(session_id)
        if session is None:
            raise FetchSessionNotFoundError(f"there is no fetch session {session_id}")
        if session.epoch != epoch:
            raise InvalidFetchSessionEpochError(
                f"fetch session {session_id} is at epoch {session.epoch}, not {epoch}"
            )
        if session.by_id != by_id:
            raise FetchSessionTopicIdError(
                f"fetch session {session_id} {'uses' if session.by_id else 'has no'} topic ids"
            )
        session.epoch = 1 if epoch == _EPOCH_MAX else epoch + 1
        session.used_at = now_s
        self._sessions.move_to_end(session_id)
        return session

    def close(self, session_id: int) -> None:
        """Forget a session; harmless if it is not there."""
        self._sessions.pop(session_id, None)

    def _make_room(self, now_s: float) -> bool:
        if len(self._sessions) < self._slots:
            return True
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if now_s - oldest.used_at < _QUIET_S:
            return False
        del self._sessions[oldest.id]
        return True


class FetchSessionTopicIdError(WaystationError):
    """A session that names topics by id cannot go on by name, or the other way round."""

    code = ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
