"""``waystation produce`` against a real broker."""

import asyncio
import json
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.command import COMMAND, Ended, waystation

from waystation.cli.produce import _Sending


def read(bootstrap: str, topic: str) -> list[dict[str, object]]:
    ended = waystation("consume", topic, "--from-beginning", "--json", "--bootstrap", bootstrap)
    assert ended.code == 0, ended.err
    return [json.loads(line) for line in ended.out.splitlines()]


def produce(bootstrap: str, topic: str, *options: str, typed: bytes = b"") -> Ended:
    return waystation("produce", topic, "--bootstrap", bootstrap, *options, typed=typed)


def test_each_line_is_a_message(bootstrap: str, topic: str) -> None:
    ended = produce(bootstrap, topic, typed="first\r\nzweite Zeile: ü\n\nlast".encode())

    assert ended.code == 0
    assert "sent 4 messages" in ended.err
    assert [one["value"] for one in read(bootstrap, topic)] == [
        "first",
        "zweite Zeile: ü",
        "",
        "last",
    ]


def test_keys_headers_and_tombstones(bootstrap: str, topic: str) -> None:
    options = ("--key-separator", ":", "--tombstones", "--header", "source=shop")
    produce(bootstrap, topic, *options, typed=b"a:1:one\nb:\nno key\n")
    messages = read(bootstrap, topic)

    assert [(one["key"], one["value"]) for one in messages] == [
        ("a", "1:one"),
        ("b", None),
        (None, "no key"),
    ]
    assert messages[0]["headers"] == [["source", "shop"]]


def test_json_says_where_each_message_went(bootstrap: str, topic: str) -> None:
    ended = produce(bootstrap, topic, "--json", "--key", "k", typed=b"a\nb\n")
    told = [json.loads(line) for line in ended.out.splitlines()]

    assert [one["offset"] for one in told] == [0, 1]
    assert {one["topic"] for one in told} == {topic}
    assert {one["key"] for one in read(bootstrap, topic)} == {"k"}


def test_lines_that_are_sent_again_under_a_key_are_stored_once(bootstrap: str, topic: str) -> None:
    options = ("--idempotency-key", "night{7}", "--json", "--partition", "0")
    first = produce(bootstrap, topic, *options, typed=b"a\nb\n")
    again = produce(bootstrap, topic, *options, typed=b"a\nb\nc\n")
    single = produce(bootstrap, topic, *options, "--value", "d")

    told = [json.loads(line) for line in (first.out + again.out + single.out).splitlines()]
    assert [(one["offset"], one["replayed"]) for one in told] == [
        (0, False),
        (1, False),
        (0, True),
        (1, True),
        (2, False),
        (3, False),
    ]
    assert read(bootstrap, topic)[3]["headers"] == [["idempotency-key", "night{7}"]]
    other = produce(bootstrap, topic, *options, "--value", "other")
    assert other.code == 1
    assert "was used for another message" in other.err
    assert produce(bootstrap, topic, *options, "--acks", "1", typed=b"x").code == 2


