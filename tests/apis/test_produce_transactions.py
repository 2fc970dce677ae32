"""Produce within a transaction: in order, and only where the coordinator knows of it."""

import pytest

from tests.apis.asking import produce_request
from tests.apis.kit import ThreadedNode, batch_of
from tests.apis.transacting import (
    CLASSIC,
    IMPLICIT,
    Transacting,
    Writer,
    write_request,
)
from waystation.apis import produce_transactions
from waystation.messages.produce import ProduceRequest
from waystation.model.errors import ErrorCode
from waystation.wire.versions import ApiKey


def code_of(reply: object) -> int:
    (topic,) = reply.responses  # type: ignore[attr-defined]
    (partition,) = topic.partition_responses
    return int(partition.error_code)


def send_all(client: Transacting, requests: list[ProduceRequest], version: int) -> list[int]:
    """The codes of requests that are sent without waiting for answers."""
    for number, request in enumerate(requests):
        client.send(request, version, number)
    return [
        code_of(client.receive(ApiKey.PRODUCE, version, number)) for number in range(len(requests))
    ]


def test_requests_in_flight_keep_their_order_while_the_coordinator_is_asked(
    tess: Transacting, topic: str
) -> None:
    """The first of each partition asks; those that need not must not overtake it."""
    tess.create(topic, 5)
    writer = tess.writer(topic)
    sequences = [0] * 5
    requests = []
    for number in range(200):
        partition = (number // 7) % 5
        requests.append(
            write_request(
                writer,
                topic,
                b"%d" % number,
                sequence=sequences[partition],
                partition=partition,
            )
        )
        sequences[partition] += 1

    assert send_all(tess, requests, IMPLICIT) == [0] * 200

    tess.commit(writer)
    found = []
    for partition in range(5):
        tess.await_stable(topic, partition=partition)
        values = [int(value) for value in tess.committed(topic, partition=partition)]
        assert values == sorted(values)
        found += values
    assert sorted(found) == list(range(200))


def test_others_do_not_wait_for_a_producer_that_does(
    tess: Transacting, tim: Transacting, topic: str, node: ThreadedNode
) -> None:
    """The markers of its last transaction cannot be written: its next one waits."""
    busy, free = f"{topic}-busy", f"{topic}-free"
    for name in (busy, free):
        tess.create(name)
    slow, quick = tess.writer(f"{topic}-slow"), tim.writer(f"{topic}-quick")
    assert tess.write(slow, busy, b"x") == 0
    partition = node.node.broker.replicas.get(busy, 0)
    leadership = partition.leadership
    node.call(lambda: partition.follow_store(leadership._replace(leader=None)))
    following = tess.commit(slow)
    tess.send(write_request(following, free, b"later"), IMPLICIT)

    assert tim.write(quick, free, b"sooner") == 0
    assert not tess.has_reply()

    node.call(lambda: partition.follow_store(leadership))

    assert code_of(tess.receive(ApiKey.PRODUCE, IMPLICIT)) == 0
    for who, client in ((following, tess), (quick, tim)):
        client.commit(who)
    tess.await_stable(free)
    assert tess.committed(free) == [b"sooner", b"later"]
    assert len(node.node.broker.admission) == 0


def test_a_batch_that_waits_is_kept_as_it_came(tess: Transacting, topic: str) -> None:
    """The buffer that it came in is used for what comes next."""
    tess.create(topic, 2)
    writer = tess.writer(topic)
    values = [bytes([65 + number]) * 50_000 for number in range(20)]
    requests = [
        write_request(writer, topic, value, sequence=number // 2, partition=number % 2)
        for number, value in enumerate(values)
    ]

    assert send_all(tess, requests, IMPLICIT) == [0] * 20
    tess.commit(writer)
    for partition in (0, 1):
        tess.await_stable(topic, partition=partition)
        assert tess.committed(topic, partition=partition) == values[partition::2]


def test_what_waits_takes_no_more_memory_than_it_may(
    tess: Transacting, topic: str, node: ThreadedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(produce_transactions, "KEPT_BYTES_MAX", 100_000)
    tess.create(topic)
    writer = tess.writer(topic)
    requests = [
        write_request(writer, topic, bytes(40_000), sequence=number) for number in range(50)
    ]
    codes = send_all(tess, requests, IMPLICIT)

    accepted = codes.index(ErrorCode.NOT_ENOUGH_REPLICAS) if any(codes) else len(codes)
    assert accepted >= 3
    assert codes[:accepted] == [0] * accepted
    assert 0 not in codes[accepted:]
    assert node.node.broker.admission.kept_bytes == 0

    # It goes on where it was refused, as clients do.
    again = send_all(tess, requests[accepted : accepted + 1], IMPLICIT)
    assert again == [0] * len(again)
    tess.commit(writer)


def test_a_repeated_batch_is_written_once(tess: Transacting, topic: str) -> None:
    tess.create(topic)
    writer = tess.writer(topic)
    for _ in range(3):
        assert tess.write(writer, topic, b"x") == 0
    tess.commit(writer)
    tess.await_stable(topic)

    assert tess.committed(topic) == [b"x"]


@pytest.mark.parametrize("version", [9, CLASSIC, IMPLICIT])
def test_a_transaction_without_a_name_is_refused_also_where_it_is_open(
    tess: Transacting, topic: str, version: int
) -> None:
    tess.create(topic)
    writer = tess.writer(topic)
    tess.add(writer, topic, 0)
    nameless = write_request(writer, topic, name=None)
    refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

    assert code_of(tess.ask(nameless, version)) == refused
    assert tess.write(writer, topic, b"x", version=version) == 0
    nameless = write_request(writer, topic, sequence=1, name=None)
    assert code_of(tess.ask(nameless, version)) == refused
    assert tess.start_and_end(topic) == (0, 1)


def test_plain_and_transactional_writes_of_one_producer_do_not_mix(
    tess: Transacting, topic: str
) -> None:
    tess.create(topic)
    writer = tess.writer(topic)
    assert tess.write(writer, topic, b"x") == 0
    plain = write_request(writer, topic, b"plain", sequence=1, transactional=False)

    for name in (topic, None):
        plain.transactional_id = name
        assert code_of(tess.ask(plain, IMPLICIT)) == ErrorCode.INVALID_TXN_STATE
    # Those of others do.
    assert tess.produce(topic, batch_of(b"plain")).error_code == 0
    assert tess.write(writer, topic, b"y", sequence=1) == 0
    tess.commit(writer)
    tess.await_stable(topic)
    assert tess.committed(topic) == [b"x", b"plain", b"y"]


def test_one_request_has_one_producer(tess: Transacting, topic: str) -> None:
    tess.create(topic, 2)
    one, other = tess.writer(f"{topic}-a"), tess.writer(f"{topic}-b")
    request = write_request(one, topic)
    request.topic_data += write_request(other, topic, partition=1).topic_data
    reply = tess.ask(request, IMPLICIT)

    codes = [found.partition_responses[0].error_code for found in reply.responses]
    assert codes == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
    assert tess.start_and_end(topic) == (0, 0)


def test_what_is_wrong_with_one_partition_harms_no_other(tess: Transacting, topic: str) -> None:
    tess.create(topic)
    writer = tess.writer(topic)
    request = write_request(writer, f"{topic}-absent")
    request.topic_data += write_request(writer, topic).topic_data
    request.topic_data += produce_request(topic, b"nonsense").topic_data
    request.topic_data += produce_request(topic, b"\xff" * 100).topic_data
    request.topic_data += produce_request(topic, None).topic_data
    reply = tess.ask(request, IMPLICIT)

    codes = [found.partition_responses[0].error_code for found in reply.responses]
    assert codes[:2] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0]
    assert 0 not in codes[2:]
    tess.commit(writer)


def test_unanswered_writes_are_part_of_the_transaction_too(tess: Transacting, topic: str) -> None:
    tess.create(topic)
    writer = tess.writer(topic)
    tess.send(write_request(writer, topic, b"a", acks=0), IMPLICIT)
    tess.send(write_request(writer, topic, b"b", sequence=1, acks=0), IMPLICIT)
    assert tess.write(writer, topic, b"c", sequence=2) == 0
    tess.commit(writer)
    tess.await_stable(topic)

    assert tess.committed(topic) == [b"a", b"b", b"c"]


def test_an_unanswered_write_that_is_refused_ends_the_connection(
    tess: Transacting, tim: Transacting, topic: str
) -> None:
    tess.create(topic)
    tess.writer(topic)
    tess.send(write_request(Writer("nobody", 99, 0), topic, acks=0), IMPLICIT)

    assert tess.is_hung_up()
    assert tim.start_and_end(topic) == (0, 0)
