"""POSTs at a steady rate until its input ends: ``python -m benchmarks.gateway.posting``.

A process of its own, so that it holds up nothing that is measured beside it.
"""

from __future__ import annotations

import asyncio
import json
import sys

from tests.support.http_load import Load, post

from waystation.runtime.loops import run

_TURN_S = 1


async def _post_until_told(address: str, path: str, body: bytes, rate: int) -> dict[str, float]:
    request = post(path, body)
    load = Load(address, lambda _: request)
    loop = asyncio.get_running_loop()
    ended = loop.run_in_executor(None, sys.stdin.read)
    began, sent = loop.time(), 0
    while not ended.done():
        await load.run(rate, rate * _TURN_S)
        sent += rate * _TURN_S
        if load.refused or load.broken:
            raise RuntimeError(f"the node refuses: {load.refused[:1]}")
        if sent == rate * _TURN_S:
            print("posting", flush=True)
    took_s = loop.time() - began
    load.close()
    told = load.latencies
    return {"rate": sent / took_s, "p50_ms": told.p50, "p99_ms": told.p99, "max_ms": told.most}


def main() -> None:
    """Post, tell."""
    address, path, body, rate = sys.argv[1:]
    print(json.dumps(run(_post_until_told(address, path, body.encode(), int(rate)))), flush=True)


if __name__ == "__main__":
    main()
