"""What fdatasync itself costs in a directory, without any broker: append, sync, repeat.

Printed beside the durable rows, because no broker that keeps its promise can be faster.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.report.ratios import percentile

SIZES_KB = (16, 1024)
_SMALL_KB = 16
_REPEATS = 200


def measure(directory: Path, size_kb: int, repeats: int = _REPEATS) -> dict[str, float]:
    """Percentiles in milliseconds of fdatasync after an append of ``size_kb`` to one file."""
    return _percentiles(_took_ms(directory, "datasync-probe", size_kb, repeats))


def measure_at_once(directory: Path, writers: int, repeats: int = _REPEATS) -> dict[str, float]:
    """The same for several who append to files of their own on one disk, as brokers do."""
    with ThreadPoolExecutor(writers) as threads:
        each = [
            threads.submit(_took_ms, directory, f"datasync-probe-{n}", _SMALL_KB, repeats)
            for n in range(writers)
        ]
        return _percentiles([ms for one in each for ms in one.result()])


def probe(directory: Path, brokers: int) -> dict[str, dict[str, float]]:
    """The rows that stand beside durable ones."""
    if brokers > 1:
        return {f"fdatasync {brokers} at once {_SMALL_KB}KB": measure_at_once(directory, brokers)}
    return {f"fdatasync alone {size_kb}KB": measure(directory, size_kb) for size_kb in SIZES_KB}


def _percentiles(took_ms: list[float]) -> dict[str, float]:
    return {"p50_ms": percentile(took_ms, 0.5), "p99_ms": percentile(took_ms, 0.99)}


def _took_ms(directory: Path, name: str, size_kb: int, repeats: int) -> list[float]:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / name
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
    return took_ms
