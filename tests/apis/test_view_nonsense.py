"""Well-formed nonsense about views: every request is answered, and breaks nothing."""

from io import StringIO
from random import Random

import pytest

from tests.apis.asking import Asking
from tests.apis.kit import ThreadedNode, versions
from tests.apis.viewing import keyed, make_view, view_request, walk
from tests.messages.arbitrary import instance
from tests.support.soak import count
from waystation.messages.catalog import request_type
from waystation.messages.fetch import FetchRequest
from waystation.wire.versions import ApiKey

REQUESTS = count(40, 2_000)
COMPLAINTS = ("request.failed", "answer.failed", "task.crashed", "Traceback")
NUMBERS = (-(1 << 63), -2, -1, 0, 1, 5, 1 << 31, (1 << 63) - 1)
WORDS = (
    *[
        "key",
        "value",
        "value.a",
        "headers.h",
        "offset",
        "=",
        "<",
        "AND",
        "OR",
        "NOT",
        "(",
        ")",
        "'x'",
        "5",
        "NULL",
        "IS",
        "LIKE",
        "IN",
        "BETWEEN",
    ],
    *["CAST", "'", "%", "ä", "-", "1e999"],
    '"',
    "\0",
)


@pytest.fixture
def view(client: Asking, topic: str) -> str:
    client.create(topic)
    client.produce(topic, keyed("yes", "no", "yes"))
    make_view(client, f"v-{topic}", topic, "key = 'yes'")
    return f"v-{topic}"


def check(client: Asking, view: str, said: StringIO) -> None:
    assert walk(client, view).offsets == [0, 2]
    assert not [one for one in COMPLAINTS if one in said.getvalue()], said.getvalue()[-3_000:]


@pytest.mark.parametrize("api", [ApiKey.DESCRIBE_VIEWS, ApiKey.COUNT_MATCHING, ApiKey.FETCH])
def test_requests_with_anything_in_them_are_answered(
    node: ThreadedNode, client: Asking, view: str, said: StringIO, api: ApiKey
) -> None:
    random = Random(api)
    for _ in range(REQUESTS):
        version = random.choice([one for one in versions(api) if api != ApiKey.FETCH or one < 13])
        request = instance(request_type(api), version, random)
        if isinstance(request, FetchRequest):
            request.max_wait_ms, request.session_id, request.session_epoch = 0, 0, -1
            request.replica_id = -1
            for topic in request.topics:
                topic.topic = view
        else:
            for name in ("view", "offset", "partition", "max_bytes"):
                if hasattr(request, name) and random.random() < 0.7:
                    bits = 63 if name == "offset" else 31
                    some = [one for one in NUMBERS if -(1 << bits) <= one < 1 << bits]
                    setattr(request, name, view if name == "view" else random.choice(some))
        client.ask(request, version)

    check(client, view, said)


def test_expressions_of_anything_are_refused_or_make_views(
    client: Asking, topic: str, view: str, said: StringIO
) -> None:
    random = Random(7)
    for number in range(REQUESTS):
        where = " ".join(random.choices(WORDS, k=random.randint(0, 12)))
        on = random.choice([topic, topic, view, "", "no such", None])
        (outcome,) = client.ask(view_request(f"{topic}-{number}", on, where), 7).topics
        if not outcome.error_code:
            client.fetch(f"{topic}-{number}", 0)

    check(client, view, said)
