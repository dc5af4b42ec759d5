"""The two palettes of the window, and the arithmetic that shows they can be read.

Names say the use, not the hue. Every text colour stands at least 4.5:1 against every ground it is used on
(:data:`TEXT_PAIRS`, checked by a test); borders and disabled text are exempt, as in WCAG 2.2 §1.4.3.
"""

from __future__ import annotations

from dataclasses import dataclass

MIN_TEXT_CONTRAST = 4.5


@dataclass(frozen=True)
class Colours:
    """One palette; values are ``#rrggbb``."""

    dark: bool
    ground: str  # behind pages
    rail: str  # behind the navigation
    card: str  # cards, inputs
    raised: str  # hovered rows, quiet buttons, the person's own messages
    line: str  # borders
    line_strong: str  # borders of inputs
    text: str
    muted: str  # secondary text
    disabled: str
    accent: str  # primary buttons, selection marks, links
    accent_hover: str
    on_accent: str  # text on accent
    accent_soft: str  # selected rows, tinted chips
    on_accent_soft: str
    good: str
    good_soft: str
    warn: str
    warn_soft: str
    bad: str
    bad_soft: str
    code: str  # behind code
    on_code: str


LIGHT = Colours(
    dark=False,
    ground="#f5f6f7",
    rail="#ebedef",
    card="#ffffff",
    raised="#eceff1",
    line="#dde1e4",
    line_strong="#bfc6cb",
    text="#1b2126",
    muted="#55606a",
    disabled="#9aa4ac",
    accent="#0b6b74",
    accent_hover="#095860",
    on_accent="#ffffff",
    accent_soft="#d8ecee",
    on_accent_soft="#084e55",
    good="#1a6e3c",
    good_soft="#dff0e4",
    warn="#7a4f00",
    warn_soft="#fbedd0",
    bad="#a32018",
    bad_soft="#fbe3e0",
    code="#f0f2f4",
    on_code="#22303a",
)

DARK = Colours(
    dark=True,
    ground="#15181b",
    rail="#101214",
    card="#1d2125",
    raised="#282e33",
    line="#2c3238",
    line_strong="#46505a",
    text="#e6e9eb",
    muted="#a3aeb8",
    disabled="#626d77",
    accent="#5cc4cc",
    accent_hover="#7ad3da",
    on_accent="#06282b",
    accent_soft="#173f44",
    on_accent_soft="#a8e3e8",
    good="#7fd19b",
    good_soft="#183626",
    warn="#e9bd6b",
    warn_soft="#3b2f14",
    bad="#f29a92",
    bad_soft="#451f1c",
    code="#14171a",
    on_code="#d5dde3",
)

TEXT_PAIRS: tuple[tuple[str, str], ...] = (
    ("text", "ground"),
    ("text", "rail"),
    ("text", "card"),
    ("text", "raised"),
    ("text", "accent_soft"),
    ("muted", "ground"),
    ("muted", "rail"),
    ("muted", "card"),
    ("muted", "raised"),
    ("accent", "card"),
    ("accent", "ground"),
    ("on_accent", "accent"),
    ("on_accent", "accent_hover"),
    ("on_accent_soft", "accent_soft"),
    ("good", "good_soft"),
    ("good", "card"),
    ("warn", "warn_soft"),
    ("warn", "card"),
    ("bad", "bad_soft"),
    ("bad", "card"),
    ("text", "bad_soft"),
    ("text", "warn_soft"),
    ("on_code", "code"),
    ("muted", "code"),
)
"""Every (text, ground) pair the style sheet and the painted widgets use."""


def luminance(colour: str) -> float:
    """Relative luminance of ``#rrggbb``, 0–1 (WCAG 2.2, definition of relative luminance)."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """Contrast ratio of two colours, 1–21 (WCAG 2.2, definition of contrast ratio)."""
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)
