"""Two small drawings as SVG, written by hand: nothing else of the build would need a plotting library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 800, 380, 56, 46, 180, 100
COLOURS = ("#2563eb", "#059669", "#d97706", "#dc2626", "#7c3aed", "#0891b2", "#be185d", "#4d7c0f")

Series = tuple[str, Sequence[tuple[float, float]]]


def lines(title: str, x_label: str, y_label: str, series: Sequence[Series], *, marks: Sequence[float] = ()) -> str:
    """Curves over a shared x axis; ``marks`` are vertical lines."""
    xs = [x for _, points in series for x, _ in points]
    ys = [y for _, points in series for _, y in points]
    frame = _Frame(min(xs), max(xs), 0.0, max(ys) or 1.0)
    parts = frame.axes(title, x_label, y_label)
    for x in marks:
        parts.append(f'<line x1="{frame.x(x):.1f}" y1="{TOP}" x2="{frame.x(x):.1f}" y2="{HEIGHT - BOTTOM}" class="m"/>')
    for number, (name, points) in enumerate(series):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(f"{frame.x(x):.1f},{frame.y(y):.1f}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(_key(number, name, colour))
    return _document(parts)


def against_controls(title: str, y_label: str, rows: Sequence[tuple[str, float, Sequence[float], bool]]) -> str:
    """For each row a large dot, the effect, over small ones, its controls. Rows that passed are filled.

    A line marks no effect at all.
    """
    ys = [value for _, effect, controls, _ in rows for value in (effect, *controls)]
    frame = _Frame(0.0, float(max(1, len(rows))), min(0.0, *ys), max(ys))
    parts = frame.axes(title, "", y_label, ticks_x=False)
    parts.append(f'<path d="M{LEFT} {frame.y(0):.1f}H{WIDTH - RIGHT}" class="m"/>')
    for number, (name, effect, controls, passed) in enumerate(rows):
        x = frame.x(number + 0.5)
        for value in controls:
            parts.append(f'<circle cx="{x:.1f}" cy="{frame.y(value):.1f}" r="2" fill="#9ca3af"/>')
        fill = COLOURS[0] if passed else "#ffffff"
        parts.append(f'<circle cx="{x:.1f}" cy="{frame.y(effect):.1f}" r="5" fill="{fill}" stroke="{COLOURS[0]}"/>')
        parts.append(
            f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 12}" class="s" transform="rotate(55 {x:.1f} '
            f'{HEIGHT - BOTTOM + 12})">{escape(name)}</text>'
        )
    parts.append(_key(0, "passed", COLOURS[0]))
    parts.append(_key(1, "did not pass", COLOURS[0], hollow=True))
    parts.append(_key(2, "controls", "#9ca3af"))
    return _document(parts)


class _Frame:
    """Data to picture coordinates."""

    def __init__(self, x0: float, x1: float, y0: float, y1: float) -> None:
        self._x0, self._dx = x0, (x1 - x0) or 1.0
        # The y axis goes from one round value to another.
        self._step = _round_step((y1 - y0) / 5)
        self._low, self._high = math.floor(y0 / self._step + 1e-9), math.ceil(y1 / self._step - 1e-9)
        self._y0, self._dy = self._low * self._step, max(1, self._high - self._low) * self._step

    def x(self, value: float) -> float:
        return LEFT + (value - self._x0) / self._dx * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - (value - self._y0) / self._dy * (HEIGHT - TOP - BOTTOM)

    def axes(self, title: str, x_label: str, y_label: str, *, ticks_x: bool = True) -> list[str]:
        floor, right = HEIGHT - BOTTOM, WIDTH - RIGHT
        parts = [
            f'<text x="{LEFT}" y="16" class="t">{escape(title)}</text>',
            f'<path d="M{LEFT} {TOP}V{floor}H{right}" fill="none" stroke="#6b7280"/>',
            f'<text x="{(LEFT + right) / 2}" y="{floor + 34}" class="s" text-anchor="middle">{escape(x_label)}</text>',
            f'<text x="12" y="{TOP - 12}" class="s">{escape(y_label)}</text>',
        ]
        for number in range(self._low, self._high + 1):
            value = number * self._step
            parts.append(
                f'<text x="{LEFT - 6}" y="{self.y(value) + 4:.1f}" class="s" text-anchor="end">{value:.4g}</text>'
            )
        if ticks_x:
            for i in range(5):
                value = self._x0 + self._dx * i / 4
                parts.append(
                    f'<text x="{self.x(value):.1f}" y="{floor + 14}" class="s" text-anchor="middle">{value:g}</text>'
                )
        return parts


def _round_step(least: float) -> float:
    """The smallest of 1, 2, 5 times a power of ten that is at least ``least``."""
    power = 10.0 ** math.floor(math.log10(least)) if least > 0 else 1.0
    return next(power * each for each in (1, 2, 5, 10) if power * each >= least * (1 - 1e-9))


def _key(number: int, name: str, colour: str, *, hollow: bool = False) -> str:
    y = TOP + 8 + 16 * number
    fill = "#ffffff" if hollow else colour
    return (
        f'<circle cx="{WIDTH - RIGHT + 14}" cy="{y}" r="4" fill="{fill}" stroke="{colour}"/>'
        f'<text x="{WIDTH - RIGHT + 24}" y="{y + 4}" class="s">{escape(name)}</text>'
    )


def _document(parts: Sequence[str]) -> str:
    style = "text{font-family:sans-serif;fill:#374151}.t{font-size:14px}.s{font-size:10px}.m{stroke:#d1d5db}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">'
        f'<style>{style}</style><rect width="100%" height="100%" fill="#ffffff"/>{"".join(parts)}</svg>\n'
    )
