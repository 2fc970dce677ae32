"""ListGroups: what there is, of the states and kinds asked for."""

import pytest

from tests.apis.grouping import Grouping
from tests.apis.kit import versions
from waystation.wire.versions import ApiKey

VERSIONS = versions(ApiKey.LIST_GROUPS)
STATES_FROM, TYPES_FROM = 4, 5


@pytest.fixture
def groups(ann: Grouping, bob: Grouping, group: str, topic: str) -> dict[str, str]:
    """Groups by what they are."""
    ann.create(topic)
    named = {one: f"{group}-{one}" for one in ("offsets", "stable", "server-side")}
    ann.commit(named["offsets"], topic, 1)
    ann.sit_alone(named["stable"])
    bob.beat_first(named["server-side"], "m-1", topic)
    return named


@pytest.mark.parametrize("version", VERSIONS)
def test_every_kind_is_listed_in_every_version(
    ann: Grouping, groups: dict[str, str], version: int
) -> None:
    told = ann.listed(version=version)

    def facts(name: str) -> tuple[str, str, str]:
        one = told[groups[name]]
        return one.protocol_type, one.group_state, one.group_type

    def as_far_as_told(protocol_type: str, state: str, kind: str) -> tuple[str, str, str]:
        return (
            protocol_type,
            state if version >= STATES_FROM else "",
            kind if version >= TYPES_FROM else "",
        )

    assert facts("offsets") == as_far_as_told("", "Empty", "classic")
    assert facts("stable") == as_far_as_told("consumer", "Stable", "classic")
    assert facts("server-side")[0] == "consumer"
    assert facts("server-side")[2] == ("consumer" if version >= TYPES_FROM else "")


@pytest.mark.parametrize(
    ("asked", "passing"),
    [
        ({"states_filter": ["Empty"]}, {"offsets"}),
        ({"states_filter": ["empty"]}, {"offsets"}),
        (
            {"states_filter": ["Empty", "Stable"], "types_filter": ["classic"]},
            {"offsets", "stable"},
        ),
        ({"types_filter": ["consumer"]}, {"server-side"}),
        ({"types_filter": ["Consumer", "CLASSIC"]}, {"offsets", "stable", "server-side"}),
        ({"states_filter": ["Dead"]}, set()),
        ({"types_filter": ["share"]}, set()),
        ({"types_filter": ["nonsense"]}, set()),
    ],
)
def test_filters_pass_what_they_name(
    ann: Grouping, groups: dict[str, str], asked: dict[str, list[str]], passing: set[str]
) -> None:
    told = ann.listed(**asked)

    assert {name for name, group in groups.items() if group in told} == passing
