"""A schema-driven fuzzer over the whole OpenAPI: every call, with what fits and what does not.

Nothing may answer with 5xx, with a status, a type or a body that is not documented, or with an
error that is no problem.  Half of the names are those of things that are there, so that calls get
further than 404; waits are cut short, and thousands of partitions are not made.
"""

import json
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, note, seed, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from tests.support.soak import count

from waystation.gateway.health import health_routes
from waystation.gateway.openapi import described
from waystation.gateway.rest import rest_routes
from waystation.gateway.settings import GatewaySettings
from waystation.gateway.webhook_running import Webhooks
from waystation.gateway.webhooks import webhook_routes
from waystation.telemetry.metrics import Registry
from waystation.testing.process import BrokerProcess

CASES: Final = count(12, 600)
SEED: Final = 20_240_901
LONGEST_WAIT_MS: Final = 20
MANY_PARTITIONS: Final = range(50, 10_001)
TIMEOUT_S: Final = count(40, 300)  # long runs share their machine
STREAMED: Final = ("text/event-stream",)
CHECKS: Final = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]

KNOWN: Final[dict[str, str]] = {}
NO_WEBHOOKS: Final = cast("Webhooks", SimpleNamespace(store=None))
"""The calls are described before there is a node, and are then made to one."""
ROUTES: Final = [
    *rest_routes(health_routes(Registry(), list), GatewaySettings()).all,
    *webhook_routes(NO_WEBHOOKS),
]
DESCRIBED: Final = described(ROUTES)
CALLS: Final = [
    f"{method.upper()} {path}"
    for path, operations in DESCRIBED["paths"].items()
    for method, told in operations.items()
    if not any(kind in told["responses"].get("200", {}).get("content", {}) for kind in STREAMED)
]


@schemathesis.serializer("application/x-ndjson")
def lines(_: schemathesis.SerializationContext, value: Any) -> bytes:
    """Lines of JSON, or whatever else was thought of."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    return b"\n".join(
        json.dumps(one).encode() for one in (value if isinstance(value, list) else [value])
    )


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker of its own: whatever is there may be deleted."""
    one = BrokerProcess(tmp_path_factory.mktemp("fuzz") / "data", http="127.0.0.1:0")
    with one.start():
        yield one


@pytest.fixture(scope="module")
def schema(fuzzed: BrokerProcess) -> Any:
    told = requests.get(f"http://{fuzzed.http}/openapi.json", timeout=TIMEOUT_S).json()
    assert set(told["paths"]) == set(DESCRIBED["paths"])
    loaded = schemathesis.openapi.from_dict(told)
    loaded.config.update(base_url=f"http://{fuzzed.http}")
    return loaded


@pytest.mark.parametrize("call", CALLS)
def test_whatever_is_sent_the_answer_is_a_documented_one(
    call: str, schema: Any, fuzzed: BrokerProcess
) -> None:
    method, _, path = call.partition(" ")
    operation = schema[path][method]
    if not KNOWN:
        KNOWN.update(alive(f"http://{fuzzed.http}/v1"))
    names = dict(KNOWN)
    if method == "DELETE" or path.endswith(("/commit", "/abort")):
        KNOWN.clear()  # whoever comes next makes them anew

    with requests.Session() as session:

        @seed(SEED)
        @settings(
            max_examples=CASES,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(cases(operation, names))
        def fuzz(case: schemathesis.Case) -> None:
            note(case.as_curl_command())
            answer = case.call(session=session, timeout=TIMEOUT_S)
            case.validate_response(answer, checks=CHECKS)
            if answer.status_code >= 400:
                check_problem(answer)

        fuzz()
    assert fuzzed.is_alive


def alive(url: str) -> dict[str, str]:
    """The names of things that are there, or are there again."""

    def post(path: str, body: object, *fine: int) -> Any:
        answer = requests.post(url + path, json=body, timeout=TIMEOUT_S)
        assert answer.status_code in fine, answer.text
        return answer.json()

    topic = {"name": "alive", "partitions": 2, "config": {"schedule.enable": "true"}}
    post("/topics", topic, 201, 409)
    post("/topics/alive/messages", {"key": "k", "value": {"n": 1}, "partition": 0}, 200)
    later = post("/topics/alive/messages", {"value": "later", "deliver_after": "1h"}, 200)
    queue = {"name": "alive-queue", "dead_letter_topic": "alive-letters"}
    post("/topics", {"name": "alive-letters", "partitions": 1}, 201, 409)
    post("/queues", queue, 200, 201)
    post("/queues/alive-queue/messages", {"value": "v"}, 200)
    post("/views", {"name": "alive-view", "on": "alive", "where": "value.n = 1"}, 201, 409)
    hook = {"name": "alive-hook", "topic": "alive", "url": "https://192.0.2.1/"}
    post("/webhooks", hook, 201, 400, 409)
    return {
        "topic": "alive",
        "group": "alive-queue",
        "queue": "alive-queue",
        "view": "alive-view",
        "name": "alive-hook",
        "schedule": later["schedule_id"],
        "transaction": post("/transactions", {}, 201)["transaction"],
    }


@st.composite
def cases(draw: st.DrawFn, operation: Any, names: Mapping[str, str]) -> schemathesis.Case:
    """A call that fits the schema or does not, half of them of things that are there."""
    modes = [operation.as_strategy(generation_mode=schemathesis.GenerationMode.POSITIVE)]
    if operation.body or operation.query or operation.path_parameters:
        modes.append(operation.as_strategy(generation_mode=schemathesis.GenerationMode.NEGATIVE))
    case: schemathesis.Case = draw(st.one_of(modes))
    for name in case.path_parameters or {}:
        if name in names and draw(st.booleans()):
            case.path_parameters[name] = names[name]
    for asked in (case.query, case.body):
        if isinstance(asked, dict) and isinstance(asked.get("wait_ms"), int | str):
            asked["wait_ms"] = cut(asked["wait_ms"])
        if isinstance(asked, dict) and asked.get("partitions") in MANY_PARTITIONS:
            asked["partitions"] = MANY_PARTITIONS.start
    return case


def cut(wait_ms: int | str) -> int | str:
    try:
        return min(int(wait_ms), LONGEST_WAIT_MS)
    except ValueError:
        return wait_ms


def check_problem(answer: Any) -> None:
    """Every error says what was wrong, in which field where one is to blame, and what to do."""
    assert answer.headers["content-type"][0] == "application/problem+json"
    problem = answer.json()
    assert problem["status"] == answer.status_code
    assert problem["detail"]
    assert problem["remedy"]
    if problem["type"].endswith(("invalid-parameter", "invalid-field")):
        assert "field" in problem, problem
