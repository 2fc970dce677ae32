"""What the loads of queues print becomes figures, and these a table with verdicts."""

from __future__ import annotations

import socket
import subprocess
import threading
from pathlib import Path

import pytest
from benchmarks.loads.librdkafka import LoadError
from benchmarks.peers.handshake import NotReadyError
from benchmarks.peers.rabbitmq import wait_for_port, write_program
from benchmarks.queues.measuring import parse_perf_test, parse_queue_load
from benchmarks.queues.rows import KAFKA, LIVES, RABBITMQ, WAYSTATION, chosen
from benchmarks.queues.table import render, summary
from benchmarks.report.ratios import Comparison, Run
from benchmarks.report.requirements import QUEUES

PERF_TEST = """\
id: test-1, starting consumer #0
id: test-1, time 1.000 s, sent: 1000 msg/s, received: 900 msg/s, min/median consumer latency: 1 ms
id: test-1, time 2.000 s, sent: 9,000 msg/s, received: 8,500 msg/s, min/median consumer latency: 1
id: test-1, time 3.000 s, sent: 11000 msg/s, received: 9500 msg/s, min/median consumer latency: 1
id: test-1, sending rate avg: 7000 msg/s
id: test-1, receiving rate avg: 6300 msg/s
"""
QUEUE_LOAD = (
    '{"messages": 4000, "messages_per_s": 2000.0, "client_cpu_ms_per_mb": 4.0, '
    '"read_per_s": 0.0, "stored": 9000, "received": 9001, "acknowledged": 9000, "read": 0}\n'
)


def a_round(disk: float, rabbitmq: float, memory: float, kafka: float, by_key: float) -> Run:
    def rate(value: float) -> dict[str, float]:
        return {"messages_per_s": value}

    return {
        WAYSTATION: {
            "queue disk 1KB 4p": rate(disk),
            "queue memory 1KB 4p": rate(memory),
            "queue disk by key 1KB 4p": rate(by_key),
        },
        RABBITMQ: {"queue disk 1KB 4p": rate(rabbitmq)},
        KAFKA: {"queue memory 1KB 4p": rate(kafka)},
    }


def test_of_perf_test_the_lower_rate_after_the_warm_up_counts() -> None:
    figures = parse_perf_test(PERF_TEST, warmup_s=1.0)

    assert figures == {"messages_per_s": 9_000, "messages": 18_000, "all": 18_900}


def test_of_our_load_the_last_line_counts_and_a_group_only_if_there_was_one() -> None:
    figures = parse_queue_load(f"something else\n{QUEUE_LOAD}")

    assert figures == {
        "messages_per_s": 2_000,
        "messages": 4_000,
        "client_cpu_ms_per_mb": 4.0,
        "again": 1,
        "all": 9_000,
    }
    assert parse_queue_load(QUEUE_LOAD.replace('"read": 0', '"read": 9000'))["read_per_s"] == 0


@pytest.mark.parametrize("parse", [parse_queue_load, lambda text: parse_perf_test(text, 1.0)])
def test_a_missing_summary_is_an_error_that_shows_the_output(parse) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(LoadError, match="Exception in thread"):
        parse("Exception in thread main")


def test_each_row_stands_beside_whom_it_must_be_compared_with() -> None:
    enough = [a_round(50_000, 10_000, 60_000, 60_000, 20_000)]

    assert summary(enough) == "3 requirements met, 0 fall short, 0 not measurable here"
    assert "5.00 (5.00-5.00)" in render(enough)


def test_what_falls_short_is_named() -> None:
    short = summary([a_round(49_000, 10_000, 59_000, 60_000, 19_999)])

    assert "queue disk 1KB 4p: 4.9, ratio >= 5 of rabbitmq" in short
    assert "queue memory 1KB 4p: 0.983, ratio >= 1 of kafka" in short
    assert "queue disk by key 1KB 4p: 19,999, ours >= 20,000" in short


def test_a_peer_that_cannot_run_leaves_its_requirements_open() -> None:
    alone = {WAYSTATION: a_round(5, 1, 1, 1, 30_000)[WAYSTATION]}

    assert summary([alone]) == "1 requirements met, 0 fall short, 2 not measurable here"
    assert "not measured" in render([alone])


def test_every_requirement_speaks_about_a_row_that_is_measured() -> None:
    rows = {load.row(life.durability) for life in LIVES for load in life.loads}

    for _, requirement in QUEUES:
        assert any(requirement.covers(Comparison(r, requirement.metric, (), (), ())) for r in rows)


def test_a_quick_look_still_has_every_requirement() -> None:
    rows = {
        x.row(life.durability) for life in chosen((WAYSTATION,), quick=True) for x in life.loads
    }

    for _, requirement in QUEUES:
        assert any(requirement.covers(Comparison(r, requirement.metric, (), (), ())) for r in rows)


def test_a_node_is_ready_when_it_answers_and_not_when_it_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        turns = iter([b"", b"\x08", b"\x01"])

        def serve() -> None:
            for answer in turns:
                connection, _ = listener.accept()
                with connection:
                    connection.recv(8)
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        wait_for_port(port, b"AMQP\x00\x00\x09\x01", lambda: True)
        thread.join()

    assert next(turns, None) is None
    with pytest.raises(NotReadyError, match="ended"):
        wait_for_port(port, b"", lambda: False)


def test_erlang_runs_from_where_it_was_unpacked(tmp_path: Path) -> None:
    binaries = tmp_path / "erts-13" / "bin"
    binaries.mkdir(parents=True)
    (binaries / "erlexec").write_text('#!/bin/sh\necho "$ROOTDIR $PROGNAME $1"\n')
    (binaries / "erlexec").chmod(0o755)
    program = tmp_path / "erl"

    write_program(program, "erl", tmp_path)

    said = subprocess.run([str(program), "a b"], capture_output=True, text=True, check=True)
    assert said.stdout == f"{tmp_path} erl a b\n"
