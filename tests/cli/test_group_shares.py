"""``waystation group`` shows, moves and deletes share groups too."""

import json
from typing import Any

import pytest
from tests.apis.share_grouping import ShareGrouping
from tests.support.command import Ended, waystation

from waystation import Admin, Producer
from waystation.model.errors import GroupNotFoundError, NonEmptyGroupError


def run(bootstrap: str, *arguments: str) -> Ended:
    return waystation(*arguments, "--bootstrap", bootstrap)


def lines(ended: Ended) -> list[dict[str, Any]]:
    assert ended.code == 0, ended.err
    return [json.loads(line) for line in ended.out.splitlines()]


@pytest.fixture
async def group(bootstrap: str, topic: str) -> str:
    """A share group without members, whose queue begins behind two of three messages."""
    async with Admin(bootstrap) as admin, Producer(bootstrap) as producer:
        await admin.create_topic(topic, 1)
        for number in range(3):
            await producer.send(topic, f"v{number}")
        await admin.alter_share_group_offsets(f"q-{topic}", {(topic, 0): 2})
    return f"q-{topic}"


def connection(bootstrap: str) -> ShareGrouping:
    host, port = bootstrap.rsplit(":", 1)
    return ShareGrouping(host, int(port))


def test_share_groups_are_listed_as_such(bootstrap: str, group: str) -> None:
    found = {one["group"]: one for one in lines(run(bootstrap, "group", "list", "--json"))}
    assert (found[group]["state"], found[group]["kind"]) == ("Empty", "share")

    only = lines(run(bootstrap, "group", "list", "--kind", "classic", "--json"))
    assert group not in {one["group"] for one in only}


def test_a_description_shows_members_and_where_queues_begin(
    bootstrap: str, topic: str, group: str
) -> None:
    with connection(bootstrap) as client:
        client.shared(group, topic)

        (told,) = lines(run(bootstrap, "group", "describe", group, "--json"))
        shown = run(bootstrap, "group", "describe", group)

        client.left(group)
    assert (told["kind"], told["state"], told["assignor"]) == ("share", "Stable", "simple")
    assert [one["partitions"] for one in told["members"]] == [[[topic, 0]]]
    (queue,) = told["partitions"]
    assert (queue["start"], queue["lag"], queue["members"]) == (2, 1, ["ann"])
    assert told["total"] == {"partitions": 1, "lag": 1}
    assert "START" in shown.out
    assert "total lag: 1 message that nobody has acknowledged" in shown.out + shown.err


def test_queues_are_moved_and_forgotten(bootstrap: str, topic: str, group: str) -> None:
    reset = lines(run(bootstrap, "group", "reset", group, "--to-earliest", "--yes", "--json"))
    assert [(one["before"], one["after"]) for one in reset] == [(2, 0)]
    (told,) = lines(run(bootstrap, "group", "describe", group, "--json"))
    assert told["total"]["lag"] == 3

    run(bootstrap, "group", "delete", group, "--topic", topic, "--yes")
    (told,) = lines(run(bootstrap, "group", "describe", group, "--json"))
    assert told["partitions"] == []

    assert run(bootstrap, "group", "delete", group, "--yes").code == 0
    assert run(bootstrap, "group", "describe", group).code != 0


async def test_an_admin_is_told_what_is_wrong(bootstrap: str, topic: str, group: str) -> None:
    async with Admin(bootstrap) as admin:
        with connection(bootstrap) as client:
            client.shared(group, topic)
            with pytest.raises(NonEmptyGroupError, match="stop them"):
                await admin.alter_share_group_offsets(group, {(topic, 0): 0})
            client.left(group)
        assert await admin.is_share_group(group)
        assert not await admin.is_share_group("nobody")
        with pytest.raises(GroupNotFoundError, match="nobody"):
            await admin.share_group_offsets("nobody")
        assert (await admin.share_group_offsets(group))[topic, 0].start == 2  # type: ignore[index]
