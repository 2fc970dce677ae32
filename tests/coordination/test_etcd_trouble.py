"""What an etcd store makes of servers that are not as they should be, and what it says then."""

import asyncio
import ssl
from base64 import b64encode
from pathlib import Path

import pytest
import trustme
from tests.conformance.store_suite import Follower, put, values
from tests.support.etcd import EtcdCluster
from tests.support.servers import free_ports

from waystation.coordination.address import StoreAddress, TlsFiles
from waystation.coordination.connect import store_at
from waystation.coordination.etcd import EtcdStore
from waystation.coordination.etcd_gateway import Credentials
from waystation.coordination.store import ABSENT
from waystation.model.errors import CompactedError, InvalidConfigError, StoreUnavailableError
from waystation.runtime.clock import SystemClock

# --- watches that cannot go on ---


async def test_a_watch_from_before_a_compaction_is_told_to_list_again(etcd: EtcdCluster) -> None:
    async with EtcdStore(etcd.endpoints, "compacted") as store:
        first = await put(store, a=b"0")
        last = await put(store, a=b"1")
        await asyncio.to_thread(etcd.compact)
        watch = store.watch("", first - 1)

        with pytest.raises(CompactedError, match=f"revision {first - 1}"):
            await anext(watch)
        assert await anext(watch, None) is None

        later = Follower(store.watch("", last))
        assert await later.upto(await put(store, b=b"2")) == {"b": b"2"}


async def test_others_in_the_same_etcd_disturb_nobody(etcd: EtcdCluster) -> None:
    """Their changes are revisions that we are told of and never see; they compact as they like."""
    async with EtcdStore(etcd.endpoints, "ours") as ours, EtcdStore(etcd.endpoints, "oo") as theirs:
        follower = Follower(ours.watch("", await put(ours, a=b"1")))
        for n in range(10):
            await put(theirs, a=b"%d" % n)
        refused = await ours.txn({"a": ABSENT}, {"a": b"2"})
        assert refused.revision < (await theirs.get("")).revision
        read = await ours.get("")
        assert read.revision > (await theirs.get("")).revision - 10
        await asyncio.wait_for(follower.upto(read.revision), 5)
        assert follower.items == {}

        await put(theirs, a=b"last")
        await asyncio.to_thread(etcd.compact)
        again = Follower(ours.watch("", (await ours.get("")).revision))
        assert await again.upto(await put(ours, b=b"2")) == {"b": b"2"}


async def test_a_watch_of_a_store_that_was_set_back_is_told_to_list_again(tmp_path: Path) -> None:
    """The same addresses and folder, but nothing is there any more: a backup was restored."""
    with EtcdCluster(tmp_path / "etcd") as cluster:
        async with EtcdStore(cluster.endpoints) as store:
            for n in range(20):
                last = await put(store, a=b"%d" % n)
            watch = store.watch("", last)
            await asyncio.sleep(0)
            cluster[0].kill()
            await asyncio.to_thread(_empty, tmp_path / "etcd" / "m0")
            cluster[0].start()
            await asyncio.to_thread(cluster.wait)

            with pytest.raises(CompactedError):
                await anext(watch)


