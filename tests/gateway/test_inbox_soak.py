"""An inbox of many users under load: found at once, nothing lost by a kill, ids as they were.

In ``make soak`` ten million users with twenty million messages, made once and kept in ``.cache``.
"""

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.support.figures import cpu_seconds, disk_usage, figure, megabytes, stopwatch
from tests.support.http_client import HttpClient
from tests.support.http_load import Load, get, post
from tests.support.inbox_data import InboxData, user_of
from tests.support.soak import SOAKING, count

from waystation.testing.process import BrokerProcess

USERS = count(20_000, 10_000_000)
EACH = 2
SENDS_PER_S, RECEIVES_PER_S = count(400, 2_000), count(100, 200)
SECONDS = count(1, 60)
SAMPLES = count(50, 500)
P99_MS = 20.0

Messages = dict[str, list[tuple[str, str]]]
"""Ids and texts of each user's messages, in order."""


@pytest.fixture
def data() -> InboxData:
    return InboxData(USERS, EACH)


@pytest.mark.timeout(3_600)
def test_a_large_inbox_answers_at_once_and_keeps_everything(
    data: InboxData, tmp_path: Path
) -> None:
    with stopwatch() as making:
        broker = data.made(None if SOAKING else tmp_path)
    with broker:
        figure(
            f"inbox: {USERS:,} users, {USERS * EACH:,} messages after {making.seconds:.0f} s, "
            f"{megabytes(disk_usage(broker.data_dir))} on disk"
        )
        chance = Random(USERS)
        sampled = chance.sample(range(USERS), SAMPLES)
        before = _received(broker, map(user_of, sampled))
        for one in sampled:
            _check(data, one, before[user_of(one)])

        sent = asyncio.run(_under_load(broker, chance))
        asyncio.run(_killed_in_the_middle(broker, sent, chance))
        began = time.monotonic()
        broker.start()
        figure(f"inbox: back {time.monotonic() - began:.1f} s after a kill -9 in the middle")

        users = {*before, *chance.sample(sorted(sent), min(SAMPLES, len(sent)))}
        after = _received(broker, sorted(users))
        for user, now in after.items():
            assert now[: len(before.get(user, ()))] == before.get(user, [])
            assert set(sent[user]) <= set(now), f"{user} lacks a message that was answered"
        ids = [name for now in after.values() for name, _ in now]
        assert len(ids) == len(set(ids))


async def _under_load(broker: BrokerProcess, chance: Random) -> Messages:
    """Receive while others send; what was answered."""
    sent: Messages = defaultdict(list)
    sending = Load(broker.http, _send, lambda number, told: _note(sent, number, told))
    asked = [chance.randrange(USERS) for _ in range(RECEIVES_PER_S * SECONDS)]
    empty: list[int] = []

    def received(number: int, told: bytes) -> None:
        if told.count(b'"message_id"') < EACH:
            empty.append(asked[number])

    receiving = Load(
        broker.http, lambda number: get(f"/receive?user_id={user_of(asked[number])}"), received
    )
    used_s = cpu_seconds(broker.pid)
    await asyncio.gather(
        sending.run(SENDS_PER_S, SENDS_PER_S * SECONDS),
        receiving.run(RECEIVES_PER_S, RECEIVES_PER_S * SECONDS),
    )
    used_s = cpu_seconds(broker.pid) - used_s
    sending.close()
    receiving.close()
    assert not sending.refused, sending.refused[0]
    assert not receiving.refused, receiving.refused[0]
    assert not empty, f"{user_of(empty[0])} was not shown what it has"
    figure(
        f"inbox: GET /receive at {RECEIVES_PER_S}/s: {receiving.latencies}; beside "
        f"POST /send at {SENDS_PER_S:,}/s: {sending.latencies}; for {SECONDS} s"
    )
    figure(
        f"inbox: the node used {used_s / SECONDS:.0%} of a core for it, "
        f"and {megabytes(broker.rss_bytes())} of memory"
    )
    if SOAKING:
        assert receiving.latencies.p99 < P99_MS
    return sent


async def _killed_in_the_middle(broker: BrokerProcess, sent: Messages, chance: Random) -> None:
    """Send until the node is killed; what was answered until then is added."""
    load = Load(broker.http, _send, lambda number, told: _note(sent, number, told))
    first = SENDS_PER_S * SECONDS
    sending = asyncio.ensure_future(load.run(SENDS_PER_S, SENDS_PER_S * 60, first=first))
    while len(load.seconds) < SENDS_PER_S:
        assert not sending.done()
        await asyncio.sleep(0.01)
    broker.kill()
    await sending
    assert load.broken
    assert not load.refused


def _send(number: int) -> bytes:
    told = {
        "from_user": "sender",
        "to_user": user_of(_target(number)),
        "message": f"sent under load: {number}",
    }
    return post("/send", json.dumps(told).encode())


def _target(number: int) -> int:
    """Whom a message goes to: anyone, evenly."""
    return number * 7_919 % USERS


def _note(sent: Messages, number: int, told: bytes) -> None:
    body = json.loads(told.partition(b"\r\n\r\n")[2])
    sent[user_of(_target(number))].append((body["message_id"], f"sent under load: {number}"))


def _received(broker: BrokerProcess, users: Iterable[str]) -> Messages:
    """All messages of users, asked for as applications would: until the answer is empty."""
    all_of: Messages = {}
    with HttpClient(broker.http) as http:
        for user in users:
            got = all_of[user] = []
            while page := _page(http, user, got[-1][0] if got else ""):
                got += [(one["message_id"], one["message"]) for one in page]
    return all_of


def _page(http: HttpClient, user: str, after: str) -> Any:
    told = http.get(f"/receive?user_id={user}&last_message_id={after}")
    assert told.status == 200, told
    return told.json["messages"]


def _check(data: InboxData, number: int, got: list[tuple[str, str]]) -> None:
    """The first ones are those that were made; an earlier run may have sent more."""
    assert [text for _, text in got[:EACH]] == [text for _, text in data.messages_of(number)]
    assert all(text.startswith("sent under load") for _, text in got[EACH:])
