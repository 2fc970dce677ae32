"""Curves as an SVG picture, for pages that are read in a browser; nothing else is needed for it.

Both axes are logarithmic.  The same figures give the same text, so that a test can hold a picture
against its result.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

Point = tuple[float, float]

_PANEL_WIDTH, _PANEL_HEIGHT = 430, 300
_LEFT, _TOP, _RIGHT, _BOTTOM = 58, 52, 14, 48
_HEIGHT = _TOP + _PANEL_HEIGHT + _BOTTOM
_TEXT = 'font-family="sans-serif" font-size="12"'


@dataclass(frozen=True)
class Curve:
    """Points from left to right, and the place on the x axis where the line must end."""

    name: str
    colour: str
    points: Sequence[Point]
    limit: float | None = None


@dataclass(frozen=True)
class Panel:
    """One picture beside the others; all share their axes."""

    title: str
    curves: Sequence[Curve]


def draw(panels: Sequence[Panel], x_title: str, y_title: str, note: str) -> str:
    """The picture as SVG."""
    across = _Axis.around(_values(panels, 0), _PANEL_WIDTH)
    up = _Axis.around(_values(panels, 1), _PANEL_HEIGHT)
    step = _LEFT + _PANEL_WIDTH + _RIGHT
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {step * len(panels)} {_HEIGHT}" '
        f'width="{step * len(panels)}" height="{_HEIGHT}" {_TEXT}>',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for number, panel in enumerate(panels):
        lines.append(f'<g transform="translate({number * step + _LEFT},{_TOP})">')
        lines += _frame(panel.title, across, up, x_title, y_title)
        for place, curve in enumerate(panel.curves):
            lines += _curve(curve, place, across, up)
        lines.append("</g>")
    lines += [f'<text x="{_LEFT}" y="{_HEIGHT - 6}" fill="#555">{escape(note)}</text>', "</svg>"]
    return "\n".join(lines) + "\n"


class _Axis:
    """Powers of ten from ``low`` to ``high`` over so many pixels."""

    def __init__(self, low: int, high: int, pixels: int) -> None:
        self._low, self._high, self._pixels = low, high, pixels

    @classmethod
    def around(cls, values: Iterable[float], pixels: int) -> _Axis:
        """An axis that has all of them on it."""
        known = [value for value in values if value > 0]
        low = math.floor(math.log10(min(known)))
        return cls(low, max(low + 1, math.ceil(math.log10(max(known)))), pixels)

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Where lines are, and what is written at them."""
        return [
            (self.at(digit * 10.0**power), f"{digit * 10**power:,g}" if digit in (1, 3) else "")
            for power in range(self._low, self._high + 1)
            for digit in range(1, 10)
            if power < self._high or digit == 1
        ]

    def at(self, value: float) -> float:
        """The pixel of a value."""
        share = (math.log10(value) - self._low) / (self._high - self._low)
        return round(share * self._pixels, 1)


def _values(panels: Sequence[Panel], axis: int) -> list[float]:
    curves = [curve for panel in panels for curve in panel.curves]
    found = [point[axis] for curve in curves for point in curve.points]
    return found + [curve.limit for curve in curves if axis == 0 and curve.limit]


def _frame(title: str, across: _Axis, up: _Axis, x_title: str, y_title: str) -> list[str]:
    lines = [f'<text x="0" y="-30" font-weight="bold">{escape(title)}</text>']
    for x, text in across.ticks:
        lines.append(f'<path d="M{x},0V{_PANEL_HEIGHT}" stroke="#{"ccc" if text else "eee"}"/>')
        if text:
            lines.append(_label(x, _PANEL_HEIGHT + 14, text, "middle"))
    for y, text in up.ticks:
        below = round(_PANEL_HEIGHT - y, 1)
        lines.append(f'<path d="M0,{below}H{_PANEL_WIDTH}" stroke="#{"ccc" if text else "eee"}"/>')
        if text:
            lines.append(_label(-5, below + 4, text, "end"))
    lines.append(_label(_PANEL_WIDTH, _PANEL_HEIGHT + 28, x_title, "end"))
    lines.append(_label(0, -8, y_title, "start"))
    return lines


def _curve(curve: Curve, place: int, across: _Axis, up: _Axis) -> list[str]:
    spots = [(across.at(x), round(_PANEL_HEIGHT - up.at(y), 1)) for x, y in curve.points]
    path = "L".join(f"{x},{y}" for x, y in spots)
    lines = [f'<path d="M{path}" fill="none" stroke="{curve.colour}" stroke-width="2"/>']
    lines += [f'<circle cx="{x}" cy="{y}" r="3" fill="{curve.colour}"/>' for x, y in spots]
    if curve.limit:
        x = across.at(curve.limit)
        lines.append(
            f'<path d="M{x},0V{_PANEL_HEIGHT}" stroke="{curve.colour}" stroke-dasharray="5 4"/>'
        )
    y = 16 + 16 * place
    lines.append(f'<path d="M8,{y - 4}H28" stroke="{curve.colour}" stroke-width="3"/>')
    lines.append(_label(34, y, curve.name, "start"))
    return lines


def _label(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'
