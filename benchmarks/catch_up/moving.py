"""A large partition moves to another broker at a throttle: how fast it really went."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from benchmarks.catch_up.away import EVERYBODY, WINDOW_S, Copied, write
from benchmarks.catch_up.growth import Growth, fastest_rate, mean_rate
from benchmarks.loads.asking import Asking
from benchmarks.peers.cluster import RunningCluster

_LARGE = "large"
_FROM, _TO = 1, 2
_PATIENCE = 4  # times as long as the throttle asks for


def move(
    cluster: RunningCluster,
    directory: Path,
    nbytes: int,
    throttle_bytes_per_s: int,
    step: Callable[[str], None],
) -> Copied:
    """Move a partition that one broker holds to another; what arrived there, and how fast."""
    asking = Asking(cluster.bootstrap, EVERYBODY)
    asking.create_on(_LARGE, 1, [_FROM])
    step(f"{nbytes / 1e9:g} GB are written into one partition")
    write(cluster.bootstrap, _LARGE, 1, nbytes)
    os.sync()
    asking.throttle(_LARGE, throttle_bytes_per_s)
    step("it moves")
    with Growth(directory, _TO, _LARGE) as growth:
        asking.move(_LARGE, [_TO])
        asking.until_moved(_LARGE, [_TO], 60 + _PATIENCE * nbytes / throttle_bytes_per_s)
    asking.throttle(_LARGE, None)
    asking.delete(_LARGE)
    samples = growth.samples
    nbytes_copied = samples[-1].nbytes - samples[0].nbytes
    return Copied(nbytes_copied, mean_rate(samples), fastest_rate(samples, WINDOW_S))
