"""A real cluster: ``waystation serve`` several times, with a real etcd or ZooKeeper.

    with ProcessCluster(tmp_path, 3, store="etcd") as cluster:
        cluster.kill(2)
        cluster.links.cut(1, 3)          # if it was made with ``relayed=True``
        cluster.start(2)

``kill`` is kill -9, and with ``disk="volatile"`` as bad as a power failure; with ``disk="faulty"``
a test fills it up.  Nodes of one loop, quick and to be looked into, are in
``waystation/testing/cluster.py``.
"""

import os
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Literal, Self, TypeVar

from tests.support.etcd import EtcdCluster
from tests.support.links import STORE, Links
from tests.support.servers import free_ports
from tests.support.zookeeper import ZookeeperEnsemble
from waystation.client.admin import Admin
from waystation.client.descriptions import TopicDescription
from waystation.model.errors import WaystationError
from waystation.runtime.loops import run
from waystation.testing.process import BrokerProcess

T = TypeVar("T")
Store = Literal["etcd", "zookeeper"]
Disk = Literal["real", "volatile", "faulty", "other version"]
STORES: tuple[Store, ...] = ("etcd", "zookeeper")

LEASE_MS = 3_000
OPTIONS = {
    "broker.session.timeout.ms": str(LEASE_MS),
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "segment.bytes": str(1 << 20),
}
_MODULES = {
    "real": "waystation.cli.main",
    "volatile": "waystation.testing.volatile",
    "faulty": "tests.support.faulty_node",
    "other version": "tests.support.other_version",
}
_LOOK_EVERY_S = 0.05
_WITHIN_S = 30.0


