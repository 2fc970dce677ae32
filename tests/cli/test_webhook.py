"""``waystation webhook`` against a real node and a real receiver."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.command import waystation
from tests.support.http_client import HttpClient
from tests.support.servers import free_ports
from tests.support.webhook_calls import LOOPBACK, make_topic, send, until
from tests.support.webhook_receiver import OK, Receiver, Reply

from waystation.testing.process import BrokerProcess


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    data_dir = tmp_path_factory.mktemp("webhook-commands") / "data"
    with BrokerProcess(data_dir, http="127.0.0.1:0", options=LOOPBACK).start() as one:
        yield one


def test_a_webhook_lives_and_dies(node: BrokerProcess) -> None:
    at = ("--http", node.http)
    with Receiver() as receiver, HttpClient(node.http) as http:
        make_topic(http, "orders")
        made = waystation(
            *("webhook", "create", "billing", "--topic", "orders", "--url", receiver.url, *at),
            *("--where", "value.total > 2", "--retry-after", "0.1s", "--timeout", "2s"),
        )
        assert (made.code, made.out[:6]) == (0, "whsec_"), made
        assert "created webhook billing: topic orders is pushed to" in made.err
        paused = waystation("webhook", "pause", "billing", *at)
        send(http, "orders", '{"total": 3}', '{"total": 1}')
        assert receiver.hooks == []
        resumed = waystation("webhook", "resume", "billing", "--json", *at)
        receiver.until(lambda: receiver.values == ['{"total": 3}'])
        assert paused.err == "paused webhook billing\n"
        assert json.loads(resumed.out)["paused"] is False
        until(lambda: _shown(at)["state"]["delivered"] == 1)

        shown = waystation("webhook", "show", "billing", *at).out
        assert "secret_fingerprint" in shown
        assert made.out.strip() not in shown
        assert _shown(at)["timeout_ms"] == 2_000
        listed = waystation("webhook", "list", *at).out
        assert "billing  orders  delivering" in listed
        tested = waystation("webhook", "test", "billing", *at)
        assert (tested.code, "answered 200" in tested.err) == (0, True)
        receiver.answer = lambda _: Reply(500)
        tested = waystation("webhook", "test", "billing", *at)
        assert (tested.code, "did not take it: answered 500" in tested.err) == (1, True)
        receiver.answer = lambda _: OK
        changed = waystation(
            *("webhook", "change", "billing", "--new-secret", "--keep-old-secret", "1h"),
            *("--everything", "--timeout", "3s", "--order", "key", *at),
        )
        assert (changed.code, changed.out[:6]) == (0, "whsec_"), changed
        assert "changed webhook billing: " in changed.err
        told = _shown(at)
        assert (told["timeout_ms"], told["where"], told["order"]) == (3_000, None, "key")
        assert len(told["former_secrets"]) == 1
        nothing = waystation("webhook", "change", "billing", *at)
        assert (nothing.code, "say what to change" in nothing.err) == (2, True)
        wrong = waystation("webhook", "change", "billing", "--url", "http://10.0.0.1/", *at)
        assert (wrong.code, "10.0.0.1 is not public" in wrong.err) == (1, True)
        deleted = waystation("webhook", "delete", "billing", "--yes", *at)
        assert (deleted.code, deleted.err) == (0, "deleted webhook billing\n")
        assert "there are no webhooks" in waystation("webhook", "list", *at).err


def test_a_mistake_is_one_line_that_names_the_remedy(node: BrokerProcess) -> None:
    at = ("--http", node.http)
    inside = waystation(
        *("webhook", "create", "x", "--topic", "orders", "--url", "http://10.0.0.1/", *at)
    )
    unknown = waystation("webhook", "show", "none", *at)
    nobody = waystation("webhook", "list", "--http", f"127.0.0.1:{free_ports(1)[0]}")
    nowhere = waystation("webhook", "list", "--http", "here")

    assert (inside.code, unknown.code, nobody.code, nowhere.code) == (1, 1, 1, 2)
    assert "10.0.0.1 is not public" in inside.err
    assert "webhook.allow=NETWORK" in inside.err
    assert "there is no webhook none; GET /v1/webhooks" in unknown.err
    assert "no node answers HTTP" in nobody.err
    assert "must be HOST:PORT" in nowhere.err


def _shown(at: tuple[str, ...]) -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(waystation("webhook", "show", "billing", "--json", *at).out)
    return shown
