"""A stage of ``waystation.testing.chain`` by librdkafka instead of our client.

    python -m tests.support.librdkafka_stage process NUMBER SOURCE TARGET
        BOOTSTRAP NAME LIFE HISTORY

SIGTERM lets it end once nothing is left to do, Ctrl-C at once.
"""

import _thread
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count, groupby
from pathlib import Path
from random import Random

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from waystation.model.ids import TopicPartition as Where
from waystation.testing.history import Diary, HistoryFile, Seen, Span, Value, Written

PARTITIONS = 3
ABORTS = 0.1
_POLL_S, _AT_A_TIME_S, _PATIENCE_S = 0.2, 3.0, 10.0
_AT_ONCE = 50
_TOLD = "WAYSTATION_STAGE_TOLD"
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_COMMON = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    # When all brokers are away, and here there is one, librdkafka 2.16 begins anew with its
    # bootstrap servers, and what it was about to ask a coordinator is never asked.
    "metadata.recovery.strategy": "none",
    "log_level": 0,
}


class FatalError(Exception):
    """Only a new producer helps."""


class Stage:
    """One consumer and one producer, for as long as they are of use."""

    def __init__(
        self,
        watchdog: "Watchdog",
        number: str,
        source: str,
        target: str,
        bootstrap: str,
        name: str,
    ) -> None:
        self._watchdog = watchdog
        self._number, self._source, self._target = number, source, target
        self._group = f"{target}-makers"
        self._at_end: set[int] = set()
        common = {"bootstrap.servers": bootstrap, **_COMMON}
        self._producer = Producer(
            {
                **common,
                "transactional.id": name,
                "transaction.timeout.ms": 10_000,
                "linger.ms": 1,
                "partitioner": "murmur2_random",
            }
        )
        self._consumer = Consumer(
            {
                **common,
                "group.id": self._group,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 2_000,
                "heartbeat.interval.ms": 200,
                "fetch.wait.max.ms": 100,
            }
        )

    def run(self, diary: Diary, chance: Random, is_over: Callable[[], bool]) -> None:
        """Process until it is over and nothing is left."""
        self._insist(self._producer.init_transactions)
        self._consumer.subscribe([self._source], on_assign=self._moved, on_revoke=self._moved)
        useful_s = time.monotonic()
        while True:
            has_worked = self._turn(diary, chance)
            is_at_end = not has_worked and len(self._at_end) == PARTITIONS
            if is_at_end and is_over():
                return
            if is_at_end or has_worked:
                useful_s = time.monotonic()
            elif time.monotonic() > useful_s + _PATIENCE_S:
                raise FatalError("it reads nothing, and is not at the end")

    def close(self) -> None:
        """Leave the group."""
        with self._watchdog.watching():
            self._consumer.close()

    def _turn(self, diary: Diary, chance: Random) -> bool:
        """One transaction, if there is anything to do."""
        found = [one for one in self._consumer.consume(_AT_ONCE, _POLL_S) if self._is_message(one)]
        if not found:
            return False
        for where, some in _by_partition(found):
            diary.seeking(where, some[0].offset())
            rows = (Seen(one.offset(), *Value.of(one.value())) for one in some)
            diary.polled(where, some[-1].offset() + 1, rows)
        try:
            self._transact(diary, found, commit=chance.random() >= ABORTS)
        except KafkaException as failed:
            if not failed.args[0].txn_requires_abort():
                raise FatalError from failed
            self._insist(self._producer.abort_transaction)
            self._rewind(found)
        return True

    def _transact(self, diary: Diary, found: Sequence[Message], *, commit: bool) -> None:
        number = diary.begin()
        self._producer.begin_transaction()
        self._send(diary, number, found)
        spans = [
            Span(*where, some[0].offset(), some[-1].offset() + 1)
            for where, some in _by_partition(found)
        ]
        diary.consuming(number, self._group, spans)
        offsets = [TopicPartition(one.topic, one.partition, one.end) for one in spans]
        metadata = self._consumer.consumer_group_metadata()
        self._insist(
            lambda timeout_s: self._producer.send_offsets_to_transaction(
                offsets, metadata, timeout_s
            )
        )
        diary.deciding(number, commit=commit)
        end = self._producer.commit_transaction if commit else self._producer.abort_transaction
        self._insist(end)
        diary.ended(number, committed=commit)
        if not commit:
            self._rewind(found)

    def _send(self, diary: Diary, number: int, found: Sequence[Message]) -> None:
        rows: list[Written] = []
        for message, value in zip(found, diary.sending(number, len(found)), strict=True):

            def delivered(error: object, sent: Message, value: Value = value) -> None:
                if error is None:
                    place = sent.topic(), sent.partition(), sent.offset()
                    rows.append(Written(*place, value.number))

            first, _, origin = message.value().decode().partition(" ")
            text = f"{value} {origin or first}>{self._number}"
            self._producer.produce(self._target, text, message.key(), on_delivery=delivered)
        self._producer.flush(_PATIENCE_S)
        diary.acknowledged(rows)

    def _rewind(self, found: Sequence[Message]) -> None:
        """What was not committed comes again, unless it is another's by now."""
        for where, some in _by_partition(found):
            with suppress(KafkaException):
                self._consumer.seek(TopicPartition(*where, some[0].offset()))

    def _is_message(self, one: Message) -> bool:
        if one.error() is None:
            self._at_end.discard(one.partition())
            return True
        if one.error().code() == KafkaError._PARTITION_EOF:
            self._at_end.add(one.partition())
        return False

    def _moved(self, *_: object) -> None:
        """Other partitions, or the same at another place."""
        self._at_end.clear()

    def _insist(self, ask: Callable[[float], object]) -> None:
        with self._watchdog.watching():
            while True:
                try:
                    ask(_AT_A_TIME_S)
                    return
                except KafkaException as failed:
                    if not failed.args[0].retriable():
                        raise


