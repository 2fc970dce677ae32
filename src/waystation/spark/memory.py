"""Keeps an executor's freed memory in its process, for the next buffers of the same size.

Reading makes and drops a few megabytes many times a second.  The C library by itself gives
freed buffers of this size back to the system, and every page of the next one is faulted in
anew: up to a third of all CPU time of a read went there (benchmarks/spark).
"""

import ctypes
from functools import cache

__all__ = ["keep_freed_memory"]

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 64 << 20
_OWN_MAPPING_BYTES = 32 << 20


@cache
def keep_freed_memory() -> None:
    """Up to 64 MB stay with the process; does nothing where the C library is not GNU's."""
    try:
        tune = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    tune(_MMAP_THRESHOLD, _OWN_MAPPING_BYTES)
    tune(_TRIM_THRESHOLD, _KEPT_BYTES)
