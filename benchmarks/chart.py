"""Line charts as SVG text, readable on light and dark pages. Knows numbers and labels only."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 760, 400
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 34, 104
COLOURS = ("#2f6fdb", "#d9822b", "#3a9d5d", "#8b4fc6", "#c8354a", "#5d6b7a")


@dataclass
class Line:
    """One line; a filled one is drawn as the area below it."""

    label: str
    values: list[float]
    is_filled: bool = False


def chart(title: str, x_label: str, y_label: str, lines: list[Line]) -> str:
    """Lines over 1, 2, ... as an SVG document."""
    top = _nice(max(max(line.values) for line in lines))
    count = max(len(line.values) for line in lines)
    parts = [_head(f"{title}, {y_label}"), *_grid(top, count, x_label)]
    for number, line in enumerate(sorted(lines, key=lambda line: not line.is_filled)):
        parts.append(_draw(line, COLOURS[number % len(COLOURS)], top, count))
        parts.append(_legend(line, COLOURS[number % len(COLOURS)], number))
    return "\n".join([*parts, "</svg>\n"])


def _head(title: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'role="img" font-family="system-ui, sans-serif" font-size="12" fill="#7a828c">\n'
        f"<title>{escape(title)}</title>\n"
        f'<text x="{LEFT}" y="18" font-size="13.5" font-weight="600">{escape(title)}</text>'
    )


def _grid(top: float, count: int, x_label: str) -> list[str]:
    parts = []
    for tick in range(6):
        value = top * tick / 5
        y = _y(value, top)
        parts.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#7a828c" stroke-opacity=".25"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    for step in range(0, count, max(1, count // 10)):
        x = _x(step, count)
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 17}" text-anchor="middle">{step + 1}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text x="{middle:.0f}" y="{HEIGHT - BOTTOM + 34}" text-anchor="middle">{escape(x_label)}</text>')
    return parts


def _draw(line: Line, colour: str, top: float, count: int) -> str:
    points = " ".join(f"{_x(at, count):.1f},{_y(value, top):.1f}" for at, value in enumerate(line.values))
    if not line.is_filled:
        return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.8"/>'
    base = _y(0, top)
    area = f"{_x(0, count):.1f},{base:.1f} {points} {_x(len(line.values) - 1, count):.1f},{base:.1f}"
    return f'<polygon points="{area}" fill="{colour}" fill-opacity=".22"/>'


def _legend(line: Line, colour: str, number: int) -> str:
    x, y = LEFT + (number % 2) * 330, HEIGHT - BOTTOM + 56 + (number // 2) * 18
    opacity = ".22" if line.is_filled else "1"
    return (
        f'<rect x="{x}" y="{y - 8}" width="16" height="8" fill="{colour}" fill-opacity="{opacity}"/>'
        f'<text x="{x + 23}" y="{y}">{escape(line.label)}</text>'
    )


def _x(step: int, count: int) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * step / max(1, count - 1)


def _y(value: float, top: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / top


def _nice(value: float) -> float:
    """The smallest round number that is not below ``value``."""
    unit = 10.0 ** math.floor(math.log10(value))
    return next(step * unit for step in (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10) if step * unit >= value)
