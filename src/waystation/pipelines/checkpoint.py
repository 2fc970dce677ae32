"""What a job remembers beside Spark's own checkpoint.

Small documents in the checkpoint's folder, on whatever file system Spark keeps it.  A document
is written once, whole or not at all, and stays true for as long as the checkpoint does.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Checkpoint"]

_OF_A_QUERY, _BATCHES = "metadata", "commits"


class Checkpoint:
    """The folder of one query's checkpoint."""

    def __init__(self, spark: "SparkSession", folder: str) -> None:
        self.folder = folder.rstrip("/") or "/"
        context: Any = spark.sparkContext
        self._jvm = context._jvm
        self._files = self._path().getFileSystem(context._jsc.hadoopConfiguration())

    def is_used(self) -> bool:
        """Whether a query has begun with it."""
        return bool(self._files.exists(self._path(_OF_A_QUERY)))

    def has_batches(self) -> bool:
        """Whether a query has finished a batch with it."""
        path = self._path(_BATCHES)
        if not self._files.exists(path):
            return False
        return any(found.getPath().getName().isdigit() for found in self._files.listStatus(path))

    def read(self, name: str) -> Any:
        """The document of that name; ``None`` if it was not written yet."""
        path = self._path(name)
        if not self._files.exists(path):
            return None
        stream = self._files.open(path)
        try:
            text = self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
        finally:
            stream.close()
        return json.loads(text)

    def write(self, name: str, document: Any) -> None:
        """Write a document that is not there yet."""
        text = json.dumps(document, indent=2) + "\n"
        self._files.mkdirs(self._path())
        if self._files.getUri().getScheme() == "file":
            # Not by Hadoop, which leaves a checksum beside it: people may look at it and edit it.
            _replace(Path(self._files.makeQualified(self._path(name)).toUri().getPath()), text)
            return
        unfinished, path = self._path(f".{name}.part"), self._path(name)
        stream = self._files.create(unfinished, True)
        stream.write(bytearray(text.encode()))
        stream.close()
        self._files.rename(unfinished, path)

    def names(self) -> list[str]:
        """What there is in the folder."""
        if not self._files.exists(self._path()):
            return []
        return sorted(found.getPath().getName() for found in self._files.listStatus(self._path()))

    def forget(self, name: str) -> None:
        """Remove a document that is no longer true."""
        self._files.delete(self._path(name), False)

    def _path(self, name: str = "") -> Any:
        place = f"{self.folder.rstrip('/')}/{name}" if name else self.folder
        return self._jvm.org.apache.hadoop.fs.Path(place)


def _replace(path: Path, text: str) -> None:
    unfinished = path.with_name(f".{path.name}.part")
    unfinished.write_text(text)
    unfinished.replace(path)
