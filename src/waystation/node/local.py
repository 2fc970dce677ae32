"""A cluster in the background of one machine: etcd and some brokers, in one folder.

====================  =================================================================
``cluster.json``      what was asked for: brokers, ports, options, the store
``broker-N/``         the data of broker N
``broker-N.log``      what it says; ``broker-N.pid`` is its process
``etcd/``             the metadata; ``etcd.log`` and ``etcd.pid`` as above
====================  =================================================================

1. What was asked for is kept, so that starting again gives the same cluster: after its processes
   were stopped or killed, and after the machine was restarted.
2. Starting what runs already does nothing.
3. Data goes only when that is asked for, and only with nothing running.
"""

import contextlib
import fcntl
import os
import shutil
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from waystation.node.background import Background
from waystation.node.etcd_program import find_etcd
from waystation.node.local_plan import (
    HOST,
    LocalBroker,
    LocalClusterError,
    LocalPlan,
    Wish,
    first_plan,
    grown,
)

Say = Callable[[str], None]

ETCD = "etcd"
_PLAN, _LOCK = "cluster.json", "cluster.lock"
_READY_WITHIN_S = _STOPPED_WITHIN_S = 60.0
_KILLED_WITHIN_S = 10.0
# Compacted hourly: brokers need no history.
_ETCD_OPTIONS = ("--auto-compaction-retention", "1", "--logger", "zap", "--log-level", "warn")


class LocalNodes:
    """The processes of one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self._plan = self._read()

    @property
    def plan(self) -> LocalPlan:
        """What was asked for."""
        if self._plan is None:
            raise LocalClusterError(
                f"there is no cluster in {self.folder}. Remedy: `waystation cluster up` makes one"
            )
        return self._plan

    @property
    def exists(self) -> bool:
        """Whether anything was ever asked for."""
        return self._plan is not None

    @property
    def names(self) -> list[str]:
        """The processes that there should be."""
        own = [ETCD] if self.plan.etcd_ports else []
        return own + [broker.name for broker in self.plan.brokers]

    def process(self, name: str) -> Background:
        """The process called ``etcd``, ``broker-2`` or just ``2``."""
        wanted = f"broker-{name}" if name.isdecimal() else name
        if wanted not in self.names:
            raise LocalClusterError(
                f"{self.folder} has no process {name!r}; it has {', '.join(self.names)}"
            )
        return Background(self.folder, wanted)

    def running(self) -> dict[str, int | None]:
        """Each process and its number, if it runs."""
        return {name: self.process(name).pid for name in self.names}

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """One command at a time may start and stop processes."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / _LOCK).open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise LocalClusterError(
                    f"another command starts or stops the cluster in {self.folder}: wait for it"
                ) from None
            self._plan = self._read()
            yield

    def adopt(self, wish: Wish) -> None:
        """Keep what is asked for: a new plan, or more of the one there is."""
        before = self._plan
        plan = first_plan(wish) if before is None else grown(before, wish)
        if plan != before:
            text = msgspec.json.format(msgspec.json.encode(plan), indent=2) + b"\n"
            beside = self.folder / f"{_PLAN}.tmp"
            beside.write_bytes(text)
            beside.replace(self.folder / _PLAN)
        self._plan = plan

    def start(self, names: Sequence[str], say: Say) -> list[str]:
        """Start those of ``names`` that do not run; who was started, all of them ready.

        Brokers start side by side, once etcd is there.
        """
        missing = [name for name in names if self.process(name).pid is None]
        if ETCD in missing and self.plan.etcd_ports:
            self._start_etcd(self.plan.etcd_ports, say)
        waiting = [
            (self.process(broker.name), self.process(broker.name).start(self._command(broker)))
            for broker in self.plan.brokers
            if broker.name in missing
        ]
        for process, begins_at in waiting:
            _await_ready(process, begins_at)
        return missing

    def stop(self, say: Say) -> list[str]:
        """Stop brokers cleanly and etcd after them; who was stopped."""
        stopped = []
        brokers = [name for name in self.names if name != ETCD]
        for some in (brokers, [name for name in self.names if name == ETCD]):
            asked = [name for name in some if self._ask_to_stop(name)]
            for name in asked:
                self._see_end(name, say)
            stopped += asked
        return stopped

    def delete(self) -> None:
        """Remove everything, with nothing running."""
        running = [name for name, pid in self.running().items() if pid is not None]
        assert not running, f"{running} still run"
        for name in self.names:
            shutil.rmtree(self.folder / name, ignore_errors=True)
            for ending in (".log", ".pid"):
                (self.folder / f"{name}{ending}").unlink(missing_ok=True)
        for file in (_PLAN, _LOCK):
            (self.folder / file).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.folder.rmdir()  # stays if there are things in it that are not ours
        self._plan = None

    def _read(self) -> LocalPlan | None:
        try:
            return msgspec.json.decode((self.folder / _PLAN).read_bytes(), type=LocalPlan)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as problem:
            raise LocalClusterError(f"{self.folder / _PLAN} is damaged: {problem}") from problem

    def _ask_to_stop(self, name: str) -> bool:
        process = self.process(name)
        asked = process.signal(signal.SIGTERM)
        process.signal(signal.SIGCONT)  # one that was paused could not hear it
        return asked

    def _see_end(self, name: str, say: Say) -> None:
        process = self.process(name)
        if process.ended(_STOPPED_WITHIN_S):
            return
        say(f"{name} did not stop within {_STOPPED_WITHIN_S:g} s: killed; see {process.log}")
        process.signal(signal.SIGKILL)
        process.ended(_KILLED_WITHIN_S)

    def _command(self, broker: LocalBroker) -> list[str]:
        command = [sys.executable, "-m", "waystation.cli.main", "serve"]
        command += ["--node-id", str(broker.id), "--store", self.plan.store]
        command += ["--data-dir", str(self.folder / broker.name)]
        command += ["--listen", broker.kafka, "--http", broker.http]
        # As if each had a machine to itself, or no topic had more than one replica.
        for name, value in {"broker.machine": broker.name, **self.plan.options}.items():
            command += ["--set", f"{name}={value}"]
        return command

    def _start_etcd(self, ports: tuple[int, int], say: Say) -> None:
        program = find_etcd(os.environ, say)
        client, peer = (f"http://{HOST}:{port}" for port in ports)
        command = [str(program), "--name", "local", "--data-dir", str(self.folder / ETCD)]
        command += ["--listen-client-urls", client, "--advertise-client-urls", client]
        command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        command += ["--initial-cluster", f"local={peer}", *_ETCD_OPTIONS]
        process = self.process(ETCD)
        # Without it, older versions do not start on other machines than Intel's.
        begins_at = process.start(command, {"ETCD_UNSUPPORTED_ARCH": "arm64"})
        process.wait_until(lambda: _is_healthy(client), _READY_WITHIN_S, begins_at)


def _await_ready(process: Background, begins_at: int) -> None:
    def ready() -> bool:
        return " ready: kafka " in process.said(begins_at)

    process.wait_until(ready, _READY_WITHIN_S, begins_at)


def _is_healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=2) as answer:
            return b"true" in answer.read()
    except (urllib.error.URLError, OSError):
        return False
