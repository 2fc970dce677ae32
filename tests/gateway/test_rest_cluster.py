"""Any node answers any call, also while nodes come and go."""

from pathlib import Path

import pytest
from tests.support.cluster import ProcessCluster
from tests.support.http_client import HttpClient

COUNT = 30


@pytest.mark.timeout(120)
def test_every_node_answers_for_the_others_and_nothing_answered_is_lost(tmp_path: Path) -> None:
    with ProcessCluster(tmp_path, 3, http="127.0.0.1:0") as cluster:
        path = "/v1/topics/orders/messages"
        with HttpClient(cluster.brokers[1].http) as http:
            body = {"name": "orders", "partitions": 3, "replication_factor": 3}
            assert http.post("/v1/topics", body).status == 201
        answered = []
        for number in cluster.ids:
            with HttpClient(cluster.brokers[number].http) as http:
                for n in range(COUNT):
                    message = {"value": f"{number}-{n}", "partition": n % 3}
                    assert http.post(path, message).status == 200
                    answered.append(message["value"])

        _made_anew([HttpClient(cluster.brokers[number].http) for number in cluster.ids])
        leader = cluster.topic("orders").partitions[0].leader
        cluster.kill(leader)
        survivor = next(number for number in cluster.ids if number != leader)
        with HttpClient(cluster.brokers[survivor].http) as http:
            assert http.post(path, {"value": "after", "partition": 0}).status == 200
            found = [
                one["value"]
                for partition in range(3)
                for one in http.get(f"{path}?partition={partition}&limit=1000").json["messages"]
            ]

    assert sorted(found) == sorted([*answered, "after"])


def _made_anew(nodes: list[HttpClient]) -> None:
    """What one node deletes and another makes anew, all know as it is."""
    path = "/v1/topics/anew/messages"
    assert nodes[0].post("/v1/topics", {"name": "anew", "partitions": 3}).status == 201
    for http in nodes:
        assert http.post(path, {"value": "first", "partition": 2}).status == 200
    assert nodes[1].ask("DELETE", "/v1/topics/anew").status == 204
    assert nodes[2].post("/v1/topics", {"name": "anew", "partitions": 1}).status == 201
    for count, http in enumerate(nodes):
        assert len(http.get(path).json["messages"]) == 4 * count
        for key in "abcd":
            assert http.post(path, {"value": "second", "key": key}).json["partition"] == 0
        assert http.post(path, {"value": "x", "partition": 1}).json["field"] == "partition"
        http.__exit__()
