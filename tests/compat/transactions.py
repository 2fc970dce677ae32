"""Transactions by client libraries that Python does not have, and what Kafka's tools say of them.

Each client program writes the numbers into one topic, in transactions that it aborts and then
commits, and commits its place in another topic with them.  Then it prints what a reader of
committed records gets, which must be each number once.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import Producer

from tests.compat.letters import WrongAnswerError
from tests.compat.target import Target, run
from tests.compat.tools import create, dump, expect, node, refuse, same, tool_of
from waystation import Admin, TopicPartition

_WITHIN_S = 20
_COMPLETE_COMMIT = 4
_NUMBERS = [str(number) for number in range(20)]
_SEGMENT_BYTES, _LARGE_BYTES = 1 << 20, 100_000


def check_transactions(target: Target, name: str, program: Sequence[str]) -> None:
    """Let a client's program do it."""
    prefix = target.topic(f"{name}-transactions")
    create(target, f"{prefix}-in")
    create(target, f"{prefix}-out")
    filling = Producer({"bootstrap.servers": target.bootstrap})
    for number in _NUMBERS:
        filling.produce(f"{prefix}-in", number, partition=0)
    filling.flush(_WITHIN_S)
    same([_place(target, prefix)], [None])  # and from now on groups have a coordinator
    same(run([*program, target.bootstrap, prefix]).split(), _NUMBERS)
    same([_place(target, prefix)], [len(_NUMBERS)])


def transactions(target: Target) -> None:
    """kafka-transactions: list, describe, describe-producers, find-hanging, abort."""
    topic = target.topic("tool-transactions")
    create(target, topic)
    _committed(target, topic)
    _aborted(target, topic)
    still_open = _begun(target, topic, "open")
    tool = tool_of(target, "org.apache.kafka.tools.TransactionsCommand")
    done, gone, pending = (target.topic(name) for name in ("committed", "aborted", "open"))
    _states(tool("list"), {done: "CompleteCommit", gone: "CompleteAbort", pending: "Ongoing"})
    refuse(tool("list", "--duration-filter", "3600000"), pending)
    expect(tool("describe", "--transactional-id", pending), "Ongoing", f"{topic}-0")
    where = ("--topic", topic, "--partition", "0")
    # Two transactions of two records came before, each with its marker.
    (row,) = [line for line in _rows(tool("describe-producers", *where)) if line[-1] != "None"]
    if row[-1] != "6":
        raise WrongAnswerError(f"the open transaction begins at {row[-1]}, should at 6")
    refuse(tool("find-hanging", "--broker-id", node(target)), topic)
    tool("abort", *where, "--start-offset", "6")
    if any(line[-1] != "None" for line in _rows(tool("describe-producers", *where))):
        raise WrongAnswerError("the transaction is open after its abort")
    still_open.abort_transaction(_WITHIN_S)


def dump_transactions(target: Target) -> None:
    """kafka-dump-log: markers, the index of aborted transactions, and what coordinators wrote."""
    topic = target.topic("tool-dump-transactions")
    create(target, topic, {"segment.bytes": str(_SEGMENT_BYTES)})
    _committed(target, topic)
    _aborted(target, topic)
    _fill_segment(target, topic)  # whose index is on disk then, and not in memory
    assert target.data is not None, "only asked for when the data directory is known"
    log, *_ = sorted(target.data.glob(f"**/{topic}-0/*.log"))
    said = dump("--deep-iteration", "--files", str(log))
    expect(said, "isTransactional: true", "isControl: true")
    expect(said, "endTxnMarker: COMMIT", "endTxnMarker: ABORT")
    refuse(said, "isvalid: false", "invalid bytes")
    expect(dump("--files", str(log.with_suffix(".txnindex"))), "firstOffset: 3 lastOffset: 5")
    name = target.topic("committed")
    logs = [one for one in target.data.glob("**/__transaction_state-*/*.log") if _has(one, name)]
    said = "".join(dump("--transaction-log-decoder", "--files", str(one)) for one in logs)
    expect(said, name, f'"transactionStatus":{_COMPLETE_COMMIT}')
    refuse(said, "isvalid: false", "invalid bytes")


TOOLS = {"kafka-transactions": transactions, "kafka-dump-log-transactions": dump_transactions}


def _place(target: Target, prefix: str) -> int | None:
    """How far the program's group has read; asked for as long as a new coordinator loads."""

    async def ask() -> int | None:
        async with Admin(target.bootstrap) as admin:
            found = await admin.group_offsets(f"{prefix}-group")
            place = found.get(TopicPartition(f"{prefix}-in", 0))
            return None if place is None else place.offset

    return asyncio.run(ask())


def _begun(target: Target, topic: str, name: str) -> Producer:
    """A producer with an open transaction of two records."""
    producer = Producer(
        {"bootstrap.servers": target.bootstrap, "transactional.id": target.topic(name)}
    )
    producer.init_transactions(_WITHIN_S)
    producer.begin_transaction()
    for n in range(2):
        producer.produce(topic, f"{name}-{n}", partition=0)
    if producer.flush(_WITHIN_S):
        raise WrongAnswerError(f"librdkafka could not write into {topic}")
    return producer


def _committed(target: Target, topic: str) -> None:
    _begun(target, topic, "committed").commit_transaction(_WITHIN_S)


def _aborted(target: Target, topic: str) -> None:
    _begun(target, topic, "aborted").abort_transaction(_WITHIN_S)


def _fill_segment(target: Target, topic: str) -> None:
    producer = Producer({"bootstrap.servers": target.bootstrap})
    for _ in range(_SEGMENT_BYTES // _LARGE_BYTES + 1):
        producer.produce(topic, bytes(_LARGE_BYTES), partition=0)
        producer.flush(_WITHIN_S)


def _states(said: str, wanted: dict[str, str]) -> None:
    """Each transactional id is listed in its state."""
    rows = {row[0]: row for row in _rows(said)}
    for name, state in wanted.items():
        if state not in rows.get(name, []):
            raise WrongAnswerError(f"{name} should be {state}, the list says:\n{said[-600:]}")


def _rows(said: str) -> list[list[str]]:
    """The table without its titles."""
    return [line.split() for line in said.splitlines()[1:] if line.strip()]


def _has(path: Path, name: str) -> bool:
    return name.encode() in path.read_bytes()
