"""What a ZooKeeper store makes of trouble, and what it says then."""

import asyncio
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from kazoo.client import KazooClient
from tests.conformance.store_suite import TTL_MS, Follower, put, values
from tests.support.cutting_proxy import CuttingProxy
from tests.support.servers import free_ports
from tests.support.soak import SOAKING
from tests.support.zookeeper import ZookeeperEnsemble

from waystation.coordination import zookeeper as zookeeper_module
from waystation.coordination.address import parse_address
from waystation.coordination.connect import store_at
from waystation.coordination.zookeeper import ZookeeperStore
from waystation.coordination.zookeeper_session import Access
from waystation.model.errors import (
    CompactedError,
    LeaseExpiredError,
    MetadataFormatError,
    StoreUnavailableError,
)
from waystation.runtime.clock import SystemClock


@pytest.fixture
def access(zookeeper: ZookeeperEnsemble) -> Access:
    return Access(zookeeper.endpoints)


@pytest.fixture
def client(zookeeper: ZookeeperEnsemble) -> Iterator[KazooClient]:
    """Somebody else in the same ZooKeeper."""
    client = KazooClient(hosts=",".join(zookeeper.endpoints))
    client.start()
    yield client
    client.stop()
    client.close()


# --- changes that are no longer listed ---


async def test_who_was_away_for_too_many_changes_lists_again(
    zookeeper: ZookeeperEnsemble, access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zookeeper_module, "_CHANGES_MAX", 20)
    monkeypatch.setattr(zookeeper_module, "_CHANGES_KEPT", 10)
    async with CuttingProxy(zookeeper.endpoints[0]) as proxy:
        distant = ZookeeperStore(Access((proxy.endpoint,)), "away")
        await distant.open()
        async with ZookeeperStore(access, "away") as store:
            await put(store, gone=b"", kept=b"0")
            watch = distant.watch("", (await distant.get("")).revision)
            proxy.hold()
            for n in range(60):
                await put(store, kept=b"%d" % n)
            await store.txn({}, {"new": b""}, ["gone"])
            proxy.resume()

            with pytest.raises(CompactedError):
                await anext(watch)
            assert await values(distant) == {"kept": b"59", "new": b""}
            follower = Follower(distant.watch("", (await distant.get("")).revision))
            assert await follower.upto(await put(store, last=b"")) == {"last": b""}
        await distant.close()


async def test_the_list_of_changes_stays_short(
    access: Access, client: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zookeeper_module, "_CHANGES_MAX", 20)
    monkeypatch.setattr(zookeeper_module, "_CHANGES_KEPT", 10)
    async with ZookeeperStore(access, "short") as store, ZookeeperStore(access, "short") as other:
        start = (await other.get("")).revision
        follower = Follower(other.watch("", start))
        for n in range(100):
            last = await put(store, **{f"k_{n % 7}": b"%d" % n})
            await follower.upto(last)

        assert len(await asyncio.to_thread(client.get_children, "/short/changes")) <= 25
        assert follower.items == (await other.get("")).items


if SOAKING:  # servers are started twice, too long for every day

    async def test_a_store_that_was_set_back_is_listed_again(tmp_path: Path) -> None:
        """The same address and folder with another past, once it is as long as ours."""
        with ZookeeperEnsemble(tmp_path / "zookeeper") as ensemble:
            store = ZookeeperStore(Access(ensemble.endpoints))
            await store.open()
            for n in range(30):
                last = await put(store, a=b"%d" % n)
            watch = store.watch("", last)
            ensemble[0].kill()
            await asyncio.to_thread(_empty, tmp_path / "zookeeper" / "m0" / "version-2")
            ensemble[0].start()
            await asyncio.to_thread(ensemble.wait)
            async with ZookeeperStore(Access(ensemble.endpoints)) as restored:
                for n in range(60):
                    await put(restored, b=b"%d" % n)

                with pytest.raises(CompactedError):
                    await anext(watch)
                assert await values(store) == {"b": b"59"}
            await store.close()


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


# --- leases ---


