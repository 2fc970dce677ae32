"""``waystation serve`` on a disk whose unsynced writes live in this process's memory.

Killing it is then as bad as a power failure: what was not synced is gone.  For tests only; run
as ``python -m waystation.testing.volatile serve ...`` with serve's own ``--listen``,
``--http``, ``--data-dir`` and ``--set``.
"""

import argparse
import sys

from waystation.node.run import run
from waystation.node.settings import load
from waystation.testing.disk import VolatileDisk


def main(arguments: list[str]) -> int:
    """Parse what ``BrokerProcess`` passes, and serve."""
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["serve"])
    parser.add_argument("--listen", default="127.0.0.1:0")
    parser.add_argument("--http", default="none")
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--set", action="append", default=[], dest="pairs")
    given = parser.parse_args(arguments)
    options = dict(pair.split("=", 1) for pair in given.pairs)
    options |= {"listen": given.listen, "http": given.http, "log.dirs": given.data_dir}
    return run(
        load([("command line", options)]),
        announce=lambda line: print(line, flush=True),  # noqa: T201, the one line of serve
        complain=lambda line: print(line, file=sys.stderr),  # noqa: T201
        disk=VolatileDisk(),
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
