"""Writes down what only the coordination store knows, in case that is lost.

A copy in each data directory, a moment after something of it has changed; what it is good for is in
``cluster/keepsakes.py``.  Nobody waits for it, and a disk that does not take it is only told of.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from waystation.broker.view import ClusterView
from waystation.cluster.image import ClusterImage
from waystation.cluster.keepsakes import FILE_NAME, is_same, keepsake_of
from waystation.storage.directory import DataDirectory
from waystation.telemetry.logs import get_logger

_events = get_logger("housekeeping")

_REST_S: Final = 1.0
"""However often options change, they are written once in so long."""


class Keepsakes:
    """One task of a broker."""

    def __init__(self, view: ClusterView, directories: Sequence[DataDirectory]) -> None:
        self._view, self._directories = view, directories

    async def run(self) -> None:
        """Write whenever there is something new, until cancelled."""
        written = None
        while True:
            image = self._view.image
            if written is None or not is_same(written, image):
                # An image never changes, so that a thread may read it.
                await asyncio.to_thread(self._write, image)
                written = image
            await self._view.moved(image.revision)
            await asyncio.sleep(_REST_S)

    def _write(self, image: ClusterImage) -> None:
        content = keepsake_of(image).encoded()
        for directory in self._directories:
            if directory.offline is not None:
                continue
            path = directory.path / FILE_NAME
            try:
                directory.disk.replace(path, content)
            except OSError as error:
                _events.warning("options.not.kept", path=str(path), reason=str(error))
