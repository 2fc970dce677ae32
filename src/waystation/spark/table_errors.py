"""What a table of the lake refuses, and what it refuses about."""

from waystation.model.errors import WaystationError

__all__ = ["MissingPackageError", "TableError"]


class TableError(WaystationError):
    """A table that cannot be read or written as asked; the sentence names it and the remedy."""

    def __init__(self, path: str, why: str) -> None:
        self.path, self.why = path, why
        super().__init__(f"table {path}: {why}")

    def __reduce__(self) -> tuple[type["TableError"], tuple[str, str]]:
        return type(self), (self.path, self.why)


class MissingPackageError(WaystationError):
    """A table format whose library is not installed here."""

    def __init__(self, kind: str, package: str) -> None:
        self.kind, self.package = kind, package
        super().__init__(
            f"format {kind} needs the package {package}, which is not installed where this "
            "runs: pip install 'waystation[pipelines]' on the driver and on every executor"
        )

    def __reduce__(self) -> tuple[type["MissingPackageError"], tuple[str, str]]:
        return type(self), (self.kind, self.package)
