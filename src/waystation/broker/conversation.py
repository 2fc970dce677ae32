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
from typing import Final, cast

from waystation.broker.copying import Copying
from waystation.broker.peers import Peers
from waystation.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from waystation.model.error_codes import ErrorCode
from waystation.model.errors import PeerUnreachableError
from waystation.model.ids import BrokerEpoch, LeaderEpoch, NodeId, TopicId
from waystation.model.offsets import NO_OFFSET, Offset
from waystation.partition.partition import Partition
from waystation.replication.epochs import EpochEnd
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

Key = tuple[TopicId, int]


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
    """One leader's partitions; every method but ``_exchange`` returns without waiting."""

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
        request = self._request()
        # A session begins with a question: while all of them back off, nobody is asked anything.
        is_due = request.forgotten_topics_data or not (self._flying or self._flushing)
        if request.topics or (self._session_epoch and is_due):
            self._flying += 1
            self._opening = self._session_epoch == 0
            self._sent += 1
            if self._session_epoch:
                self._session_epoch += 1
            work = self._exchange(request, self._sent, self._generation)
            self._tasks.spawn(work, f"follow-{self._leader}")

    def _request(self) -> FetchRequest:
        settings, now = self._copying.settings(), self._copying.steady.now()
        topics: dict[TopicId, list[FetchPartition]] = {}
        due, self._due = self._due, {}
        for copy in due:
            wait_s = self._copying.throttle.delay_s(copy.partition)
            if wait_s > 0:
                self._loop.call_later(wait_s, self._ask_again, copy)
                continue
            question = copy.question = copy.state.ask(copy.partition, now)
            if question is not None:
                copy.asked_in = self._sent + 1
                self._reports.pop(copy, None)
                asked = _asked(copy, question.offset, question.last_epoch, question.safe_end)
                asked.partition_max_bytes = settings.replica_fetch_max_bytes
                topics.setdefault(copy.key[0], []).append(asked)
        reports, self._reports = self._reports, {}
        for copy in reports:
            partition = copy.partition
            if partition.settings.durability == DISK and copy.question is not None:
                told = _asked(copy, partition.log_end, partition.epochs.latest, partition.safe_end)
                topics.setdefault(copy.key[0], []).append(told)
        forgotten, self._forgotten = self._forgotten, []
        return FetchRequest(
            replica_state=ReplicaState(replica_id=self._node, replica_epoch=self._life()),
            max_wait_ms=settings.replica_fetch_wait_max_ms,
            min_bytes=1,
            max_bytes=settings.replica_fetch_response_max_bytes,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            topics=[
                FetchTopic(topic="", topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in topics.items()
            ],
            forgotten_topics_data=_forgotten(forgotten),
            rack_id="",
            acted_on=self._acted_on(),
        )

    def _ask_again(self, copy: Copy) -> None:
        if self._copies.get(copy.key) is copy and not self._closed:
            self._make_due(copy)

    # --- what is answered -----------------------------------------------------------------------

    async def _exchange(self, request: FetchRequest, number: int, generation: int) -> None:
        timeout_s = _TIMEOUT_S + request.max_wait_ms / 1_000
        try:
            answer = await self._peers.ask(
                self._leader, request, FetchResponse, timeout_s=timeout_s, purpose=PURPOSE
            )
        except PeerUnreachableError as error:
            _events.debug("leader.unreachable", leader=self._leader, reason=str(error))
            self._ended(generation)
            self._lose_session(generation)
            return
        self._ended(generation)
        if generation != self._generation:
            return
        if answer.error_code:
            self._refused(ErrorCode(answer.error_code))
            return
        if not self._session_epoch:
            self._session_id, self._session_epoch = answer.session_id, 1
        await self._take(answer, number, generation)
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

    async def _take(self, answer: FetchResponse, number: int, generation: int) -> None:
        """Carry out an answer; a large one in turns, so that clients are served in between."""
        taken_bytes = 0
        for topic in answer.responses:
            for one in topic.partitions:
                copy = self._copies.get((TopicId(topic.topic_id), one.partition_index))
                if copy is None or copy.question is None or copy.asked_in > number:
                    continue
                if generation != self._generation or self._closed:
                    return
                taken_bytes += self._take_one(copy, copy.question, one)
                if taken_bytes >= _TURN_BYTES:
                    taken_bytes = 0
                    await asyncio.sleep(0)

    def _take_one(self, copy: Copy, question: Question, told: PartitionData) -> int:
        """HOT: once per partition with news; how many bytes that was."""
        answer = _answer(told)
        back_off = self._copying.carry_out(copy.partition, copy.state, question, answer)
        copy.question = None
        if back_off is None and 0 < len(answer.data) < _MUCH_BYTES and _flushes(copy.partition):
            self._await_flush(copy)
        else:
            self._ask_in(copy, 0 if back_off is None else back_off.until)
        return len(answer.data)


def _flushes(partition: Partition) -> bool:
    """Whether what was copied counts only once it is flushed, and that is under way."""
    return partition.settings.durability == DISK and partition.safe_end < partition.log_end


def _asked(copy: Copy, offset: Offset, last_epoch: LeaderEpoch, safe_end: Offset) -> FetchPartition:
    """A partition as it is named to the leader; room for bytes makes it a question."""
    copy.reported = safe_end
    return FetchPartition(
        partition=copy.key[1],
        current_leader_epoch=copy.state.epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        log_start_offset=copy.partition.log_start,
        partition_max_bytes=0,
        flushed_end=safe_end,
    )


def _forgotten(keys: list[Key]) -> list[ForgottenTopic]:
    topics: dict[TopicId, list[int]] = {}
    for topic_id, partition in keys:
        topics.setdefault(topic_id, []).append(partition)
    return [
        ForgottenTopic(topic="", topic_id=topic_id, partitions=partitions)
        for topic_id, partitions in topics.items()
    ]


def _answer(told: PartitionData) -> Answer:
    diverging = told.diverging_epoch
    return Answer(
        ErrorCode(told.error_code),
        Offset(told.high_watermark),
        Offset(told.log_start_offset),
        None
        if diverging is None
        else EpochEnd(LeaderEpoch(diverging.epoch), Offset(diverging.end_offset)),
        memoryview(cast("memoryview", told.records or b"")),
    )
