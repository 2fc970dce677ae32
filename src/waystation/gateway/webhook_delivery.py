"""One webhook on one node: takes messages from its queue, posts them, and says what became of them.

Every node does this for every webhook; the share group gives each message to one of them.

1. A message is acknowledged only after the target has answered 2xx; if the node dies before, it
   goes to another, with the same id.
2. What fails goes back and waits at the broker, longer each time, or is given up as a dead letter:
   ``webhook_breaker.py`` decides which.
3. Requests under way are bounded, and nothing is taken from the queue that cannot be sent now.
   A message that failed once goes by itself, so that it fails for no other.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from waystation.client.queue import Queue
from waystation.client.queue_errors import NotHeldError, SettlementUnknownError
from waystation.client.queue_message import QueueMessage
from waystation.client.webhook_descriptions import GivenUp
from waystation.filters.selecting import Filter
from waystation.gateway.webhook_breaker import Breaker, Verdict, verdict_of
from waystation.gateway.webhook_definitions import Definition
from waystation.gateway.webhook_figures import Figures
from waystation.gateway.webhook_requests import webhook_request
from waystation.model.errors import WaystationError
from waystation.runtime.clock import Clock
from waystation.runtime.tasks import Tasks
from waystation.sharing.retry import RetryPolicy
from waystation.telemetry.logs import get_logger

if TYPE_CHECKING:
    from waystation.client.transport import Connect
    from waystation.gateway.webhook_meters import WebhookMeter
    from waystation.gateway.webhook_posting import Outcome, Poster

__all__ = ["Delivery"]

_WAIT_MS: Final = 5_000
_PAUSE_S, _PAUSE_MOST_S = 0.2, 30.0
_ENDING_S: Final = 3.0
_SETTLING_S: Final = 5.0
"""For how much longer than its request a message must be ours, to say what became of it."""
_LOOK_S: Final = 1.0
_PATIENCE_MOST_MS: Final = 3_600_000
_AT_ONCE: Final = 200
_UNSETTLED: Final = 500
_TOGETHER_S: Final = 0.002
_LOOKED_AT: Final = 50
_FETCH_BYTES: Final = 2 << 20
_BATCH_BYTES: Final = 1 << 20
_THREAD_BYTES: Final = 128 << 10
"""From here on encoding and signing take longer than a turn of the loop should."""

_events = get_logger("webhooks")


class Delivery:
    """Delivers one webhook until it is closed; a change of the definition means another one."""

    def __init__(
        self,
        webhook: Definition,
        *,
        bootstrap: str,
        connect: "Connect",
        poster: "Poster",
        figures: Figures,
        meter: "WebhookMeter",
        clock: Clock,
        member_id: str,
    ) -> None:
        """``member_id`` is the node's own in the group, whichever life it lives."""
        self.webhook = webhook
        self._member_id = member_id
        self._bootstrap, self._connect = bootstrap, connect
        self._poster = poster
        self._figures, self._meter, self._clock = figures, meter, clock
        self._filter = None if webhook.where is None else Filter(webhook.where)
        self._breaker = Breaker()
        self._under_way = 0
        self._posting = 0
        self._in_vain = 0
        """How often in a row the queue itself could not be read."""
        self._slots = asyncio.Semaphore(webhook.concurrency)
        self._changed = asyncio.Event()
        self._requests = Tasks()
        self._running = Tasks()
        self._retry = RetryPolicy(
            webhook.max_deliveries, webhook.backoff_ms, webhook.backoff_max_ms
        )

    def start(self) -> None:
        """Begin."""
        self._running.spawn(self._run(), f"webhook-{self.webhook.name}")

    async def aclose(self) -> None:
        """Take nothing more, let requests end for a moment, give the rest back."""
        await self._running.aclose()

    # --- taking ---------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            try:
                await self._with_queue(probing=self._breaker.is_open)
            except Exception as error:  # the task's outermost frame
                if not isinstance(error, WaystationError):
                    _events.error("webhook.failed", webhook=self.webhook.name, exc_info=error)
                self._note_failure(0, str(error))
                await asyncio.sleep(min(_PAUSE_S * 2.0**self._in_vain, _PAUSE_MOST_S))
                self._in_vain = min(self._in_vain + 1, 20)

    async def _with_queue(self, *, probing: bool) -> None:
        """Deliver until the breaker opens, or closes.

        Having messages ready is three times as fast: a broker gives more only once the last are
        stored.  But a node whose target is down must not keep them from nodes that reach it.
        """
        queue = Queue(
            self.webhook.topic,
            self._bootstrap,
            group=self.webhook.group,
            connect=self._connect,
            client_id="webhooks",
            member_id=self._member_id,
            fetch_max_bytes=_FETCH_BYTES,
            prefetch_messages=0 if probing else self._ahead(),
        )
        await queue.start()
        try:
            while self._breaker.is_open is probing:
                await self._take(queue)
            await self._ended(self.webhook.timeout_ms / 1_000 + _ENDING_S)
        finally:
            await self._let_end(queue)

    def _ahead(self) -> int:
        """None where tries are counted whatever happens: one that waits here counts as tried."""
        if self.webhook.while_down == "count":
            return 0
        return min(self.webhook.concurrency * self.webhook.batch_size, _AT_ONCE)

    async def _let_end(self, queue: Queue) -> None:
        await self._ended(_ENDING_S)
        await self._requests.aclose()
        with suppress(WaystationError, TimeoutError):
            async with asyncio.timeout(_ENDING_S):
                await queue.close()

    async def _ended(self, within_s: float) -> None:
        """Wait until no request is under way, for so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while len(self._requests):
                    await self._next_change()

    async def _take(self, queue: Queue) -> None:
        """Begin as many requests as there is room for, once there are messages."""
        room = await self._room()
        size = 1 if self._breaker.is_open else self.webhook.batch_size
        at_once = max(min(room * size, _AT_ONCE), size)
        messages = await queue.receive(max_messages=at_once, wait_ms=_WAIT_MS)
        if self._in_vain:
            self._in_vain = 0
            self._figures.recovered()
        for batch in _batches(await self._wanted(queue, messages), size):
            self._under_way += 1
            self._requests.spawn(self._deliver(queue, batch), f"webhook-{self.webhook.name}-post")

    async def _room(self) -> int:
        """How many requests may be begun now, once it is at least one."""
        has_waited = False
        while True:
            now = self._clock.now()
            room = self._breaker.may_send(now, self.webhook.concurrency, self._under_way)
            if len(self._requests) >= _UNSETTLED:
                room = 0
            if room and (has_waited or 2 * room >= self.webhook.concurrency):
                return room
            if room:
                # Others end soon, as a rule: to ask for a few messages at once costs less.
                await asyncio.sleep(_TOGETHER_S)
                has_waited = True
                continue
            waits_ms = self._breaker.waits_ms(now)
            with suppress(TimeoutError):
                async with asyncio.timeout(min(waits_ms / 1_000 or _LOOK_S, _LOOK_S)):
                    await self._next_change()

    async def _next_change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    async def _wanted(
        self, queue: Queue, messages: Sequence[QueueMessage]
    ) -> Sequence[QueueMessage]:
        """Those that the filter means; the others are done with."""
        if self._filter is None:
            return messages
        wanted: list[QueueMessage] = []
        skipped: list[QueueMessage] = []
        for number, one in enumerate(messages, 1):
            (wanted if self._matches(self._filter, one) else skipped).append(one)
            if number % _LOOKED_AT == 0:
                await asyncio.sleep(0)
        if skipped:
            self._figures.skipped += len(skipped)
            queue.submit_ack(skipped).add_done_callback(_heard)
        return wanted

    @staticmethod
    def _matches(chosen: Filter, one: QueueMessage) -> bool:
        return chosen.matches(
            one.key, one.value, one.headers, one.timestamp, one.partition, one.offset
        )

    # --- sending --------------------------------------------------------------------------------

    async def _deliver(self, queue: Queue, messages: Sequence[QueueMessage]) -> None:
        """Post, make room for others, and only then wait until what became of it is stored."""
        try:
            held, outcome = await self._sent(queue, messages)
            if outcome is not None:
                await self._settle(queue, held, outcome)
        except (NotHeldError, SettlementUnknownError) as error:
            # Somebody else has them, or will: they come once more, which ids are for.
            _events.info("webhook.not.settled", webhook=self.webhook.name, reason=str(error))
        except WaystationError as error:
            self._note_failure(len(messages), str(error))
            with suppress(WaystationError):
                await queue.nack([one for one in messages if one.is_held])
        finally:
            asyncio.get_running_loop().call_soon(self._changed.set)

    async def _sent(
        self, queue: Queue, messages: Sequence[QueueMessage]
    ) -> "tuple[Sequence[QueueMessage], Outcome | None]":
        try:
            async with self._slots, self._poster.room(is_first=not self._posting):
                self._posting += 1
                try:
                    held = await self._held(queue, messages)
                    outcome = await self._post(held) if held else None
                finally:
                    self._posting -= 1
            if outcome is not None:
                self._hear(outcome)
            return held, outcome
        finally:
            self._under_way -= 1
            self._changed.set()

    async def _held(self, queue: Queue, messages: Sequence[QueueMessage]) -> list[QueueMessage]:
        """Those that are ours for as long as a request may take.

        Who waited for a slot may have lost some to another node; and what another node posts at
        the same time would be out of order, too.
        """
        needs_s = self.webhook.timeout_ms / 1_000 + _SETTLING_S
        for one in messages:
            if one.is_held and one.seconds_left < needs_s:
                with suppress(NotHeldError, SettlementUnknownError):
                    await queue.extend(one)
        return [one for one in messages if one.is_held and one.seconds_left >= needs_s]

    async def _post(self, messages: Sequence[QueueMessage]) -> "Outcome":
        asked = (self.webhook, messages, self._clock.now())
        if sum(_size(one) for one in messages) > _THREAD_BYTES:
            body, headers = await asyncio.to_thread(webhook_request, *asked)
        else:
            body, headers = webhook_request(*asked)
        timeout_s = self.webhook.timeout_ms / 1_000
        return await self._poster.post(self.webhook.url, body, headers, timeout_s)

    async def _settle(
        self, queue: Queue, messages: Sequence[QueueMessage], outcome: "Outcome"
    ) -> None:
        verdict = verdict_of(outcome.status)
        if verdict is Verdict.ACCEPTED:
            self._meter.delivered.add(len(messages))
            self._figures.accepted(len(messages), self._clock.now())
            await queue.ack(messages)
            return
        self._note_failure(len(messages), outcome.error or "failed")
        hopeless = [one for one in messages if self._gives_up(one, verdict)]
        if hopeless:
            await self._give_up(queue, hopeless, outcome)
        for one in messages:
            if one not in hopeless:
                await self._give_back(queue, one, _patience_ms(outcome))

    async def _give_back(self, queue: Queue, one: QueueMessage, patience_ms: int) -> None:
        """For another try, which the broker puts off; the rest of a target's wish we do."""
        more_ms = patience_ms - self._retry.pause_ms(one.deliveries)
        await queue.nack(one, delay=more_ms if more_ms > 0 else None)

    async def _give_up(
        self, queue: Queue, messages: Sequence[QueueMessage], outcome: "Outcome"
    ) -> None:
        now, why = self._clock.now(), outcome.error or "failed"
        self._figures.gave_up(
            [GivenUp(one.partition, one.offset, one.deliveries, why, now) for one in messages]
        )
        self._meter.dead.add(len(messages))
        _events.warning(
            "webhook.gave.up",
            webhook=self.webhook.name,
            messages=[one.id for one in messages],
            dead_letter_topic=self.webhook.dead_letter_topic,
            reason=why,
        )
        await queue.nack(messages, requeue=False, why=why)

    def _gives_up(self, one: QueueMessage, verdict: Verdict) -> bool:
        return self._breaker.may_give_up(
            verdict,
            one.deliveries,
            self.webhook.max_deliveries,
            counts=self.webhook.while_down == "count",
        )

    def _hear(self, outcome: "Outcome") -> None:
        self._meter.seconds.observe(outcome.took_s)
        was_open = self._breaker.is_open
        verdict = verdict_of(outcome.status)
        self._breaker.heard(self._clock.now(), verdict, _patience_ms(outcome))
        if self._breaker.is_open and not was_open:
            _events.warning(
                "webhook.target.down",
                webhook=self.webhook.name,
                remedy="messages wait, and are tried one at a time",
            )
        elif was_open and not self._breaker.is_open:
            _events.info("webhook.target.up", webhook=self.webhook.name)

    def _note_failure(self, messages: int, error: str) -> None:
        self._meter.failed.add(messages)
        self._figures.went_wrong(messages, error, self._clock.now())


def _patience_ms(outcome: "Outcome") -> int:
    """For how long the target wants to be left alone, which an answer of 2xx does not say."""
    if verdict_of(outcome.status) is Verdict.ACCEPTED:
        return 0
    return min(int((outcome.retry_after_s or 0) * 1_000), _PATIENCE_MOST_MS)


def _batches(messages: Sequence[QueueMessage], size: int) -> list[list[QueueMessage]]:
    """Requests' worth of messages, not too large ones; those that failed before go alone."""
    batches: list[list[QueueMessage]] = []
    room = 0
    for one in messages:
        if one.deliveries > 1:
            batches.append([one])
            room = 0
        elif room and len(batches[-1]) < size and _size(one) <= room:
            batches[-1].append(one)
            room -= _size(one)
        else:
            batches.append([one])
            room = max(_BATCH_BYTES - _size(one), 0)
    return batches


def _size(one: QueueMessage) -> int:
    return len(one.key or b"") + len(one.value or b"")


def _heard(done: "asyncio.Future[None]") -> None:
    """A skipped message whose acknowledgement was lost is skipped again when it comes again."""
    if not done.cancelled():
        done.exception()
