"""Webhooks by the asyncio client, against a real node and a real receiver."""

from collections.abc import Iterator

import pytest
from tests.support.servers import free_ports
from tests.support.webhook_calls import LOOPBACK
from tests.support.webhook_receiver import Receiver

from waystation import Admin, Producer, Webhooks
from waystation.client.errors import BrokerUnreachableError, ClosedError
from waystation.client.http_calls import CallRefusedError
from waystation.model.errors import ErrorCode, RequestTimedOutError
from waystation.testing.process import BrokerProcess


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    data_dir = tmp_path_factory.mktemp("webhook-client") / "data"
    with BrokerProcess(data_dir, http="127.0.0.1:0", options=LOOPBACK).start() as one:
        yield one


async def test_a_webhook_lives_and_dies(node: BrokerProcess) -> None:
    nobody = f"127.0.0.1:{free_ports(1)[0]}"
    with Receiver() as receiver:
        async with (
            Admin(node.bootstrap) as admin,
            Producer(node.bootstrap) as producer,
            Webhooks(f"{nobody},{node.http}") as webhooks,
        ):
            await admin.create_topic("orders")
            made = await webhooks.create(
                "billing", "orders", receiver.url, where="value.total > 2", paused=True
            )
            assert made.secret is not None
            assert made.secret.startswith("whsec_")
            assert (made.paused, made.state.status) == (True, "paused")
            for total in (1, 3):
                await producer.send("orders", f'{{"total": {total}}}')
            assert (await webhooks.get("billing")).pending == 2
            assert (await webhooks.resume("billing")).paused is False
            receiver.until(lambda: receiver.values == ['{"total": 3}'])

            changed = await webhooks.change("billing", where=None, secret=None, timeout_ms=2_000)
            assert changed.secret not in (None, made.secret)
            assert [one.fingerprint for one in changed.former_secrets] == [made.secret_fingerprint]
            assert (changed.where, changed.timeout_ms) == (None, 2_000)
            assert (await webhooks.test("billing")).delivered is True
            assert [one.name for one in await webhooks.all()] == ["billing"]
            assert (await webhooks.pause("billing")).state.status == "paused"
            await webhooks.delete("billing")
            assert await webhooks.all() == []


async def test_what_is_refused_says_the_field_and_the_remedy(node: BrokerProcess) -> None:
    async with Admin(node.bootstrap) as admin, Webhooks(node.http) as webhooks:
        await admin.create_topic("refusals")
        with pytest.raises(CallRefusedError) as inside:
            await webhooks.create("x", "refusals", "http://10.0.0.1/")
        with pytest.raises(CallRefusedError) as unknown:
            await webhooks.pause("a b/..")
        with pytest.raises(CallRefusedError) as missing:
            await webhooks.get("none")

    assert (inside.value.status, inside.value.field) == (400, "url")
    assert "webhook.allow=NETWORK" in inside.value.remedy
    assert (inside.value.kind, inside.value.code) == ("target-refused", ErrorCode.INVALID_REQUEST)
    assert unknown.value.field == "name"
    assert (missing.value.status, missing.value.code) == (404, ErrorCode.RESOURCE_NOT_FOUND)
    with pytest.raises(ClosedError):
        await webhooks.all()


async def test_nodes_that_do_not_answer_are_told_from_calls_that_may_have_been_done() -> None:
    with Receiver() as hung:
        hung.answer = hung.hang
        address = hung.url.removeprefix("http://").removesuffix("/hook")
        async with Webhooks(f"127.0.0.1:{free_ports(1)[0]}") as webhooks:
            with pytest.raises(BrokerUnreachableError, match="no broker answers"):
                await webhooks.all()
        async with Webhooks(address, timeout_ms=200) as webhooks:
            with pytest.raises(RequestTimedOutError, match="may have done it: look first"):
                await webhooks.pause("billing")
