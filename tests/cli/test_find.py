"""``waystation find`` against a real broker."""

import json

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
