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
