"""A share session: one consumer's conversation with one leader about all it reads there (KIP-932).

Every request of a session is numbered, and the broker follows them in that order.  Acknowledgements
go along with the next fetch, which then does not wait for messages; while a fetch waits at the
broker, they go by themselves, over the connection for prompt answers.  Promises:

1. a number is used once, and what is numbered later is told later: who acknowledges while a fetch
   is on its way may arrive before it, is told so by the broker, and says it again;
2. when a session ends, for whatever reason, its leases end, and whoever settles one is told why;
3. one message that cannot be settled any more does not take others with it: a leader refuses a
   partition's acknowledgements together, so that they are then told in halves.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from waystation.client.connection import Connection
from waystation.client.errors import ClosedError, error_of, is_retriable
from waystation.client.queue_errors import STRAYED
from waystation.client.queue_halves import culprits
from waystation.client.queue_holdings import Holdings
from waystation.client.queue_lease import Lease
from waystation.client.queue_message import QueueMessage
from waystation.client.queue_records import acquired_in, messages_in
from waystation.client.queue_requests import (
    Place,
    Places,
    acknowledge_request,
    end_request,
    fetch_request,
    fetched_in,
    settled_in,
    where_leaders_are,
)
from waystation.client.queue_settling import Batch, Kinds
from waystation.client.queue_surroundings import Surroundings
from waystation.messages.share_acknowledge import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
)
from waystation.messages.share_fetch import OPEN_SESSION, PartitionData, ShareFetchResponse
from waystation.model.errors import ErrorCode, UnsupportedVersionError, WaystationError
from waystation.model.ids import NodeId, TopicPartition
from waystation.model.offsets import Offset
from waystation.sharing.states import GAP, RELEASE, RENEW
from waystation.wire.versions import ApiKey

__all__ = ["QueueSession"]

_EPOCH_MAX = (1 << 31) - 1
_SINCE_RENEWING = 2
_PROBABLY_HELD_S = 0.005
"""A fetch that has no answer by then is taken for one that waits for messages."""
_RACES_MAX = 8
_RACE_S = 0.002
_CLOSING_S = 2.0
_REASONS_MAX, _REASON_CHARACTERS = 2_000, 300
_UNANSWERED = "could not be settled: its leader did not answer for it"


class QueueSession:
    """The conversation with one leader; ``run`` is its life, ``close`` its end."""

    def __init__(self, node: NodeId, around: Surroundings) -> None:
        self.node = node
        self.lock_s = 0.0
        self._around = around
        self._wanted: dict[Place, TopicPartition] = {}
        self._told: dict[Place, TopicPartition] = {}
        self._holdings = Holdings(self)
        self._epoch = OPEN_SESSION
        self._life = 0
        """How many sessions with this leader have ended."""
        self._connection: Connection | None = None
        self._gathering = Batch()
        self._reasons: dict[TopicPartition, dict[int, str]] = {}
        self._turn = asyncio.Lock()
        self._changed, self._to_tell = asyncio.Event(), asyncio.Event()
        self._fetching_since: float | None = None
        self._loop = asyncio.get_running_loop()

    # --- what the queue says --------------------------------------------------------------------

    def read(self, partitions: dict[Place, TopicPartition]) -> None:
        """Read these from now on."""
        if partitions == self._wanted:
            return
        self._holdings.reads(partitions)
        self._wanted = partitions
        self._changed.set()

    @property
    def reads(self) -> bool:
        """Whether there is anything to read here."""
        return bool(self._wanted)

    def wake(self) -> None:
        """There may be room for messages."""
        self._changed.set()

    def settle(self, where: TopicPartition, offset: int, kind: int, why: str = "") -> Batch:
        """Tell the leader soon; whoever waits for its answer joins the batch."""
        self._gathering.add(where, offset, kind)
        if why:
            self._explain(where, offset, why)
        self._to_tell.set()
        return self._gathering

    def _explain(self, where: TopicPartition, offset: int, why: str) -> None:
        """Keep a reason until its message was told of; of many, the last."""
        known = self._reasons.setdefault(where, {})
        known.pop(offset, None)
        known[offset] = why[:_REASON_CHARACTERS]
        if len(known) > _REASONS_MAX:
            del known[next(iter(known))]

    async def check_extends(self) -> None:
        """Raise if the broker cannot renew locks."""
        connection = await self._around.router.to_node(self.node)
        if connection.version_of(ApiKey.SHARE_ACKNOWLEDGE) < _SINCE_RENEWING:
            raise UnsupportedVersionError(
                f"the broker at {connection.address} cannot extend locks: that came with "
                "ShareAcknowledge v2 (Apache Kafka 4.2)"
            )

    # --- life -----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Fetch whenever there is room, and tell what became of messages, until cancelled."""
        async with asyncio.TaskGroup() as both:
            both.create_task(self._repeat(self._fetch_or_wait))
            both.create_task(self._repeat(self._tell_when_due))

    async def idle(self) -> None:
        """Wait until no fetch is under way that could still acquire something."""
        while self._fetching_since is not None:
            await asyncio.sleep(_RACE_S)

    def cut(self) -> None:
        """Drop the connection: the broker gives back at once what is held, and ends the fetch."""
        if self._connection is not None:
            self._connection.close()

    async def close(self) -> None:
        """Tell what is left to tell, and give back what is held; ``run`` has ended before."""
        batch = self._gathered()
        if self._epoch == OPEN_SESSION:
            batch.refused("is not held any more: the queue was closed")
            return
        places = self._holdings.places()
        request = end_request(self._around.name, batch, self._reasons, places)
        try:
            async with asyncio.timeout(_CLOSING_S):
                told = await self._ask(request)
            if told.error_code:
                raise error_of(told.error_code, f"session with node {self.node}")
            refused = self._refusals(told, batch.kinds, places)
            batch.answered(
                {where: dict.fromkeys(batch.kinds[where], why) for where, why in refused.items()}
            )
        except WaystationError as error:
            batch.unknown(error)
        except TimeoutError:
            batch.unknown(error_of(ErrorCode.REQUEST_TIMED_OUT, f"node {self.node}"))
        self._lose("the queue was closed")

    async def _repeat(self, turn: Callable[[], Awaitable[None]]) -> None:
        failures = 0
        while True:
            try:
                await turn()
                failures = 0
            except WaystationError as error:
                self._lose(f"the session with node {self.node} ended ({error})")
                if not is_retriable(error):
                    self._around.troubled(error)
                self._around.router.want_refresh()
                failures += 1
                await asyncio.sleep(self._around.router.backoff.delay_s(failures))

    # --- fetching -------------------------------------------------------------------------------

    async def _fetch_or_wait(self) -> None:
        self._changed.clear()
        if not self._wanted or self._around.room() <= 0:
            await self._changed.wait()
            return
        connection = await self._around.router.to_node(self.node, held=True)
        async with self._turn:
            self._check_same(connection)
            batch = self._gathered(for_fetch=True) if self._epoch else Batch()
            # Who fails meanwhile may forget where something is: the answer is about these.
            places, life = self._holdings.places(), self._life
            answer = self._start_fetch(connection, batch, places)
        try:
            self._fetching_since = self._loop.time()
            response = await answer
        except WaystationError as error:
            batch.unknown(error)
            raise
        except asyncio.CancelledError:
            batch.unknown(ClosedError("the queue was closed before the answer came"))
            raise
        finally:
            self._fetching_since = None
        await self._take(response, batch, places, is_current=life == self._life)

    def _start_fetch(
        self, connection: Connection, batch: Batch, places: Places
    ) -> asyncio.Future[ShareFetchResponse]:
        settings = self._around.settings
        room = max(self._around.room(), 1)
        # What it takes along is answered with it: whoever acknowledges does not wait for messages.
        wait_ms = 0 if batch else self._around.wait_ms()
        new = {place: at for place, at in self._wanted.items() if place not in self._told}
        gone = [place for place in self._told if place not in self._wanted]
        request = fetch_request(
            self._around.name,
            self._epoch,
            room,
            wait_ms,
            settings,
            new,
            gone,
            batch,
            self._reasons,
            places,
        )
        timeout_s = (self._around.router.settings.request_timeout_ms + wait_ms) / 1_000
        answer = connection.start(request, ShareFetchResponse, timeout_s)
        self._connection = connection
        self._told = dict(self._wanted)
        self._next_epoch()
        return answer

    async def _take(
        self, response: ShareFetchResponse, batch: Batch, places: Places, *, is_current: bool
    ) -> None:
        """Follow an answer; messages for a session that has ended meanwhile are not ours."""
        if response.error_code:
            said = response.error_message
            error = error_of(response.error_code, f"session with node {self.node}", said)
            batch.refused(f"is not held any more: {error}")
            raise error
        self.lock_s = response.acquisition_lock_timeout_ms / 1_000 or self.lock_s
        refused = dict.fromkeys(batch.kinds, _UNANSWERED)
        has_failed = False
        for place, told in fetched_in(response).items():
            where = places.get(place)
            if where is None:
                continue
            if told.acknowledge_error_code and where in refused:
                said = told.acknowledge_error_message
                refused[where] = self._why(where, told.acknowledge_error_code, said)
            else:
                refused.pop(where, None)
            if told.error_code:
                has_failed = True
                hint = told.current_leader.leader_id, told.current_leader.leader_epoch
                self._failed(where, told.error_code, told.error_message, hint, response)
            elif told.acquired_records and is_current:
                self._around.take(self._acquired(where, told))
        if refused:
            async with self._turn:
                await self._tell_in_halves(batch, refused)
        else:
            self._holdings.answered(batch, {})
        # Whoever waits for messages takes them before more are asked for.
        await asyncio.sleep(self._around.router.backoff.delay_s(1) if has_failed else 0)

    def _acquired(self, where: TopicPartition, told: PartitionData) -> Iterable[QueueMessage]:
        assert isinstance(told.records, memoryview), f"records came as {type(told.records)}"
        limit_bytes = self._around.settings.batch_limit_bytes
        found = acquired_in(told.records, told.acquired_records, limit_bytes)
        for offset in found.gaps:
            self.settle(where, offset, GAP)
        for offset in found.corrupt:
            self.settle(where, offset, RELEASE)
        if found.damage is not None:
            self._around.troubled(found.damage)
        unsettled = {Offset(row[0]) for row, _ in found.rows}
        hold = self._holdings.of(where)
        lease = Lease(hold, self._loop.time() + self.lock_s, unsettled)
        hold.took(lease, unsettled)
        return messages_in(found, *where, lease)

    # --- telling --------------------------------------------------------------------------------

    async def _tell_when_due(self) -> None:
        """Tell what no fetch has taken along."""
        await self._to_tell.wait()
        await asyncio.sleep(self._around.settings.ack_linger_ms / 1_000)
        since = self._fetching_since
        if since is not None and (early_s := since + _PROBABLY_HELD_S - self._loop.time()) > 0:
            await asyncio.sleep(early_s)
        async with self._turn:
            batch = self._gathered()
            if not batch:
                return
            if self._epoch == OPEN_SESSION:
                batch.refused(f"is not held any more: node {self.node} has begun anew")
                return
            try:
                refused = await self._tell(batch.kinds)
            except WaystationError as error:
                batch.unknown(error)
                raise
            except asyncio.CancelledError:
                batch.unknown(ClosedError("the queue was closed before the answer came"))
                raise
            if refused:
                await self._tell_in_halves(batch, refused)
            else:
                self._holdings.answered(batch, {})

    async def _tell(self, kinds: dict[TopicPartition, Kinds]) -> dict[TopicPartition, str]:
        """One request; the partitions that refused all of theirs, and why."""
        places = self._holdings.places()
        request = acknowledge_request(self._around.name, self._epoch, kinds, places, self._reasons)
        told = await self._ask(request)
        for attempt in range(_RACES_MAX):
            # A fetch that was sent before, over another connection, has not arrived yet.
            if told.error_code != ErrorCode.INVALID_SHARE_SESSION_EPOCH:
                break
            await asyncio.sleep(_RACE_S * 2**attempt)
            told = await self._ask(request)
        if told.error_code:
            raise error_of(told.error_code, f"session with node {self.node}", told.error_message)
        self._next_epoch()
        if told.acquisition_lock_timeout_ms:
            self.lock_s = told.acquisition_lock_timeout_ms / 1_000
        for place, one in settled_in(told).items():
            where = places.get(place)
            if where is not None and one.error_code in STRAYED:
                hint = one.current_leader.leader_id, one.current_leader.leader_epoch
                self._failed(where, one.error_code, one.error_message, hint, told)
        return self._refusals(told, kinds, places)

    async def _tell_in_halves(self, batch: Batch, refused: dict[TopicPartition, str]) -> None:
        """Find out which messages of a partition are at fault, and settle the others."""
        culprits: dict[TopicPartition, dict[int, str]] = {}
        try:
            for where, why in refused.items():
                culprits[where] = await self._culprits(where, batch.kinds[where], why)
        except WaystationError as error:
            batch.unknown(error)
            raise
        self._holdings.answered(batch, culprits)

    async def _culprits(self, where: TopicPartition, kinds: Kinds, why: str) -> dict[int, str]:
        async def tell(part: Kinds) -> str | None:
            return (await self._tell({where: part})).get(where)

        return await culprits(kinds, why, tell, lambda: not self._holdings.has(where))

    async def _ask(self, request: ShareAcknowledgeRequest) -> ShareAcknowledgeResponse:
        router = self._around.router
        return await router.ask(router.to_node(self.node), request, ShareAcknowledgeResponse)

    def _refusals(
        self, told: ShareAcknowledgeResponse, kinds: Iterable[TopicPartition], places: Places
    ) -> dict[TopicPartition, str]:
        """The partitions that did not say yes: no answer is none."""
        refused = dict.fromkeys(kinds, _UNANSWERED)
        for place, one in settled_in(told).items():
            where = places.get(place)
            if where in refused and one.error_code:
                refused[where] = self._why(where, one.error_code, one.error_message)
            elif where is not None:
                refused.pop(where, None)
        return refused

    def _gathered(self, *, for_fetch: bool = False) -> Batch:
        """What waits to be told.

        Renewals do not go with fetches, which would wait for nothing; nor does what is told of
        partitions that are not read any more: to name them is to read them.
        """
        batch = self._gathering
        if for_fetch:
            read = set(self._wanted.values())
            if any(where not in read or RENEW in kinds.values() for where, kinds in batch.items()):
                return Batch()
        self._gathering = Batch()
        self._to_tell.clear()
        return batch

    # --- trouble --------------------------------------------------------------------------------

    def _check_same(self, connection: Connection) -> None:
        """A session ends with the connection over which it was opened."""
        if self._epoch != OPEN_SESSION and connection is not self._connection:
            self._lose(f"the connection to node {self.node} was lost")

    def _failed(
        self,
        where: TopicPartition,
        code: int,
        said: str | None,
        hint: tuple[int, int],
        response: ShareFetchResponse | ShareAcknowledgeResponse,
    ) -> None:
        """A partition is not to be had here, or not now."""
        error = error_of(code, f"partition {where}", said)
        if code in STRAYED:
            self._holdings.let_go(where, str(error))
            named = hint if hint[0] >= 0 else None
            at = where_leaders_are(response)
            self._around.router.strayed(where, self.node, named, at)
        elif is_retriable(error):
            self._around.router.want_refresh()
        else:
            self._around.troubled(error)

    def _why(self, where: TopicPartition, code: int, said: str | None) -> str:
        if code == ErrorCode.INVALID_RECORD_STATE:
            return f"is not held any more: {said or 'its lock is over, and others may have it'}"
        return f"could not be settled: {error_of(code, f'partition {where}', said)}"

    def _lose(self, why: str) -> None:
        """The session is over, and with it everything held in it."""
        self._holdings.lose(why, self._wanted)
        self._told = {}
        self._epoch, self._connection = OPEN_SESSION, None
        self._life += 1
        self._gathered().refused(f"is not held any more: {why}")

    def _next_epoch(self) -> None:
        self._epoch = 1 if self._epoch == _EPOCH_MAX else self._epoch + 1