def _empty(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()


# --- servers that are not there, or not ours ---


async def test_a_server_that_is_down_is_passed_over(etcd: EtcdCluster) -> None:
    nobody = f"127.0.0.1:{free_ports(1)[0]}"
    async with EtcdStore((nobody, *etcd.endpoints), "passed-over") as store:
        follower = Follower(store.watch("", (await store.get("")).revision))
        assert await follower.upto(await put(store, a=b"1")) == {"a": b"1"}


async def test_nobody_there_is_told_with_every_address() -> None:
    ports = free_ports(2)
    endpoints = tuple(f"127.0.0.1:{port}" for port in ports)

    with pytest.raises(StoreUnavailableError) as refusal:
        await EtcdStore(endpoints, timeout_s=0.3).open()

    assert all(endpoint in str(refusal.value) for endpoint in endpoints)
    assert "servers run and can be reached" in str(refusal.value)


async def test_something_else_that_listens_there_is_told_apart() -> None:
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(StoreUnavailableError, match="does not speak as etcd does"):
            await EtcdStore((f"127.0.0.1:{port}",), timeout_s=0.3).open()


async def test_a_server_of_another_cluster_is_not_believed(
    etcd: EtcdCluster, tmp_path: Path
) -> None:
    with EtcdCluster(tmp_path / "another") as another:
        async with EtcdStore((*etcd.endpoints, *another.endpoints), "two", timeout_s=0.5) as store:
            await put(store, a=b"ours")
            etcd[0].pause()
            try:
                with pytest.raises(StoreUnavailableError, match="another etcd cluster"):
                    await store.get("")
            finally:
                etcd[0].resume()

            assert await values(store) == {"a": b"ours"}


async def test_a_full_store_says_what_to_do(tmp_path: Path) -> None:
    with EtcdCluster(tmp_path / "etcd", quota_bytes=3_000_000) as cluster:
        async with EtcdStore(cluster.endpoints) as store:

            async def fill() -> None:
                for n in range(20):
                    await store.txn({}, {f"k/{n}": bytes(500_000)})

            with pytest.raises(StoreUnavailableError, match=r"nothing was changed.*compact"):
                await fill()
            assert await values(store, "k/0")


async def test_a_closed_store_says_so(etcd: EtcdCluster) -> None:
    store = EtcdStore(etcd.endpoints, "closed")
    await store.open()
    await store.close()

    with pytest.raises(StoreUnavailableError, match="closed"):
        await store.get("")
    assert await anext(store.watch("", 1), None) is None


# --- who we are ---


def test_users_and_what_they_may(tmp_path: Path) -> None:
    """One server, since authentication once on concerns everybody: so one test."""
    with EtcdCluster(tmp_path / "etcd") as cluster:
        for path, body in (
            ("user/add", {"name": "root", "password": "top"}),
            ("role/add", {"name": "root"}),
            ("user/grant", {"user": "root", "role": "root"}),
            ("user/add", {"name": "ours", "password": "secret"}),
            ("role/add", {"name": "ours"}),
            ("role/grant", {"name": "ours", "perm": _may("waystation/", "waystation0")}),
            ("user/grant", {"user": "ours", "role": "ours"}),
            ("enable", {}),
        ):
            cluster.ask(0, f"auth/{path}", body)
        asyncio.run(_use_as(cluster))


def _may(start: str, end: str) -> dict[str, str]:
    key, range_end = (b64encode(text.encode()).decode() for text in (start, end))
    return {"permType": "READWRITE", "key": key, "range_end": range_end}


async def _use_as(cluster: EtcdCluster) -> None:
    right, wrong = Credentials("ours", "secret"), Credentials("ours", "guess")
    async with EtcdStore(cluster.endpoints, credentials=right) as store:
        follower = Follower(store.watch("", (await store.get("")).revision))
        assert await follower.upto(await put(store, a=b"1")) == {"a": b"1"}
        lease = await store.lease(5_000)
        await lease.keep_alive()

        # A token of before a restart is unknown afterwards.
        cluster[0].kill()
        cluster[0].start()
        await asyncio.to_thread(cluster.wait_for_port, 0)
        assert await values(store) == {"a": b"1"}
        assert await follower.upto(await put(store, b=b"2")) == {"a": b"1", "b": b"2"}
    with pytest.raises(StoreUnavailableError, match="refuses user 'ours'"):
        await EtcdStore(cluster.endpoints, credentials=wrong, timeout_s=0.5).open()
    with pytest.raises(StoreUnavailableError, match="user=NAME&password-file=FILE"):
        await EtcdStore(cluster.endpoints, timeout_s=0.5).open()
    with pytest.raises(StoreUnavailableError, match="permission denied"):
        await EtcdStore(cluster.endpoints, "theirs", credentials=right, timeout_s=0.5).open()


async def test_tls_both_ways(tmp_path: Path) -> None:
    authority = trustme.CA()
    server, client = authority.issue_cert("127.0.0.1"), authority.issue_cert("node")
    ca, server_pem, client_pem = (tmp_path / f"{name}.pem" for name in ("ca", "server", "client"))
    authority.cert_pem.write_to_path(ca)
    server.private_key_and_cert_chain_pem.write_to_path(server_pem)
    client.private_key_and_cert_chain_pem.write_to_path(client_pem)
    with EtcdCluster(tmp_path / "etcd", tls=(server_pem, ca, client_pem)) as cluster:
        files = TlsFiles(str(ca), str(client_pem))
        address = StoreAddress("etcd", cluster.endpoints, tls=files)
        store = store_at(address, tmp_path, SystemClock())
        await store.open()
        follower = Follower(store.watch("", (await store.get("")).revision))
        assert await follower.upto(await put(store, a=b"1")) == {"a": b"1"}
        await store.close()

        believing_others = ssl.create_default_context()
        with pytest.raises(StoreUnavailableError, match="CERTIFICATE_VERIFY_FAILED"):
            await EtcdStore(cluster.endpoints, tls=believing_others, timeout_s=0.5).open()
        with pytest.raises(StoreUnavailableError):
            await EtcdStore(cluster.endpoints, timeout_s=0.5).open()


async def test_files_that_are_missing_are_named(tmp_path: Path) -> None:
    tls = StoreAddress("etcd", ("a:1",), tls=TlsFiles(ca="/nowhere/ca.pem"))
    user = StoreAddress("zookeeper", ("a:1",), user="me", password_file="/nowhere/password")

    with pytest.raises(InvalidConfigError, match=r"nowhere/ca\.pem"):
        store_at(tls, tmp_path, SystemClock())
    with pytest.raises(InvalidConfigError, match="nowhere/password"):
        store_at(user, tmp_path, SystemClock())
