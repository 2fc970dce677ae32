"""``waystation consume`` against a real broker."""

import datetime as dt
import json
import time

import pytest
from crc32c import crc32c
from tests.support.command import Ended, waystation

from waystation import Admin, Producer

# Within retention: older records would be gone before they are read, on a slow day.
FIRST_MS = time.time_ns() // 1_000_000_000 * 1_000 - 600_000


@pytest.fixture
async def filled(bootstrap: str, topic: str) -> str:
    """Ten messages, a second apart, in one partition."""
    async with Admin(bootstrap) as admin:
        await admin.create_topic(topic, 1)
    async with Producer(bootstrap) as producer:
        for number in range(10):
            producer.submit(
                topic, f"v{number}", key=f"k{number}", timestamp=FIRST_MS + number * 1_000
            )
    return topic


def consume(bootstrap: str, topic: str, *options: str) -> Ended:
    return waystation("consume", topic, "--bootstrap", bootstrap, *options)


def values(ended: Ended) -> list[str]:
    assert ended.code == 0, ended.err
    return ended.out.splitlines()


def test_reading_from_the_beginning_ends_at_the_end(bootstrap: str, filled: str) -> None:
    assert values(consume(bootstrap, filled, "--from-beginning")) == [f"v{n}" for n in range(10)]


def test_reading_starts_where_it_is_told(bootstrap: str, filled: str) -> None:
    assert values(consume(bootstrap, filled, "--offset", "8")) == ["v8", "v9"]
    assert values(consume(bootstrap, filled, "--offset", "-3")) == ["v7", "v8", "v9"]
    assert values(consume(bootstrap, filled, "--offset", "99")) == []
    at_seven = consume(bootstrap, filled, "--timestamp", str(FIRST_MS + 7_000))
    assert values(at_seven) == ["v7", "v8", "v9"]
    moment = dt.datetime.fromtimestamp((FIRST_MS + 8_500) / 1_000, dt.UTC).isoformat()
    iso = consume(bootstrap, filled, "--timestamp", moment)
    assert values(iso) == ["v9"]


def test_a_count_ends_the_reading(bootstrap: str, filled: str) -> None:
    assert values(consume(bootstrap, filled, "--from-beginning", "--count", "3")) == [
        "v0",
        "v1",
        "v2",
    ]
    assert len(values(consume(bootstrap, filled, "--follow", "--offset", "5", "--count", "5"))) == 5


def test_silence_ends_the_reading(bootstrap: str, filled: str) -> None:
    assert values(consume(bootstrap, filled, "--timeout-ms", "200")) == []
    following = consume(bootstrap, filled, "--from-beginning", "--tail", "--timeout-ms", "200")
    assert len(values(following)) == 10


def test_json_has_the_eight_fields_of_the_documents(bootstrap: str, filled: str) -> None:
    ended = consume(bootstrap, filled, "--from-beginning", "--count", "1", "--json")

    assert json.loads(ended.out) == {
        "key": "k0",
        "value": "v0",
        "topic": filled,
        "partition": 0,
        "offset": 0,
        "timestamp": FIRST_MS,
        "size": 4,
        "crc": crc32c(b"k0v0"),
    }
    assert consume(bootstrap, filled, "--offset", "0", "--count", "1", "--format", "json") == ended


async def test_what_is_not_text_is_shown_so_that_nothing_is_lost(
    bootstrap: str, topic: str
) -> None:
    async with Producer(bootstrap) as producer:
        await producer.send(topic, b"\xff\x00\n", headers=[("h", b"\xfe")])
        await producer.send(topic, None, key=b"gone")
    as_json = consume(bootstrap, topic, "--from-beginning", "--json").out.splitlines()
    as_hex = consume(
        bootstrap, topic, "--from-beginning", "--format", "hex", "--key-separator", " "
    )
    as_text = consume(bootstrap, topic, "--from-beginning")

    assert json.loads(as_json[0])["value"] == {"base64": "/wAK"}
    assert json.loads(as_json[0])["headers"] == [["h", {"base64": "/g=="}]]
    assert json.loads(as_json[1])["value"] is None
    assert as_hex.out == "null ff000a\n676f6e65 null\n"
    assert as_text.out.encode("utf-8", "surrogateescape") == b"\xff\x00\n\nnull\n"


def test_keys_are_printed_on_request(bootstrap: str, filled: str) -> None:
    ended = consume(bootstrap, filled, "--offset", "-1", "--key-separator", ":")

    assert values(ended) == ["k9:v9"]


def test_one_partition_is_read_on_request(bootstrap: str, topic: str) -> None:
    at = ("--bootstrap", bootstrap)
    waystation("topic", "create", topic, "--partitions", "3", *at)
    for partition in ("0", "1", "2"):
        waystation("produce", topic, "--value", f"p{partition}", "--partition", partition, *at)

    assert values(consume(bootstrap, topic, "--from-beginning", "--partition", "1")) == ["p1"]
    missing = consume(bootstrap, topic, "--from-beginning", "--partition", "7")
    assert missing.code == 1
    assert "its partitions are 0 to 2" in missing.err


def test_a_topic_that_is_not_there_is_one_line(bootstrap: str) -> None:
    ended = consume(bootstrap, "no-such-topic", "--from-beginning")

    assert ended.code == 1
    assert ended.err.startswith("waystation: topic no-such-topic does not exist")
    assert ended.err.count("\n") == 1


def test_two_starts_are_a_usage_error(bootstrap: str) -> None:
    assert consume(bootstrap, "orders", "--from-beginning", "--offset", "3").code == 2
    assert consume(bootstrap, "orders", "--timestamp", "noon").code == 2


def test_a_condition_chooses_what_is_printed(bootstrap: str, filled: str) -> None:
    def chosen(where: str, *options: str) -> list[str]:
        return values(consume(bootstrap, filled, "--where", where, *options))

    assert chosen("key IN ('k2', 'k5')", "--from-beginning") == ["v2", "v5"]
    assert chosen("offset >= 4", "--from-beginning", "--count", "2") == ["v4", "v5"]
    assert chosen("value = 'nothing'", "--from-beginning") == []


def test_a_condition_that_is_none_is_shown_with_the_place(bootstrap: str, filled: str) -> None:
    ended = consume(bootstrap, filled, "--where", "key LIKE 'k%' AND contry = 'DE'")

    assert ended.code == 2
    assert "unknown field contry" in ended.err
    lines = ended.err.splitlines()
    (at,) = [number for number, line in enumerate(lines) if "^" in line]
    assert lines[at - 1][lines[at].index("^") :].startswith("contry = 'DE'")
