"""Well-formed nonsense about transactions: every request is answered, and breaks nothing.

Bytes that are no message are refused before any handler sees them (``messages/test_hostile.py``).
Here every field is filled at random, partly with what is true, so that requests get deep.  Markers
from outside end what they name, by whoever may write them: they are only asked for producers
that nobody counts on.
"""

from random import Random
from typing import Any

import pytest

from tests.apis.conftest import MakeNode, coordinate
from tests.apis.kit import versions
from tests.apis.transacting import Transacting, Writer
from tests.messages.arbitrary import instance
from tests.support.soak import count
from waystation.messages.catalog import request_type
from waystation.wire.message import Struct
from waystation.wire.versions import ApiKey

REQUESTS_OF_EACH_API = count(60, 600)
APIS = [
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.END_TXN,
    ApiKey.WRITE_TXN_MARKERS,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.DESCRIBE_PRODUCERS,
    ApiKey.DESCRIBE_TRANSACTIONS,
    ApiKey.LIST_TRANSACTIONS,
    ApiKey.PREPARE_TXN,
    ApiKey.TXN_OUTCOME,
]
ROUNDS_AT_MOST = 10
LIVED = {
    (ApiKey.INIT_PRODUCER_ID, 0),
    (ApiKey.ADD_OFFSETS_TO_TXN, 0),
    (ApiKey.END_TXN, 0),
    (ApiKey.PREPARE_TXN, 0),
    (ApiKey.TXN_OUTCOME, 0),
}
NAMES, LOST, TOPICS, GROUPS = ["a", "b", "c"], ["x", "y"], ["here", "there"], ["g", "h"]
WHO = ("transactional_id", "producer_id", "producer_epoch")
COMPLAINTS = ("request.failed", "answer.failed", "machine.broken", "coordinator.failed")


class Truth:
    """What is so, to be sprinkled over requests."""

    def __init__(self, random: Random, client: Transacting) -> None:
        self._random, self._client = random, client
        self._lost = [client.writer(name) for name in LOST]
        for writer in self._lost:
            assert client.write(writer, "here", b"x") == 0
        self._writers = [client.writer(name) for name in NAMES]

    def look(self) -> None:
        """See who the producers are by now."""
        found = self._client.describe(*NAMES)
        self._writers = [
            Writer(one.transactional_id, one.producer_id, one.producer_epoch) for one in found
        ]

    def write(self) -> None:
        """Let one of them write in earnest, if it may."""
        writer = self._random.choice(self._writers)
        version = self._random.choice([9, 12])
        self._client.write(writer, self._random.choice(TOPICS), b"y", version=version)

    def sprinkle(self, key: ApiKey, struct: Struct) -> None:
        """Put true values into some of the fields; a producer is mostly named in full."""
        writers = self._lost if key is ApiKey.WRITE_TXN_MARKERS else self._writers
        self._fill(struct, writers)
        if key is ApiKey.INIT_PRODUCER_ID and self._random.random() < 0.5:
            struct.producer_id = struct.producer_epoch = -1  # type: ignore[attr-defined]
        if key is ApiKey.WRITE_TXN_MARKERS:
            for marker in struct.markers:  # type: ignore[attr-defined]
                marker.producer_id = self._random.choice(writers).producer_id

    def _fill(self, struct: Struct, writers: list[Writer]) -> None:
        for name in struct.__fields__:
            value = getattr(struct, name)
            for one in value if isinstance(value, list) else [value]:
                if isinstance(one, Struct):
                    self._fill(one, writers)
            choices = [] if _has_structs(value) else self._choices(name)
            if choices and self._random.random() < 0.8:
                setattr(struct, name, self._random.choice(choices))
        if self._random.random() < 0.8:
            for field, true in zip(WHO, self._random.choice(writers), strict=True):
                for name in (field, f"v3_and_below_{field}"):
                    if name in struct.__fields__:
                        setattr(struct, name, true)

    def _choices(self, name: str) -> list[Any]:
        return {
            "transactional_ids": [NAMES, [*NAMES, "", "nobody"]],
            "transaction_timeout_ms": [60_000, 100, 0],
            "name": [*TOPICS, "__consumer_offsets"],
            "partitions": [[0], [0, 1], [5]],
            "partition_indexes": [[0], [1, 0], [0, 0]],
            "partition_index": [0, 1],
            "group_id": GROUPS,
            "generation_id": [-1, 1],
            "member_id": ["", "m"],
            "group_instance_id": [None, "i"],
            "state_filters": [[], ["Ongoing"], ["Prepared", "?"]],
            "producer_id_filters": [[], [0, 1, 2]],
        }.get(name, [])


def _has_structs(value: object) -> bool:
    return isinstance(value, list) and any(isinstance(one, Struct) for one in value)


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
    running = make_node(offsets_topic_num_partitions="2", transaction_state_log_num_partitions="2")
    coordinate(running)
    codes: set[tuple[ApiKey, int]] = set()
    with Transacting(*running.address) as tess:
        for topic in [*TOPICS, "after"]:
            tess.create(topic, partitions=2)
        truth = Truth(random, tess)
        # What is true depends on what time-outs ended meanwhile: ask on until each was lived
        # through.
        for _ in range(ROUNDS_AT_MOST):
            for number, (key, version) in enumerate(questions(random)):
                if number % 5 == 0:
                    truth.look()
                    truth.write()
                request = instance(request_type(key), version, random)
                truth.sprinkle(key, request)
                told = tess.ask(request, version)
                codes.add((key, getattr(told, "error_code", 0)))
            if codes >= LIVED:
                break
        expect_service_as_usual(tess)

    # It was not all nonsense, nor refused before it got anywhere.
    assert codes >= LIVED
    assert len(codes) > 25, sorted(codes)
    said = capfd.readouterr().err
    for complaint in COMPLAINTS:
        assert complaint not in said, f"seed {seed}: {said[-3_000:]}"


def expect_service_as_usual(tess: Transacting) -> None:
    """Whoever takes over can write and commit, once what waits for its owner is ended."""
    for found in tess.describe(*NAMES):
        name = found.transactional_id
        if found.transaction_state == "Prepared":
            holder = Writer(name, found.producer_id, found.producer_epoch)
            tess.commit(holder)
        writer = tess.writer(name)
        assert tess.write(writer, "after", name.encode()) == 0
        tess.commit(writer)
    tess.await_stable("after")
    assert tess.committed("after") == [name.encode() for name in NAMES]
    assert {one.transaction_state for one in tess.describe(*NAMES)} <= {
        "PrepareCommit",
        "CompleteCommit",
    }