class ProcessCluster:
    """Brokers 1 to ``size``; ``brokers`` has all of them, running or not."""

    def __init__(
        self,
        folder: Path,
        size: int = 3,
        *,
        store: Store = "etcd",
        members: int = 1,
        options: Mapping[str, str] | None = None,
        options_of: Mapping[int, Mapping[str, str]] | None = None,
        relayed: bool = False,
        disk: Disk = "real",
        http: str = "none",
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.ids = tuple(range(1, size + 1))
        self.store = _store(store, folder / "store", members)
        self.links = Links()
        self.brokers: dict[int, BrokerProcess] = {}
        self.clients_at: dict[int, str] = {}
        self.running: set[int] = set()
        self.paused: set[int] = set()
        self._kind = store
        self.disk: Disk = disk
        self._relayed, self._http = relayed, http
        self.options = {**OPTIONS, **(options or {})}
        self._options_of = dict(options_of or {})
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with self._stack:
            self._stack.enter_context(self.links)
            self._stack.enter_context(self.store)
            self._stack.callback(self._end)
            for number in self.ids:
                self.brokers[number] = self._broker(number)
            self.start(*self.ids)
            for number in self.ids:
                self.until(partial(self._knows_all, number), what=f"broker {number} knows all")
            self._stack = self._stack.pop_all()
        return self

    def _knows_all(self, number: int) -> bool:
        """Whether a broker has heard of all others: only then has it places for all replicas."""

        async def known() -> set[int]:
            async with Admin(self.clients_at[number]) as admin:
                return {one.node for one in (await admin.describe_cluster()).brokers}

        return run(known()) == set(self.ids)

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def bootstrap(self) -> str:
        """Where clients connect to; all brokers, running or not."""
        return ",".join(self.clients_at[number] for number in self.ids)

    @property
    def store_address(self) -> str:
        """The store without any relay between."""
        return f"{self._kind}://{','.join(self.store.endpoints)}/waystation"

    # --- life and death -------------------------------------------------------------------------

    def start(self, *numbers: int) -> None:
        """Start brokers, side by side, and wait until they are ready."""
        with ThreadPoolExecutor(max(len(numbers), 1)) as threads:
            started = [threads.submit(self.brokers[number].start) for number in numbers]
            wait(started)
            self.running |= {
                number
                for number, one in zip(numbers, started, strict=True)
                if one.exception() is None
            }
            for one in started:
                one.result()

    def kill(self, *numbers: int) -> None:
        """kill -9, one as soon after the other as can be."""
        for number in numbers:
            os.kill(self.brokers[number].pid, signal.SIGKILL)
        for number in numbers:
            self._gone(number)
            self.brokers[number].kill()

    def stop(self, number: int) -> int:
        """Shut a broker down cleanly; its exit code."""
        self._gone(number)
        return self.brokers[number].stop()

    def restart(self, number: int) -> None:
        """A clean stop and a start."""
        assert self.stop(number) == 0, f"broker {number} did not stop cleanly"
        self.start(number)

    def pause(self, number: int) -> None:
        """Stop a broker where it is, to go on later as if no time had passed."""
        os.kill(self.brokers[number].pid, signal.SIGSTOP)
        self.paused.add(number)

    def resume(self, *numbers: int) -> None:
        """Let paused brokers go on: those, or all."""
        for number in numbers or tuple(self.paused):
            os.kill(self.brokers[number].pid, signal.SIGCONT)
            self.paused.discard(number)

    def fill_disk(self, number: int, spare_bytes: int = 0) -> None:
        """Let a broker's disk take so many bytes more; it was made with ``disk="faulty"``."""
        assert self.disk == "faulty", "a real disk cannot be filled"
        data = self.brokers[number].data_dir
        used = sum(one.lstat().st_size for one in data.rglob("*") if one.is_file())
        self._quota(number).write_text(str(used + spare_bytes))

    def free_disk(self, number: int) -> None:
        """Let a broker's disk be as large as it is."""
        self._quota(number).unlink(missing_ok=True)

    def log_of(self, number: int) -> str:
        """What a broker has said."""
        return self.brokers[number].log_path.read_text()

    # --- what it is like ------------------------------------------------------------------------

    def ask(self, question: Callable[[Admin], Awaitable[T]]) -> T:
        """Ask the cluster whatever the admin client asks."""

        async def asking() -> T:
            async with Admin(self.bootstrap) as admin:
                return await question(admin)

        return run(asking())

    def topic(self, name: str) -> TopicDescription:
        """Who holds and leads the partitions of a topic, as a client is told."""
        return self.ask(lambda admin: admin.describe_topic(name))

    def until(
        self, true: Callable[[], object], within_s: float = _WITHIN_S, what: str = ""
    ) -> float:
        """Wait for something that the cluster tells; how long it took.

        While nobody can tell, it is not true.
        """
        began = time.monotonic()
        while True:
            try:
                if true():
                    return time.monotonic() - began
            except WaystationError as error:
                what = f"{what} ({error})"[-500:]
            assert time.monotonic() - began < within_s, f"not within {within_s} s: {what}"
            time.sleep(_LOOK_EVERY_S)

    # --- behind the scenes ----------------------------------------------------------------------

    def _broker(self, number: int) -> BrokerProcess:
        endpoints = self.store.endpoints
        own = {"node.id": str(number), "broker.machine": f"machine-{number}"}
        listen = f"127.0.0.1:{free_ports(1)[0]}"
        if self._relayed:
            endpoints = tuple(self.links.relay(STORE, one, number) for one in endpoints)
            own["advertise"] = self.links.relay(number, listen)
        own["store"] = f"{self._kind}://{','.join(endpoints)}/waystation"
        self.clients_at[number] = own.get("advertise", listen)
        return BrokerProcess(
            self.folder / f"node-{number}",
            options={**self.options, **own, **self._options_of.get(number, {})},
            module=_MODULES[self.disk],
            http=self._http,
            listen=listen,
        )

    def _gone(self, number: int) -> None:
        self.running.discard(number)
        self.paused.discard(number)

    def _quota(self, number: int) -> Path:
        data = self.brokers[number].data_dir
        return data.with_name(data.name + ".quota")

    def _end(self) -> None:
        self.kill(*self.running)


def _store(kind: Store, folder: Path, members: int) -> EtcdCluster | ZookeeperEnsemble:
    return (EtcdCluster if kind == "etcd" else ZookeeperEnsemble)(folder, members)
