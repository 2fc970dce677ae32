"""Well-formed nonsense about groups: every request is answered, and breaks nothing.

Bytes that are no message are refused before any handler sees them (``messages/test_hostile.py``).
Here every field is filled at random, partly with what is true, so that requests get deep.
"""

from random import Random
from typing import Any

import pytest

from tests.apis.conftest import MakeNode, coordinate
from tests.apis.grouping import Grouping
from tests.apis.kit import versions
from tests.messages.arbitrary import instance
from tests.support.soak import count
from waystation.messages.catalog import request_type
from waystation.wire.message import Struct
from waystation.wire.versions import ApiKey

REQUESTS_OF_EACH_API = count(60, 3_000)
ROUNDS_AT_MOST = 10
LIVED = {
    (key, 0) for key in (ApiKey.JOIN_GROUP, ApiKey.LEAVE_GROUP, ApiKey.CONSUMER_GROUP_HEARTBEAT)
}
WAITING = {ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP}
APIS = [
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
    ApiKey.FIND_COORDINATOR,
    ApiKey.JOIN_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.DESCRIBE_GROUPS,
    ApiKey.LIST_GROUPS,
    ApiKey.DELETE_GROUPS,
    ApiKey.OFFSET_DELETE,
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ApiKey.CONSUMER_GROUP_DESCRIBE,
]
GROUPS, MEMBERS, TOPICS = ["g", "h", "i"], ["m-1", "m-2", ""], ["here", "there"]


class Truth:
    """What is so, to be sprinkled over requests."""

    def __init__(self, random: Random, ids: list[Any]) -> None:
        self._random, self._ids = random, ids
        self.members = list(MEMBERS)

    def sprinkle(self, struct: Struct) -> None:
        """Put true values into some of the fields."""
        for name in struct.__fields__:
            value = getattr(struct, name)
            for one in value if isinstance(value, list) else [value]:
                if isinstance(one, Struct):
                    self.sprinkle(one)
            choices = self._choices(name)
            if choices and self._random.random() < 0.8:
                setattr(struct, name, self._random.choice(choices))

    def _choices(self, name: str) -> list[Any]:
        return {
            "group_id": GROUPS,
            "groups_names": [GROUPS],
            "group_ids": [GROUPS],
            "member_id": self.members,
            "name": TOPICS,
            "topic_id": self._ids,
            "subscribed_topic_names": [TOPICS, None, []],
            "subscribed_topic_regex": [None, ".*", "h[", ""],
            "topic_partitions": [[], [], None],
            "rack_id": [None, "r"],
            "server_assignor": [None, "uniform", "range"],
            "generation_id": [1, 2, 3],
            "generation_id_or_member_epoch": [-1, 1, 2],
            "member_epoch": [0, 0, 1, 2, 3, -1, -2],
            "partition_index": [0, 1],
            "session_timeout_ms": [6_000, 10_000],
            "rebalance_timeout_ms": [1, 100, 10_000],
            "instance_id": [None, "i-1"],
            "group_instance_id": [None, "i-1"],
            "protocol_type": ["consumer"],
        }.get(name, [])


def questions(random: Random) -> list[tuple[ApiKey, int]]:
    """Every API in some of its versions, in any order."""
    asked = [
        (key, random.choice(versions(key))) for key in APIS for _ in range(REQUESTS_OF_EACH_API)
    ]
    random.shuffle(asked)
    return asked


@pytest.mark.parametrize("seed", range(count(2, 20)))
def test_every_request_is_answered_and_breaks_nothing(
    make_node: MakeNode, capfd: pytest.CaptureFixture[str], seed: int
) -> None:
    random = Random(seed)
    running = make_node(
        group_initial_rebalance_delay_ms="0", offsets_topic_num_partitions="2", group_max_size="5"
    )
    coordinate(running)
    with Grouping(*running.address) as ann:
        for topic in TOPICS:
            ann.create(topic, partitions=2)
        truth = Truth(random, [ann.topic_id(topic) for topic in TOPICS])
        codes: set[tuple[ApiKey, int]] = set()
        # Who answers in time is luck, and with it what later requests are sprinkled with: ask on
        # until each was lived through.
        for _ in range(ROUNDS_AT_MOST):
            for key, version in questions(random):
                request = instance(request_type(key), version, random)
                truth.sprinkle(request)
                if key in WAITING:
                    with Grouping(*running.address) as hasty:
                        hasty.send(request, version)
                        if hasty.has_reply(0.01):
                            told = hasty.receive(key, version)
                            truth.members.append(getattr(told, "member_id", ""))
                            codes.add((key, told.error_code))
                else:
                    told = ann.ask(request, version)
                    codes.add((key, getattr(told, "error_code", 0)))
            if codes >= LIVED:
                break
        assert ann.listed() is not None

    # It was not all nonsense, nor refused before it got anywhere.
    assert codes >= LIVED
    assert len(codes) > 25, codes

    said = capfd.readouterr().err
    for complaint in ("request.failed", "answer.failed", "machine.broken", "coordinator.failed"):
        assert complaint not in said, f"seed {seed}: {said[-3_000:]}"
