"""Idempotency keys while leaders are killed: whatever a caller repeats, and wherever, counts once.

Disks forget with their process what was not synced.
"""

import http.client
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.support.cluster import ProcessCluster
from tests.support.http_client import HttpClient
from tests.support.soak import count

CALLERS = 6
KILLS = count(1, 30)
SAMPLE = 60
PATH = "/v1/topics/orders/messages"
PATIENCE_S = 60
HANGS = 3


def post(address: str, key: str) -> tuple[int, Any]:
    """One call on a connection of its own."""
    host, _, port = address.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=PATIENCE_S)
    headers = {"content-type": "application/json", "idempotency-key": key}
    try:
        connection.request("POST", PATH, json.dumps({"value": key}), headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


class Caller:
    """Sends one message after the other, each to the next node until one says yes."""

    def __init__(self, cluster: ProcessCluster, number: int, stop: threading.Event) -> None:
        self._cluster, self._number, self._stop = cluster, number, stop
        self.told: dict[str, tuple[int, int]] = {}
        self.replayed = 0
        self._turn = number

    def run(self) -> None:
        while not self._stop.is_set():
            key = f"{self._number}-{len(self.told)}"
            self.told[key] = self.insist(key)

    def insist(self, key: str) -> tuple[int, int]:
        for _ in range(1_000):
            self._turn += 1
            node = self._cluster.ids[self._turn % len(self._cluster.ids)]
            if node in self._cluster.paused:
                continue
            try:
                status, told = post(self._cluster.brokers[node].http, key)
            except (OSError, http.client.HTTPException):
                self._stop.wait(0.05)
                continue
            if status == 200:
                self.replayed += told["replayed"]
                return told["partition"], told["offset"]
            assert status in (503, 504), f"{key} at node {node}: {status} {told}"
        raise AssertionError(f"{key} was never answered")


@pytest.mark.timeout(180 + 60 * KILLS)
def test_every_message_counts_once_whoever_is_killed(tmp_path: Path) -> None:
    options = {"recovery.bytes.max": "0", "log.flush.offset.checkpoint.interval.ms": "500"}
    with ProcessCluster(
        tmp_path, 3, http="127.0.0.1:0", disk="volatile", options=options
    ) as cluster:
        with HttpClient(cluster.brokers[1].http) as client:
            body = {"name": "orders", "partitions": 2, "replication_factor": 3}
            assert client.post("/v1/topics", body).status == 201
        at_each = [post(cluster.brokers[node].http, "everywhere") for node in cluster.ids]
        assert [status for status, _ in at_each] == [200] * 3, at_each
        # The first may be a replay too, of an attempt that its node has made before.
        assert all(told["replayed"] for _, told in at_each[1:]), at_each
        assert len({(told["partition"], told["offset"]) for _, told in at_each}) == 1, at_each

        callers = _call_and_kill(cluster)
        places = {key: place for caller in callers for key, place in caller.told.items()}
        assert len(places) > CALLERS * KILLS, places

        # All at once: what is known then was on disk.
        cluster.kill(*cluster.ids)
        cluster.start(*cluster.ids)
        with ThreadPoolExecutor(CALLERS) as pool:
            again = pool.map(
                lambda key: (key, _answered(cluster, key)),
                list(places)[:: len(places) // SAMPLE + 1],
            )
            for key, told in again:
                assert told["replayed"], key
                assert (told["partition"], told["offset"]) == places[key], key
        found = _stored(cluster)

    assert sorted(found.values()) == sorted([*places, "everywhere"])
    assert {found[place] for place in places.values()} == set(places)
    assert all(found[place] == key for key, place in places.items())


def _call_and_kill(cluster: ProcessCluster) -> list[Caller]:
    stop = threading.Event()
    callers = [Caller(cluster, number, stop) for number in range(CALLERS)]
    with ThreadPoolExecutor(CALLERS) as pool:
        running = [pool.submit(caller.run) for caller in callers]
        try:
            for number in range(1, KILLS + 1):
                _go_on(cluster, callers)
                leader = cluster.topic("orders").partitions[0].leader
                if number % HANGS == 0:
                    cluster.pause(leader)
                    _go_on(cluster, callers)
                    cluster.resume(leader)
                else:
                    cluster.kill(leader)
                    _go_on(cluster, callers)
                    cluster.start(leader)
        finally:
            stop.set()
        for one in running:
            one.result()
    return callers


def _go_on(cluster: ProcessCluster, callers: list[Caller]) -> None:
    """Wait until every caller was told of five more messages."""
    wanted = [len(one.told) + 5 for one in callers]
    cluster.until(
        lambda: all(len(one.told) >= least for one, least in zip(callers, wanted, strict=True)),
        # One call alone may take as long: its node looks for a leader for half a minute.
        within_s=PATIENCE_S + 15,
        what="callers go on",
    )


def _answered(cluster: ProcessCluster, key: str) -> Any:
    stop = threading.Event()
    caller = Caller(cluster, 0, stop)
    place = caller.insist(key)
    return {"partition": place[0], "offset": place[1], "replayed": caller.replayed == 1}


def _stored(cluster: ProcessCluster) -> dict[tuple[int, int], str]:
    """Everything that is in the topic, by its place."""
    found: dict[tuple[int, int], str] = {}
    with HttpClient(cluster.brokers[1].http) as client:
        for partition in range(2):
            offset, end = 0, 1
            while offset < end:
                page = client.get(f"{PATH}?partition={partition}&offset={offset}&limit=1000").json
                for one in page["messages"]:
                    found[partition, one["offset"]] = one["value"]
                offset, end = page["next_offset"], page["end_offset"]
    return found