async def test_keys_of_a_process_that_died_alone_are_gone_for_the_next(access: Access) -> None:
    address = f"zookeeper://{access.endpoints[0]}/alone"
    command = [sys.executable, "-m", "tests.support.lease_holder", address, "a", str(TTL_MS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        assert child.stdout
        assert await asyncio.to_thread(child.stdout.readline) == b"held\n"
        child.send_signal(signal.SIGKILL)
    began = time.monotonic()

    async with ZookeeperStore(access, "alone") as store:
        while await values(store):
            await asyncio.sleep(0.02)

    assert time.monotonic() - began < 3 * TTL_MS / 1_000


async def test_a_loop_that_hangs_loses_its_lease(access: Access) -> None:
    async with ZookeeperStore(access, "hangs") as other:
        result = await put(other, start=b"")
        watch = other.watch("leased", result)
        hung = threading.Thread(target=asyncio.run, args=(_hang_with_a_lease(access),))
        hung.start()

        assert "leased" in (await anext(watch)).puts
        assert (await anext(watch)).deletes == ("leased",)
        hung.join()


async def _hang_with_a_lease(access: Access) -> None:
    store = ZookeeperStore(access, "hangs")
    await store.open()
    lease = await store.lease(TTL_MS)
    await store.txn({}, {"leased": b""}, leases={"leased": lease.id})
    time.sleep(2 * TTL_MS / 1_000)
    with pytest.raises(LeaseExpiredError):
        await lease.keep_alive()
    await store.close()


# --- who we are, and who else is there ---


async def test_nodes_belong_to_the_user_who_made_them(zookeeper: ZookeeperEnsemble) -> None:
    mine = Access(zookeeper.endpoints, user="me", password="secret")
    async with ZookeeperStore(mine, "owned") as store:
        await put(store, a=b"1")

    async with ZookeeperStore(mine, "owned") as store:
        assert await values(store) == {"a": b"1"}
    with pytest.raises(StoreUnavailableError, match="does not allow this to anybody"):
        await ZookeeperStore(Access(zookeeper.endpoints), "owned").open()
    wrong = Access(zookeeper.endpoints, user="me", password="guess")
    with pytest.raises(StoreUnavailableError, match="does not allow this to user 'me'"):
        await ZookeeperStore(wrong, "owned").open()


def _in_newer_form(issued: trustme.LeafCert) -> bytes:
    """Certificate and key, the latter as Java reads it."""
    key = load_pem_private_key(issued.private_key_pem.bytes(), None)
    form = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return form + b"".join(blob.bytes() for blob in issued.cert_chain_pems)


async def test_tls_both_ways(tmp_path: Path) -> None:
    authority, stranger = trustme.CA(), trustme.CA()
    ca, server, client, other = (tmp_path / f"{n}.pem" for n in ("ca", "server", "client", "other"))
    authority.cert_pem.write_to_path(ca)
    for path, issuer in ((server, authority), (client, authority), (other, stranger)):
        path.write_bytes(_in_newer_form(issuer.issue_cert("127.0.0.1")))
    with ZookeeperEnsemble(tmp_path / "zookeeper", tls=(server, ca)) as ensemble:
        (endpoint,) = ensemble.secure_endpoints
        address = f"zookeeper://{endpoint}/tls?ca={ca}&cert="
        store = store_at(parse_address(f"{address}{client}"), tmp_path, SystemClock())
        await store.open()
        assert await values(store) == {}
        assert (await (await store.lease(TTL_MS)).keep_alive()) is None
        await put(store, a=b"1")
        assert await values(store) == {"a": b"1"}
        await store.close()

        for access in (
            Access((endpoint,)),
            Access((endpoint,), tls=True, cert=str(client)),
            Access((endpoint,), tls=True, ca=str(ca), cert=str(other)),
        ):
            with pytest.raises(StoreUnavailableError, match="no connection"):
                await ZookeeperStore(access, "tls", timeout_s=0.4).open()


async def test_a_folder_of_another_program_is_refused_and_kept(
    access: Access, client: KazooClient
) -> None:
    await asyncio.to_thread(client.create, "/letters", b"somebody's")

    with pytest.raises(StoreUnavailableError, match="somebody's"):
        await ZookeeperStore(access, "letters").open()
    assert await asyncio.to_thread(client.get_children, "/letters") == []


async def test_an_item_of_another_program_is_named(access: Access, client: KazooClient) -> None:
    async with ZookeeperStore(access, "foreign") as store:
        await put(store, a=b"1")
    await asyncio.to_thread(client.create, "/foreign/items/b:c", b"short")

    with pytest.raises(MetadataFormatError, match="b/c"):
        await ZookeeperStore(access, "foreign").open()


async def test_nobody_there_is_told_with_the_address() -> None:
    endpoint = f"127.0.0.1:{free_ports(1)[0]}"

    with pytest.raises(StoreUnavailableError, match=f"{endpoint}.*servers run"):
        await ZookeeperStore(Access((endpoint,)), timeout_s=0.3).open()


async def test_a_closed_store_says_so(access: Access) -> None:
    store = ZookeeperStore(access, "closed")
    await store.open()
    lease = await store.lease(TTL_MS)
    await store.close()

    with pytest.raises(StoreUnavailableError, match="closed"):
        await store.get("")
    with pytest.raises(LeaseExpiredError):
        await lease.keep_alive()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("lease-")]
