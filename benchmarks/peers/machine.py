"""The machine a result was measured on: what matters for speed, nothing that identifies it."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path


def facts(directory: Path) -> dict[str, object]:
    """Cores, memory, kernel, the file system of the data and how busy the machine already is."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "kernel": f"{platform.system()} {_kernel_version()} {platform.machine()}",
        "file_system": _file_system(directory),
        "load_before": round(os.getloadavg()[0], 2),
    }


def busy(machine: Mapping[str, object]) -> bool:
    """Whether other work ran when we began, so that only ratios deserve trust."""
    return float(str(machine["load_before"])) > 0.5


def _kernel_version() -> str:
    found = re.match(r"[\d.]+", platform.release())
    return found.group().rstrip(".") if found else "unknown"


def _file_system(directory: Path) -> str:
    """The type of the mount that holds the directory: the longest mount point above it."""
    best, kind = "", "unknown"
    for line in Path("/proc/mounts").read_text().splitlines():
        mount_point, fs_type = line.split()[1:3]
        inside = directory.resolve().is_relative_to(mount_point)
        if inside and len(mount_point) >= len(best):
            best, kind = mount_point, fs_type
    return kind
