"""InitProducerId: identities that are never given twice."""

import pytest

from tests.apis.asking import Asking
from tests.apis.conftest import MakeNode
from tests.apis.kit import versions
from waystation.messages.init_producer_id import InitProducerIdRequest
from waystation.model.errors import ErrorCode
from waystation.wire.versions import ApiKey


@pytest.mark.parametrize("version", versions(ApiKey.INIT_PRODUCER_ID))
def test_every_producer_gets_an_id_of_its_own(client: Asking, version: int) -> None:
    request = InitProducerIdRequest(transactional_id=None)
    told = [client.ask(request, version) for _ in range(3)]

    assert [(one.error_code, one.producer_epoch) for one in told] == [(0, 0)] * 3
    assert len({one.producer_id for one in told}) == 3
    assert all(one.producer_id >= 0 for one in told)


@pytest.mark.parametrize("version", [3, 4, 5])
def test_who_had_an_id_gets_a_new_one(client: Asking, version: int) -> None:
    had = client.new_producer()
    request = InitProducerIdRequest(transactional_id=None, producer_id=had, producer_epoch=5)
    told = client.ask(request, version)

    assert (told.error_code, told.producer_epoch) == (0, 0)
    assert told.producer_id != had


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"producer_id": 5}, ErrorCode.INVALID_REQUEST),
        ({"producer_epoch": 5}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_half_an_identity_is_refused(client: Asking, fields: dict, code: ErrorCode) -> None:  # type: ignore[type-arg]
    told = client.ask(InitProducerIdRequest(**{"transactional_id": None, **fields}), 5)

    assert (told.error_code, told.producer_id, told.producer_epoch) == (code, -1, -1)


def test_a_restart_gives_no_id_again(make_node: MakeNode) -> None:
    given = []
    for _ in range(2):
        running = make_node()
        with Asking(*running.address) as client:
            given += [client.new_producer() for _ in range(3)]
        running.stop()

    assert len(set(given)) == 6


def test_many_ids_at_once_are_all_different(client: Asking) -> None:
    request = InitProducerIdRequest(transactional_id=None)
    for number in range(200):
        client.send(request, 5, number)
    given = [
        client.receive(ApiKey.INIT_PRODUCER_ID, 5, number).producer_id for number in range(200)
    ]

    assert len(set(given)) == 200
