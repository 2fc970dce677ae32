"""A standalone cluster of Spark on this machine, from the package that pip has installed.

One master and some workers, each a Java machine in a session of processes of its own, with the
executors that it starts and their Python workers.  So a worker can die as a machine does: all of
it at once, and nothing has time to say goodbye.
"""

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import pyspark

from tests.support.spark import QUICK

SPARK_HOME = Path(pyspark.__file__).parent

_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_EXECUTOR = b"org.apache.spark.executor.CoarseGrainedExecutorBackend"
_STARTED = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = re.compile(r"Successfully registered with master")
_START_S = 120.0


class SparkCluster:
    """``with SparkCluster(folder) as cluster:`` runs it; ``cluster.master`` is its address."""

    def __init__(self, home: Path, workers: int = 2) -> None:
        self.home = home
        self.master = ""
        self._count = workers
        self._master: Member | None = None
        self.workers: list[Member] = []

    def __enter__(self) -> Self:
        self.home.mkdir(parents=True)
        try:
            self._master = Member(self.home / "master", [_MASTER])
            self.master = self._master.wait_for_line(_STARTED)[1]
            for _ in range(self._count):
                self.start_worker()
            self.wait_for_workers()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    def start_worker(self) -> "Member":
        """One more machine with two cores; it may take a moment to join."""
        folder = self.home / f"worker-{len(self.workers)}"
        words = [_WORKER, "--cores", "2", "--memory", "1g", "--work-dir", str(folder / "work")]
        self.workers.append(Member(folder, [*words, self.master]))
        return self.workers[-1]

    def wait_for_workers(self) -> None:
        """Until all that were started have joined."""
        for worker in self.workers:
            if not worker.is_dead:
                worker.wait_for_line(_REGISTERED)

    def working(self) -> list["Member"]:
        """The workers that have executors now."""
        return [one for one in self.workers if not one.is_dead and any(one.executors())]

    def _stop(self) -> None:
        for member in (*self.workers, self._master):
            if member is not None:
                member.kill()


class Member:
    """The master or a worker, with all that it has started."""

    def __init__(self, folder: Path, words: list[str]) -> None:
        folder.mkdir()
        self.log = folder / "log"
        self.is_dead = False
        environment = {
            **os.environ,
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_DAEMON_MEMORY": "256m",
            "JDK_JAVA_OPTIONS": QUICK,
            "SPARK_LOCAL_DIRS": str(folder / "local"),
        }
        place = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [SPARK_HOME / "bin" / "spark-class", words[0], *place, *words[1:]],
                cwd=folder,
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait_for_line(self, line: re.Pattern[str]) -> re.Match[str]:
        """Until ``line`` is in its log."""
        found: list[re.Match[str]] = []

        def look() -> bool:
            found.extend(line.finditer(self.said()))
            assert self._process.poll() is None, f"ended: {self.said()[-2_000:]}"
            return bool(found)

        wait_for(look, f"{line.pattern} in {self.log}")
        return found[0]

    def said(self) -> str:
        """All of its log."""
        return self.log.read_text(errors="replace")

    def executors(self) -> Iterator[int]:
        """The Java machines in which it runs tasks."""
        for pid in self._processes():
            with contextlib.suppress(OSError):
                if _EXECUTOR in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                    yield pid

    def kill(self) -> None:
        """As a machine dies: all of it."""
        self.is_dead = True
        kill_session(self._process)

    def _processes(self) -> Iterator[int]:
        return processes_of(self._process.pid)


def kill_session(leader: "subprocess.Popen[bytes]") -> None:
    """End a process that leads a session and all that it has started, itself first.

    Otherwise a worker would start executors anew.
    """
    while left := list(processes_of(leader.pid)):
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    leader.wait()


def processes_of(leader: int) -> Iterator[int]:
    """The processes of a session, its leader first; without those that are dead."""
    for pid in sorted(_all_processes(), key=lambda pid: pid != leader):
        with contextlib.suppress(OSError):
            if os.getsid(pid) == leader and not _is_zombie(pid):
                yield pid


def wait_for(condition: Callable[[], bool], what: str, timeout_s: float = _START_S) -> None:
    """Until ``condition`` holds."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"nothing happens: {what}"
        time.sleep(0.02)


def _all_processes() -> Iterator[int]:
    return (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())


def _is_zombie(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