class Watchdog:
    """Begins the program anew, as another life, when librdkafka does not come back.

    Where a broker left the cluster and came back, librdkafka 2.16 goes on waiting for the handle of
    its former life, a group's coordinator above all, whatever time it was given (its issue 5511).
    Python runs no handler while that holds its main thread, so this thread takes the signals: what
    came before the new life begins is handed on, what comes meanwhile is still pending in it.
    """

    def __init__(self, life: str, note: Callable[[str], None]) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        self._is_told = bool(os.environ.get(_TOLD))
        self._life, self._note = life, note
        self._since: float | None = None
        threading.Thread(target=self._watch, daemon=True).start()

    def is_told(self) -> bool:
        """Whether to end once nothing is left to do."""
        return self._is_told

    @contextmanager
    def watching(self) -> Iterator[None]:
        self._since = time.monotonic()
        try:
            yield
        finally:
            self._since = None

    def _watch(self) -> None:
        is_left = False
        while (since := self._since) is None or time.monotonic() < since + _PATIENCE_S:
            # Of a program that was frozen meanwhile, Python 3.11 tells signals that are none.
            heard = signal.sigtimedwait(_SIGNALS, _POLL_S)
            number = heard.si_signo if heard else 0
            if number == signal.SIGTERM:
                self._is_told = True
            elif number == signal.SIGINT:
                is_left = True
                _thread.interrupt_main()
        if is_left:
            os._exit(0)
        self._note("begins again: librdkafka did not come back")
        arguments = [f"{one}+" if one == self._life else one for one in sys.argv[1:]]
        os.environ[_TOLD] = "1" if self._is_told else ""
        os.execv(
            sys.executable, [sys.executable, "-m", "tests.support.librdkafka_stage", *arguments]
        )


def _by_partition(found: Sequence[Message]) -> list[tuple[Where, list[Message]]]:
    by_place = sorted(found, key=lambda one: (one.partition(), one.offset()))
    return [
        (Where(some[0].topic(), partition), some)
        for partition, group in groupby(by_place, lambda one: one.partition())
        for some in [list(group)]
    ]


def main(arguments: Sequence[str]) -> None:
    """A stage's life."""
    _, number, source, target, bootstrap, name, life, path = arguments
    with HistoryFile(Path(path)) as file, suppress(KeyboardInterrupt):
        watchdog = Watchdog(life, Diary(life, file.write).note)
        Diary(life, file.write).note("begins")
        for again in count():
            stage = Stage(watchdog, number, source, target, bootstrap, name)
            diary = Diary(f"{life}.{again}", file.write)
            try:
                stage.run(diary, Random(diary.process), watchdog.is_told)
                return
            except (FatalError, KafkaException) as failed:
                diary.note(f"begins again: {failed.__cause__ or failed}")
            finally:
                stage.close()


if __name__ == "__main__":
    main(sys.argv[1:])
