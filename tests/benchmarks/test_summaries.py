"""What clients and the kernel print becomes figures."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest
from benchmarks.loads import datasync
from benchmarks.loads.java_tools import parse_assigned, parse_consumer, parse_producer
from benchmarks.loads.librdkafka import LoadError
from benchmarks.loads.session import figures
from benchmarks.peers import process_tree
from benchmarks.peers.java import parse_java_version
from benchmarks.report.results import Result, fresh_directory

PRODUCED = """\
52213 records sent, 10442.6 records/sec (10.20 MB/sec), 2417.5 ms avg latency, 4102.0 ms max.
200000 records sent, 53050.397878 records/sec (51.81 MB/sec), 425.30 ms avg latency, \
745.00 ms max latency, 433 ms 50th, 700 ms 95th, 724 ms 99th, 742 ms 99.9th.
"""
CONSUMED = """\
start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, \
rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec
2026-01-02 03:04:05:006, 2026-01-02 03:04:09:006, 195.3125, 48.8, 200000, 50000.0, \
3373, 627, 311.5, 318979.3
"""


def test_producer_summary_gives_rate_and_latency() -> None:
    summary = parse_producer(PRODUCED, size_bytes=1024)

    assert summary["messages_per_s"] == pytest.approx(53050.4, abs=0.1)
    assert summary["bytes"] == 200_000 * 1024
    assert summary["publish_p99_ms"] == 724
    assert summary["publish_p999_ms"] == 742


def test_consumer_summary_leaves_out_the_time_to_join_a_group() -> None:
    summary = parse_consumer(CONSUMED)

    assert summary["messages"] == 200_000
    assert summary["messages_per_s"] == 318979.3
    assert summary["bytes"] == 200_000 * 1024


def test_assigned_consumer_line_gives_a_rate() -> None:
    assert parse_assigned("200000 204800000 1600\n")["messages_per_s"] == 125_000


@pytest.mark.parametrize("parse", [lambda text: parse_producer(text, 100), parse_consumer])
def test_a_missing_summary_is_an_error_that_shows_the_output(parse) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(LoadError, match="Exception in thread"):
        parse("Exception in thread main")


@pytest.mark.parametrize(
    ("banner", "version"),
    [('openjdk version "17.0.15" 2025-04-15', "17.0.15"), ('java version "25"', "25"), ("?", "0")],
)
def test_java_version_is_read_from_its_banner(banner: str, version: str) -> None:
    assert parse_java_version(banner) == version


def test_figures_are_flat_and_carry_broker_cpu_per_mb() -> None:
    reported: dict[str, object] = {
        "mode": "latency",
        "bytes": 50_000_000,
        "publish_ms": {"p50": 1.5, "p999": 9.0},
    }

    assert figures(reported, broker_cpu_s=0.25) == {
        "bytes": 50_000_000,
        "publish_p50_ms": 1.5,
        "publish_p999_ms": 9.0,
        "cpu_ms_per_mb": 5.0,
    }


def test_memory_and_cpu_include_child_processes() -> None:
    alone_mb = process_tree.rss_mb(os.getpid())
    hungry = "held = bytearray(64 << 20); print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", hungry], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()

        assert child.pid in process_tree.descendants(os.getpid())
        assert process_tree.rss_mb(os.getpid()) > alone_mb + 60
        assert process_tree.cpu_seconds(os.getpid()) > 0

        child.communicate(b"\n")


def test_a_process_that_is_gone_costs_nothing() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()

    assert process_tree.rss_mb(child.pid) == 0
    assert process_tree.cpu_seconds(child.pid) == 0


def test_fdatasync_probe_leaves_no_file_behind(tmp_path: Path) -> None:
    took = datasync.measure(tmp_path, size_kb=4, repeats=5)

    assert 0 < took["p50_ms"] <= took["p99_ms"]
    assert list(tmp_path.iterdir()) == []


def test_fdatasync_is_probed_by_as_many_as_there_are_brokers(tmp_path: Path) -> None:
    together = datasync.measure_at_once(tmp_path, writers=3, repeats=3)

    assert 0 < together["p50_ms"] <= together["p99_ms"]
    assert list(tmp_path.iterdir()) == []
    assert list(datasync.probe(tmp_path, brokers=3)) == ["fdatasync 3 at once 16KB"]


def test_results_of_one_day_do_not_overwrite_each_other(tmp_path: Path) -> None:
    result = Result({"cores": 2}, {"kafka": {"version": "4"}}, {})
    result.pairs.append({"kafka": {"start": {"ready_ms": 2_000.0}}})
    day = date(2026, 1, 2)
    result.write(fresh_directory(tmp_path, day))

    assert fresh_directory(tmp_path, day).name == "2026-01-02-2"
    assert "2,000" in (tmp_path / "2026-01-02" / "table.txt").read_text()
    assert (tmp_path / "2026-01-02" / "results.json").stat().st_size > 0
