"""A transaction is the cluster's, not a node's: begun here, added to there, committed elsewhere."""

import json
import time
import urllib.error
import urllib.request
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.gateway.test_transactions import read
from tests.support.cluster import ProcessCluster
from tests.support.http_client import HttpClient
from tests.support.soak import count

from waystation.client.admin import Admin
from waystation.gateway.transaction_ids import TransactionId
from waystation.runtime.loops import run

ADDS = count(20, 500)
ROUNDS = count(1, 20)


def post(address: str, path: str, body: object = None) -> tuple[int, dict[str, object]]:
    sent = b"" if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        f"http://{address}{path}", sent, {"content-type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


@pytest.mark.timeout(240)
def test_nodes_add_at_once_and_die_and_what_was_answered_is_committed(tmp_path: Path) -> None:
    with ProcessCluster(tmp_path, 3, http="127.0.0.1:0") as cluster:
        https = {number: cluster.brokers[number].http for number in cluster.ids}
        topics = ["a", "b"]
        with HttpClient(https[1]) as http:
            for name in topics:
                body = {"name": name, "partitions": 3, "replication_factor": 3}
                assert http.post("/v1/topics", body).status == 201
        wanted: list[str] = []
        for number in range(ROUNDS):
            wanted += _one_at_every_node(https, f"round{number}")
        assert read(cluster.brokers[2], topics) == sorted(wanted)

        _, begun = post(https[1], "/v1/transactions", {"timeout_ms": 60_000})
        path = f"/v1/transactions/{begun['transaction']}"
        for number, value in ((2, "from B"), (1, "from A"), (2, "from B again")):
            messages = [{"topic": name, "value": value, "partition": 1} for name in topics]
            assert post(https[number], f"{path}/messages", {"messages": messages})[0] == 200
            wanted += [value, value]
        wanted += _committed_again_when_its_time_is_over(cluster, https)
        messages = [{"topic": "a", "value": "after", "partition": n} for n in range(3)]
        status, told = post(https[3], f"{path}/messages", {"messages": messages})
        assert status == 200, told
        wanted += ["after"] * 3

        for survivor in (3, 2, 3):
            status, told = post(https[survivor], f"{path}/commit")
            assert (status, told["state"]) == (200, "committed")
        assert post(https[2], f"{path}/abort")[0] == 409
        assert read(cluster.brokers[3], topics) == sorted(wanted)


def _one_at_every_node(https: dict[int, str], name: str) -> list[str]:
    """Add to one partition at all nodes at once; what was answered, which is then committed."""
    _, begun = post(https[1], "/v1/transactions")
    path = f"/v1/transactions/{begun['transaction']}"
    answered: list[str] = []
    offsets: Counter[object] = Counter()

    def adding(node: int) -> None:
        for number in range(ADDS):
            value = f"{name} {node} {number}"
            messages = [{"topic": "a", "value": value, "partition": 0}]
            status, told = post(https[node], f"{path}/messages", {"messages": messages})
            assert status in (200, 409), told
            if status == 200:
                answered.append(value)
                place = told["messages"]
                assert isinstance(place, list)
                offsets[place[0]["offset"]] += 1
            else:
                assert "aborted" not in str(told), told

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(adding, https))
    assert len(answered) > ADDS
    assert set(offsets.values()) == {1}, "two were told the same place"
    status, told = post(https[2], f"{path}/commit")
    assert (status, told["state"]) == (200, "committed")
    return answered


def _committed_again_when_its_time_is_over(
    cluster: ProcessCluster, https: dict[int, str]
) -> list[str]:
    """A node dies that has yet to write the end, and so the commit takes longer than its time."""
    while True:
        _, begun = post(https[2], "/v1/transactions", {"timeout_ms": 2_500})
        name = str(begun["transaction"])
        if run(_coordinator(cluster, name)) != cluster.brokers[1].bootstrap:
            break
    path = f"/v1/transactions/{name}"
    messages = [{"topic": "b", "value": "late", "partition": number} for number in range(3)]
    assert post(https[2], f"{path}/messages", {"messages": messages})[0] == 200
    cluster.kill(1)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(post, https[3], f"{path}/commit")
        while time.time() * 1_000 <= int(str(begun["expires_at_ms"])):
            time.sleep(0.05)
        again, told = post(https[2], f"{path}/commit")
    assert again == first.result()[0], (told, first.result())
    return ["late"] * 3 if again == 200 else []


async def _coordinator(cluster: ProcessCluster, name: str) -> str:
    transaction = TransactionId.parse(name)
    assert transaction is not None
    id_ = transaction.transactional_id
    async with Admin(cluster.bootstrap) as admin:
        return str((await admin.describe_transactions(id_))[id_].coordinator)
