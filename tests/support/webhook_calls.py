"""Calls about webhooks and topics, and waiting for what they bring about."""

import time
from collections.abc import Callable
from typing import Any

from tests.support.http_client import HttpClient
from tests.support.webhook_receiver import WITHIN_S

LOOPBACK = {"webhook.allow": "127.0.0.0/8"}


def make_topic(http: HttpClient, topic: str, partitions: int = 1, **more: Any) -> None:
    answer = http.post("/v1/topics", {"name": topic, "partitions": partitions, **more})
    assert answer.status == 201, answer


def make_webhook(http: HttpClient, topic: str, url: str, **more: Any) -> Any:
    """A webhook that is named as its topic, and tries again soon."""
    quick = {"backoff_ms": 50, "backoff_max_ms": 200, "timeout_ms": 5_000}
    wanted = {"name": topic[-100:], "topic": topic, "url": url, **quick, **more}
    answer = http.post("/v1/webhooks", wanted)
    assert answer.status == 201, answer
    return answer.json


def send(http: HttpClient, topic: str, *values: str, **more: Any) -> None:
    messages = [{"value": value, **more} for value in values]
    answer = http.post(f"/v1/topics/{topic}/messages/batch", {"messages": messages})
    assert answer.status == 200, answer


def show(http: HttpClient, name: str) -> Any:
    answer = http.get(f"/v1/webhooks/{name[-100:]}")
    assert answer.status == 200, answer
    return answer.json


def until(true: Callable[[], object], what: str = "") -> None:
    ends_at = time.monotonic() + WITHIN_S
    while not true():
        assert time.monotonic() < ends_at, f"not within {WITHIN_S} s: {what}"
        time.sleep(0.02)
