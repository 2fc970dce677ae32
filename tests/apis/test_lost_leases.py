"""What a broker tells clients when leases have ended that should not have."""

import asyncio
from pathlib import Path

import pytest

from waystation.broker.membership import Membership
from waystation.client.admin import Admin
from waystation.cluster import keys
from waystation.model.ids import NodeId
from waystation.testing.cluster import LocalCluster


async def test_who_answers_is_among_those_it_tells_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka forgets every broker that it is not told of, the one it asked included."""
    asked, rejoin = asyncio.Event(), Membership._rejoin

    async def rejoin_later(membership: Membership) -> None:
        await asked.wait()
        await rejoin(membership)

    monkeypatch.setattr(Membership, "_rejoin", rejoin_later)
    async with LocalCluster(tmp_path, 1) as cluster:
        broker = cluster.nodes[1].broker
        async with Admin(cluster.bootstrap) as admin:
            await cluster.store.txn({}, {}, [keys.broker(NodeId(1))])
            await cluster.until(lambda: not broker.image.brokers)
            told = await admin.describe_cluster()

            assert [str(one.address) for one in told.brokers] == [cluster.bootstrap]
            assert await admin.list_topics() == []
            asked.set()
            await cluster.until(lambda: broker.registered)
