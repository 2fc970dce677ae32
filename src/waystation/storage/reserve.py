"""Space of a data directory that only the freeing of space may use.

On a disk without a byte left nothing could be freed: the new start of a log and the state of its
producers must be written down before old files may go.  So a file of the reserve's size is kept
while there is room, and given up when there is none.  From then on the directory takes no
batches, which would eat up what was given up, until the reserve could be made again.
"""

from pathlib import Path

from waystation.storage.disk import Disk
from waystation.storage.tickets import NO_SPACE
from waystation.telemetry.logs import get_logger

FILE = ".reserve"

_CHUNK_BYTES = 64 << 10
# Beyond the reserve itself, so that it is not made and given up by turns.
_SPARE_BYTES = 1 << 20
_events = get_logger("storage")


class Reserve:
    """The reserve of one directory; threads may call at any time, one of them ``keep``."""

    __slots__ = ("_directory", "_disk", "_held", "_path", "nbytes", "spent")

    def __init__(self, disk: Disk, directory: Path, nbytes: int) -> None:
        self._disk, self._directory = disk, directory
        self._path = directory / FILE
        self._held = False
        self.nbytes = nbytes
        self.spent = False
        """Whether appends must wait until the reserve is there again."""

    def keep(self) -> None:
        """Make the reserve if it is missing and there is room; call now and then."""
        if self._held or not self.nbytes:
            return
        if self._disk.free_bytes(self._directory) < self.nbytes + _SPARE_BYTES:
            return
        try:
            self._make()
        except OSError as error:
            self._disk.unlink(self._path)
            if error.errno not in NO_SPACE:
                raise
            return
        self._held = True
        if self.spent:
            self.spent = False
            _events.info("reserve.restored", path=str(self._path))

    def spend(self) -> bool:
        """Give the space up for what must be written now; false if there is none left."""
        if not self._held:
            return False
        # Appends stop first: they would be quicker.
        self.spent, self._held = True, False
        self._disk.unlink(self._path)
        _events.warning("reserve.spent", path=str(self._path), reason="disk full")
        return True

    def find(self) -> None:
        """Believe in a reserve that an earlier life left here."""
        try:
            found_bytes = self._disk.open(self._path).size()
        except FileNotFoundError:
            found_bytes = 0
        self._held = 0 < self.nbytes <= found_bytes

    def _make(self) -> None:
        file = self._disk.open(self._path, create=True)
        for position in range(0, self.nbytes, _CHUNK_BYTES):
            file.pwrite(bytes(min(_CHUNK_BYTES, self.nbytes - position)), position)
        file.datasync()
        file.close()
