"""A node's options: where they come from, which one wins, and what is wrong with them."""

from pathlib import Path

import pytest

from waystation.model.errors import InvalidSettingsError
from waystation.node.settings import all_options, from_environment, from_file, load


def test_nothing_given_means_defaults() -> None:
    settings = load([])

    assert settings.broker.node_id == 1
    assert settings.addresses.log_dirs == ("./data",)
    assert settings.topics.retention_ms == 604_800_000
    assert settings.static == {}


def test_later_sources_win() -> None:
    settings = load(
        [
            ("file", {"num.partitions": "2", "node.id": "5"}),
            ("environment", {"num.partitions": "3"}),
            ("command line", {"num.partitions": "4"}),
        ]
    )

    assert (settings.broker.num_partitions, settings.broker.node_id) == (4, 5)
    assert settings.static == {"num.partitions": "4", "broker.id": "5"}


@pytest.mark.parametrize("name", ["retention.ms", "log.retention.ms"])
def test_an_option_has_its_own_name_and_kafkas(name: str) -> None:
    settings = load([("x", {name: "1000"})])

    assert settings.topics.retention_ms == 1_000
    assert settings.static == {"log.retention.ms": "1000"}


@pytest.mark.parametrize(
    ("name", "text", "retention_ms"),
    [
        ("log.retention.hours", "2", 7_200_000),
        ("log.retention.minutes", "3", 180_000),
        ("log.retention.hours", "-1", -1),
    ],
)
def test_kafkas_coarser_units_are_understood(name: str, text: str, retention_ms: int) -> None:
    assert load([("x", {name: text})]).topics.retention_ms == retention_ms


def test_rolling_has_coarser_units_too() -> None:
    settings = load([("x", {"log.roll.hours": "1", "log.roll.jitter.hours": "1"})])

    assert settings.topics.segment_ms == settings.topics.segment_jitter_ms == 3_600_000


def test_lists_are_separated_by_commas() -> None:
    assert load([("x", {"log.dirs": "/a, /b"})]).addresses.log_dirs == ("/a", "/b")
    assert load([("x", {"log.dir": "/a"})]).addresses.log_dirs == ("/a",)


def test_every_problem_is_told_at_once_with_its_source() -> None:
    with pytest.raises(InvalidSettingsError) as caught:
        load(
            [
                ("file", {"num.partitions": "many", "retention.mss": "1"}),
                ("command line", {"node.id": "-4", "log.retention.hours": "soon"}),
            ]
        )

    problems = caught.value.problems
    assert len(problems) == 4
    assert problems[0].startswith("file: num.partitions ")
    assert "did you mean retention.ms" in problems[1]
    assert problems[2].startswith("command line: node.id ")
    assert problems[3].startswith("command line: log.retention.hours ")


def test_a_file_may_nest_its_options(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text(
        'num.partitions = 3\nauto.create.topics.enable = false\n"log.dirs" = ["/a", "/b"]\n'
        "[log.retention]\nms = 5\n"
    )

    assert from_file(path) == {
        "num.partitions": "3",
        "auto.create.topics.enable": "false",
        "log.dirs": "/a,/b",
        "log.retention.ms": "5",
    }


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettingsError, match="cannot read"):
        from_file(tmp_path / "absent.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("[")
    with pytest.raises(InvalidSettingsError, match="no TOML"):
        from_file(broken)


def test_the_environment_spells_options_in_capitals() -> None:
    found = from_environment(
        {
            "WAYSTATION_LOG_RETENTION_MS": "5",
            "WAYSTATION_LOG_RETENTION_HOURS": "1",
            "WAYSTATION_NUM_PARTITIONS": "3",
            "WAYSTATION_SOAK": "1",
            "HOME": "/root",
        }
    )

    assert found == {
        "log.retention.ms": "5",
        "log.retention.hours": "1",
        "num.partitions": "3",
    }


def test_no_two_options_share_a_name() -> None:
    names = [one.name for one in all_options()]
    levels = [one.kafka or one.name for one in all_options()]

    assert len(set(names)) == len(names)
    assert len(set(levels)) == len(levels)


@pytest.mark.parametrize("one", all_options(), ids=lambda one: one.name)
def test_every_option_is_explained_and_its_default_may_be_given(one) -> None:  # type: ignore[no-untyped-def]
    assert len(one.doc) > 20
    assert one.doc.endswith((".", ")"))
    assert one.parse(one.format(one.default)) == one.default


@pytest.mark.parametrize("text", ["sqlite", "etcd://db1,db2:2379/ours", "zookeeper://zk1:2181"])
def test_every_kind_of_store_may_be_named(text: str) -> None:
    assert load([("x", {"store": text})]).addresses.store == text


def test_a_store_that_is_none_says_what_would_be_one() -> None:
    with pytest.raises(InvalidSettingsError, match=r"x: store is wrong: .*etcd://HOST:PORT"):
        load([("x", {"store": "postgres://db"})])


def test_a_profile_sets_what_no_source_sets() -> None:
    plain = load([]).server.socket_read_linger_ms
    fast = load([("--profile", {"profile": "latency"})])
    wins = load([("file", {"socket.read.linger.ms": "7"}), ("--profile", {"profile": "latency"})])

    assert (plain, fast.server.socket_read_linger_ms, wins.server.socket_read_linger_ms) == (
        1,
        0,
        7,
    )
    assert (fast.topics.profile, fast.static["profile"]) == ("latency", "latency")
    with pytest.raises(InvalidSettingsError, match="profile is 'speed', must be one of balanced"):
        load([("--set", {"profile": "speed"})])
