"""What a follower and one leading broker say to each other: questions, answers and reports.

1. Each partition has one question under way, which stands at the leader until an answer names the
   partition.  A fetch carries what is new since the last: questions, reports, partitions that are
   followed no more.  It may be sent while another waits, which that other then ends.
2. There is always a fetch at the leader, so that it can tell of news at once, but while a sync is
   under way that will end in a moment.
3. What was flushed is reported at once.  The next question waits for that moment: asked earlier it
   would need a report behind it, and what comes meanwhile waits for the next sync anyway.
4. An answer counts for the question that was asked in its fetch, or before, and not for a later
   one: see ``Copy.asked_in``.
5. A connection or session that is lost takes all questions with it: each is asked again, later
   and later while it goes on failing.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from waystation.broker.copying import Copying
from waystation.broker.peers import Peers
from waystation.broker.replica_wire import Asked, Heard, Key, Questions, read_answers
from waystation.model.error_codes import ErrorCode
from waystation.model.errors import PeerUnreachableError
from waystation.model.ids import BrokerEpoch, LeaderEpoch, NodeId
from waystation.model.offsets import NO_OFFSET, Offset
from waystation.partition.partition import Partition
from waystation.replication.follower import Answer, FollowerState, Question
from waystation.replication.leader import DISK
from waystation.runtime.tasks import Tasks
from waystation.telemetry.logs import get_logger

PURPOSE: Final = "replication"
_TIMEOUT_S: Final = 10.0
# Two may overtake each other's answers; more would only make each of them smaller.
_FLYING_MAX: Final = 3
_TURN_BYTES: Final = 512 << 10
# How long a sync may keep the next question, and how much was copied by who is not to wait.
_SYNC_S: Final = 0.005
_MUCH_BYTES: Final = 256 << 10
_NO_SESSION: Final = 0
_SESSION_ERRORS: Final = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
)
_events = get_logger("replication")

_Told = Callable[[Heard | PeerUnreachableError], None]


class Copy:
    """One partition that is followed."""

    __slots__ = ("asked_in", "key", "partition", "question", "reported", "state")

    def __init__(self, partition: Partition, state: FollowerState) -> None:
        self.partition = partition
        self.state = state
        self.key: Key = partition.topic_id, partition.name.partition
        self.question: Question | None = None
        # The number of the fetch that carried the question: earlier answers are not for it.
        self.asked_in = 0
        self.reported = NO_OFFSET


class Conversation:
    """One leader's partitions; only who reaches it first, and who takes much in, waits."""

    def __init__(
        self,
        node: NodeId,
        leader: NodeId,
        peers: Peers,
        life: Callable[[], BrokerEpoch],
        acted_on: Callable[[], int],
        copying: Copying,
    ) -> None:
        self._node, self._leader = node, leader
        self._peers = peers
        self._life = life
        self._acted_on = acted_on
        self._copying = copying
        self._copies: dict[Key, Copy] = {}
        self._due: dict[Copy, None] = {}
        self._reports: dict[Copy, None] = {}
        # Copied, and asked about again once they are flushed.
        self._flushing: dict[Copy, None] = {}
        self._patience: asyncio.TimerHandle | None = None
        self._forgotten: list[Key] = []
        self._session_id, self._session_epoch = _NO_SESSION, 0
        # Grows when a session ends: whatever is still under way then counts no more.
        self._generation = 0
        self._sent = 0
        self._flying = 0
        self._opening = False
        self._scheduled = False
        self._closed = False
        self._loop = asyncio.get_running_loop()
        self._tasks = Tasks()

    def add(self, copy: Copy) -> None:
        """Follow one more partition."""
        self._copies[copy.key] = copy
        copy.partition.told_safe = lambda: self._flushed(copy)
        if copy.key in self._forgotten:
            self._forgotten.remove(copy.key)
        self._make_due(copy)

    def remove(self, copy: Copy) -> None:
        """Follow it no more."""
        if self._copies.get(copy.key) is copy:
            del self._copies[copy.key]
            copy.partition.told_safe = None
            self._due.pop(copy, None)
            self._reports.pop(copy, None)
            self._flushing.pop(copy, None)
            self._forgotten.append(copy.key)
            self._schedule()

    def begin_anew(self) -> None:
        """The leader knows nothing of what was said: open another session."""
        self._lose_session()

    async def aclose(self) -> None:
        """Say nothing more."""
        self._closed = True
        for copy in list(self._copies.values()):
            copy.partition.told_safe = None
        await self._tasks.aclose()

    # --- what to say ----------------------------------------------------------------------------

    def _make_due(self, copy: Copy) -> None:
        self._due[copy] = None
        self._schedule()

    def _flushed(self, copy: Copy) -> None:
        """HOT: once per partition and sync; all of a sync are reported together."""
        if copy in self._flushing:
            del self._flushing[copy]
            self._make_due(copy)
            if not self._flushing and self._patience is not None:
                self._patience.cancel()
                self._patience = None
        elif copy not in self._due and copy.partition.safe_end > copy.reported:
            self._reports[copy] = None
            self._schedule()

    def _await_flush(self, copy: Copy) -> None:
        self._flushing[copy] = None
        if self._patience is None:
            self._patience = self._loop.call_later(_SYNC_S, self._out_of_patience)

    def _out_of_patience(self) -> None:
        """A sync takes long: ask meanwhile."""
        self._patience = None
        flushing, self._flushing = self._flushing, {}
        for copy in flushing:
            self._make_due(copy)

    def _schedule(self) -> None:
        if not self._scheduled and not self._closed:
            self._scheduled = True
            self._loop.call_soon(self._speak)

    def _speak(self) -> None:
        """Send a fetch if there is something to say, or none at the leader."""
        self._scheduled = False
        if self._closed or self._peers.closed:
            return
        if self._opening or self._flying >= _FLYING_MAX:
            return
        if not self._copies and not (self._flying and self._forgotten):
            return
        questions = self._questions()
        # A session begins with a question: while all of them back off, nobody is asked anything.
        is_due = questions.forgotten or not (self._flying or self._flushing)
        if questions.asked or (self._session_epoch and is_due):
            self._flying += 1
            self._opening = self._session_epoch == 0
            self._sent += 1
            if self._session_epoch:
                self._session_epoch += 1
            self._send(questions)

    def _questions(self) -> Questions:
        settings, now = self._copying.settings(), self._copying.steady.now()
        throttle = self._copying.throttle
        asked: list[Asked] = []
        due, self._due = self._due, {}
        for copy in due:
            wait_s = throttle.delay_s(copy.partition)
            if wait_s > 0:
                self._loop.call_later(wait_s, self._ask_again, copy)
                continue
            question = copy.question = copy.state.ask(copy.partition, now)
            if question is not None:
                copy.asked_in = self._sent + 1
                self._reports.pop(copy, None)
                room = throttle.most(copy.partition, settings.replica_fetch_max_bytes)
                offset, last_epoch, safe_end = question[2:5]
                asked.append(_asked(copy, offset, last_epoch, safe_end, room))
        reports, self._reports = self._reports, {}
        for copy in reports:
            partition = copy.partition
            if partition.settings.durability == DISK and copy.question is not None:
                ends = partition.log_end, partition.epochs.latest, partition.safe_end
                asked.append(_asked(copy, *ends, 0))
        forgotten, self._forgotten = self._forgotten, []
        return Questions(
            self._node,
            self._life(),
            self._acted_on(),
            self._session_id,
            self._session_epoch,
            settings.replica_fetch_wait_max_ms,
            settings.replica_fetch_response_max_bytes,
            asked,
            forgotten,
        )

    def _ask_again(self, copy: Copy) -> None:
        if self._copies.get(copy.key) is copy and not self._closed:
            self._make_due(copy)

    # --- what is answered -----------------------------------------------------------------------

    def _send(self, questions: Questions) -> None:
        """At once where there is a connection, so that fetches keep their order."""
        told = partial(self._answered, self._sent, self._generation)
        try:
            if not self._pose(questions, told):
                name = f"follow-{self._leader}"
                self._tasks.spawn(self._reach_and_send(questions, told), name)
        except PeerUnreachableError as error:
            self._loop.call_soon(told, error)

    def _pose(self, questions: Questions, told: _Told) -> bool:
        timeout_s = _TIMEOUT_S + questions.max_wait_ms / 1_000
        return self._peers.pose(
            self._leader, questions, read_answers, told, timeout_s=timeout_s, purpose=PURPOSE
        )

    async def _reach_and_send(self, questions: Questions, told: _Told) -> None:
        try:
            await self._peers.reach(self._leader, purpose=PURPOSE)
            if not self._pose(questions, told):
                raise PeerUnreachableError(self._leader, "the connection was lost")
        except PeerUnreachableError as error:
            told(error)

    def _answered(self, number: int, generation: int, heard: Heard | PeerUnreachableError) -> None:
        """HOT: once per answer.  Nothing waits between an answer and the next question."""
        self._ended(generation)
        if isinstance(heard, PeerUnreachableError):
            _events.debug("leader.unreachable", leader=self._leader, reason=str(heard))
            self._lose_session(generation)
            return
        if generation != self._generation or self._closed:
            return
        if heard.error:
            self._refused(heard.error)
            return
        if not self._session_epoch:
            self._session_id, self._session_epoch = heard.session_id, 1
        if heard.nbytes > _TURN_BYTES:
            work = self._take_in_turns(heard, number, generation)
            self._tasks.spawn(work, f"follow-{self._leader}")
            return
        # What becomes due meanwhile is asked below: no turn of the loop is spent on it.
        self._scheduled = True
        try:
            for key, answer in heard.answers:
                self._take(key, answer, number)
        finally:
            self._scheduled = False
        self._speak()

    async def _take_in_turns(self, heard: Heard, number: int, generation: int) -> None:
        """A large answer, so that clients are served in between."""
        taken_bytes = 0
        for key, answer in heard.answers:
            if generation != self._generation or self._closed:
                return
            taken_bytes += self._take(key, answer, number)
            if taken_bytes >= _TURN_BYTES:
                taken_bytes = 0
                await asyncio.sleep(0)
        self._schedule()

    def _ended(self, generation: int) -> None:
        if generation == self._generation:
            self._flying -= 1
            self._opening = False

    def _refused(self, error: ErrorCode) -> None:
        if error not in _SESSION_ERRORS:
            _events.warning("leader.refused", leader=self._leader, error=error.name)
        self._lose_session()

    def _lose_session(self, generation: int | None = None) -> None:
        """Every question is asked anew, in another session."""
        if generation is not None and generation != self._generation:
            return
        self._generation += 1
        self._session_id, self._session_epoch = _NO_SESSION, 0
        self._flying, self._opening = 0, False
        self._reports.clear()
        self._forgotten.clear()
        self._due.update(self._flushing)
        self._flushing.clear()
        for copy in self._copies.values():
            # One without a question is due already, or will be when its time has come.
            if copy.question is not None:
                self._wait_and_ask(copy, copy.question)
        self._schedule()

    def _wait_and_ask(self, copy: Copy, question: Question) -> None:
        back_off = copy.state.failed(question, self._copying.steady.now())
        copy.question = None
        self._ask_in(copy, 0 if back_off is None else back_off.until)

    def _ask_in(self, copy: Copy, until_ms: int) -> None:
        wait_ms = max(until_ms - self._copying.steady.now(), 0)
        if wait_ms:
            self._loop.call_later((wait_ms + 1) / 1_000, self._ask_again, copy)
        else:
            self._make_due(copy)

    def _take(self, key: Key, answer: Answer, number: int) -> int:
        """Carry out an answer, if its question still stands; how many bytes that was.

        HOT: once per partition with news.
        """
        copy = self._copies.get(key)
        if copy is None or copy.question is None or copy.asked_in > number:
            return 0
        back_off = self._copying.carry_out(copy.partition, copy.state, copy.question, answer)
        copy.question = None
        if back_off is None and 0 < len(answer.data) < _MUCH_BYTES and _flushes(copy.partition):
            self._await_flush(copy)
        elif back_off is None:
            self._make_due(copy)
        else:
            self._ask_in(copy, back_off.until)
        return len(answer.data)


def _flushes(partition: Partition) -> bool:
    """Whether what was copied counts only once it is flushed, and that is under way."""
    return partition.settings.durability == DISK and partition.safe_end < partition.log_end


def _asked(
    copy: Copy, offset: Offset, last_epoch: LeaderEpoch, safe_end: Offset, max_bytes: int
) -> Asked:
    """A partition as it is named to the leader; room for bytes makes it a question."""
    copy.reported = safe_end
    return Asked(
        copy.key,
        copy.state.epoch,
        offset,
        last_epoch,
        safe_end,
        max_bytes,
        copy.partition.log_start,
    )
