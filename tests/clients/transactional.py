"""Transactional producers and readers of each client, behind one face.

Every method waits until the broker has answered.  ``Fenced`` is raised where a client says, in
whatever words, that another producer has its transactional id now.
"""

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

import aiokafka
import aiokafka.errors
import confluent_kafka
import kafka
import kafka.errors
from aiokafka.structs import OffsetAndMetadata as AiokafkaOffset
from kafka.structs import OffsetAndMetadata as KafkaPythonOffset

import waystation
from waystation.model.errors import ProducerFencedError

T = TypeVar("T")

PATIENCE_S = 20.0


class FencedError(Exception):
    """The client has learned that it may write no more."""


class Writer(Protocol):
    """A transactional producer."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def begin(self) -> None: ...

    def send(self, topic: str, *values: bytes, partition: int = 0) -> None: ...

    def send_offsets(self, group_id: str, topic: str, offset: int) -> None: ...

    def commit(self) -> None: ...

    def abort(self) -> None: ...


class ConfluentWriter:
    """librdkafka, in the older way of transactions."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        self._bootstrap = bootstrap
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_ms,
                "linger.ms": 0,
            }
        )

    def __enter__(self) -> Self:
        self._producer.init_transactions(PATIENCE_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._producer.purge()

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, *values: bytes, partition: int = 0) -> None:
        failures: list[confluent_kafka.KafkaError] = []

        def delivered(error: confluent_kafka.KafkaError | None, _: object) -> None:
            if error is not None:
                failures.append(error)

        try:
            for value in values:
                self._producer.produce(topic, value, partition=partition, on_delivery=delivered)
            self._producer.flush(PATIENCE_S)
        except confluent_kafka.KafkaException as error:
            failures.append(error.args[0])
        except SystemError as error:  # its way to raise from flush what also goes to a callback
            failures += [] if error.__cause__ is None else error.__cause__.args
        if failures:
            fenced = any(_is_fenced(one) for one in failures)
            raise FencedError(failures) if fenced else AssertionError(failures)

    def send_offsets(self, group_id: str, topic: str, offset: int) -> None:
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": self._bootstrap, "group.id": group_id}
        )
        try:
            where = confluent_kafka.TopicPartition(topic, 0, offset)
            metadata = consumer.consumer_group_metadata()
            self._producer.send_offsets_to_transaction([where], metadata, PATIENCE_S)
        finally:
            consumer.close()

    def commit(self) -> None:
        try:
            self._producer.commit_transaction(PATIENCE_S)
        except confluent_kafka.KafkaException as error:
            raise FencedError(error) if _is_fenced(error.args[0]) else error from error

    def abort(self) -> None:
        self._producer.abort_transaction(PATIENCE_S)


def _is_fenced(error: confluent_kafka.KafkaError) -> bool:
    return bool(error.code() == confluent_kafka.KafkaError._FENCED)


class AsyncWriter:
    """Runs an asyncio client's coroutines, on a loop of its own."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()

    def run(self, coro: Coroutine[Any, Any, T]) -> T:
        async def bounded() -> T:
            async with asyncio.timeout(PATIENCE_S):
                return await coro

        return self._runner.run(bounded())

    def close(self) -> None:
        self._runner.close()


class AiokafkaWriter(AsyncWriter):
    """aiokafka, which speaks the oldest versions."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        super().__init__()
        self._options = {
            "bootstrap_servers": bootstrap,
            "transactional_id": transactional_id,
            "transaction_timeout_ms": timeout_ms,
        }
        self._producer: aiokafka.AIOKafkaProducer | None = None

    def __enter__(self) -> Self:
        async def start() -> aiokafka.AIOKafkaProducer:
            producer = aiokafka.AIOKafkaProducer(**self._options)
            await producer.start()
            return producer

        self._producer = self.run(start())
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.run(self._producer.stop())
        except aiokafka.errors.KafkaError:
            pass
        finally:
            self.close()

    def begin(self) -> None:
        self.run(self._producer.begin_transaction())

    def send(self, topic: str, *values: bytes, partition: int = 0) -> None:
        async def send() -> None:
            sent = [await self._producer.send(topic, one, partition=partition) for one in values]
            await asyncio.gather(*sent)

        self._unfenced(send())

    def send_offsets(self, group_id: str, topic: str, offset: int) -> None:
        where = aiokafka.TopicPartition(topic, 0)
        offsets = {where: AiokafkaOffset(offset, "")}
        self.run(self._producer.send_offsets_to_transaction(offsets, group_id))

    def commit(self) -> None:
        self._unfenced(self._producer.commit_transaction())

    def abort(self) -> None:
        self.run(self._producer.abort_transaction())

    def _unfenced(self, coro: Coroutine[Any, Any, None]) -> None:
        try:
            self.run(coro)
        except (aiokafka.errors.ProducerFenced, aiokafka.errors.InvalidProducerEpoch) as error:
            raise FencedError(error) from error


