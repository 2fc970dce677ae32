"""Python source under construction, each line remembering which field it serves.

That memory makes good errors free: generated code carries no names, and when a line of
it fails, the line's number tells which field of which message the bytes broke.
"""

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType
from typing import Any, NamedTuple

__all__ = ["Compiled", "Source"]


class Compiled(NamedTuple):
    """A generated function and, by line number, the field that each of its lines serves."""

    function: Callable[[Any], Any]
    code: CodeType
    paths: list[str]

    def culprit(self, fault: BaseException) -> str:
        """The field at which ``fault`` was raised in this function."""
        trace = fault.__traceback__
        while trace is not None and trace.tb_frame.f_code is not self.code:
            trace = trace.tb_next
        return self.paths[0] if trace is None else self.paths[trace.tb_lineno - 1]


class Source:
    """Collects lines, names for constants, and the path of the field being written."""

    def __init__(self, title: str) -> None:
        self.constants: dict[str, Any] = {}
        self._lines: list[str] = []
        self._paths: list[str] = []
        self._indent = ""
        self._path = title
        self._names = 0

    @property
    def path(self) -> str:
        """The field that lines are now written for."""
        return self._path

    def line(self, text: str, path: str | None = None) -> None:
        """Add one line; ``path`` overrides the field it is blamed on."""
        self._lines.append(self._indent + text)
        self._paths.append(path or self._path)

    def name(self, stem: str) -> str:
        """A variable that no other line uses."""
        self._names += 1
        return f"{stem}{self._names}"

    def constant(self, stem: str, value: Any) -> str:
        """A name under which the generated code finds ``value``."""
        for name, known in self.constants.items():
            if known is value:
                return name
        name = self.name(stem)
        self.constants[name] = value
        return name

    def packer(self, letters: str, method: str) -> str:
        """A name for one method of the big-endian struct of ``letters``; one for all users."""
        name = f"{method}_{letters.replace('?', 'o')}"
        self.constants.setdefault(name, getattr(struct.Struct(">" + letters), method))
        return name

    @contextmanager
    def block(self, opening: str) -> Iterator[None]:
        """Indent what is written inside below ``opening``."""
        self.line(opening)
        self._indent += "    "
        yield
        self._indent = self._indent[:-4]

    @contextmanager
    def field(self, suffix: str) -> Iterator[None]:
        """Blame what is written inside on a field below the present one."""
        outer, self._path = self._path, self._path + suffix
        yield
        self._path = outer

    def compile(self, filename: str) -> Compiled:
        """Turn the lines, which define one function called ``run``, into that function."""
        namespace = dict(self.constants)
        exec(compile("\n".join(self._lines), filename, "exec"), namespace)
        function = namespace["run"]
        return Compiled(function, function.__code__, self._paths)

    def text(self) -> str:
        """The source itself, for tests and for the curious."""
        return "\n".join(self._lines)
