"""What fdatasync itself costs in a directory, without any broker: append, sync, repeat.

Printed beside the durable rows, because no broker that keeps its promise can be faster.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from benchmarks.report.ratios import percentile

SIZES_KB = (16, 1024)
_REPEATS = 200


def measure(directory: Path, size_kb: int, repeats: int = _REPEATS) -> dict[str, float]:
    """Percentiles in milliseconds of fdatasync after an append of ``size_kb`` to one file."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "datasync-probe"
    block = os.urandom(size_kb * 1024)
    took_ms = []
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    try:
        for _ in range(repeats):
            os.write(descriptor, block)
            began = time.perf_counter()
            os.fdatasync(descriptor)
            took_ms.append((time.perf_counter() - began) * 1000)
    finally:
        os.close(descriptor)
        path.unlink()
    return {"p50_ms": percentile(took_ms, 0.5), "p99_ms": percentile(took_ms, 0.99)}
