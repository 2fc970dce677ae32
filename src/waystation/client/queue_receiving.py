"""The consuming half of a queue: a member of the share group, and a session with each leader.

Messages arrive here from all leaders and wait to be handed out.  How many are asked for follows
from who is waiting: without prefetching, leaders are asked for what ``receive`` wants, each for its
part of it.  What arrives when nobody waits any more is given back before its lock is over.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Iterable, Sequence
from contextlib import suppress

from waystation.client.coordinator import Coordinator
from waystation.client.errors import ClosedError
from waystation.client.metadata import ClusterView
from waystation.client.queue_errors import unknown_queue
from waystation.client.queue_member import Assignment, QueueMember
from waystation.client.queue_message import QueueMessage
from waystation.client.queue_requests import Named, Place
from waystation.client.queue_session import QueueSession
from waystation.client.queue_settings import ReceivingSettings
from waystation.client.queue_settling import Batch, Settling
from waystation.client.router import Router
from waystation.model.errors import UnknownTopicError, WaystationError
from waystation.model.ids import NodeId, TopicPartition, uuid_text
from waystation.runtime.chance import SeededChance
from waystation.runtime.tasks import Tasks
from waystation.sharing.states import RELEASE, RENEW

__all__ = ["Receiving"]

_ENDLESS_S = 1e9
_TOO_LITTLE_PART = 0.25
"""With less of its lock left, a message is not worth handing out."""
_UNWANTED_PART = 0.3
"""After so much of its lock, a message that nobody asks for is given back."""
_LEAST_WAIT_S = 0.01
"""Who does not want to wait means: what is there, and that has to be asked for."""
_ON_ITS_WAY_S = 0.25
_CLOSING_S = 5.0


class _Want:
    """One ``receive`` that waits: for how many messages, and until when."""

    __slots__ = ("answer", "deadline", "limit")

    def __init__(self, limit: int, deadline: float, loop: asyncio.AbstractEventLoop) -> None:
        self.limit, self.deadline = limit, deadline
        self.answer: asyncio.Future[list[QueueMessage]] = loop.create_future()


class Receiving:
    """What ``Queue`` receives by."""

    def __init__(
        self,
        router: Router,
        settings: ReceivingSettings,
        topic: str,
        group_id: str,
        *,
        every_partition: bool = False,
    ) -> None:
        """``every_partition``: read all of them, whichever the group gives to this member."""
        self.router, self.settings = router, settings
        self._topic, self._every_partition = topic, every_partition
        self._coordinator = Coordinator(router, group_id)
        new_id = uuid_text(SeededChance(router.chance.getrandbits(128)).new_id())
        member_id = settings.member_id or new_id
        self._member = QueueMember(
            router, self._coordinator, topic, member_id, settings.client_rack, self._assigned
        )
        self._assignment: Assignment = {}
        self._sessions: dict[NodeId, QueueSession] = {}
        self._life, self._talks = Tasks(), Tasks()
        self._waiting: deque[QueueMessage] = deque()
        self._joined = asyncio.Event()
        self._wants: dict[_Want, None] = {}
        """Those who wait for messages, in the order in which they came."""
        self._wanted = 0
        self._is_left = False
        """Whether the last who waited went away before anything came."""
        self._trouble: WaystationError | None = None
        self._is_closing = False
        self._giving_back: asyncio.TimerHandle | None = None
        self._unanswered: dict[Settling, None] = {}
        self._loop = asyncio.get_running_loop()

    # --- life -----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to be a member; returns before anything is assigned."""
        try:
            await self.router.topic(self._topic)
        except UnknownTopicError:
            raise unknown_queue(self._topic) from None
        self.router.on_change.append(self._follow_leaders)
        self._life.spawn(self._live(), f"queue-member {self._coordinator.group_id}")

    async def cut(self) -> None:
        """Tell what was settled, and drop the connections by which messages came."""
        self._end_wants()
        await _with_patience(self.flushed())
        for session in self._sessions.values():
            session.cut()

    async def close(self) -> None:
        """Tell what was settled, give back what was not, and leave the group."""
        self._end_wants()
        if self._giving_back is not None:
            self._giving_back.cancel()
        await _with_patience(self.flushed())
        # A fetch that waits at a broker may still acquire something, which is to be given back.
        for session in list(self._sessions.values()):
            await _with_patience(session.idle())
        await self._talks.aclose()
        await asyncio.gather(*(one.close() for one in self._sessions.values()))
        self._waiting.clear()
        if self._follow_leaders in self.router.on_change:
            self.router.on_change.remove(self._follow_leaders)
        await self._life.aclose()
        await _with_patience(self._member.leave())
        await self._coordinator.close()

    async def _live(self) -> None:
        try:
            await self._member.run()
        except WaystationError as error:
            self.troubled(error)

    # --- messages -------------------------------------------------------------------------------

    async def next(self, limit: int, wait_s: float | None) -> list[QueueMessage]:
        """Up to ``limit`` messages, as soon as there is one; none after ``wait_s``."""
        if not self._wants and (messages := self._handed_out(limit)):
            self._mind_what_waits()
            return messages
        self._raise_trouble()
        wait_s = _ENDLESS_S if wait_s is None else max(wait_s, _LEAST_WAIT_S)
        self._is_left = False
        want = _Want(limit, self._loop.time() + wait_s, self._loop)
        self._wants[want] = None
        self._wanted += limit
        late = self._loop.call_at(want.deadline, self._end_want, want)
        self._wake()
        try:
            if messages := await want.answer:
                return messages
            await self._last_answers()
            return self._handed_out(limit)
        except asyncio.CancelledError:
            self._put_back(want)
            self._end_want(want)
            self._is_left = not self._wants
            raise
        finally:
            late.cancel()
            self._end_want(want)
            self._mind_what_waits()

    def _hand_to_wants(self) -> None:
        """Those who came first are served first.  HOT: once per answer that brought messages."""
        while self._wants and self._waiting:
            want = next(iter(self._wants))
            if messages := self._handed_out(want.limit):
                self._end_want(want, messages)

    def _end_want(self, want: _Want, messages: Sequence[QueueMessage] = ()) -> None:
        if want in self._wants:
            del self._wants[want]
            self._wanted -= want.limit
            if not want.answer.done():
                want.answer.set_result(list(messages))

    def _put_back(self, want: _Want) -> None:
        """Who is gone has not seen what had just come for it: others may."""
        if want.answer.done() and not want.answer.cancelled() and not want.answer.exception():
            self._waiting.extendleft(reversed(want.answer.result()))
            self._hand_to_wants()

    def _fail_wants(self, error: WaystationError) -> None:
        for want in list(self._wants):
            if not want.answer.done():
                want.answer.set_exception(error)
            self._end_want(want)

    def _end_wants(self) -> None:
        self._is_closing = True
        self._fail_wants(ClosedError("the queue was closed"))

    async def _last_answers(self) -> None:
        """Leaders wait as long as we do: what they found at the end is on its way."""
        if not self._wants:
            with suppress(TimeoutError):
                async with asyncio.timeout(_ON_ITS_WAY_S):
                    for session in list(self._sessions.values()):  # another leader may come
                        await session.idle()

    async def joined(self) -> None:
        """Wait until the group has given this member something to read."""
        await self._joined.wait()
        if not any(self._assignment.values()):
            self._raise_trouble()

    def at_once(self, limit: int) -> list[QueueMessage]:
        """Messages that are here already."""
        return self._handed_out(limit) if self._waiting and not self._is_closing else []

    def _handed_out(self, limit: int) -> list[QueueMessage]:
        """HOT: a look at its lease for each message."""
        messages: list[QueueMessage] = []
        now = self._loop.time()
        while self._waiting and len(messages) < limit:
            message = self._waiting.popleft()
            lease = message.lease
            if lease.why_not(message.offset, now) is not None:
                continue
            left_s = lease.ends_at(message.offset) - now
            if left_s > _TOO_LITTLE_PART * lease.hold.session.lock_s:
                messages.append(message)
            elif left_s > 0:
                self.settle([message], RELEASE)
        if messages and self.settings.prefetch_messages:
            self._wake()
        return messages

    def _mind_what_waits(self) -> None:
        """Nobody may ask for what has arrived beyond what was wanted."""
        if self.settings.prefetch_messages or not self._waiting or self._giving_back is not None:
            return
        lock_s = self._waiting[0].lease.hold.session.lock_s
        wait_s = 0.0 if self._is_left else lock_s * _UNWANTED_PART
        self._giving_back = self._loop.call_later(wait_s, self._give_back)

    def _give_back(self) -> None:
        self._giving_back = None
        if not self._wants and not self._is_closing:
            unwanted = [one for one in self._waiting if one.lease.hold.lost is None]
            self._waiting.clear()
            self.settle(unwanted, RELEASE)

    def _raise_trouble(self) -> None:
        trouble, self._trouble = self._trouble, None
        if trouble is not None:
            raise trouble
        if self._is_closing:
            raise ClosedError("the queue was closed")
        if not self._life:
            raise ClosedError("the queue is out of its group for good: make a new one")

    # --- settling -------------------------------------------------------------------------------

    def settle(self, messages: Iterable[QueueMessage], kind: int, why: str = "") -> Settling:
        """Tell their leaders what became of messages; ``done`` when all of them have answered.

        HOT: once per message.
        """
        settling, now = Settling(self._loop), self._loop.time()
        batches: dict[Batch, None] = {}
        for message in messages:
            lease, offset = message.lease, message.offset
            where = lease.hold.partition
            if (over := lease.settle(offset, now)) is not None:
                settling.refuse(where, offset, over)
                continue
            settling.add(where, offset)
            batches[lease.hold.session.settle(where, offset, kind, why)] = None
        return self._sent(settling, batches)

    async def renew(self, message: QueueMessage) -> None:
        """Let the lock of a message begin anew."""
        lease, offset = message.lease, message.offset
        where, session = lease.hold.partition, lease.hold.session
        settling = Settling(self._loop)
        batches: dict[Batch, None] = {}
        if (why := lease.why_not(offset, self._loop.time())) is not None:
            settling.refuse(where, offset, why)
        else:
            await session.check_extends()
            settling.add(where, offset)
            batches[session.settle(where, offset, RENEW)] = None
        began = self._loop.time()
        await self._sent(settling, batches).done
        lease.extend(offset, began + session.lock_s)

    async def flushed(self) -> None:
        """Wait until everything settled so far has its answer, whatever that is."""
        waiting = [one.done for one in self._unanswered]
        if waiting:
            await asyncio.wait(waiting)

    def _sent(self, settling: Settling, batches: Iterable[Batch]) -> Settling:
        parts = 0
        for batch in batches:
            batch.settlings[settling] = None
            parts += 1
        self._unanswered[settling] = None
        settling.done.add_done_callback(lambda done: self._answered(settling, done))
        settling.sent_with(parts)
        return settling

    def _answered(self, settling: Settling, done: "asyncio.Future[None]") -> None:
        self._unanswered.pop(settling, None)
        if not done.cancelled():
            done.exception()  # seen, whether or not anybody waits for it

    # --- what sessions ask and tell -------------------------------------------------------------

    @property
    def name(self) -> Named:
        """The group, and the member of it."""
        return Named(self._coordinator.group_id, self._member.member_id)

    def room(self) -> int:
        """How many messages a session may ask for now: its part of what is wanted."""
        if self._is_closing:
            return 0
        missing = self._wanted + self.settings.prefetch_messages - len(self._waiting)
        leaders = sum(one.reads for one in self._sessions.values()) or 1
        return -(-missing // leaders)

    def wait_ms(self) -> int:
        """How long a broker may wait: not longer than anybody here does."""
        longest_ms = self.settings.fetch_max_wait_ms
        if self.settings.prefetch_messages:
            return longest_ms
        now, left_ms = self._loop.time(), 0
        for want in self._wants:
            left_ms = max(left_ms, int((want.deadline - now) * 1_000))
            if left_ms >= longest_ms:
                break
        return min(left_ms, longest_ms)

    def take(self, messages: Iterable[QueueMessage]) -> None:
        """Messages have arrived."""
        self._waiting.extend(messages)
        self._hand_to_wants()
        if not self._wants:
            self._mind_what_waits()

    def troubled(self, error: WaystationError) -> None:
        """Something is wrong that only the application can mend: ``receive`` raises.

        Those that wait now, or else the next one.
        """
        if self._wants:
            self._fail_wants(error)
        else:
            self._trouble = error
        self._joined.set()

    # --- partitions and their leaders -----------------------------------------------------------

    def _assigned(self, assignment: Assignment) -> None:
        self._assignment = assignment
        self._follow_leaders()
        if any(assignment.values()):
            self._joined.set()

    def _follow_leaders(self) -> None:
        """Let each leader's session read what is assigned and led there."""
        view = self.router.view
        names = {topic.id: name for name, topic in view.topics.items()}
        by_leader: dict[NodeId, dict[Place, TopicPartition]] = {}
        is_complete = True
        for topic_id, numbers in self._to_read(view).items():
            for number in numbers:
                where = TopicPartition(names.get(topic_id, ""), number)
                leader = view.leader(where)
                if leader is None:
                    is_complete = False
                    continue
                by_leader.setdefault(leader, {})[topic_id, number] = where
        for node in by_leader:
            if node not in self._sessions and not self._is_closing:
                session = self._sessions[node] = QueueSession(node, self)
                self._talks.spawn(session.run(), f"queue-session {node}")
        for node, session in self._sessions.items():
            session.read(by_leader.get(node, {}))
        if not is_complete:
            self.router.want_refresh()

    def _to_read(self, view: ClusterView) -> Assignment:
        known = view.topics.get(self._topic)
        if self._every_partition and any(self._assignment.values()) and known is not None:
            return {known.id: [one.partition for one in known.partitions]}
        return self._assignment

    def _wake(self) -> None:
        for session in self._sessions.values():
            session.wake()


async def _with_patience(ending: Awaitable[None]) -> None:
    """Wait for what is done at the end, but not for ever: the others will notice anyway."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_CLOSING_S):
            await ending