class KafkaPythonWriter:
    """kafka-python 3."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        self._producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
        )

    def __enter__(self) -> Self:
        self._producer.init_transactions()
        return self

    def __exit__(self, *_: object) -> None:
        self._producer.close(timeout=0)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, *values: bytes, partition: int = 0) -> None:
        try:
            sent = [self._producer.send(topic, one, partition=partition) for one in values]
            for one in sent:
                one.get(PATIENCE_S)
        except kafka.errors.KafkaError as error:
            raise _kafka_python_fenced(error) from error

    def send_offsets(self, group_id: str, topic: str, offset: int) -> None:
        where = kafka.TopicPartition(topic, 0)
        offsets = {where: KafkaPythonOffset(offset, "", -1)}
        self._producer.send_offsets_to_transaction(offsets, group_id)

    def commit(self) -> None:
        try:
            self._producer.commit_transaction()
        except kafka.errors.KafkaError as error:
            raise _kafka_python_fenced(error) from error

    def abort(self) -> None:
        self._producer.abort_transaction()


def _kafka_python_fenced(error: kafka.errors.KafkaError) -> Exception:
    fenced = (kafka.errors.ProducerFencedError, kafka.errors.InvalidProducerEpochError)
    return FencedError(error) if isinstance(error, fenced) else error


class WaystationWriter(AsyncWriter):
    """Our own, in the newer way of transactions."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        super().__init__()
        self._producer = waystation.Producer(
            bootstrap, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
        )
        self._block: waystation.Transaction | None = None

    def __enter__(self) -> Self:
        self.run(self._producer.start())
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self._producer.close())
        self.close()

    def begin(self) -> None:
        self._block = self._producer.transaction()
        self.run(self._block.__aenter__())

    def send(self, topic: str, *values: bytes, partition: int = 0) -> None:
        async def send() -> None:
            sent = [self._transaction.submit(topic, one, partition=partition) for one in values]
            await asyncio.gather(*sent)

        self._unfenced(send())

    def send_offsets(self, group_id: str, topic: str, offset: int) -> None:
        async def send_offsets() -> None:
            bootstrap = ",".join(self._addresses)
            async with waystation.Consumer(
                group_id, bootstrap=bootstrap, auto_commit=False
            ) as consumer:
                await consumer.assign([(topic, 0)])
                await self._transaction.commit_offsets(consumer, {(topic, 0): offset})

        self.run(send_offsets())

    def commit(self) -> None:
        self._unfenced(self._leave(None))

    def abort(self) -> None:
        self.run(self._transaction.abort())

    @property
    def _transaction(self) -> waystation.Transaction:
        assert self._block is not None
        return self._block

    @property
    def _addresses(self) -> list[str]:
        brokers = self._producer._router.view.brokers.values()
        return [str(one.address) for one in brokers]

    async def _leave(self, trace: TracebackType | None) -> None:
        await self._transaction.__aexit__(None, None, trace)

    def _unfenced(self, coro: Coroutine[Any, Any, None]) -> None:
        try:
            self.run(coro)
        except ProducerFencedError as error:
            raise FencedError(error) from error


# --- readers ------------------------------------------------------------------------------------


def read_confluent(bootstrap: str, topic: str, end: bytes, *, committed: bool) -> list[bytes]:
    """Everything of partition 0 up to and with the value ``end``."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    try:
        while end not in found:
            message = consumer.poll(PATIENCE_S)
            assert message is not None, f"{end!r} did not come after {found}"
            assert message.error() is None, message.error()
            found.append(message.value() or b"")
    finally:
        consumer.close()
    return found


def read_aiokafka(bootstrap: str, topic: str, end: bytes, *, committed: bool) -> list[bytes]:
    """Everything of partition 0 up to and with the value ``end``."""

    async def read() -> list[bytes]:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            isolation_level="read_committed" if committed else "read_uncommitted",
        )
        await consumer.start()
        where = aiokafka.TopicPartition(topic, 0)
        consumer.assign([where])
        await consumer.seek_to_beginning(where)
        found: list[bytes] = []
        try:
            async with asyncio.timeout(PATIENCE_S):
                while end not in found:
                    found.append((await consumer.getone()).value)
        finally:
            await consumer.stop()
        return found

    return asyncio.run(read())


def read_kafka_python(bootstrap: str, topic: str, end: bytes, *, committed: bool) -> list[bytes]:
    """Everything of partition 0 up to and with the value ``end``."""
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap,
        isolation_level="read_committed" if committed else "read_uncommitted",
        consumer_timeout_ms=int(PATIENCE_S * 1_000),
    )
    consumer.assign([kafka.TopicPartition(topic, 0)])
    consumer.seek_to_beginning()
    found: list[bytes] = []
    for message in consumer:
        found.append(message.value)
        if message.value == end:
            break
    consumer.close()
    assert end in found, f"{end!r} did not come after {found}"
    return found


def read_waystation(bootstrap: str, topic: str, end: bytes, *, committed: bool) -> list[bytes]:
    """Everything of partition 0 up to and with the value ``end``."""

    async def read() -> list[bytes]:
        isolation = "read_committed" if committed else "read_uncommitted"
        async with waystation.Consumer(bootstrap=bootstrap, isolation=isolation) as consumer:
            await consumer.assign([(topic, 0)])
            found: list[bytes] = []
            async with asyncio.timeout(PATIENCE_S):
                while end not in found:
                    found += [one.value or b"" for one in await consumer.poll()]
            return found

    return asyncio.run(read())


WRITERS: dict[str, type[Writer]] = {
    "confluent": ConfluentWriter,
    "aiokafka": AiokafkaWriter,
    "kafka-python": KafkaPythonWriter,
    "waystation": WaystationWriter,
}
READERS = {
    "confluent": read_confluent,
    "aiokafka": read_aiokafka,
    "kafka-python": read_kafka_python,
    "waystation": read_waystation,
}
