"""A node as a process: start, say so, wait for a signal, stop cleanly.

The exit code is 0 after a clean shutdown and 1 when the node could not start; then one line
says what is wrong and what to do about it.
"""

import asyncio
import contextlib
import gc
import resource
import signal
import sys
from collections.abc import Callable

from waystation.model.errors import WaystationError
from waystation.node.node import Node
from waystation.node.notify import notify
from waystation.node.settings import NodeSettings
from waystation.runtime.loops import run as run_loop
from waystation.storage.disk import Disk
from waystation.version import VERSION

Say = Callable[[str], None]


def run(settings: NodeSettings, *, announce: Say, complain: Say, disk: Disk | None = None) -> int:
    """Run a node until SIGTERM or SIGINT; ``announce`` gets one line once it is ready."""
    _allow_many_descriptors()
    try:
        return run_loop(_run(settings, announce, disk))
    except (WaystationError, OSError) as error:
        complain(str(error))
    return 1


def _allow_many_descriptors() -> None:
    """Shells give 1,024, which a thousand connections use up; the hard limit is the machine's."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _tune_interpreter() -> None:
    """Let the collector and the threads' turns fit a process that answers thousands a second.

    Requests that wait for a sync outlive the youngest generation and made every collection
    a costly one: 20 % of the CPU of a durable produce.  Threads that come back from a sync
    need the interpreter at once, not after the default 5 ms.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 50, 100)
    sys.setswitchinterval(0.001)


async def _run(settings: NodeSettings, announce: Say, disk: Disk | None) -> int:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    node = Node(settings, disk=disk)
    try:
        await node.start()
        _tune_interpreter()
        announce(_ready_line(node))
        notify("READY=1")
        await stopping.wait()
        notify("STOPPING=1")
    finally:
        await node.stop()
    return 0


def _ready_line(node: Node) -> str:
    http = node.http_address or "none"
    dirs = ",".join(node.settings.addresses.log_dirs)
    return (
        f"waystation {VERSION} ready: kafka {node.address}, http {http}, "
        f"node {node.settings.broker.node_id}, data {dirs} ({node.start_seconds:.2f} s)"
    )
