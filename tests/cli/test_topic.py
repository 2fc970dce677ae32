"""``waystation topic`` against a real broker."""

import json

from tests.support.command import waystation


def test_a_topic_lives_and_dies(bootstrap: str, topic: str) -> None:
    at = ("--bootstrap", bootstrap)
    created = waystation(
        "topic", "create", topic, "--partitions", "3", "--config", "retention.ms=777", *at
    )
    listed = waystation("topic", "list", "--json", *at)
    described = json.loads(waystation("topic", "describe", topic, "--json", *at).out)
    deleted = waystation("topic", "delete", topic, *at)
    gone = waystation("topic", "describe", topic, *at)

    assert created.code == deleted.code == 0
    assert f"created topic {topic} with 3 partitions" in created.err
    assert topic in [json.loads(line)["topic"] for line in listed.out.splitlines()]
    assert [one["partition"] for one in described["partitions"]] == [0, 1, 2]
    assert described["configs"]["retention.ms"]["value"] == "777"
    assert gone.code == 1
    assert gone.err.startswith(f"waystation: topic {topic} does not exist")


def test_creating_twice_is_an_error_unless_that_is_fine(bootstrap: str, topic: str) -> None:
    at = ("--bootstrap", bootstrap)
    waystation("topic", "create", topic, *at)
    again = waystation("topic", "create", topic, *at)
    fine = waystation("topic", "create", topic, "--if-not-exists", "--json", *at)

    assert again.code == 1
    assert "exists already" in again.err
    assert fine.code == 0
    assert json.loads(fine.out)["created"] is False


def test_partitions_and_options_are_altered(bootstrap: str, topic: str) -> None:
    at = ("--bootstrap", bootstrap)
    waystation("topic", "create", topic, "--partitions", "1", *at)
    altered = waystation(
        "topic", "alter", topic, "--partitions", "2", "--set", "retention.ms=99", *at
    )
    described = json.loads(waystation("topic", "describe", topic, "--json", *at).out)
    waystation("topic", "alter", topic, "--unset", "retention.ms", *at)
    restored = json.loads(waystation("topic", "describe", topic, "--json", *at).out)
    wrong = waystation("topic", "alter", topic, "--set", "retention.ms=soon", *at)

    assert altered.code == 0
    assert len(described["partitions"]) == 2
    assert described["configs"]["retention.ms"]["value"] == "99"
    assert restored["configs"] == {}
    assert wrong.code == 1
    assert "retention.ms" in wrong.err


def test_a_topic_has_a_profile_and_tells_what_it_sets(bootstrap: str, topic: str) -> None:
    at = ("--bootstrap", bootstrap)
    waystation("topic", "create", topic, "--profile", "latency", *at)
    described = json.loads(waystation("topic", "describe", topic, "--json", *at).out)["configs"]
    waystation("topic", "alter", topic, "--set", "profile=throughput", *at)
    waystation("topic", "alter", topic, "--set", "flush.linger.ms=4", *at)
    altered = json.loads(waystation("topic", "describe", topic, "--json", *at).out)["configs"]

    assert described == {
        "profile": {"value": "latency", "source": "dynamic_topic_config"},
        "flush.linger.ms": {"value": "0", "source": "profile latency"},
        "fetch.linger.ms": {"value": "0", "source": "profile latency"},
    }
    assert altered["flush.linger.ms"] == {"value": "4", "source": "dynamic_topic_config"}
    assert altered["fetch.linger.ms"] == {"value": "10", "source": "profile throughput"}
    assert waystation("topic", "create", topic, "--profile", "speed", *at).code == 2


def test_truncation_deletes_the_oldest(bootstrap: str, topic: str) -> None:
    at = ("--bootstrap", bootstrap)
    waystation("topic", "create", topic, "--partitions", "1", *at)
    waystation("produce", topic, "--value", "v", "--count", "10", *at)
    some = waystation("topic", "truncate", topic, "--before", "4", "--json", *at)
    left = waystation("consume", topic, "--from-beginning", "--json", *at)
    every = waystation("topic", "truncate", topic, "--all", "--json", *at)
    later = waystation("topic", "truncate", topic, "--before", "999", "--json", *at)

    assert json.loads(some.out)["start_offsets"] == {"0": 4}
    assert [json.loads(line)["offset"] for line in left.out.splitlines()] == [4, 5, 6, 7, 8, 9]
    assert json.loads(every.out)["start_offsets"] == {"0": 10}
    assert json.loads(later.out)["start_offsets"] == {"0": 10}


def test_tables_are_for_people(bootstrap: str, topic: str) -> None:
    at = ("--bootstrap", bootstrap)
    waystation("topic", "create", topic, "--partitions", "2", *at)

    assert "TOPIC" in waystation("topic", "list", *at).out
    described = waystation("topic", "describe", topic, "--all-configs", *at).out
    assert "LEADER" in described
    assert "retention.ms" in described


def test_a_command_line_that_makes_no_sense_is_a_usage_error(bootstrap: str) -> None:
    at = ("--bootstrap", bootstrap)

    assert waystation("topic", "alter", "orders", *at).code == 2
    assert waystation("topic", "truncate", "orders", *at).code == 2
    assert waystation("topic", "truncate", "orders", "--before-time", "noon", *at).code == 2
    assert waystation("topic", "create", "orders", "--config", "retention", *at).code == 2


def test_a_topic_tells_what_it_keeps_for_its_archive(bootstrap: str, topic: str) -> None:
    at, option = ("--bootstrap", bootstrap), "retention.after.archive"
    waystation("topic", "create", topic, "--partitions", "1", "--config", f"{option}=lake", *at)
    waystation("produce", topic, "--value", "v", "--count", "10", *at)
    before = json.loads(waystation("topic", "describe", topic, "--json", *at).out)
    waystation("group", "reset", "lake", "--topic", topic, "--to-offset", "4", "--yes", *at)
    after = json.loads(waystation("topic", "describe", topic, "--json", *at).out)
    shown = waystation("topic", "describe", topic, *at)
    wrong = waystation("topic", "alter", topic, "--set", f"{option}=lake,mirror", *at)
    waystation("topic", "alter", topic, "--unset", option, *at)
    without = json.loads(waystation("topic", "describe", topic, "--json", *at).out)

    none = {"partition": 0, "archived_up_to": None, "held_messages": 10}
    assert before["archive"] == {"group": "lake", "partitions": [none]}
    assert after["archive"]["partitions"] == [none | {"archived_up_to": 4, "held_messages": 6}]
    assert "kept until group lake has archived it" in shown.err
    assert "MESSAGES HELD" in shown.out
    assert wrong.code == 1
    assert "retention.after.archive is 'lake,mirror', must be the id of one group" in wrong.err
    assert without["archive"] is None
