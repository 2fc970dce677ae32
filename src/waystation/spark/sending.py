"""A producer that is driven by plain calls: what a task of Spark's sends its batches with.

Spark's tasks are plain functions, the client is asyncio, so the client runs on an event loop in
a thread of its own: while the task packs rows, the batches before are on their way.  Promises:

1. ``put`` returns at once while less than ``buffer_bytes`` wait for their answers, and waits for
   room otherwise: a slow broker slows the task down and fills no memory;
2. the first error of a send comes out of the next call, whatever that is, and of every later one;
3. ``flush`` and ``prepare`` return when every batch has its answer;
4. a topic that is deleted meanwhile is an error soon, also if it is made anew; none is made here;
5. after ``close`` nothing is left, neither thread nor connection; what was not delivered by then
   is given up.
"""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import Future
from functools import partial
from threading import Condition, Thread
from types import TracebackType
from typing import Any, Final, NoReturn, Self, TypeVar, cast

from waystation.client.admin import Admin
from waystation.client.errors import is_retriable
from waystation.client.options import ConnectionOptions, ProducerOptions
from waystation.client.outgoing import Delivered
from waystation.client.producer import Producer
from waystation.client.transactor import PreparedTransaction
from waystation.model.errors import UnknownTopicError, WaystationError
from waystation.model.ids import NO_NODE, TopicId
from waystation.runtime.loops import new_loop
from waystation.spark.encode import BATCH_BYTES, Encoder, Packed, TopicFacts
from waystation.spark.memory import keep_freed_memory

__all__ = ["Sending"]

T = TypeVar("T")

UNDER_WAY_BYTES: Final = 16 << 20
_REQUEST_BYTES: Final = 8 << 20
_LOOK_EVERY_S: Final = 1.0
_MESSAGE_BYTES: Final = 1_048_588
"""What a topic takes where nobody says otherwise."""


