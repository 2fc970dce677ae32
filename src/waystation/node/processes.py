"""Several brokers on one machine, each a process of its own, so that all cores are used.

1. Each is a broker like any other, with an id, ports and directories of its own: the first has
   those that were given, the next ones follow.
2. They run on one machine and say so: no two replicas of a partition are placed on them, unless
   the options allow it.
3. One that dies is started again, after a pause that grows while it keeps dying.  If one cannot
   start at all, there is something for people to mend: everything stops and says so.
4. They never outlive their parent: it stops them cleanly, and if it is killed the kernel tells
   them to stop.
"""

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from waystation.model.errors import InvalidSettingsError
from waystation.node.addresses import Address, parse_address
from waystation.node.notify import deaf, notify
from waystation.node.settings import AddressSettings, NodeSettings
from waystation.runtime.loops import run as run_loop
from waystation.telemetry.logs import get_logger

Say = Callable[[str], None]

_PAUSES_S = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_WELL_S = 60.0
_STOP_WITHIN_S = 60.0
_PORT_MAX = 65_535
_DIE_WITH_PARENT: Final = 1  # PR_SET_PDEATHSIG
_READY = " ready: kafka "

_events = get_logger("node")


def flags_of(settings: NodeSettings, number: int) -> list[str]:
    """The command line by which broker ``number``, from 0, differs from the others."""
    addresses, node = settings.addresses, settings.broker.node_id + number
    flags = ["--node-id", str(node)]
    for name in addresses.log_dirs:
        flags += ["--data-dir", str(Path(name) / f"broker-{node}")]
    flags += ["--listen", _next("--listen", addresses.listen, number)]
    if addresses.advertise:
        flags += ["--advertise", _next("--advertise", addresses.advertise, number)]
    http = addresses.http
    return [*flags, "--http", http if http == "none" else _next("--http", http, number)]


def check(addresses: AddressSettings, processes: int) -> None:
    """Refuse what several processes cannot do."""
    if addresses.store == "sqlite":
        raise InvalidSettingsError(
            [
                f"--processes {processes} needs a store that brokers can share, and sqlite serves "
                "one. Remedy: --store etcd://HOST:PORT or zookeeper://HOST:PORT; to try it, "
                "`waystation cluster up` starts an etcd too"
            ]
        )


def run(
    command: Sequence[str],
    settings: NodeSettings,
    processes: int,
    *,
    announce: Say,
    complain: Say,
) -> int:
    """Run that many brokers by ``command``, until SIGTERM or SIGINT."""
    commands = [[*command, *flags_of(settings, number)] for number in range(processes)]
    return run_loop(_Family(commands, announce, complain).run())


class _Family:
    """The parent's view of its children."""

    def __init__(self, commands: list[list[str]], announce: Say, complain: Say) -> None:
        self._commands = commands
        self._announce, self._complain = announce, complain
        self._children: dict[int, asyncio.subprocess.Process] = {}
        self._ready: set[int] = set()
        self._stopping = asyncio.Event()
        self._failed = False

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for one in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(one, self._stopping.set)
        lives = [asyncio.create_task(self._look_after(n)) for n in range(len(self._commands))]
        await self._stopping.wait()
        notify("STOPPING=1")
        await self._stop()
        for life in lives:
            life.cancel()
        await asyncio.gather(*lives, return_exceptions=True)
        return 1 if self._failed else 0

    async def _look_after(self, number: int) -> None:
        """Start one child again and again."""
        deaths = 0
        while not self._stopping.is_set():
            started_at = asyncio.get_running_loop().time()
            code = await self._live(number)
            if self._stopping.is_set():
                return
            if number not in self._ready:
                self._complain(f"broker process {number} could not start: all are stopped")
                self._failed = True
                self._stopping.set()
                return
            well = asyncio.get_running_loop().time() - started_at > _WELL_S
            deaths = 0 if well else min(deaths + 1, len(_PAUSES_S) - 1)
            _events.error("process.died", number=number, code=code, again_in_s=_PAUSES_S[deaths])
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), _PAUSES_S[deaths])

    async def _live(self, number: int) -> int:
        """One life of a child, from its start to its exit code."""
        child = self._children[number] = await asyncio.create_subprocess_exec(
            *self._commands[number],
            stdout=asyncio.subprocess.PIPE,
            env={**deaf(dict(os.environ)), "PYTHONUNBUFFERED": "1"},
            preexec_fn=partial(_die_with, os.getpid()) if sys.platform == "linux" else None,
            start_new_session=True,  # Ctrl-C at a terminal is the parent's to pass on
        )
        assert child.stdout is not None, "stdout is a pipe"
        async for line in child.stdout:
            self._heard(number, line.decode(errors="replace").rstrip())
        return await child.wait()

    def _heard(self, number: int, line: str) -> None:
        self._announce(line)
        if _READY in line and number not in self._ready:
            self._ready.add(number)
            if len(self._ready) == len(self._commands):
                notify("READY=1")

    async def _stop(self) -> None:
        """Ask all to stop at once: none has to take over what the next would give up again."""
        running = [child for child in self._children.values() if child.returncode is None]
        for child in running:
            with contextlib.suppress(ProcessLookupError):
                child.terminate()
        ends = [asyncio.create_task(child.wait()) for child in running]
        if not ends:
            return
        _, late = await asyncio.wait(ends, timeout=_STOP_WITHIN_S)
        for child in running if late else ():
            if child.returncode is None:
                self._complain(f"process {child.pid} did not stop within {_STOP_WITHIN_S:g} s")
                child.kill()
        await asyncio.gather(*ends)


def _die_with(parent: int) -> None:
    """In the child, before it becomes a broker: be told to stop when the parent has ended."""
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGTERM)
    if os.getppid() != parent:
        os._exit(1)  # it ended before this could be asked for


def _next(option: str, text: str, number: int) -> str:
    """The address with the port that many further; a free one stays a free one."""
    host, port = parse_address(option, text)
    if port + number > _PORT_MAX:
        raise InvalidSettingsError(
            [f"{option} {text}: there is no port {port + number} for process {number}"]
        )
    return str(Address(host, port + number if port else 0))
