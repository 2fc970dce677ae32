"""How a replay's chunks leave, one after the other, each one batch of the sink.

What a replay is was pinned when it first started.  Before a chunk is begun it is written down,
which also says that all chunks before it are in the topic.  A replay that was killed therefore
begins with the chunk that was at hand: the sink drops it if it has it.
"""

import time
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import Observation
from pyspark.sql import functions as f

from waystation.pipelines.checkpoint import Checkpoint
from waystation.pipelines.failures import JobError
from waystation.pipelines.job import FORMAT
from waystation.pipelines.progress import BatchReport, Interrupts
from waystation.pipelines.replay_pace import Pace
from waystation.pipelines.replay_plan import Chunk, Extent, first_chunk, next_chunk, refuse_other
from waystation.pipelines.replay_rows import copies
from waystation.pipelines.replay_selection import Selection, chosen, source_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from waystation.pipelines.replay_source import Source

__all__ = ["KIND", "Replayed", "Run", "Sending", "begun"]

KIND = "replay"
_PIN, _ENDED, _CHUNK = "replay.json", "replay-ended.json", "replay-chunk-"
_GLANCE_S = 0.1


class Replayed(NamedTuple):
    """What a replay has come to; ``messages`` counts those of earlier starts too."""

    run: str
    messages: int
    ended: bool
    """Whether it is complete, or was told to stop before."""


class Run(NamedTuple):
    """One replay: what it sends, and how that leaves."""

    name: str
    source: "Source"
    whole: Extent
    where: str | None
    to: str
    keep_partitions: bool

    def messages(self, extent: Extent) -> "DataFrame":
        """The messages between these offsets, with the columns of the sink."""
        return copies(
            chosen(self.source, extent, self.where),
            kind=KIND,
            run=self.name,
            to=self.to,
            keep_partitions=self.keep_partitions,
        )


def begun(
    spark: "SparkSession",
    notes: Checkpoint,
    selection: Selection,
    *,
    to: str,
    keep_partitions: bool,
) -> Run:
    """The replay of this checkpoint: the one that was begun with it, or a new one."""
    asked = {**selection.asked(), "to": to, "keep-partitions": keep_partitions}
    pinned: dict[str, Any] | None = notes.read(_PIN)
    if pinned is not None:
        refuse_other(notes.folder, pinned["asked"], asked)
        source, whole = source_of(spark, selection, pinned["source"]), Extent.of_json(pinned)
        return Run(pinned["run"], source, whole, selection.where, to, keep_partitions)
    if notes.is_used():
        raise JobError(
            f"--checkpoint {notes.folder} holds the progress of another job. "
            "Remedy: give this one a folder of its own"
        )
    source = source_of(spark, selection)
    run = Run(uuid.uuid4().hex[:16], source, source.extent(), selection.where, to, keep_partitions)
    if run.whole.first:
        run.messages(run.whole)  # a condition that makes no sense is refused before it is pinned
    pin = {"asked": asked, "run": run.name, "source": source.pin(), **run.whole.as_json()}
    notes.write(_PIN, pin)
    return run


class Sending:
    """Sends chunk after chunk, and remembers which."""

    def __init__(self, notes: Checkpoint, run: Run, sink: Mapping[str, str]) -> None:
        self._notes, self._run, self._sink = notes, run, sink

    def all(
        self,
        rate: float,
        chunk_offsets: int,
        tell: Callable[[BatchReport], None],
        interrupted: Interrupts,
    ) -> Replayed:
        """Until the end, or until somebody interrupts."""
        ended = self._notes.read(_ENDED)
        if ended is not None:
            return Replayed(self._run.name, ended["messages"], ended=True)
        pace = Pace(rate, time.monotonic())
        most, whole = pace.most(chunk_offsets), self._run.whole
        sent_now = sent = 0
        chunk = self._last_begun() or first_chunk(whole, most)
        while chunk is not None:
            self._remember(chunk)
            messages = self._send(chunk, tell)
            sent, sent_now = chunk.sent + messages, sent_now + messages
            chunk = next_chunk(whole, chunk, most, messages)
            if chunk is not None and not _waited(pace, sent_now, interrupted):
                self._remember(chunk)
                return Replayed(self._run.name, sent, ended=False)
        self._notes.write(_ENDED, {"messages": sent})
        return Replayed(self._run.name, sent, ended=True)

    def _send(self, chunk: Chunk, tell: Callable[[BatchReport], None]) -> int:
        """One batch of the sink; how many messages it had."""
        began_s = time.monotonic()
        seen = Observation()
        counted = f.count(f.lit(1)).alias("messages")
        frame = self._run.messages(chunk.extent).observe(seen, counted)
        writer = frame.write.format(FORMAT).mode("append")
        writer.options(**self._sink, batchId=str(chunk.number)).save()
        messages = int(seen.get["messages"])
        tell(
            BatchReport(
                at=datetime.now(UTC).isoformat(timespec="milliseconds"),
                batch=chunk.number,
                rows=messages,
                batch_ms=round((time.monotonic() - began_s) * 1_000),
                lag=self._left_after(chunk),
            )
        )
        return messages

    def _left_after(self, chunk: Chunk) -> int:
        done = chunk.extent.last
        return sum(end - done.get(where, end) for where, end in self._run.whole.last.items())

    def _last_begun(self) -> Chunk | None:
        numbers = self._begun_chunks()
        return Chunk.of_json(self._notes.read(f"{_CHUNK}{max(numbers)}.json")) if numbers else None

    def _remember(self, chunk: Chunk) -> None:
        """The chunk is begun: all before it are done."""
        numbers = self._begun_chunks()
        if chunk.number in numbers:
            return
        self._notes.write(f"{_CHUNK}{chunk.number}.json", chunk.as_json())
        for number in numbers:
            self._notes.forget(f"{_CHUNK}{number}.json")

    def _begun_chunks(self) -> list[int]:
        names = [name for name in self._notes.names() if name.startswith(_CHUNK)]
        return [int(name.removeprefix(_CHUNK).removesuffix(".json")) for name in names]


def _waited(pace: Pace, sent: int, interrupted: Interrupts) -> bool:
    """Keep the pace; false if somebody interrupted."""
    while not interrupted.is_set():
        left_s = pace.wait_s(sent, time.monotonic())
        if not left_s:
            return True
        time.sleep(min(left_s, _GLANCE_S))
    return False
