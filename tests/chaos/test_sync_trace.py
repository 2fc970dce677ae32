"""A system-call trace of the real broker: fdatasync returns before each durable reply leaves.

kill -9 leaves the page cache alone, so surviving it proves nothing about power failures; the
order of system calls does.
"""

import time
from pathlib import Path

import pytest

from tests.support.figures import figure
from tests.support.plain_client import PlainClient, batch_of
from tests.support.soak import count
from tests.support.traces import TRACE, examine, read_trace
from waystation.testing.process import BrokerProcess

RECORDS = count(100, 2_000)
ENDED_WITHIN_S = 20.0

IN_ORDER = """\
11 pwrite64(7</d/t-0/00000000000000000000.log>, ""..., 70, 0) = 70
12 fdatasync(7</d/t-0/00000000000000000000.log> <unfinished ...>
11 write(5<anon_inode:[eventfd]>, ""..., 8) = 8
12 <... fdatasync resumed>) = 0
11 sendto(9<socket:[77]>, ""..., 60, 0, NULL, 0) = 60
"""
SWAPPED = """\
11 pwrite64(7</d/t-0/00000000000000000000.log>, ""..., 70, 0) = 70
12 fdatasync(7</d/t-0/00000000000000000000.log> <unfinished ...>
11 sendto(9<socket:[77]>, ""..., 60, 0, NULL, 0) = 60
12 <... fdatasync resumed>) = 0
"""
WRITTEN_MEANWHILE = """\
12 fdatasync(7</d/t-0/00000000000000000000.log> <unfinished ...>
11 pwrite64(7</d/t-0/00000000000000000000.log>, ""..., 70, 0) = 70
12 <... fdatasync resumed>) = 0
11 write(9<socket:[77]>, ""..., 60) = 60
"""
FAILED = """\
11 pwrite64(7</d/t-0/00000000000000000000.log>, ""..., 70, 0) = 70
12 fdatasync(7</d/t-0/00000000000000000000.log>) = -1 EIO (Input/output error)
11 sendmsg(9<socket:[77]>, ""..., 0) = 60
"""
JOURNALED = """\
11 pwrite64(7</d/t-0/00000000000000000000.log>, ""..., 70, 0) = 70
12 pwrite64(8</d/journal/0.wal>, ""..., 100, 0) = 100
12 fdatasync(8</d/journal/0.wal> <unfinished ...>
11 write(5<anon_inode:[eventfd]>, ""..., 8) = 8
12 <... fdatasync resumed>) = 0
11 sendto(9<socket:[77]>, ""..., 60, 0, NULL, 0) = 60
"""
JOURNALED_BEFORE = """\
12 pwrite64(8</d/journal/0.wal>, ""..., 100, 0) = 100
11 pwrite64(7</d/t-0/00000000000000000000.log>, ""..., 70, 0) = 70
12 fdatasync(8</d/journal/0.wal>) = 0
11 sendto(9<socket:[77]>, ""..., 60, 0, NULL, 0) = 60
"""
JOURNALED_IN_PART = """\
11 pwrite64(7</d/t-0/00000000000000000000.log>, ""..., 70, 0) = 70
12 pwrite64(8</d/journal/0.wal>, ""..., 50, 0) = 50
12 fdatasync(8</d/journal/0.wal>) = 0
11 sendto(9<socket:[77]>, ""..., 60, 0, NULL, 0) = 60
"""
JOURNAL_NOT_SYNCED = """\
11 pwrite64(7</d/t-0/00000000000000000000.log>, ""..., 70, 0) = 70
12 fdatasync(8</d/journal/0.wal> <unfinished ...>
13 pwrite64(8</d/journal/0.wal>, ""..., 100, 0) = 100
12 <... fdatasync resumed>) = 0
11 sendto(9<socket:[77]>, ""..., 60, 0, NULL, 0) = 60
"""
ANOTHER_LOG = """\
11 pwrite64(7</d/t-0/00000000000000000000.log>, ""..., 70, 0) = 70
12 fdatasync(8</d/t-1/00000000000000000000.log>) = 0
11 writev(9<socket:[77]>, ""..., 1) = 60
"""


WRONG = {
    "reply-first": SWAPPED,
    "sync-began-before-the-write": WRITTEN_MEANWHILE,
    "sync-failed": FAILED,
    "another-log-was-synced": ANOTHER_LOG,
    "journaled-before-the-write": JOURNALED_BEFORE,
    "journaled-in-part": JOURNALED_IN_PART,
    "journal-not-synced": JOURNAL_NOT_SYNCED,
}


def test_traces_in_order_are_accepted() -> None:
    assert examine(IN_ORDER.splitlines()) == (1, [], 1, 0)
    assert examine(JOURNALED.splitlines()) == (1, [], 0, 1)


@pytest.mark.parametrize("trace", WRONG.values(), ids=WRONG.keys())
def test_a_reply_that_did_not_wait_is_noticed(trace: str) -> None:
    assert examine(trace.splitlines()).unsafe == ["/d/t-0/00000000000000000000.log"]


@pytest.mark.parametrize("record_bytes", [10, 100_000], ids=["small", "large"])
def test_every_durable_reply_follows_its_sync(tmp_path: Path, record_bytes: int) -> None:
    found = examine(traced_produces(tmp_path, record_bytes, durability="disk"))

    assert found.unsafe == []
    assert found.replies >= RECORDS
    assert found.log_syncs + found.journal_syncs >= RECORDS, "replies without syncs"
    figure(
        f"{found.replies} durable replies for records of {record_bytes} B, each after fdatasync: "
        f"{found.journal_syncs} of the journal, {found.log_syncs} of the log"
    )


def test_a_reply_from_memory_waits_for_no_sync(tmp_path: Path) -> None:
    found = examine(traced_produces(tmp_path, 10, durability="memory"))

    assert found.replies >= RECORDS
    assert len(found.unsafe) >= RECORDS, "something was synced"


def traced_produces(tmp_path: Path, record_bytes: int, durability: str) -> list[str]:
    """The trace of single records, each sent once the one before was acknowledged."""
    trace = tmp_path / "trace"
    broker = BrokerProcess(
        tmp_path / "data",
        # No checkpoint in between: its syncs are none of a reply's.
        options={"log.flush.offset.checkpoint.interval.ms": "3600000"},
        # -D: strace is the one beside, so that the process we started is the broker itself.
        wrapper=("strace", "-D", "-o", str(trace), *TRACE),
    )
    with broker.start(), PlainClient(broker.bootstrap) as client:
        client.create("ledger", durability=durability)
        for number in range(RECORDS):
            outcome = client.produce("ledger", batch_of(b"%0*d" % (record_bytes, number)))
            assert (outcome.error_code, outcome.base_offset) == (0, number)
        pid = broker.pid
    await_end(trace, pid)
    return read_trace(trace)


def await_end(trace: Path, pid: int) -> None:
    """strace ends a moment after the broker did."""
    deadline = time.monotonic() + ENDED_WITHIN_S
    while f"{pid} +++ exited with 0 +++" not in " ".join(trace.read_text().split()):
        assert time.monotonic() < deadline, "strace does not end"
        time.sleep(0.05)
