"""How jobs show what they found: HTML pages that are one file each, tables and sizes as text.

A page needs nothing beside it: styles and plots stand inside, there are no scripts and nothing
is fetched.  Whatever comes from records or topics is escaped.  A page is replaced as a whole,
so whoever reads it while a job runs sees the old one or the new one.
"""

import os
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import NamedTuple

__all__ = [
    "Section",
    "Table",
    "page",
    "report_path",
    "shown_bytes",
    "shown_count",
    "shown_duration",
    "text_table",
    "write_page",
]

_BYTES = ("B", "KB", "MB", "GB", "TB", "PB", "EB")
_COUNTS = ("", " k", " million", " billion", " trillion")
_DURATIONS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; --bad: #cc4b4b; --good: #3f9c5a; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
p.note { opacity: .75; margin: .2rem 0 1rem; }
dl { display: flex; flex-wrap: wrap; gap: .8rem; margin: 1rem 0; }
dl div { border: 1px solid var(--line); border-radius: .5rem; padding: .5rem .9rem; }
dt { font-size: .8rem; opacity: .75; } dd { margin: 0; font-size: 1.25rem; font-weight: 600; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid var(--line); padding: .3rem .6rem; text-align: left; }
th { font-size: .8rem; opacity: .75; } td.number, th.number { text-align: right; }
tr:hover td { background: var(--soft); } svg { width: 100%; height: auto; }
.bad { color: var(--bad); } .good { color: var(--good); }
"""


class Table(NamedTuple):
    """Titles and rows; a cell that is a number stands to the right."""

    titles: Sequence[str]
    rows: Sequence[Sequence[object]]


class Section(NamedTuple):
    """A part of a page: what it is, one sentence about it, then plots and tables."""

    title: str
    note: str = ""
    plots: Sequence[str] = ()
    tables: Sequence[Table] = ()


def page(
    title: str,
    note: str,
    figures: Sequence[tuple[str, str]],
    sections: Iterable[Section],
    *,
    refresh_s: int | None = None,
) -> str:
    """The whole document; with ``refresh_s`` the browser loads it again and again."""
    again = f'<meta http-equiv="refresh" content="{refresh_s}">' if refresh_s else ""
    tiles = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in figures
    )
    body = "".join(map(_section, sections))
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">{again}'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>"
        f'<h1>{escape(title)}</h1><p class="note">{escape(note)}</p><dl>{tiles}</dl>{body}'
        f'<p class="note">Made {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC by Waystation.</p>'
        "</body></html>\n"
    )


def _section(section: Section) -> str:
    note = f'<p class="note">{escape(section.note)}</p>' if section.note else ""
    tables = "".join(map(_table, section.tables))
    return (
        f"<section><h2>{escape(section.title)}</h2>{note}{''.join(section.plots)}{tables}</section>"
    )


def _table(table: Table) -> str:
    numeric = [all(_is_number(row[at]) for row in table.rows) for at in range(len(table.titles))]
    rows = "".join(_row("td", row, numeric) for row in table.rows)
    head = _row("th", table.titles, numeric)
    return f"<table><thead>{head}</thead><tbody>{rows}</tbody></table>"


def _row(tag: str, cells: Sequence[object], numeric: Sequence[bool]) -> str:
    shown = (_cell(tag, cell, number) for cell, number in zip(cells, numeric, strict=True))
    return f"<tr>{''.join(shown)}</tr>"


def _cell(tag: str, content: object, number: bool) -> str:
    kind = ' class="number"' if number else ""
    shown = f"{content:,}" if isinstance(content, int) else str(content)
    return f"<{tag}{kind}>{escape(shown)}</{tag}>"


def _is_number(cell: object) -> bool:
    """Whether it begins as one: ``1.5 MB`` and ``-`` line up with 12."""
    text = str(cell)
    return text == "-" or text[:1].isdigit() or text[:2].lstrip("-")[:1].isdigit()


def report_path(to: str) -> Path:
    """Where the page of the table at ``to`` is: beside it, not among its files."""
    local = to.removeprefix("file://").rstrip("/")
    if "://" in local:
        local = local.rsplit("/", 1)[-1]  # a table elsewhere: its page is made here
    return Path(f"{local}-report.html")


def write_page(path: Path, document: str) -> Path:
    """Put a page in its place, as a whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(document, encoding="utf-8")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return path


def text_table(table: Table) -> str:
    """Columns as wide as they need to be; numbers to the right."""
    lines = [list(table.titles), *([str(cell) for cell in row] for row in table.rows)]
    columns = range(len(table.titles))
    widths = [max(len(line[at]) for line in lines) for at in columns]
    right = [bool(table.rows) and all(_is_number(row[at]) for row in table.rows) for at in columns]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in lines
    )


def shown_bytes(count: float) -> str:
    """A size for people: ``1.5 MB``."""
    size = float(count)
    for unit in _BYTES[:-1]:
        if abs(size) < 999.95:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1_000
    return f"{size:.1f} {_BYTES[-1]}"


def shown_count(count: float) -> str:
    """A number for people: ``1.2 million``."""
    number = float(count)
    if abs(number) < 10_000:
        return f"{number:,.0f}" if abs(number) >= 10 or number == int(number) else f"{number:.1f}"
    for unit in _COUNTS[:-1]:
        if abs(number) < 999.95:
            return f"{number:.1f}{unit}"
        number /= 1_000
    return f"{number:,.1f}{_COUNTS[-1]}"


def shown_duration(ms: float) -> str:
    """A time that passed, for people: ``1.5 min``."""
    for unit_ms, unit in _DURATIONS:
        if ms >= unit_ms:
            return f"{ms / unit_ms:,.1f} {unit}"
    return f"{ms:.0f} ms"