class Sending:
    """One task's producer; ``start`` it, and ``close`` it or use it with ``with``.

    ``options`` are the client's.  ``run`` works from the beginning, so that a task may ask
    brokers before it writes.
    """

    def __init__(self, bootstrap: str, options: ProducerOptions) -> None:
        keep_freed_memory()
        self._bootstrap, self._options = bootstrap, _roomy(options)
        self._most_bytes = options.get("buffer_bytes", UNDER_WAY_BYTES)
        self._producer: Producer | None = None
        self._admin: Admin | None = None
        self._lives: dict[str, TopicId] = {}
        self._changed = Condition()
        self._under_way_bytes = 0
        self._failure: Exception | None = None
        self._loop = new_loop()
        self._thread = Thread(target=self._loop.run_forever, name="spark-sending", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- life -------------------------------------------------------------------------------

    def start(self, transactional_id: str | None = None) -> None:
        """Reach the cluster; with a transactional id, take it over and open a transaction."""
        self.run(self._start(transactional_id))

    def adopt(self, producer: Producer) -> None:
        """Send with a producer that was started by ``run``, its transaction open if it has any."""
        self._producer = producer

    def close(self) -> None:
        """End the producer, its loop and its thread; what is still under way is given up."""
        if self._loop.is_closed():
            return
        try:
            self.run(self._close())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` on the producer's loop to its end."""
        done: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return done.result()
        except BaseException:
            done.cancel()
            raise

    # --- topics -----------------------------------------------------------------------------

    def topic(self, name: str) -> TopicFacts:
        """What an ``Encoder`` must know of a topic; one that does not exist is not created."""
        return self.run(self._topic(name))

    def encoder(self, topic: str = "") -> Encoder:
        """An encoder for what this sends, to ``topic`` or to that of each row."""
        options = self._options
        return Encoder(
            self.topic,
            topic=topic,
            batch_bytes=options.get("batch_bytes", BATCH_BYTES),
            most_bytes=options["max_request_bytes"],
            compressed=options.get("compression", "none") != "none",
        )

    # --- batches ----------------------------------------------------------------------------

    def put(self, packed: Packed) -> None:
        """Send a batch behind those before it; waits while too much is under way."""
        size_bytes = packed.batch.size_bytes
        while not self._has_room(size_bytes):
            self.run(self._look())
        self._loop.call_soon_threadsafe(self._submit, packed)

    def flush(self) -> None:
        """Return when everything that was put has reached its broker."""
        self._check()
        self.run(self._unless_gone(self._flush()))

    def prepare(self) -> PreparedTransaction:
        """Let the transaction, with everything that was put, wait for its outcome."""
        self._check()
        return self.run(self._unless_gone(self._prepare()))

    def abort(self) -> None:
        """Take back everything that was put, if there is a transaction."""
        if self._producer is not None and self._producer.settings.transactional_id is not None:
            self.run(self._producer.transactor.abort())

    # --- behind the scenes ------------------------------------------------------------------

    @property
    def _started(self) -> Producer:
        assert self._producer is not None, "a batch before the producer was started"
        return self._producer

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _has_room(self, size_bytes: int) -> bool:
        """Whether so much may go under way, after some waiting for it; then it counts as if."""

        def is_known() -> bool:
            under_way_bytes = self._under_way_bytes
            fits = not under_way_bytes or under_way_bytes + size_bytes <= self._most_bytes
            return fits or self._failure is not None

        with self._changed:
            if not self._changed.wait_for(is_known, _LOOK_EVERY_S):
                return False
            self._check()
            self._under_way_bytes += size_bytes
            return True

    async def _start(self, transactional_id: str | None) -> None:
        options = self._options.copy()
        options["transactional_id"] = transactional_id
        producer = await Producer(self._bootstrap, create_topics=False, **options).start()
        self._producer = producer
        if transactional_id is not None:
            await producer.transactor.begin()

    async def _flush(self) -> None:
        try:
            await self._started.flush()
        except WaystationError:
            self._check()  # says it better than how many have failed
            raise
        self._check()
        await self._look()

    async def _prepare(self) -> PreparedTransaction:
        await self._flush()
        return await self._started.prepare()

    async def _unless_gone(self, work: Coroutine[Any, Any, T]) -> T:
        """What ``work`` gives, unless a topic is found deleted while it takes long.

        A producer waits for a topic that is not there, in case it is being made.
        """
        working, watching = asyncio.create_task(work), asyncio.create_task(self._watch())
        try:
            await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
            return working.result() if working.done() else await watching
        finally:
            for one in (working, watching):
                one.cancel()
            await asyncio.wait({working, watching})

    async def _watch(self) -> NoReturn:
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            await self._look()

    async def _look(self) -> None:
        """Raise if a topic is not the one any more that was written to before."""
        for name, life in self._lives.items():
            assert self._admin is not None, "nobody to ask"
            try:
                is_same = (await self._admin.describe_topic(name)).id == life
            except UnknownTopicError:
                is_same = False
            except WaystationError as error:
                if not is_retriable(error):
                    raise
                continue  # a broker that is away; the sends themselves wait for it
            if not is_same:
                raise UnknownTopicError(
                    f"topic {name} was deleted while it was written to: what was in it is gone. "
                    f"If that was meant, create it with `waystation topic create {name}` and "
                    "start again"
                )

    async def _close(self) -> None:
        producer, self._producer = self._producer, None
        admin, self._admin = self._admin, None
        if producer is not None:
            await producer.abandon()
        if admin is not None:
            await admin.close()

    async def _topic(self, name: str) -> TopicFacts:
        if self._admin is None:
            self._admin = await Admin(self._bootstrap, **_of_connection(self._options)).start()
        try:
            found = await self._admin.describe_topic(name)
        except UnknownTopicError:
            raise UnknownTopicError(
                f"topic {name} does not exist: create it with `waystation topic create {name}`"
            ) from None
        self._lives[name] = found.id
        await self._started.partitions_of(name)
        led = tuple(one.partition for one in found.partitions if one.leader != NO_NODE)
        return TopicFacts(name, len(found.partitions), led, await self._largest_batch(name))

    async def _largest_batch(self, topic: str) -> int:
        """The largest batch that the topic takes; the default if the broker does not tell."""
        assert self._admin is not None, "nobody to ask"
        try:
            said = (await self._admin.describe_configs(topic)).get("max.message.bytes")
        except WaystationError:
            return _MESSAGE_BYTES
        return int(said.value) if said is not None and said.value else _MESSAGE_BYTES

    def _submit(self, packed: Packed) -> None:
        size_bytes = packed.batch.size_bytes
        try:
            delivered = self._started.submit_batch(packed.topic, packed.partition, packed.batch)
        except Exception as error:  # the outermost frame of a thread: told to the other
            self._ended(size_bytes, error)
        else:
            delivered.add_done_callback(partial(self._delivered, size_bytes))

    def _delivered(self, size_bytes: int, delivered: Delivered) -> None:
        error = delivered.exception()
        assert error is None or isinstance(error, Exception), f"{error!r} for a batch"
        self._ended(size_bytes, error)

    def _ended(self, size_bytes: int, error: Exception | None) -> None:
        with self._changed:
            self._under_way_bytes -= size_bytes
            self._failure = self._failure or error
            self._changed.notify()


def _roomy(options: ProducerOptions) -> ProducerOptions:
    """``options`` with room for whole batches; what is under way is counted by ``put``."""
    roomy = options.copy()
    roomy.setdefault("max_request_bytes", _REQUEST_BYTES)
    under_way_bytes = options.get("buffer_bytes", UNDER_WAY_BYTES)
    roomy["buffer_bytes"] = under_way_bytes + roomy["max_request_bytes"]
    return roomy


def _of_connection(options: ProducerOptions) -> ConnectionOptions:
    names = ConnectionOptions.__annotations__
    return cast(ConnectionOptions, {k: v for k, v in options.items() if k in names})