def test_a_file_is_sent_up_to_a_count(bootstrap: str, topic: str, tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    path.write_text("".join(f"{number}\n" for number in range(100_000)))
    ended = produce(bootstrap, topic, "--file", str(path), "--count", "70000", "--progress")

    assert ended.code == 0
    assert "sent 70000 messages" in ended.err
    values = [str(one["value"]) for one in read(bootstrap, topic)]
    assert values == [str(number) for number in range(70_000)]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_messages_are_compressed(bootstrap: str, topic: str, codec: str) -> None:
    value = "x" * 500
    produce(bootstrap, topic, "--value", value, "--count", "100", "--compression", codec)
    described = waystation("topic", "describe", topic, "--json", "--bootstrap", bootstrap)

    assert [one["value"] for one in read(bootstrap, topic)] == [value] * 100
    assert sum(one["size_bytes"] for one in json.loads(described.out)["partitions"]) < 20_000


def test_a_rate_is_kept(bootstrap: str, topic: str) -> None:
    began = time.monotonic()
    produce(bootstrap, topic, "--value", "v", "--count", "50", "--rate", "100")

    assert 0.45 < time.monotonic() - began < 5


def test_lines_are_sent_as_they_are_typed(bootstrap: str, topic: str) -> None:
    command = [*COMMAND, "produce", topic, "--json", "--bootstrap", bootstrap]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for number in range(3):
            process.stdin.write(b"line\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["offset"] == number
        process.stdin.close()
        assert process.wait(10) == 0


def test_a_message_too_large_is_one_line_that_names_it(bootstrap: str, topic: str) -> None:
    ended = produce(bootstrap, topic, typed=b"small\n" + b"x" * 2_000_000 + b"\n")

    assert ended.code == 1
    assert ended.err.startswith("waystation: message 2 takes 2000")
    assert "--max-bytes" in ended.err
    assert ended.err.count("\n") == 1


def test_a_message_too_large_for_the_topic_is_one_line(bootstrap: str, topic: str) -> None:
    at = ("--bootstrap", bootstrap)
    waystation("topic", "create", topic, "--config", "max.message.bytes=1000", *at)
    ended = produce(bootstrap, topic, typed=b"x" * 5_000 + b"\n")

    assert ended.code == 1
    assert "max.message.bytes" in ended.err
    assert ended.err.count("\n") == 1


def test_a_partition_that_is_not_there_is_one_line(bootstrap: str, topic: str) -> None:
    ended = produce(bootstrap, topic, "--partition", "99", "--value", "v")

    assert ended.code == 1
    assert f"topic {topic} has no partition 99" in ended.err


def test_an_illegal_name_is_one_line(bootstrap: str) -> None:
    ended = produce(bootstrap, "no good", "--value", "v")

    assert ended.code == 1
    assert "letters, digits" in ended.err


def test_a_missing_file_is_a_usage_error(bootstrap: str, topic: str) -> None:
    assert produce(bootstrap, topic, "--file", "/no/such/file").code == 2


class _LastAnsweredFirst:
    """A producer to several brokers, of which the one with the first message is the slowest."""

    def __init__(self) -> None:
        self.futures: list[asyncio.Future[object]] = []

    def submit(self, *_: object, **__: object) -> "asyncio.Future[object]":
        self.futures.append(asyncio.get_running_loop().create_future())
        return self.futures[-1]

    async def drain(self) -> None:
        loop = asyncio.get_running_loop()
        first, *others = self.futures
        for one in others:
            one.set_result(None)
        loop.call_later(0.05, first.set_result, None)


async def test_brokers_may_answer_in_any_order() -> None:
    async def lines() -> AsyncIterator[list[bytes]]:
        yield [b"one", b"two", b"three"]

    sending = _Sending(
        _LastAnsweredFirst(),  # type: ignore[arg-type]
        "orders",
        (),
        None,
        lambda line: (None, line),
        None,
        as_json=False,
    )
    await asyncio.wait_for(sending.send_all(lines(), None, lambda _: None), 10)

    assert sending.sent == 3


def test_a_profile_sets_what_is_not_said(bootstrap: str, topic: str) -> None:
    at = ("--bootstrap", bootstrap)
    waystation("topic", "create", topic, "--partitions", "1", *at)
    alike = ("--value", "x" * 1_000, "--count", "500", *at)

    def size_bytes() -> int:
        told = json.loads(waystation("topic", "describe", topic, "--json", *at).out)
        return int(told["partitions"][0]["size_bytes"])

    assert waystation("produce", topic, "--profile", "throughput", *alike).code == 0
    compressed = size_bytes()
    plainly = ("--profile", "throughput", "--compression", "none")
    assert waystation("produce", topic, *plainly, *alike).code == 0

    assert compressed < 100_000
    assert size_bytes() - compressed > 500_000
