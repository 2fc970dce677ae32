"""kcat: an older librdkafka, which speaks the protocol before flexible versions."""

import json
import subprocess

import pytest

from tests.clients.sample import CODECS


@pytest.mark.parametrize("codec", CODECS)
def test_kcat_reads_back_what_it_wrote(bootstrap: str, topic: str, codec: str) -> None:
    lines = [f"key-{n % 5}:value {n}" for n in range(300)]
    text = "\n".join(lines) + "\n"
    kcat(
        "-P",
        "-b",
        bootstrap,
        "-t",
        topic,
        "-K:",
        "-z",
        codec,
        "-H",
        "trace=yes",
        "-p",
        "0",
        text=text,
    )

    printed = kcat(
        "-C", "-b", bootstrap, "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q", "-J"
    )

    rows = [json.loads(line) for line in printed.splitlines()]
    assert [f"{row['key']}:{row['payload']}" for row in rows] == lines
    assert [row["offset"] for row in rows] == list(range(300))
    assert all(row["headers"] == ["trace", "yes"] for row in rows)


def test_kcat_writes_tombstones_and_idempotently(bootstrap: str, topic: str) -> None:
    # -Z makes an empty value a null one.
    options = ("-X", "enable.idempotence=true", "-p", "0", "-Z", "-K:")
    kcat("-P", "-b", bootstrap, "-t", topic, *options, text="a:1\na:\n")

    printed = kcat(
        "-C", "-b", bootstrap, "-t", topic, "-o", "beginning", "-e", "-q", "-f", "%k %S\n"
    )

    assert printed.splitlines() == ["a 1", "a -1"]


def test_kcat_lists_the_cluster(bootstrap: str, topic: str) -> None:
    kcat("-P", "-b", bootstrap, "-t", topic, text="x\n")

    listed = json.loads(kcat("-L", "-b", bootstrap, "-J"))

    assert [broker["name"] for broker in listed["brokers"]] == [bootstrap]
    assert topic in {one["topic"] for one in listed["topics"]}


def kcat(*arguments: str, text: str = "") -> str:
    done = subprocess.run(
        ["kcat", *arguments], input=text, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
