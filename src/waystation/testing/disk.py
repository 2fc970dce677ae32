"""Disks that forget what was not synced: one simulated, one that real processes can use.

Both stand in for ``waystation.storage.disk.RealDisk``.  Data survives a crash once its file was
synced, a name once its directory was; everything else may go, or stay, or stay in part.

- ``SimulatedDisk(seed)`` lives in memory.  ``crash()`` decides by the seed what becomes of every
  page and name that was not synced, and faults can be planted: a sync that fails, a read that
  fails, a disk that fills up.
- ``VolatileDisk()`` lies over the real file system and keeps unsynced writes and names in this
  process, so that ``kill -9`` takes exactly them along.
"""

from waystation.testing.simulated_disk import PowerLossError, SimulatedDisk
from waystation.testing.volatile_disk import VolatileDisk

__all__ = ["PowerLossError", "SimulatedDisk", "VolatileDisk"]
