"""``waystation find`` against a real broker."""

import json
import os

import pytest
from tests.support.command import waystation


def test_the_messages_of_a_key_are_printed(bootstrap: str, topic: str) -> None:
    at = ("--bootstrap", bootstrap)
    waystation("topic", "create", topic, "--partitions", "3", "--config", "index.keys=true", *at)
    lines = "".join(f"user-{number % 5}:{number}\n" for number in range(20))
    sent = waystation("produce", topic, "--key-separator", ":", *at, typed=lines.encode())

    found = waystation("find", "--key", "user-2", topic, *at)
    after = waystation("find", "--key", "user-2", topic, "--limit", "1", "--json", *at)
    first = json.loads(after.out)
    rest = waystation("find", "--key", "user-2", topic, "--after", str(first["offset"]), *at)

    assert sent.code == found.code == after.code == 0
    assert found.out.split() == ["2", "7", "12", "17"]
    assert f"4 messages of user-2 in {topic}" in found.err
    assert (first["key"], first["value"]) == ("user-2", "2")
    assert rest.out.split() == ["7", "12", "17"]


def test_a_topic_without_an_index_says_how_to_get_one(bootstrap: str, topic: str) -> None:
    waystation("topic", "create", topic, "--bootstrap", bootstrap)

    refused = waystation("find", "--key", "a", topic, "--bootstrap", bootstrap)

    assert refused.code == 1
    assert f"waystation topic alter {topic} --set index.keys=true" in refused.err


def test_keys_of_any_bytes_are_found_wherever_they_are(bootstrap: str, topic: str) -> None:
    at = ("--bootstrap", bootstrap)
    waystation("topic", "create", topic, "--partitions", "3", "--config", "index.keys=true", *at)
    lines = b"\xff\xfe:bytes\n:none\n"
    waystation("produce", topic, "--key-separator", ":", *at, typed=lines)
    other = waystation("find", "--key", "ann", topic, "--json", *at)
    assert (other.code, other.out) == (0, "")
    for partition in "012":  # as a client with another partitioner would
        waystation("produce", topic, "--key", "ann", "--partition", partition, *at, typed=b"x\n")

    typed = waystation("find", "--key", os.fsdecode(b"\xff\xfe"), topic, *at)
    packed = waystation("find", "--key-base64", "//4=", topic, *at)
    empty = waystation("find", "--key", "", topic, *at)
    one = waystation("find", "--key", "ann", topic, *at)
    every = waystation("find", "--key", "ann", topic, "--everywhere", *at)
    two = waystation("find", "--key", "ann", topic, "--everywhere", "--limit", "2", *at)

    assert [found.out for found in (typed, packed, empty)] == ["bytes\n", "bytes\n", "none\n"]
    assert [found.out.split() for found in (one, every, two)] == [["x"], ["x"] * 3, ["x"] * 2]


@pytest.mark.parametrize(
    "wrong",
    [
        (),
        ("--key", "a", "--key-base64", "YQ=="),
        ("--key-base64", "!"),
        ("--key", "a", "--from", "1", "--after", "1"),
        ("--key", "a", "--everywhere", "--partition", "1"),
        ("--key", "a", "--everywhere", "--wait", "1s"),
    ],
)
def test_what_cannot_be_meant_is_said(wrong: tuple[str, ...]) -> None:
    refused = waystation("find", "topic", *wrong)

    assert (refused.code, refused.out) == (2, "")
    assert "Traceback" not in refused.err
