"""What commands print: JSON lines for scripts, plain tables and sizes for people.

Results go to standard output, everything said about them to standard error.
"""

import sys
from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["counted", "print_json", "print_table", "say", "shown_bytes", "write"]

_UNITS = ("B", "KB", "MB", "GB", "TB", "PB")


def write(payload: bytes) -> None:
    """Write bytes to standard output, and let the reader see them now."""
    sys.stdout.buffer.write(payload)
    sys.stdout.buffer.flush()


def print_json(value: Any) -> None:
    """One JSON document on a line of its own."""
    import msgspec

    write(msgspec.json.encode(value) + b"\n")


def print_table(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Columns as wide as they need to be; numbers to the right."""
    lines = [list(titles), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(titles))]
    for line in lines:
        cells = (
            cell.rjust(width) if cell.lstrip("-").isdigit() else cell.ljust(width)
            for cell, width in zip(line, widths, strict=True)
        )
        write(("  ".join(cells).rstrip() + "\n").encode())


def counted(number: int, noun: str) -> str:
    """A number of things, e.g. ``1 topic`` or ``3 topics``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def say(line: str) -> None:
    """Tell the person at the terminal."""
    print(line, file=sys.stderr, flush=True)


def shown_bytes(count: int) -> str:
    """A size for people: ``1.5 MB``."""
    size = float(count)
    for unit in _UNITS[:-1]:
        if size < 1_000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1_000
    return f"{size:.1f} {_UNITS[-1]}"
